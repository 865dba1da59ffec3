"""The clock: current time, sleeping and timeouts. Passed in wherever time matters, so that tests can advance it."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """A clock to read and to wait by."""

    def now(self) -> float:
        """Seconds since 1970."""

    async def sleep(self, seconds: float) -> None:
        """Return when so many seconds have passed."""

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """A context that is cancelled with `TimeoutError` after so many seconds; never, for None."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Return when so many seconds have passed."""
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """A context that is cancelled with `TimeoutError` after so many seconds; never, for None."""
        return asyncio.timeout(seconds)
