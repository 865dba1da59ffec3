"""Runtimes on one store, two tool servers, people who talk to the agent, and the account at the end."""

import asyncio
import contextlib
import json
import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from rapkit.delivery.retry import PostKind
from rapkit.kernel.entries import JournalEntry
from rapkit.stores import open_store
from tests.crash.history import Death
from tests.crash.processes import HERE, Process, complaints_in, free_port
from tests.crash.runtime.account import account, summary
from tests.crash.runtime.client import Client
from tests.crash.runtime.conversations import Conversation
from tests.crash.runtime.evidence import Evidence, Sample, Timetable, effects_in, heard_in, invoked_in, runs_in
from tests.crash.runtime.hurry import Hurry
from tests.crash.runtime.runtime_process import Settings
from tests.crash.runtime.stores import (
    configured_at,
    dead_letters,
    is_sound,
    journals_of,
    lines_after,
    threads_of,
    unfinished,
)
from tests.crash.runtime.trace import read_trace

_PATHS = os.pathsep.join([str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])
_TRACE = "runtime.jsonl"
_END = "schedules.end"
_LOOK_EVERY = 1.0
_OFFERS_NOTHING = "offers nothing: "


@dataclass(frozen=True)
class Setting:
    """How hard it is made. `lease` is how long the threads of a runtime that was killed wait."""

    runtimes: int = 2
    lease: float = 3.0
    conversations: int = 30
    slowest: float = 0.1
    die: tuple[str, ...] = ()
    schedules: bool = True
    question_timeout: float = 6.0


