"""An agent at work, on a real socket and a real file, and the few words its tests are written in."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import uvicorn
from starlette.types import ASGIApp

from rapkit.delivery.retry import POLICIES, PostKind, RetryPolicy
from rapkit.http.authentication import Callers
from rapkit.http.http_server import listen, url_of
from rapkit.kernel.completion import Question, Reply, WantedCall
from rapkit.kernel.conversation import Heard, Said, ToolAnswer
from rapkit.kernel.entries import Answered, ChildMade, JournalEntry, ModelSaid
from rapkit.kernel.limits import ThreadLimits
from rapkit.mailbox import OUTBOX, Store
from rapkit.models.model import Model
from rapkit.models.scripted import Scripted
from rapkit.runtime.app import make_app
from rapkit.runtime.config import AgentConfig, Capacity, Patience
from rapkit.runtime.engine import AgentEngine, AgentEnvironment, run_engine
from rapkit.runtime.event_feed import EventName, ThreadEvent
from rapkit.runtime.server import Server
from rapkit.runtime.thread_commands import ThreadCommands, ThreadSnapshot
from rapkit.runtime.toolsets import THREAD
from rapkit.stores import open_store
from tests.runtime.agent_runs import hibernates, waking
from tests.server.sink import PATIENCE

E = TypeVar("E", bound=JournalEntry)
Call = tuple[str, dict[str, Any]]

PATIENT = {**POLICIES, PostKind.INVOCATION: RetryPolicy(first=5, factor=1, cap=5, horizon=60)}
"""With these policies a POST that fails once is not tried again within a test."""


def quick(horizon: float = 8.0) -> dict[PostKind, RetryPolicy]:
    """The usual policies, in a hurry; POSTs are given up after `horizon` seconds."""
    hurried = RetryPolicy(first=0.02, factor=1.5, cap=0.1, horizon=horizon)
    return {**POLICIES, PostKind.INVOCATION: hurried, PostKind.ANSWER: hurried}


# The model


def call(tool: str, /, **arguments: Any) -> Call:
    """A call for the model to make."""
    return tool, arguments


def please(*calls: Call) -> str:
    """What the user says to have calls made."""
    return json.dumps(calls)


def calling(*calls: Call) -> Reply:
    """A reply that makes calls. The provider's ids are the same every time, as with models that begin anew."""
    return Reply(calls=tuple(WantedCall(f"call_{n}", tool, arguments) for n, (tool, arguments) in enumerate(calls)))


def texts_of(heard: Heard) -> list[str]:
    """What was heard, as texts."""
    return [*(text_of(each) for each in heard.answers), *heard.texts]


def text_of(answered: ToolAnswer) -> str:
    """An answer's text; an image is named."""
    return " ".join(item.text if item.type == "text" else f"({item.mediaType})" for item in answered.content)


def last_heard(question: Question) -> Heard:
    """What was heard last."""
    heard = question.conversation[-1]
    assert isinstance(heard, Heard)
    return heard


class ScriptedReplies:
    """A model that makes the calls a message of the user asks for, and otherwise says what it heard last."""

    def __init__(self) -> None:
        self.questions: list[Question] = []

    def __call__(self, question: Question) -> Reply | str:
        self.questions.append(question)
        heard = last_heard(question)
        if heard.texts and heard.texts[-1].startswith("["):
            return calling(*json.loads(heard.texts[-1]))
        return "heard: " + " | ".join(texts_of(heard))

    @property
    def last(self) -> Question:
        """The last question."""
        return self.questions[-1]

    def shown(self) -> list[tuple[str, dict[str, Any], str]]:
        """Every call it was shown in its last question, with its answer."""
        answers = {each.call_id: each for heard in self.last.conversation for each in getattr(heard, "answers", ())}
        said = [said for said in self.last.conversation if isinstance(said, Said)]
        return [(one.name, one.arguments, text_of(answers[one.id])) for each in said for one in each.calls]


# The agent


