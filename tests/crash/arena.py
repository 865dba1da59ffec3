"""A tool server or two under load, a sink for the results, and the account at the end."""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import apsw

from rapkit.mailbox import OUTBOX
from rapkit.server.invocation import call_kind
from rapkit.stores import open_store
from tests.crash.history import Delivery, Effect, History, account
from tests.crash.load import Load
from tests.crash.processes import Process, complaints_in, server_process, sink_process


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


class Arena:
    """All that a crash test needs; leaves no process behind."""

    def __init__(self, folder: Path, seed: int, setting: Setting | None = None) -> None:
        self.random = random.Random(seed)
        self._folder = folder
        self._setting = setting or Setting()
        self._store = f"sqlite:///{folder / 'calls.db'}"
        self.sink = sink_process(folder, seed, self._setting.faults, self._setting.most_faults)
        self.servers = [server_process(folder, self._store, self._setting.lease) for _ in range(self._setting.servers)]
        ports = [server.port for server in self.servers]
        self.load = Load(ports, self.sink.port, self.random, self._setting.most_calls, self._setting.longest)
        print(f"\nseed {seed}", end=": ")

    @property
    def server(self) -> Process:
        (server,) = self.servers
        return server

    async def __aenter__(self) -> Self:
        self.sink.start()
        for server in self.servers:
            server.start()
        for process in (self.sink, *self.servers):
            await process.ready()
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in (self.sink, *self.servers):
            process.clean_up()

    @contextlib.asynccontextmanager
    async def under_load(self) -> AsyncIterator[None]:
        """Calls come in all the while; at the end every one that is under way has been taken."""
        async with asyncio.timeout(600):
            running = asyncio.create_task(self.load.run(self._setting.senders, self._setting.pause))
            try:
                yield
                self.load.stop()
                await running
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

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
                while self.history().unanswered():
                    await asyncio.sleep(0.1)
        codes = [await server.stop() for server in self.servers]
        history = self.history()
        print(history.summary())
        assert account(history, one_worker=one_worker)[:20] == []
        assert self.load.refused == []
        assert codes == [0] * len(self.servers)
        for server in self.servers:
            assert complaints_in(server.log()) == []
        await self._check_store(history)

    async def _check_store(self, history: History) -> None:
        store = open_store(self._store)
        try:
            assert await store.outbox(dead=False) == []
            assert await store.outbox(dead=True) == []
            assert await store.next_due(OUTBOX) is None
            assert await store.next_due(call_kind("crash")) is None
            assert await store.backlog(call_kind("crash")) == 0
        finally:
            await store.close()
        db = apsw.Connection(str(self._folder / "calls.db"))
        try:
            assert db.execute("SELECT count(*) FROM boxes").fetchall() == [(0,)]
            assert db.pragma("integrity_check") == "ok"
        finally:
            db.close()

    def history(self) -> History:
        return History(
            tuple(self.load.sent.values()),
            tuple(_deliveries(self._folder / "sink.jsonl")),
            tuple(_effects(self._folder / "effects.log")),
            tuple(death for process in (self.sink, *self.servers) for death in process.deaths),
        )


def _deliveries(path: Path) -> list[Delivery]:
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [Delivery(line["at"], line["path"], line["id"], line["body"], line["answer"]) for line in lines]


def _effects(path: Path) -> list[Effect]:
    if not path.exists():
        return []
    rows = [line.split() for line in path.read_text().splitlines()]
    return [Effect(float(at), int(pid), what, int(n)) for at, pid, what, n in rows]
