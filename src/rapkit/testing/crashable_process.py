"""A process in a test that works on a store of its own and can be crashed and restarted."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from rapkit.clock import Clock
from rapkit.keyring import Keyring
from rapkit.mailbox import Lease
from rapkit.stores.sqlite import SqliteStore
from rapkit.testing.activity import Activity, resolve
from rapkit.testing.crashable_run import CrashableRun

_A_CENTURY = 100 * 365 * 24 * 3600.0
_MEMORY = ":memory:"

Work = Callable[[CrashableRun], AbstractAsyncContextManager[None]]
"""The context in which a process works, for one run of it."""


class CrashableProcess:
    """A process that works on a store in memory, run after run.

    It holds what it claimed until it crashes, however far the clock is advanced.
    """

    def __init__(self, work: Work, clock: Clock, activity: Activity) -> None:
        self.crashes = 0
        """How often it was lost."""
        self.store = SqliteStore(_MEMORY, Keyring.random(), lease=Lease(_A_CENTURY), clock=clock.now)
        self.crashable_run = CrashableRun(self.store, activity)
        self._work = work
        self._activity = activity
        self._running: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()
        self._budget_release: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start on what is in the store."""
        await self._begin()
        await self._activity.settle()

    async def _begin(self) -> None:
        self.crashable_run = CrashableRun(self.store, self._activity)
        self._ending = asyncio.Event()
        started = asyncio.Event()
        # In a task of its own, so that one task can start it and another end it.
        self._running = asyncio.create_task(self._run(self.crashable_run, started, self._ending))
        starting = asyncio.create_task(started.wait())
        await asyncio.wait((self._running, starting), return_when=asyncio.FIRST_COMPLETED)
        starting.cancel()
        if self._running.done() and not self.crashable_run.over:
            failed, self._running = self._running, None
            await failed  # let it say why

    async def _run(self, crashable_run: CrashableRun, started: asyncio.Event, ending: asyncio.Event) -> None:
        async with self._work(crashable_run):
            started.set()
            await ending.wait()

    async def _end(self) -> None:
        self._ending.set()
        if self._running is not None:
            # Whatever the dead come to is of no interest.
            await asyncio.gather(self._running, return_exceptions=self.crashable_run.over)

    async def restart(self) -> None:
        """Stop in order, and start again."""
        await self._end()
        await self.start()

    @property
    def lost(self) -> bool:
        """Whether it is gone."""
        return self.crashable_run.over

    def crash_after(self, operations: int, *, unheard: bool = False, restart: bool = False) -> None:
        """Be lost by itself: after so many more operations in the store. With `restart` the next one starts at once.

        If it is `unheard`, one more is done, and lost is only its answer; operations that change nothing do not count then.
        """
        self.crashable_run.end_after(operations, lambda: self._lost(restart), unheard=unheard)

    def _lost(self, restart: bool) -> None:
        self.crashes += 1
        if restart:
            self._budget_release = asyncio.create_task(self._revive(self._activity.begin(certain=True)))

    async def _revive(self, ending: "asyncio.Future[None]") -> None:
        try:
            await self._lose()
            await self._replace()
        finally:
            resolve(ending)

    async def revived(self) -> bool:
        """Wait for the next one, if it starts by itself; says whether there is one now."""
        if self._budget_release is not None:
            await self._budget_release
        return not self.lost

    async def crash(self) -> None:
        """Lose it, and start the next one."""
        await self.revived()
        if not self.crashable_run.over:
            self.crashes += 1
        await self._lose()
        await self._replace()
        await self._activity.settle()

    async def _replace(self) -> None:
        for worker in self.crashable_run.workers:
            # Instead of waiting for the end of its lease.
            await self.store.retire(worker)
        await self._begin()

    async def _lose(self) -> None:
        await self.crashable_run.end()
        await self._end()

    async def close(self) -> None:
        """End without waiting for anything that still runs."""
        try:
            await self.revived()
        finally:
            await self._lose()
            await self.store.close()