class ThreadDriver:
    """A thread, as somebody sees it who uses the agent."""

    def __init__(self, threads: ThreadCommands, thread_id: str) -> None:
        self.threads = threads
        self.id = thread_id

    async def say(self, text: str) -> None:
        """Say something."""
        await self.threads.send(self.id, text)

    async def do(self, *calls: Call) -> None:
        """Have the model make calls."""
        await self.say(please(*calls))

    async def until(self, kind: type[E], number: int = 1, where: Callable[[E], bool] = lambda _: True) -> E:
        """The line of the journal with this number among those of a kind, once it is there."""
        found = 0
        async with asyncio.timeout(PATIENCE):
            async for event in self.threads.follow(self.id):
                entry = event.line and event.line.entry
                if event.name is EventName.ENTRY and isinstance(entry, kind) and where(entry):
                    found += 1
                    if found == number:
                        return entry
        raise AssertionError(f"the thread was closed, and there are {found} of {kind.__name__}")

    async def hears(self, text: str) -> ModelSaid:
        """The first reply with this in it, once it is there."""
        return await self.until(ModelSaid, where=lambda said: text in said.text)

    async def answered(self, call_id: str) -> Answered:
        """The answer of a call, once it is there."""
        return await self.until(Answered, where=lambda each: each.call_id == call_id)

    async def until_answers(self, number: int) -> None:
        """Return when so many calls are answered."""
        await self.until(Answered, number)

    async def until_child(self, number: int = 1) -> str:
        """The child thread with this number, once it is made."""
        return (await self.until(ChildMade, number)).thread_id

    async def event(self, name: EventName) -> ThreadEvent:
        """The first event of a name, for somebody who begins to look now."""
        async with asyncio.timeout(PATIENCE):
            async for event in self.threads.follow(self.id):
                if event.name is name:
                    return event
        raise AssertionError(f"the thread was closed, and there was no {name}")

    async def becomes(self, status: str) -> ThreadSnapshot:
        """The thread, once it has this status."""
        async with asyncio.timeout(PATIENCE):
            async for event in self.threads.follow(self.id):
                if event.name is EventName.STATUS and event.data["status"] == status:
                    break
        return await self.look()

    async def look(self) -> ThreadSnapshot:
        """The thread as it is."""
        return await self.threads.look(self.id)

    async def entries(self) -> list[JournalEntry]:
        """Its journal."""
        return [line.entry for line in await self.threads.history(self.id, limit=10_000)]

    async def all(self, kind: type[E]) -> list[E]:
        """The lines of a kind."""
        return [entry for entry in await self.entries() if isinstance(entry, kind)]


class RunningAgent:
    """A running agent."""

    def __init__(self, engine: AgentEngine, url: str) -> None:
        self.engine = engine
        self.url = url
        self.threads = engine.threads

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2])

    async def talk(self, text: str | None = None, user_id: str | None = None) -> ThreadDriver:
        """Begin a thread."""
        return ThreadDriver(self.threads, await self.threads.create(text=text, user_id=user_id))

    async def doing(self, *calls: Call) -> ThreadDriver:
        """Begin a thread in which the model makes calls."""
        return await self.talk(please(*calls))

    def thread(self, thread_id: str) -> ThreadDriver:
        """A thread there is."""
        return ThreadDriver(self.threads, thread_id)

    async def failed_once(self) -> None:
        """Return when the first attempt at a POST has failed, and it waits for the next."""
        async with asyncio.timeout(PATIENCE), opened(self.engine.config.store) as store:
            while not any(each.problem for each in await store.outbox(dead=False)):
                await asyncio.sleep(0.01)

    async def quiet(self) -> None:
        """Return when no thread has anything to do, and no POST is on its way."""
        async with asyncio.timeout(PATIENCE), opened(self.engine.config.store) as store:
            while await self._is_busy(store):
                await asyncio.sleep(0.01)

    async def _is_busy(self, store: Store) -> bool:
        waits = await store.backlog(THREAD) or await store.outbox(dead=False, limit=1)
        return bool(waits) or await store.next_due(OUTBOX) is not None


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    """A second handle on a store, as another process would have it."""
    store = open_store(url)
    try:
        yield store
    finally:
        await store.close()


Servers = Sequence[str | Server]


@contextlib.asynccontextmanager
async def working(
    model: Model | Callable[[Question], Any],
    servers: Servers,
    store: str,
    *,
    port: int = 0,
    policies: Mapping[PostKind, RetryPolicy] | None = None,
    limits: ThreadLimits | None = None,
    patience: Patience | None = None,
    environment: AgentEnvironment | None = None,
) -> AsyncIterator[RunningAgent]:
    """An agent on a port of its own, or on the one given."""
    config = AgentConfig(
        model=model if isinstance(model, Model) else Scripted(model),
        servers=tuple(Server(each) if isinstance(each, str) else each for each in servers),
        store=store,
        public_url="http://127.0.0.1",
        policies=policies or quick(),
        limits=limits or ThreadLimits(),
        patience=patience or Patience(grace=1.0, lease=2.0),
    )
    engines: list[AgentEngine] = []
    app = make_app(
        engine=lambda: engines[0],
        callers=Callers({}),
        capacity=Capacity(),
        toolsets=(),
        lifespan=lambda _: contextlib.nullcontext(),
    )
    with listen("127.0.0.1", port) as listener:
        url = url_of("127.0.0.1", listener)
        config = replace(config, public_url=url)
        if hibernates():
            config = replace(config, on_accept=waking(config, environment))
        async with run_engine(config, environment, worker=not hibernates()) as engine:
            engines.append(engine)
            async with _serving(app, listener):
                yield RunningAgent(engine, url)


@contextlib.asynccontextmanager
async def _serving(app: ASGIApp, listener: socket.socket) -> AsyncIterator[None]:
    config = uvicorn.Config(
        app, lifespan="off", ws="none", log_config=None, access_log=False, timeout_graceful_shutdown=5
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    # Not `serve()` and `shutdown()`, which look only ten times a second whether it is to end, and has ended.
    await server.startup(sockets=[listener])
    try:
        yield
    finally:
        for each in server.servers:
            each.close()
        for connection in list(server.server_state.connections):
            connection.shutdown()
