"""An agent with its tools in memory, as a test fixture."""

import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from rapkit.errors import ConfigError, StoreError
from rapkit.models import Model
from rapkit.runtime.agent import Agent
from rapkit.runtime.broadcast import Broadcast
from rapkit.runtime.engine import AgentEnvironment
from rapkit.runtime.server import Server
from rapkit.runtime.thread_commands import ThreadCommands
from rapkit.server.toolset import Toolset
from rapkit.testing.activity import Activity
from rapkit.testing.bounded_wait import BoundedWait
from rapkit.testing.clock import ManualClock
from rapkit.testing.crashable_process import CrashableProcess
from rapkit.testing.crashable_run import CrashableRun
from rapkit.testing.fake_tools import FakeTools, FakeToolsEnvironment
from rapkit.testing.network import AppHost, Network
from rapkit.testing.served_toolset import ServedToolset
from rapkit.testing.time_advance import TimeAdvance
from rapkit.testing.watched_model import WatchedModel

T = TypeVar("T")

AGENT = "agent"
_AGENT_URL = "http://127.0.0.1:8700"
_FIRST_PORT = 8001
_NOWHERE = "sqlite:///:memory:"


class AgentFixture:
    """The agent, its toolsets and its fake tools: one clock, one network, and each of them a process that can crash.

    `of_the_agent` is what else the agent is made with.
    """

    def __init__(
        self,
        model: Model,
        tools: Sequence[Toolset | FakeTools],
        patience: float,
        folder: Path,
        **of_the_agent: Any,
    ) -> None:
        self.activity = Activity()
        self.clock = ManualClock(on_use=self.activity.note)
        self.network = Network(self.activity)
        self.model = WatchedModel(model, self.activity)
        self.waiting = BoundedWait(self.activity, patience, self._hint, self.complain)
        self.served: dict[str, ServedToolset] = {}
        self.fakes: dict[str, FakeTools] = {}
        self.keys = (f"key_{number}" for number in itertools.count(1))
        ports = itertools.count(_FIRST_PORT)
        servers = [self._admit(each, f"127.0.0.1:{next(ports)}", folder) for each in tools]
        self.agent = Agent(model=self.model, servers=servers, store=_NOWHERE, public_url=_AGENT_URL, **of_the_agent)
        self.app = AppHost(self.agent.app, _AGENT_URL)
        self.network.add(AGENT, _AGENT_URL, self.app)
        self.process = CrashableProcess(self._work, self.clock, self.activity)
        self.processes = {AGENT: self.process, **{name: each.process for name, each in self.served.items()}}
        self.timeline = TimeAdvance(self.clock, self.activity, list(self.processes.values()))
        # Looked at beside the agent, so that it costs the agent no step, and works while there is no agent.
        self.threads = ThreadCommands(self.process.store, Broadcast())

    def _admit(self, tools: Toolset | FakeTools, host: str, folder: Path) -> Server:
        if tools.name == AGENT or tools.name in (*self.served, *self.fakes):
            raise ConfigError(f"Two in this test are called {tools.name!r}. Give one another name.")
        if isinstance(tools, FakeTools):
            base = f"http://{host}"
            tools.open(FakeToolsEnvironment(base, self.network, self.clock, self.waiting))
            self.fakes[tools.name] = tools
            self.network.add(tools.name, base, tools)
            return Server(base, name=tools.name)
        base = tools.public_url or f"http://{host}"
        served = ServedToolset(
            tools, self.clock, self.activity, self.network, folder / tools.name, urlsplit(base).netloc
        )
        self.served[tools.name] = served
        self.network.add(tools.name, base, served.requests)
        return Server(base, token=_token(tools), name=tools.name, allow_http=True)

    @contextlib.asynccontextmanager
    async def _work(self, crashable_run: CrashableRun) -> AsyncIterator[None]:
        environment = AgentEnvironment(
            clock=self.clock,
            open_store=lambda _config: crashable_run.store,
            open_transport=lambda _guard: crashable_run.both_ways(self.network),
            in_thread=self.activity.in_thread,
            is_lost=lambda: crashable_run.over,
        )
        async with self.agent.lifespan(environment=environment):
            yield

    async def start(self) -> None:
        """Start all processes."""
        for served in self.served.values():
            await served.process.start()
        await self.process.start()

    async def close(self) -> None:
        """End without waiting for anything that still runs."""
        async with contextlib.AsyncExitStack() as stack:
            for process in self.processes.values():
                stack.push_async_callback(process.close)
            for fake in self.fakes.values():
                stack.push_async_callback(fake.close)

    def find(self, name: str) -> CrashableProcess:
        """A process that can be crashed, by name."""
        if name not in self.processes:
            raise ValueError(f"There is no {name!r} that could be lost. There are: {', '.join(self.processes)}.")
        return self.processes[name]

    async def as_client(self, act: Callable[[ThreadCommands], Awaitable[T]]) -> T:
        """Do something as a client does who comes again, with the same key, if the agent is lost meanwhile and started again."""
        while True:
            crashes = self.process.crashes
            try:
                return await act(self.agent.engine.threads)
            except (StoreError, ConfigError) as error:
                if self.process.crashes == crashes and not self.process.lost:
                    raise
                if not await self.process.revived():
                    raise AssertionError("The agent is lost: `await agent.crash()` starts the next one.") from error

    async def settled(self) -> None:
        """Return when nothing happens any more."""
        await self.activity.settle()
        self.complain()

    def complain(self) -> None:
        """Raise what must fail the test: an error in a function of its own."""
        self.model.complain()
        for fake in self.fakes.values():
            fake.complain()

    async def _hint(self) -> str:
        for name, process in self.processes.items():
            if process.lost:
                which = "" if name == AGENT else repr(name)
                return f"{name!r} is lost: `await agent.crash({which})` starts the next one."
        return await self.timeline.hint("agent.advance")


def _token(tools: Toolset) -> str | None:
    """The first token with which a toolset can be called."""
    match tools.tokens:
        case None | str():
            return tools.tokens
        case several:
            token = next(iter(several.values()))
            return token if isinstance(token, str) else token[0]
