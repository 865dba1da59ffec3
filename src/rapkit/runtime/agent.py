"""`Agent`: durable threads in your own program."""

import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from starlette.types import ASGIApp

from rapkit.delivery.signatures import IncomingSignature
from rapkit.errors import ConfigError, ThreadClosed, ThreadError, ThreadParked
from rapkit.http.authentication import Callers, is_loopback_host
from rapkit.http.http_server import listen, serve_in_background, url_of
from rapkit.http.plain_http import check_plain_http
from rapkit.kernel.entries import ClosedEntry, Ignored, ModelSaid, ParkedEntry, UserSaid
from rapkit.kernel.limits import ThreadLimits
from rapkit.models.registry import open_model
from rapkit.runtime.app import make_app
from rapkit.runtime.budget import Budget
from rapkit.runtime.config import AgentConfig, Capacity, Patience
from rapkit.runtime.engine import AgentEngine, AgentEnvironment, WakeResult, open_engine, run_engine
from rapkit.runtime.in_process import PATH, InProcess, InProcessServer, place_of
from rapkit.runtime.schedules import Schedule, check_names
from rapkit.runtime.server import Server
from rapkit.runtime.stable_port import MEMORY, last_port, listen_on_last_port
from rapkit.runtime.thread_commands import JournalLine, ThreadEvent, ThreadFamily, ThreadSnapshot
from rapkit.runtime.wake_hook import OnAccept
from rapkit.secret import read_secret
from rapkit.store_url import DEFAULT_STORE

if TYPE_CHECKING:
    from pydantic_ai.models import Model as PydanticModel

    from rapkit.delivery.client_certificate import ClientCertificate
    from rapkit.models.model import Model

_LOOPBACK = "127.0.0.1"

log = logging.getLogger("rapkit.agent")


