"""A tool server whose tools also subscribe, ask people and run programs; those people; and a provider at which they can agree."""

import asyncio
import contextlib
import os
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path

import apsw

from tests.crash.calls import PROGRAMS
from tests.crash.crash_run import CrashRun, Setting
from tests.crash.history import History, Orphan
from tests.crash.processes import HERE, Process
from tests.crash.programs import carriers, end_carriers, mark
from tests.crash.provider import Provider, provider_at_work
from tests.crash.simulated_users import SimulatedUsers
from tests.crash.subscribers import GITHUB_SECRET, STANDARD_SECRET, TOPICS, Source, Subscribers

_ENDING = ("call/crash", "subscription/crash")
_LOOK_EVERY = 0.03


class InteractiveCrashRun(CrashRun):
    """With everything that waits."""

    target = "tests.crash.interactive_tools:tools"
    provider: Provider
    people: SimulatedUsers

    def __init__(self, folder: Path, seed: int, setting: Setting | None = None) -> None:
        super().__init__(folder, seed, setting or Setting(senders=3, pause=0.1, faults=0.05))
        self.subscribers = Subscribers(self.ledger, self.random)
        self.sources = [Source(topic, self.ledger, self.random) for topic in TOPICS]
        self.orphaned = 0
        """Programs that were seen alive after their server was killed."""
        self._orphans: list[Orphan] = []

    async def _open(self, stack: contextlib.AsyncExitStack) -> None:
        await super()._open(stack)
        stack.callback(end_carriers, str(self.folder))
        self.provider = await stack.enter_async_context(provider_at_work(self.random))
        self.people = SimulatedUsers(self.ledger, self.random, self.provider)
        for server in self.servers:
            server.environment |= {
                "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]),
                "CRASH_PROVIDER": self.provider.url,
                "CRASH_CLIENT_SECRET": self.provider.client_secret,
                "CRASH_GITHUB_SECRET": GITHUB_SECRET,
                "CRASH_STANDARD_SECRET": STANDARD_SECRET,
            }
        following = asyncio.create_task(self._follow())
        stack.push_async_callback(self.people.give_up)
        stack.callback(following.cancel)

    def _busy(self) -> Awaitable[object]:
        return asyncio.gather(
            super()._busy(),
            self.subscribers.run(2, 0.4),
            self.people.run(2, 0.3),
            *(source.run(0.15) for source in self.sources),
        )

    def _calm(self) -> None:
        super()._calm()
        self.subscribers.stop()
        self.people.stop()
        for source in self.sources:
            source.stop()

    async def kill(self, server: Process | None = None) -> None:
        """Kill a server, and see what it leaves behind."""
        await (server or self.server).kill()
        self.orphaned += len(await asyncio.to_thread(carriers, str(self.folder)))

    async def _follow(self) -> None:
        """Show people what arrives for them, and look for programs that outlive their calls."""
        seen = 0
        while True:
            self._arrived.look()
            news, seen = self._arrived.lines[seen:], len(self._arrived.lines)
            for delivery in news:
                self.people.meet(delivery)
                if delivery.type == "tool_result" and delivery.path in self._programs:
                    n = int(delivery.path.removeprefix("/cb/"))
                    found = await asyncio.to_thread(carriers, mark(self.folder, n))
                    self._orphans += [Orphan(n, pid) for pid in found]
            await asyncio.sleep(_LOOK_EVERY)

    @property
    def _programs(self) -> set[str]:
        return {sent.call.path for sent in self.ledger.sent.values() if sent.call.tool in PROGRAMS}

    async def _drain(self) -> None:
        await self.people.come_to_an_end()
        for source in self.sources:
            await source.say_that_it_ends()
        while (history := self.history()).unanswered() or history.unended():
            await asyncio.sleep(0.1)
        await self.people.leave()
        while self._unfinished():
            await asyncio.sleep(0.1)

    def _unfinished(self) -> list[object]:
        """What the server has still to do: nobody waits for the result of a cancelled call, or for a subscription to be forgotten."""
        db = apsw.Connection(str(self.folder / "calls.db"), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return self._left_over(db) + list(db.execute("SELECT kind, id FROM outbox"))
        finally:
            db.close()

    def _left_over(self, db: apsw.Connection) -> list[object]:
        # Topics and users stay.
        return list(db.execute("SELECT kind, id FROM boxes WHERE kind IN (?, ?)", _ENDING))

    async def settle(self, patience: float, *, one_worker: bool = True) -> None:
        await super().settle(patience, one_worker=one_worker)
        assert carriers(str(self.folder)) == []
        self._check_secrets()

    def _check_secrets(self) -> None:
        """Nothing that was secret between us and the provider is in a message, a log or the clear on the disk (OAU-2)."""
        secrets = {secret.encode() for secret in {*self.provider.seen, self.provider.client_secret}}
        for path in self.folder.rglob("*"):
            if path.is_file():
                data = path.read_bytes()
                assert [secret for secret in secrets if secret in data] == [], path

    def history(self) -> History:
        plain = super().history()
        return replace(
            plain,
            streams=tuple(self.ledger.streams.values()),
            emissions=tuple(emission for source in self.sources for emission in source.emissions),
            answers=tuple(self.people.answers),
            consents=tuple(self.people.consents),
            orphans=tuple(self._orphans),
        )
