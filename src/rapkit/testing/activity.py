"""Track activity, so that a test can wait until nothing more happens."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from rapkit.server.thread_pool import ThreadPool

T = TypeVar("T")

_QUIET_TURNS = 50
_MOST_TURNS = 200_000
_PATIENCE_WITH_THREADS = 2.0


class Activity:
    """Counts what the server does: its steps in the store, its POSTs, its dealings with the clock.

    All of that happens on one event loop and without waiting for anything real, so a server that has done nothing for some turns of the
    loop does nothing until somebody calls it, answers it or advances the clock. What it runs in threads is waited for too, unless it takes
    long. What other processes do is not seen.
    """

    def __init__(self) -> None:
        self._count = 0
        self._in_threads: set[asyncio.Future[None]] = set()
        self._certain: set[asyncio.Future[None]] = set()
        self._curious: set[asyncio.Future[None]] = set()

    def note(self) -> None:
        """Something happened."""
        self._count += 1
        while self._curious:
            resolve(self._curious.pop())

    @property
    def count(self) -> int:
        """How much has happened."""
        return self._count

    async def change(self, since: int) -> None:
        """Return when something has happened since the `count` was that."""
        if self._count != since:
            return
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._curious.add(told)
        try:
            await told
        finally:
            self._curious.discard(told)

    def threads(self) -> ThreadPool:
        """Threads that are waited for."""
        return _WatchedThreads(self)

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        """The function's result, which is waited for."""
        ending = self.begin()
        try:
            return await asyncio.to_thread(function, *arguments)
        finally:
            resolve(ending)

    def begin(self, *, certain: bool = False) -> "asyncio.Future[None]":
        """Something begins elsewhere, such as in a thread; it ends when this is resolved. If that is `certain`, there is no hurry."""
        self.note()
        ending: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        awaited = self._certain if certain else self._in_threads
        awaited.add(ending)
        ending.add_done_callback(awaited.discard)
        ending.add_done_callback(lambda _ending: self.note())
        return ending

    async def settle(self) -> None:
        """Return when nothing happens any more."""
        await self._come_to_rest()
        while self._certain or self._in_threads:
            if self._certain:
                await asyncio.wait(self._certain)
            else:
                _, stuck = await asyncio.wait(self._in_threads, timeout=_PATIENCE_WITH_THREADS)
                self._in_threads -= stuck  # it is not waited for again: it may wait for us
            await self._come_to_rest()

    def resting(self, since: int) -> bool:
        """Whether nothing has happened since the `count` was that, and nothing is awaited."""
        return self._count == since and not self._certain and not self._in_threads

    async def _come_to_rest(self) -> None:
        quiet = 0
        for _ in range(_MOST_TURNS):
            before = self._count
            await asyncio.sleep(0)
            quiet = quiet + 1 if self._count == before else 0
            if quiet == _QUIET_TURNS:
                return
        raise AssertionError("The server does not come to rest: something in it goes on and on without waiting.")


class _WatchedThreads(ThreadPool):
    def __init__(self, activity: Activity) -> None:
        super().__init__()
        self._activity = activity

    async def run(self, function: Callable[[], T]) -> T:
        """The function's result."""
        # Two of them: the thread goes on if its waiter is cancelled, and its result comes a little after its end.
        ending, resolved = self._activity.begin(), self._activity.begin()
        loop = asyncio.get_running_loop()

        def watched() -> T:
            try:
                return function()
            finally:
                loop.call_soon_threadsafe(resolve, ending)

        try:
            return await super().run(watched)
        finally:
            resolve(resolved)


def resolve(ending: "asyncio.Future[None]") -> None:
    """Say that it has ended, if that was not said before."""
    if not ending.done():
        ending.set_result(None)
