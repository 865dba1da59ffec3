"""An event loop on which time passes only when nothing else is left to do.

Whoever sleeps is woken as soon as everybody sleeps, in the order of the times they asked for: an hour takes no time, and nothing depends on
how fast the machine is. Threads have no place on it, because time would pass while they work.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from unittest.mock import patch

from rapkit.clock import SystemClock
from rapkit.server.thread_pool import ThreadPool

T = TypeVar("T")

_NOON = 1_893_499_200.0
_REAL_PATIENCE = 20.0


class _Skipping(selectors.SelectSelector):
    """Instead of waiting for so many seconds, says that they have passed."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            # Nobody sleeps. Only a thread can go on from here: that which closes the store.
            if found := super().select(_REAL_PATIENCE):
                return found
            raise RuntimeError("Everybody waits for something that never happens.")
        self.passed += timeout
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    """The loop."""

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        """Seconds since the beginning."""
        return self._skipping.passed


class LoopClock(SystemClock):
    """The time on such a loop, for whoever wants to know the date too."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def now(self) -> float:
        """Seconds since 1970."""
        return _NOON + self._loop.time()


def simulate(work: Callable[[], Coroutine[Any, Any, T]]) -> tuple[T, list[str]]:
    """What the work returns, and what went wrong on the loop without anybody noticing."""
    unnoticed: list[str] = []

    async def watched() -> T:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: unnoticed.append(repr(context)))
        return await work()

    with patch.object(ThreadPool, "run", _run_here), asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(watched()), unnoticed


async def _run_here(_threads: ThreadPool, function: Callable[[], T]) -> T:
    return function()
