"""A toolset at work with nothing around it but a test."""

import asyncio
import itertools
import math
from pathlib import Path

from rapkit.keys import Keyring
from rapkit.mailbox import Lease
from rapkit.server.engine import Surroundings
from rapkit.server.toolset import Toolset
from rapkit.stores.sqlite import SqliteStore
from rapkit.testing.activity import Activity
from rapkit.testing.callbacks import Callbacks
from rapkit.testing.clock import ManualClock
from rapkit.testing.inbox import Inbox
from rapkit.testing.life import Life
from rapkit.testing.providers import Providers
from rapkit.testing.requests import Requests

_A_CENTURY = 100 * 365 * 24 * 3600.0
_MEMORY = ":memory:"
_OK = 200


class Stage:
    """The server's surroundings, and the server in them, which can be lost and started again.

    Its store is in memory, and it has hold of what it claimed until it is lost, however far the clock is advanced.
    """

    def __init__(self, tools: Toolset, patience: float, workspaces: Path) -> None:
        self.tools = tools
        self.activity = Activity()
        self.clock = ManualClock(on_use=self.activity.note)
        self.inbox = Inbox(patience, self._hint)
        self.callbacks = Callbacks(self.inbox, self.activity)
        self.providers = Providers(self.clock)
        self.requests = Requests(tools)
        self.numbers = itertools.count(1)
        self._workspaces = workspaces
        self._store = SqliteStore(_MEMORY, Keyring.random(), lease=Lease(_A_CENTURY), clock=self.clock.now)
        self._life = Life(self._store, self.activity)
        self._running: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()

    async def start(self) -> None:
        """Start the server on what is in the store."""
        life = self._life = Life(self._store, self.activity)
        self._ending = asyncio.Event()
        started = asyncio.Event()
        surroundings = Surroundings(
            clock=self.clock,
            open_store=lambda _plan: life.store,
            open_client=lambda _guard: life.line(self.callbacks),
            oauth_client=self.providers,
            workspaces=lambda _plan: self._workspaces,
            threads=self.activity.threads,
            is_lost=lambda: life.over,
        )
        # In a task of its own, so that whoever started the server need not be the one who ends it.
        self._running = asyncio.create_task(self._run(surroundings, started, self._ending))
        starting = asyncio.create_task(started.wait())
        await asyncio.wait((self._running, starting), return_when=asyncio.FIRST_COMPLETED)
        starting.cancel()
        if self._running.done():
            failed, self._running = self._running, None
            await failed  # let it say why
        if not life.workers:
            await self._end()
            raise RuntimeError(f"The toolset {self.tools.name!r} is being served already. End that first.")
        await self.activity.settle()

    async def _run(self, surroundings: Surroundings, started: asyncio.Event, ending: asyncio.Event) -> None:
        async with self.tools.lifespan(loopback_callbacks=True, surroundings=surroundings):
            started.set()
            await ending.wait()

    async def _end(self) -> None:
        self._ending.set()
        if self._running is not None:
            await self._running

    async def restart(self) -> None:
        """Stop in order, and start again."""
        await self._end()
        await self.start()

    def crash_after(self, operations: int) -> None:
        """Lose the server by itself: after so many more operations in the store."""
        self._life.end_after(operations)

    @property
    def lost(self) -> bool:
        """Whether the server is gone."""
        return self._life.over

    async def crash(self) -> None:
        """Lose the server, and start the next one."""
        await self._lose()
        for worker in self._life.workers:
            # Instead of waiting for the end of its lease.
            await self._store.retire(worker)
        await self.start()

    async def _lose(self) -> None:
        await self._life.end()
        await self._end()

    async def notify(self, path: str, caller: str, thread_id: str, call_id: str | None = None) -> None:
        """Say that a call, or a whole thread, is not wanted any more. A notice is acknowledged even if it is lost; that is told here."""
        life, before = self._life, self._life.operations["stop"]
        notice = {"thread_id": thread_id} if call_id is None else {"thread_id": thread_id, "tool_call_id": call_id}
        reply = await self.requests.post(path, notice, caller)
        assert reply.status == _OK, f"The notice to {path} was refused with {reply.status}: {reply.text}"
        if life.operations["stop"] > before:
            self.inbox.release(caller, thread_id, call_id)
        elif not life.over:
            raise AssertionError(
                f"The notice to {path} was acknowledged and not acted on, because there are too many of them in a second. "
                "Give the toolset Limits(notices=None)."
            )

    async def advance(self, seconds: float) -> None:
        """Set the clock forward, from one moment at which something is due to the next, and let everything happen that follows."""
        until = self.clock.now() + seconds
        await self.activity.settle()
        while (at := await self._next_due()) is not None and at <= until:
            await self._set_clock(at)
        await self._set_clock(until)

    async def _set_clock(self, at: float) -> None:
        self.clock.move(at)
        self._store.ring()
        await self.activity.settle()

    async def _next_due(self) -> float | None:
        now = self.clock.now()
        # What is due already and not begun waits for something else than the clock.
        waits = await asyncio.gather(*map(self._store.next_due, self._life.topics))
        times = [self.clock.next_alarm(), *(now + wait for wait in waits if wait)]
        return min((at for at in times if at is not None), default=None)

    async def close(self) -> None:
        """End without waiting for anything that still runs."""
        await self._lose()
        await self._store.close()

    async def _hint(self) -> str:
        if self._life.over:
            return "The server is lost: `await client.crash()` starts the next one."
        if (at := await self._next_due()) is None:
            return "Nothing is due later."
        wait = math.ceil((at - self.clock.now()) * 1000) / 1000
        return f"By the clock something is due in {wait:g} s: `await client.advance({wait:g})` lets it happen."
