"""A clock that stands still until a test advances it."""

import asyncio
import contextlib
import heapq
import itertools
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

_START = datetime(2030, 1, 1, 12, tzinfo=UTC).timestamp()


class _Alarm(Protocol):
    """Something that is to happen at a time."""

    @property
    def is_set(self) -> bool:
        """Whether a task still waits for it."""

    def go_off(self) -> None:
        """Now is the time."""


@dataclass(frozen=True, slots=True)
class _Sleeper:
    waker: "asyncio.Future[None]"

    @property
    def is_set(self) -> bool:
        return not self.waker.done()

    def go_off(self) -> None:
        self.waker.set_result(None)


@dataclass(frozen=True, slots=True)
class _Limit:
    timeout: "weakref.ref[asyncio.Timeout]"

    @property
    def is_set(self) -> bool:
        return self.timeout() is not None

    def go_off(self) -> None:
        timeout = self.timeout()
        if timeout is not None:
            # AssertionError: what early versions of Python 3.11 say.
            with contextlib.suppress(RuntimeError, AssertionError):  # its task has ended in time
                timeout.reschedule(asyncio.get_running_loop().time())


class ManualClock:
    """The time in a test. `on_use` is called whenever a task begins to wait, or stops."""

    def __init__(self, start: float = _START, on_use: Callable[[], None] = lambda: None) -> None:
        self._now = start
        self._on_use = on_use
        self._alarms: list[tuple[float, int, _Alarm]] = []
        self._numbers = itertools.count()

    def now(self) -> float:
        """Seconds since 1970; noon of a first of January, unless it was advanced."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Return when the clock was advanced so far."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        waker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._set(seconds, _Sleeper(waker))
        try:
            await waker
        finally:
            self._on_use()

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """A context that is cancelled with `TimeoutError` when the clock was advanced so far; never, for None."""
        timeout = asyncio.timeout(None)
        if seconds is not None:
            self._set(seconds, _Limit(weakref.ref(timeout)))
        return timeout

    def next_alarm(self) -> float | None:
        """When the next one who waits is to be woken."""
        while self._alarms and not self._alarms[0][2].is_set:
            heapq.heappop(self._alarms)
        return self._alarms[0][0] if self._alarms else None

    def move(self, to: float) -> None:
        """Set the clock, and wake all tasks whose time has come, in order."""
        if to < self._now:
            raise ValueError(f"The clock stands at {self._now} and cannot be set back to {to}.")
        while (at := self.next_alarm()) is not None and at <= to:
            *_, alarm = heapq.heappop(self._alarms)
            self._now = at
            alarm.go_off()
        self._now = to

    def _set(self, seconds: float, alarm: _Alarm) -> None:
        self._on_use()
        heapq.heappush(self._alarms, (self._now + seconds, next(self._numbers), alarm))
