"""The server under test: started, lost, and started again on what is left."""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

from rapkit.errors import StoreError
from rapkit.server.engine import ToolsetEnvironment
from rapkit.server.toolset import Toolset
from rapkit.testing.activity import Activity
from rapkit.testing.crashable_run import CrashableRun
from rapkit.testing.requests import Reply, Requests
from tests.simulation.disk import Hands, SlowStore
from tests.simulation.loop import LoopClock
from tests.simulation.network import Network
from tests.simulation.observed_history import Did, ObservedHistory

_CALLER = "local"
_NOWHERE = Path("there-are-no-workspaces")


class NoAnswer(Exception):
    """The server was lost before it answered, or is not there."""


class Server:
    """One toolset on one store, through several lives."""

    def __init__(
        self,
        seed: str,
        tools: Toolset,
        store: SlowStore,
        network: Network,
        stories: Mapping[str, ObservedHistory],
    ) -> None:
        self.lives = 0
        self._dice = Random(f"{seed}/server")
        self._tools = tools
        self._store = store
        self._network = network
        self._stories = stories
        self._requests = Requests(tools)
        self._clock = LoopClock()
        self._life: CrashableRun | None = None
        self._running: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()
        self._under_way = 0

    async def start(self) -> None:
        """Start on what is in the store."""
        life = CrashableRun(self._store, Activity())
        hands = Hands(life, self._store, self._dice)
        started = asyncio.Event()
        self._ending = asyncio.Event()
        environment = ToolsetEnvironment(
            clock=self._clock,
            open_store=lambda _config: hands.store,
            open_client=lambda _guard, _timeouts: life.transport(self._network),
            workspaces=lambda _config: _NOWHERE,
            is_lost=lambda: life.over,
        )
        self._running = asyncio.create_task(self._run(environment, started, self._ending))
        await started.wait()
        self._life = life
        self.lives += 1
        self._note(Did.STARTED)

    async def _run(self, environment: ToolsetEnvironment, started: asyncio.Event, ending: asyncio.Event) -> None:
        async with self._tools.lifespan(loopback_callbacks=True, environment=environment):
            started.set()
            await ending.wait()

    async def crash(self) -> None:
        """Die now, and come back a little later. What it held is free at once, as if somebody had waited for its lease to end; or later."""
        life = self._life
        assert life is not None
        self._life = None
        life.over = True
        self._note(Did.DIED)
        await asyncio.sleep(0.02)  # longer than the disk takes with what it was asked for
        await self._end()
        if self._dice.random() < 0.7:
            for worker in life.workers:
                await self._store.retire(worker)
        await asyncio.sleep(self._dice.uniform(0, 0.05))
        await self.start()

    async def restart(self) -> None:
        """Stop in order, and start again."""
        self._life = None  # nobody is let in any more, and whoever is in is waited for: so do web servers
        self._note(Did.STOPPED)
        while self._under_way:
            await asyncio.sleep(0.001)
        await self._end()
        await self.start()

    async def close(self) -> None:
        """End for good."""
        if self._life is not None:
            self._life.over = True
        await asyncio.sleep(0.02)
        await self._end()
        await self._store.close()

    async def _end(self) -> None:
        self._ending.set()
        if self._running is not None:
            await self._running

    async def request(self, path: str, message: object) -> Reply:
        """What the server answers; `NoAnswer` if it does not live to answer."""
        with self._visit():
            return await self._requests.post(path, message, _CALLER)

    async def emit(self, topic: str, payload: object, id: str) -> None:
        """Emit an event, as the server's own code does; `NoAnswer` if it does not live to see that it was."""
        with self._visit():
            try:
                await self._tools.emit(topic, payload, id=id)
            except StoreError:
                raise NoAnswer from None

    @contextlib.contextmanager
    def _visit(self) -> Iterator[None]:
        life = self._life
        if life is None:
            raise NoAnswer
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
        if life.over:
            raise NoAnswer

    def _note(self, did: Did) -> None:
        for story in self._stories.values():
            story.note(did, "the")