class Arena:
    """All that a crash test of the runtime needs; leaves no process behind. `servers` may run already, for several arenas."""

    def __init__(
        self, folder: Path, seed: int, setting: Setting | None = None, servers: Sequence[Process] | None = None
    ) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.setting = setting or Setting()
        self.path = folder / "runtime.db"
        self._are_ours = servers is None
        self.servers = [server_process(folder, name) for name in ("a", "b")] if servers is None else list(servers)
        ports = [free_port() for _ in range(self.setting.runtimes)]
        self._hurry = Hurry(time.time(), folder / _END)
        self._samples: dict[str, list[JournalEntry]] = defaultdict(list)
        self.runtimes = [self._runtime(port, ports[0]) for port in ports]
        self.client = Client(ports, self.random)
        self._stack = contextlib.AsyncExitStack()
        print(f"\nseed {seed}", end=": ")

    def _runtime(self, port: int, public_port: int) -> Process:
        """They share one address, as workers behind one door do: servers recognise a repeated call by where it is answered."""
        settings = Settings(
            port=port,
            public_url=f"http://127.0.0.1:{public_port}",
            store=self._url,
            trace=_TRACE,
            servers={f"{server.who}_": f"http://127.0.0.1:{server.port}" for server in self.servers},
            lease=self.setting.lease,
            slowest=self.setting.slowest,
            die=self.setting.die,
            question_timeout=self.setting.question_timeout,
            schedules=self.setting.schedules,
            begin=self._hurry.begin,
            end=_END,
        )
        return Process("runtime", _command(settings), self.folder, port, {"PYTHONPATH": _PATHS})

    @property
    def _url(self) -> str:
        return f"sqlite:///{self.path}"

    @property
    def processes(self) -> list[Process]:
        """Those that live and die with the arena."""
        return [*self.servers, *self.runtimes] if self._are_ours else self.runtimes

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            for process in self.processes:
                stack.callback(process.clean_up)
                process.start()
            for process in self.processes:
                await process.ready()
            self._store = open_store(self._url)
            stack.push_async_callback(self._store.close)
            await stack.enter_async_context(self.client)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @contextlib.asynccontextmanager
    async def under_load(self) -> AsyncIterator[None]:
        """People talk all the while; at the end each has said what was to be said."""
        talks = [
            Conversation(f"c{number}", self.client, random.Random(self.random.random()))
            for number in range(self.setting.conversations)
        ]
        async with asyncio.timeout(900):
            running = asyncio.gather(*(talk.run() for talk in talks))
            looking = asyncio.create_task(self._look_on())
            try:
                yield
                for talk in talks:
                    talk.stop()
                await running
            finally:
                running.cancel()
                looking.cancel()
                await asyncio.gather(running, looking, return_exceptions=True)

    async def _look_on(self) -> None:
        """Read the journals while they grow, to see afterwards that they only grew."""
        while True:
            for box in await threads_of(self._store):
                read = self._samples[box.id]
                if box.length > len(read):
                    read += await lines_after(self._store, box.id, len(read))
            await asyncio.sleep(_LOOK_EVERY)

    async def some_time(self, least: float, most: float) -> None:
        await asyncio.sleep(self.random.uniform(least, most))

    async def start_again(self, process: Process) -> None:
        if not process.running:
            process.start()
        await process.ready()

    async def revive(self) -> None:
        """Each time the runtime has ended itself, start it again as one that does not do so at that moment any more."""
        (runtime,) = self.runtimes
        # Counted by the deaths we have seen: it can have come to its last moment before we look for the first time.
        for _ in self.setting.die:
            while runtime.running:
                await asyncio.sleep(0.01)
            runtime.deaths.append(Death(time.monotonic(), runtime.pid, runtime.who))
            settings = Settings(**json.loads(runtime.command[-1]))
            runtime.command = _command(replace(settings, die=tuple(set(self.setting.die) - self.died_at)))
            runtime.start()

    @property
    def died_at(self) -> set[str]:
        """The moments at which a runtime has ended itself."""
        return {line["moment"] for line in read_trace(self.folder / _TRACE) if line["what"] == "dies"}

    async def settle(self, patience: float) -> Evidence:
        """The faults are over: everything drains, and the account is right."""
        self._hurry.stop()
        for process in self.processes:
            await self.start_again(process)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while await self._unfinished():
                    await asyncio.sleep(0.2)
        left = await self._unfinished()
        codes = [await process.stop() for process in self.processes]
        evidence = await self.evidence(left)
        print(summary(evidence))
        complaints = account(evidence)
        assert complaints[:20] == []
        assert self.client.refused == []
        assert codes == [0] * len(codes)
        for process in self.processes:
            # A thread that begins while a tool server is dead is told nothing of its tools.
            assert [line for line in complaints_in(process.log()) if _OFFERS_NOTHING not in line] == []
        assert all(is_sound(path) for path in self._paths)
        return evidence

    @property
    def _paths(self) -> list[Path]:
        return [self.path, *(server.folder / f"{server.who}.db" for server in self.servers)]

    async def _unfinished(self) -> list[str]:
        left = [what for path in self._paths for what in unfinished(path)]
        waiting = [box.id for box in await threads_of(self._store) if box.status not in ("idle", "closed", "open")]
        return left + [f"thread {id} still waits" for id in waiting]

    async def evidence(self, left: list[str]) -> Evidence:
        """All that is known when the processes have ended."""
        ledger = self.client.ledger
        lines = read_trace(self.folder / _TRACE)
        journals = await journals_of(self._store, self.path)
        # 404 or 410 is the answer to what nothing waits for any more: a cancelled call's result, a choice that came too late.
        refused = [
            f"{path.name} has what could not be delivered: {each}"
            for path in self._paths
            for each in dead_letters(path)
            if not each[2].endswith(("404", "410")) or each[0] == PostKind.INVOCATION
        ]
        unacceptable = [
            f"the model was asked what no provider would take: {line['problem']}"
            for line in lines
            if line["what"] == "unacceptable"
        ]
        effects = effects_in(
            [line for server in self.servers for line in read_trace(server.folder / f"{server.who}.jsonl")]
        )
        return Evidence(
            journals,
            tuple(ledger.threads),
            tuple(ledger.spoken),
            tuple(ledger.wishes),
            frozenset(ledger.closed),
            heard_in(lines),
            invoked_in(lines),
            runs_in(lines),
            tuple(effect for effect in effects if effect.call[0] in journals or self._are_ours),
            tuple(death for process in self.processes for death in process.deaths),
            self._timetables(),
            tuple(
                Sample(thread, number, entry)
                for thread, lines in self._samples.items()
                for number, entry in enumerate(lines, 1)
            ),
            (*left, *refused, *unacceptable),
        )

    def _timetables(self) -> tuple[Timetable, ...]:
        if not self.setting.schedules:
            return ()
        return tuple(self._hurry.timetable(each, configured_at(self.path, each.name)) for each in self._hurry.schedules)


def _command(settings: Settings) -> list[str]:
    return [sys.executable, "-m", "tests.crash.runtime.runtime_process", json.dumps(asdict(settings))]


def server_process(folder: Path, name: str) -> Process:
    port = free_port()
    store = f"sqlite:///{folder / f'{name}.db'}"
    target = "tests.crash.runtime.tools:tools"
    command = [sys.executable, "-m", "rapkit", "serve", target, "--port", str(port), "--store", store]
    environment = {"CRASH_NAME": name, "PYTHONPATH": _PATHS}
    return Process(name, [*command, "--log-format", "json", "--log-level", "info"], folder, port, environment)
