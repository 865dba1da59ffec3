"""An agent in a test."""

import contextlib
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from rapkit.kernel.limits import ThreadLimits
from rapkit.runtime.budget import Budget
from rapkit.runtime.schedules import Schedule
from rapkit.server.toolset import Toolset
from rapkit.testing.agent_fixture import AGENT, AgentFixture
from rapkit.testing.clock import ManualClock
from rapkit.testing.fake_tools import FakeTool, FakeTools
from rapkit.testing.network import Network
from rapkit.testing.requests import Reply
from rapkit.testing.staged_thread import MOST_SHOWN, StagedThread
from rapkit.testing.watched_model import WatchedModel, model_of

if TYPE_CHECKING:
    from pydantic_ai.models import Model as PydanticModel

    from rapkit.models import Model
    from rapkit.models.scripted import Answering

_PATIENCE = 5.0
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 24 * 3600.0
_FAKES = "fakes"


@contextlib.asynccontextmanager
async def agent(
    *,
    model: "str | Sequence[Mapping[str, Any]] | Answering | Model | PydanticModel[Any]",
    tools: Sequence[Toolset | FakeTools | str] = (),
    instructions: str = "",
    limits: ThreadLimits | None = None,
    schedules: Sequence[Schedule] | None = None,
    budget: Budget | None = None,
    patience: float = _PATIENCE,
) -> "AsyncIterator[StagedAgent]":
    """Run an agent and its tools in memory: no port, no file, no key, and one clock for all that stands still until it is advanced.

    `model` is a list of rules, a function from question to reply, or any model. `tools` are toolsets, `FakeTools`, or plain names of tools
    whose calls the test answers: see `StagedAgent.tool`. Threads, store, retries, callbacks are those of a real agent, and so are
    `instructions`, `limits`, `schedules` and `budget`. `patience` is how many real seconds are waited for anything that is expected. What
    still runs when the context ends is interrupted.
    """
    named = [each for each in tools if isinstance(each, str)]
    others = [each for each in tools if not isinstance(each, str)]
    if named:
        others.append(FakeTools(_FAKES, named))
    with tempfile.TemporaryDirectory(prefix="rapkit-testing-", ignore_cleanup_errors=True) as folder:
        fixture = AgentFixture(
            model_of(model),
            others,
            patience,
            Path(folder),
            instructions=instructions,
            limits=limits,
            schedules=schedules,
            budget=budget,
        )
        try:
            await fixture.start()
            yield StagedAgent(fixture)
            await fixture.settled()
        finally:
            await fixture.close()


class StagedAgent:
    """An agent in a test, and control over all that is around it."""

    def __init__(self, fixture: AgentFixture) -> None:
        self._fixture = fixture

    async def thread(self, thread_id: str | None = None, *, user_id: str | None = None) -> StagedThread:
        """A new thread, or the one with this id; `UnknownThread` if there is none."""
        if thread_id is None:
            key = next(self._fixture.keys)
            thread_id = await self._fixture.as_client(lambda threads: threads.create(user_id=user_id, key=key))
        await self._fixture.threads.look(thread_id)
        return StagedThread(self._fixture, thread_id)

    async def threads(self) -> list[StagedThread]:
        """All threads, children too, oldest first."""
        page = await self._fixture.threads.newest(limit=MOST_SHOWN)
        return [StagedThread(self._fixture, look.thread.id) for look in reversed(page.looks)]

    def tool(self, name: str) -> FakeTool:
        """A tool that was given by its name alone, or one of `FakeTools`: its calls are the test's to answer."""
        for fake in self._fixture.fakes.values():
            if name in fake.tools:
                return fake.tools[name]
        there_are = ", ".join(name for fake in self._fixture.fakes.values() for name in fake.tools) or "none"
        raise ValueError(f"There is no fake tool {name!r}. There are: {there_are}.")

    @property
    def model(self) -> WatchedModel:
        """The model, with the questions it was asked."""
        return self._fixture.model

    @property
    def network(self) -> Network:
        """What lies between the agent and its tools: `down("weather")`, `up("weather")`."""
        return self._fixture.network

    async def request(
        self, method: str, url: str, body: bytes | object = b"", *, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Any request to the agent's app, such as to its client API, and what is answered. What is not bytes is sent as JSON."""
        sent = body if isinstance(body, bytes) else to_json(body)
        return await self._fixture.app.send(method, url, sent, {"content-type": "application/json", **(headers or {})})

    # Time

    @property
    def clock(self) -> ManualClock:
        """The clock of the agent and of its tools."""
        return self._fixture.clock

    async def advance(
        self, seconds: float = 0.0, *, minutes: float = 0.0, hours: float = 0.0, days: float = 0.0
    ) -> None:
        """Set the clock forward, and return when everything has happened that was due by then: in order, each thing at its time."""
        await self._fixture.timeline.advance(seconds + minutes * _MINUTE + hours * _HOUR + days * _DAY)
        self._fixture.complain()

    async def settled(self) -> None:
        """Return when neither the agent nor a tool does anything any more, until somebody writes, answers or advances the clock."""
        await self._fixture.settled()

    # Trouble

    async def crash(self, which: str = AGENT) -> None:
        """Lose the agent, or a toolset, as by `kill -9`: it writes and sends nothing from this moment on. The next one starts at once."""
        await self._fixture.find(which).crash()

    def crash_after(self, operations: int, which: str = AGENT, *, unheard: bool = False, restart: bool = False) -> None:
        """Lose it by itself, after so many more steps in its store. With `restart` the next one starts by itself too.

        The step after these is not done. Or, if it is `unheard`, it is done and the one who asked for it does not live to know; steps that
        change nothing do not count then. To try a crash at every step: begin with 0, and go on until `crashes` stays 0. Users come again
        if an agent that restarts was lost before it acknowledged what they said. Without `restart`, `crash` starts the next one.
        """
        self._fixture.find(which).crash_after(operations, unheard=unheard, restart=restart)

    async def restart(self, which: str = AGENT) -> None:
        """Stop the agent, or a toolset, in order, and start it again."""
        await self._fixture.find(which).restart()

    @property
    def crashes(self) -> int:
        """How often the agent or a toolset was lost."""
        return sum(process.crashes for process in self._fixture.processes.values())

    @property
    def lost(self) -> bool:
        """Whether the agent is lost."""
        return self._fixture.process.lost
