"""Wait in a test with a time limit, and explain what happened instead."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rapkit.testing.activity import Activity

T = TypeVar("T")


class BoundedWait:
    """Waits for what is expected.

    `patience` is how many real seconds; `hint` says, when that is over, what else could be tried; `complain` raises what must fail the
    test in any case.
    """

    def __init__(
        self, activity: Activity, patience: float, hint: Callable[[], Awaitable[str]], complain: Callable[[], None]
    ) -> None:
        self._activity = activity
        self._patience = patience
        self._hint = hint
        self._complain = complain

    async def until(
        self, find: Callable[[], Awaitable[T | None]], missing: str, told: Callable[[], Awaitable[str]]
    ) -> T:
        """What `find` finds, once it finds it; `AssertionError` if it does not in time, with what was `told` instead."""
        try:
            async with asyncio.timeout(self._patience):
                while True:
                    self._complain()
                    count = self._activity.count
                    if (found := await find()) is not None:
                        return found
                    await self._activity.change(count)
        except TimeoutError:
            pass
        raise AssertionError(f"{missing} within {self._patience:g} s. {await told()}\n{await self._hint()}")
