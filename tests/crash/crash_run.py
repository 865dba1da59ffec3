"""A tool server or two under load, a sink for the results, and the account at the end."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import apsw

from rapkit.mailbox import OUTBOX
from rapkit.server.invocation import call_kind
from rapkit.stores import open_store
from tests.crash.call_log import CallLog
from tests.crash.growing_files import GrowingFile, delivery, effect
from tests.crash.history import History
from tests.crash.invariants import account, summary
from tests.crash.load import Load
from tests.crash.processes import HERE, Process, complaints_in, server_process, sink_process
from tests.crash.retrying_client import RetryingClient


@dataclass(frozen=True)
class Setting:
    """How hard it is made for the server.

    `faults` is the share of callbacks that go wrong, at most `most_faults` times each; `longest` is how many seconds a call may take.
    """

    servers: int = 1
    lease: float = 0.5
    faults: float = 0.1
    most_faults: int = 1
    senders: int = 12
    pause: float = 0.06
    longest: float = 0.5
    most_calls: int = 20_000


class CrashRun:
    """All that a crash test needs; leaves no process behind."""

    target = str(HERE / "tools.py")
    """The toolset that is served."""

    def __init__(self, folder: Path, seed: int, setting: Setting | None = None) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self._setting = setting or Setting()
        self._store = f"sqlite:///{folder / 'calls.db'}"
        self.sink = sink_process(folder, seed, self._setting.faults, self._setting.most_faults)
        self.servers = [
            server_process(folder, self.target, self._store, self._setting.lease) for _ in range(self._setting.servers)
        ]
        self.door = RetryingClient([server.port for server in self.servers], self.random)
        self.ledger = CallLog(self.door, self.sink.port)
        self.load = Load(self.ledger, self.random, self._setting.most_calls, self._setting.longest)
        self._arrived = GrowingFile(folder / "sink.jsonl", delivery)
        self._traced = GrowingFile(folder / "effects.log", effect)
        self._stack = contextlib.AsyncExitStack()
        print(f"\nseed {seed}", end=": ")

    @property
    def server(self) -> Process:
        (server,) = self.servers
        return server

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            for process in (self.sink, *self.servers):
                stack.callback(process.clean_up)
            await self._open(stack)
            for process in (self.sink, *self.servers):
                process.start()
            for process in (self.sink, *self.servers):
                await process.ready()
            self._stack = stack.pop_all()
        return self

    async def _open(self, stack: contextlib.AsyncExitStack) -> None:
        """Begin what has to be there before the processes are."""
        await stack.enter_async_context(self.door)

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @contextlib.asynccontextmanager
    async def under_load(self) -> AsyncIterator[None]:
        """Calls come in all the while; at the end every one that is under way has been taken."""
        async with asyncio.timeout(900):
            running = asyncio.ensure_future(self._busy())
            try:
                yield
                self._calm()
                await running
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    def _busy(self) -> Awaitable[object]:
        """All that goes on under load, until `_calm`."""
        return self.load.run(self._setting.senders, self._setting.pause)

    def _calm(self) -> None:
        self.load.stop()

    async def some_time(self, least: float, most: float) -> None:
        await asyncio.sleep(self.random.uniform(least, most))

    async def settle(self, patience: float, *, one_worker: bool = True) -> None:
        """The faults are over: everything drains, and the account is right."""
        for process in (self.sink, *self.servers):
            if not process.running:
                process.start()
            await process.ready()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._drain()
        codes = [await server.stop() for server in self.servers]
        history = self.history()
        print(summary(history))
        assert account(history, one_worker=one_worker)[:20] == []
        assert self.ledger.refused == []
        assert codes == [0] * len(self.servers)
        for server in self.servers:
            assert complaints_in(server.log()) == []
        await self._check_store()

    async def _drain(self) -> None:
        while self.history().unanswered() or await self._undelivered():
            await asyncio.sleep(0.1)

    async def _undelivered(self) -> bool:
        """Whether something has not got through as far as the sender knows: the sink may have died between noting it and saying so."""
        store = open_store(self._store)
        try:
            return await store.next_due(OUTBOX) is not None
        finally:
            await store.close()

    async def _check_store(self) -> None:
        store = open_store(self._store)
        try:
            assert await store.outbox(dead=False) == []
            assert await store.outbox(dead=True) == []
            assert await store.next_due(OUTBOX) is None
            assert await store.next_due(call_kind("crash")) is None
            assert await store.backlog(call_kind("crash")) == 0
        finally:
            await store.close()
        db = apsw.Connection(str(self.folder / "calls.db"))
        try:
            assert self._left_over(db) == []
            assert db.pragma("integrity_check") == "ok"
        finally:
            db.close()

    def _left_over(self, db: apsw.Connection) -> list[object]:
        """The boxes that should have ended."""
        return list(db.execute("SELECT kind, id FROM boxes"))

    def history(self) -> History:
        self._arrived.look()
        self._traced.look()
        return History(
            tuple(self.ledger.sent.values()),
            tuple(self._arrived.lines),
            tuple(self._traced.lines),
            tuple(death for process in (self.sink, *self.servers) for death in process.deaths),
        )