class Agent:
    """Runs durable threads against tool servers with a model.

    `servers` are base URLs, `Server`s, or toolsets, which are served in this process. `store` is where threads are kept. `public_url` is
    where tools reach us: needed when `agent.app` is served by your own server, found out by itself otherwise; it has to
    be https unless it is loopback, or `allow_plain_http` is set. `tokens` are who may use the
    client API, by name, as `env:VARIABLE`, `file:path` or the token itself; without any, only this machine may. `schedules` are messages
    that come to threads by themselves: these and no others, from the moment the agent starts; None leaves them as they are in the store.
    `budget` is what all threads together may spend.

    As a context manager it listens on this machine, on `port` or on a free one; that one is remembered in the store, because callback URLs
    of calls under way contain it. Mounted, it is `agent.app` with `agent.lifespan`.

    Without a `worker` it hibernates: it accepts what comes and keeps it until somebody calls `wake`, here or in another process.
    `on_accept` is called with a thread's id when that has got something to do, after it was stored; without a worker also with "" when the
    time of something has come. It is best effort, and a plain function is called in a thread of its own.
    """

    def __init__(
        self,
        *,
        model: "str | Model | PydanticModel",
        servers: "Sequence[str | Server | InProcess]" = (),
        instructions: str = "",
        store: str = DEFAULT_STORE,
        public_url: str | None = None,
        allow_plain_http: bool = False,
        port: int | None = None,
        tokens: Mapping[str, str | Sequence[str]] | None = None,
        limits: ThreadLimits | None = None,
        capacity: Capacity | None = None,
        patience: Patience | None = None,
        schedules: Sequence[Schedule] | None = None,
        budget: Budget | None = None,
        worker: bool = True,
        on_accept: OnAccept | None = None,
    ) -> None:
        self.model = open_model(model)
        self.instructions = instructions
        self.store = store
        self.public_url = None if public_url is None else check_public_url(public_url)
        self.allow_plain_http = allow_plain_http
        self.port = port
        self.limits = limits or ThreadLimits()
        self.capacity = capacity or Capacity()
        self.patience = patience or Patience()
        self.schedules = None if schedules is None else tuple(schedules)
        self.budget = budget
        self.worker = worker
        self.on_accept = on_accept
        self.lasting = True  # what it says of itself; a command that runs it only for its own sake says otherwise
        self.servers = tuple(Server(each) if isinstance(each, str) else each for each in servers)
        self._toolsets = tuple(each for each in self.servers if not isinstance(each, Server))
        self._callers = Callers({name: _secrets(each) for name, each in (tokens or {}).items()})
        self._engine: AgentEngine | None = None
        self._stack: contextlib.AsyncExitStack | None = None
        self._app: ASGIApp | None = None
        if on_accept is not None and not callable(on_accept):
            raise ConfigError(
                f"on_accept is {on_accept!r}. Make it a function, which is called with the id of a thread."
            )
        _check_names(self.servers)
        _check_certificates(self.servers)
        _check_webhook_secrets(self.servers)
        check_names(self.schedules or ())

    # Running

    async def __aenter__(self) -> Self:
        """Listen, and begin to work."""
        async with contextlib.AsyncExitStack() as stack:
            listener = stack.enter_context(await self._listen())
            await stack.enter_async_context(self.lifespan(public_url=self.public_url or url_of(_LOOPBACK, listener)))
            await stack.enter_async_context(serve_in_background(self.app, listener, self.capacity.http))
            stack.callback(self.end_streams)
            self._stack = stack.pop_all()
        return self

    async def _listen(self) -> socket.socket:
        if self.port is None and self.public_url is None:
            return await listen_on_last_port(_LOOPBACK, self.store)
        return listen(_LOOPBACK, self.port or 0)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End in order."""
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.aclose()

    @property
    def app(self) -> ASGIApp:
        """The agent as an ASGI app: callbacks of tools, and the client API."""
        if self._app is None:
            self._app = make_app(
                engine=lambda: self.engine,
                callers=self._callers,
                capacity=self.capacity,
                toolsets=self._toolsets,
                lifespan=self.lifespan,
            )
        return self._app

    @contextlib.asynccontextmanager
    async def lifespan(
        self,
        _app: object = None,
        *,
        public_url: str | None = None,
        environment: AgentEnvironment | None = None,
        worker: bool | None = None,
    ) -> AsyncIterator[None]:
        """Work as long as the context lasts; without a `worker` only receive. If it is not said, it is as the agent was made."""
        if self._engine is not None:
            yield  # mounted and served at once: started already
            return
        url = public_url or self.public_url
        if url is None:
            raise ConfigError("The agent does not know where tools reach it. Give it a public_url.")
        self._check_who_may_use(url)
        check_plain_http(url, allowed=self.allow_plain_http)
        self._warn_if_unreachable(url)
        async with contextlib.AsyncExitStack() as stack:
            for toolset in self._toolsets:
                within = f"{url.rstrip('/')}{PATH}{toolset.name}"
                await stack.enter_async_context(toolset.lifespan(loopback_callbacks=True, within=within))
            with_worker = self.worker if worker is None else worker
            self._engine = await stack.enter_async_context(
                run_engine(self._config(url), environment, worker=with_worker)
            )
            stack.callback(self._forget_engine)
            yield

    def _config(self, public_url: str) -> AgentConfig:
        return AgentConfig(
            model=self.model,
            servers=tuple(each if isinstance(each, Server) else InProcessServer.of(each) for each in self.servers),
            toolsets=self._toolsets,
            store=self.store,
            public_url=public_url,
            instructions=self.instructions,
            limits=self.limits,
            capacity=self.capacity,
            patience=self.patience,
            schedules=self.schedules,
            budget=self.budget,
            on_accept=self.on_accept,
            lasting=self.lasting,
        )

    # Waking

    async def wake(self, at_most: float | None = None) -> datetime | None:
        """Do everything that is due, until nothing is and nothing that was begun still runs; when the next thing is due, or None.

        After `at_most` seconds nothing more is begun; what was, has its grace to end. What another process has in its hands is not waited
        for: it is due again when that process is lost, so any number may wake at once. For an agent that runs without a worker, or does not
        run at all: then the store is opened, and tools are told the `public_url`, or where the agent was listening before.
        """
        return (await self.do_what_is_due(at_most=at_most)).next

    async def do_what_is_due(self, *, at_most: float | None = None, public_url: str | None = None) -> WakeResult:
        """`wake`, and what was done. `public_url` is for an agent that does not run and was not told it."""
        if self._engine is not None:
            return await self._engine.wake(at_most)
        if self._toolsets:
            raise ConfigError(
                f"The toolset {self._toolsets[0].name!r} is served in the agent's own process, and would end with this call of wake(). "
                "Serve it by itself (rapkit serve) and give the agent its URL, or wake the agent in the process where it runs."
            )
        if self.store == MEMORY:
            raise ConfigError(
                "A store in memory is one process's alone: there is nothing in it to be woken for. "
                "Give the agent a file, like sqlite:///agent.db."
            )
        url = public_url or self.public_url or await self._url_before()
        self._warn_if_unreachable(url)
        async with open_engine(self._config(url)) as engine:
            return await engine.wake(at_most)

    async def _url_before(self) -> str:
        port = self.port or await last_port(self.store)
        if port is None:
            raise ConfigError("The agent does not know where tools reach it. Give it a public_url.")
        return f"http://{_LOOPBACK}:{port}"

    def end_streams(self) -> None:
        """Let everybody who follows a thread go: a server that stops waits for them."""
        if self._engine is not None:
            self._engine.broadcast.end()

    def _check_who_may_use(self, public_url: str) -> None:
        if self._callers.local_only and not is_loopback_host(urlsplit(public_url).hostname or ""):
            raise ConfigError(
                f"{public_url} can be reached from other machines, and no token is configured: behind a proxy anybody could use "
                "your agent. Configure a token (tokens=, --token, or [agent.tokens])."
            )

    def _warn_if_unreachable(self, public_url: str) -> None:
        far = [each.key for each in self.servers if isinstance(each, Server) and not each.is_local]
        if far and is_loopback_host(urlsplit(public_url).hostname or ""):
            log.warning(
                "Tools are told to call back at %s, which only this machine can reach, and not on this machine are: %s. "
                "Their answers will not arrive. Give the agent a public_url that they can reach.",
                public_url,
                ", ".join(far),
            )

    def _forget_engine(self) -> None:
        self._engine = None

    @property
    def engine(self) -> AgentEngine:
        """The agent at work; `ConfigError` if it is not."""
        if self._engine is None:
            raise ConfigError(
                "The agent is not running. Use it as `async with agent:`, or give agent.lifespan to the app that mounts it."
            )
        return self._engine

    # Threads

    async def thread(self, thread_id: str | None = None, *, user_id: str | None = None) -> "AgentThread":
        """A new thread, or the one with this id; `UnknownThread` if there is none."""
        threads = self.engine.threads
        if thread_id is None:
            return AgentThread(self, await threads.create(user_id=user_id))
        await threads.look(thread_id)
        return AgentThread(self, thread_id)


class AgentThread:
    """A conversation that lives on when nobody looks."""

    def __init__(self, agent: Agent, thread_id: str) -> None:
        self._agent = agent
        self.id = thread_id

    async def send(self, text: str) -> str:
        """Say something and do not wait for an answer; the id of the message."""
        return await self._agent.engine.threads.send(self.id, text)

    async def ask(self, text: str) -> str:
        """Say something and wait for the next answer. `ThreadError` says why none comes: parked, closed, set aside, stopped."""
        threads = self._agent.engine.threads
        after = (await threads.look(self.id)).thread.length
        message_id = await threads.send(self.id, text)
        heard = False
        aside: str | None = None
        async for event in threads.follow(self.id, after):
            match event.line and event.line.entry:
                case Ignored(what="user", reason=reason):
                    aside = reason
                case UserSaid(id=id) if id == message_id:
                    heard = True
                case ModelSaid(text=answer, calls=()) if heard:
                    return answer
                case ParkedEntry(reason) if heard:
                    raise ThreadParked(reason)
                case ClosedEntry():
                    raise ThreadClosed(f"Thread {self.id} was closed before it answered.")
            if aside is not None and not heard and event.seq is not None:
                # It may be another message that was set aside. If it was not ours, ours is heard before the thread comes to rest.
                look = await threads.look(self.id)
                if not look.running and event.seq >= look.thread.length:
                    raise ThreadError(f"The message was not taken into thread {self.id}: {aside}")
        raise ThreadError(f"The agent was stopped before thread {self.id} answered. The answer will be in its history.")

    def events(self, after: int = 0) -> AsyncIterator[ThreadEvent]:
        """What happens in the thread, from line `after` of its journal on, until it is closed."""
        return self._agent.engine.threads.follow(self.id, after)

    async def history(self, after: int = 0, limit: int = 200) -> list[JournalLine]:
        """The journal, oldest first, from the line after `after`."""
        return await self._agent.engine.threads.history(self.id, after, limit)

    async def look(self) -> ThreadSnapshot:
        """The thread as it is now."""
        return await self._agent.engine.threads.look(self.id)

    async def cancel(self, call_id: str) -> None:
        """Cancel a pending call or an active subscription."""
        await self._agent.engine.threads.cancel(self.id, call_id)

    async def choose(self, call_id: str, selected: int | None) -> None:
        """Answer the open question of a call; None dismisses it."""
        await self._agent.engine.threads.choose(self.id, call_id, selected)

    async def answer(self, call_id: str, text: str) -> None:
        """Answer in words the open question of a call, if it is the model that asks."""
        await self._agent.engine.threads.answer(self.id, call_id, text)

    async def grant(self, *, slices: int = 0, tokens: int = 0, cost: float = 0.0) -> None:
        """Let it use more than its budget. If it was parked because it had used that up, it goes on."""
        await self._agent.engine.threads.grant(self.id, slices=slices, tokens=tokens, cost=cost)

    async def family(self) -> ThreadFamily:
        """The thread with its children, and theirs."""
        return await self._agent.engine.threads.family(self.id)

    async def close(self) -> None:
        """Close it: it takes nothing more, and every server is told, once."""
        await self._agent.engine.threads.close(self.id)


def _secrets(given: str | Sequence[str]) -> list[str]:
    return [read_secret(each) for each in ([given] if isinstance(given, str) else given)]


def check_public_url(url: str) -> str:
    """The URL, if tools can call back below it; else `ConfigError`."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, a bracket that is not closed
        usable = False
    if "@" in url:
        raise ConfigError("A public URL holds no user name or password: every tool server is told it.")
    if not usable or parts.query or parts.fragment:
        raise ConfigError(f"{url!r} is not a public URL. Write it in full, like https://agent.example.com.")
    return url


def _check_names(servers: "Sequence[Server | InProcess]") -> None:
    # Of two servers with one name threads could remember only one.
    for names in (
        [server.base if isinstance(server, Server) else server.name for server in servers],
        [server.key if isinstance(server, Server) else server.name for server in servers],
    ):
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"The server {name} is named twice. Name it once.")


def _check_certificates(servers: "Sequence[Server | InProcess]") -> None:
    shown: dict[str, ClientCertificate] = {}
    for server in servers:
        if not isinstance(server, Server) or server.certificate is None:
            continue
        if shown.setdefault(place_of(server.url), server.certificate) != server.certificate:
            raise ConfigError(
                f"Two servers at {server.origin} have different client certificates, and one connection shows one. Give both the same."
            )


def _check_webhook_secrets(servers: "Sequence[Server | InProcess]") -> None:
    # Later they would be missed only by callbacks, which would be refused while their calls wait.
    for server in servers:
        if isinstance(server, Server):
            try:
                IncomingSignature({}, server.webhook_secrets())
            except ConfigError as error:
                raise ConfigError(f"The webhook_secret of the server {server.key}: {error}") from None
