"""Which agent a command means: one that runs somewhere, or one of this folder's settings, run by the command itself."""

import asyncio
import contextlib
import dataclasses
import functools
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rapkit.cli.agent_api import AgentApi, AgentAway, AgentRefused
from rapkit.cli.config_option import config_file
from rapkit.cli.reaching import public_url
from rapkit.cli.remote import read_token
from rapkit.errors import ConfigError
from rapkit.http.callers import Callers
from rapkit.http.serving import in_background, listen, url_of
from rapkit.models.scripted import Scripted
from rapkit.runtime.app import make_app
from rapkit.runtime.engine import opened
from rapkit.runtime.plan import Plan
from rapkit.secret import read_secret
from rapkit.settings import Flags, Settings, load_settings
from rapkit.stores import absolute, file_of

if TYPE_CHECKING:
    from rapkit.kernel.completion import Question

F = TypeVar("F", bound=Callable[..., Any])

_LOOPBACK = "127.0.0.1"
_UNUSED = "scripted:unused"  # where the model is not asked, it need not be configured

log = logging.getLogger("rapkit.cli")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was said about the agent: `url` of a running one; else its settings, from a file and from flags."""

    config: str
    url: str | None = None
    token: str | None = None
    flags: Flags = dataclasses.field(default_factory=Flags)


@dataclass(frozen=True, slots=True)
class Reached:
    """An agent that answers. `is_ours`: it runs in this process, and ends with the command. `works`: somebody works on its threads."""

    api: AgentApi
    is_ours: bool = False
    works: bool = True


def agent_options(command: F) -> F:
    """The options that say which agent is meant, and how it is run if it does not; the command gets them as `wanted`."""
    model = click.option("--model", metavar="NAME", help="The model of an agent that does not run yet.")
    servers = click.option(
        "--server", "servers", multiple=True, metavar="URL", help="A tool server for it. Repeat for several."
    )
    return looking_options(model(servers(command)))


def looking_options(command: F) -> F:
    """The options that say which agent is meant, for commands that never run it; they get them as `wanted`."""

    @config_file
    @click.option(
        "--url",
        envvar="RAPKIT_URL",
        metavar="URL",
        help="The running agent, like http://127.0.0.1:8700.  [default: the one of the settings]",
    )
    @click.option(
        "--token",
        envvar="RAPKIT_TOKEN",
        metavar="TOKEN",
        help="The token to send: env:VARIABLE, file:PATH or the token itself.  [default: one of the settings]",
    )
    @click.option("--store", metavar="URL", help="Where its threads are kept.  [default: sqlite:///.rapkit/agent.db]")
    @functools.wraps(command)
    def with_options(
        *args: Any,
        config: str,
        url: str | None,
        token: str | None,
        store: str | None,
        model: str | None = None,
        servers: tuple[str, ...] = (),
        **others: Any,
    ) -> Any:
        flags = Flags(model=model, store=store, servers=servers)
        return command(*args, wanted=Wanted(config, url, read_token(token), flags), **others)

    return with_options  # type: ignore[return-value]


@contextlib.contextmanager
def reached(wanted: Wanted, *, working: bool) -> Iterator[Reached]:
    """The agent that is meant, as long as the context lasts.

    One that does not run yet runs in this process: `working`, with everything it has to do; or only to be looked at, and to be told what it
    will do when it runs. `ConfigError` says what is missing.
    """
    if wanted.url is not None:
        api = AgentApi(wanted.url, wanted.token)
        yield Reached(api, works=_about(api)["works"])
        return
    settings = _settings(wanted, working=working)
    running = _running(settings, wanted)
    if running is not None:
        yield running
        return
    if not working:
        _check_that_there_is_one(settings)
    with _run_here(settings, working=working) as api:
        yield Reached(api, is_ours=True, works=working)


def _settings(wanted: Wanted, *, working: bool) -> Settings:
    flags = wanted.flags
    if not working and flags.model is None:
        flags = dataclasses.replace(flags, model=_UNUSED)
    return load_settings(Path(wanted.config), flags)


def _running(settings: Settings, wanted: Wanted) -> Reached | None:
    """The agent that listens where the settings say, if one does."""
    if not settings.port:
        return None
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    api = AgentApi(f"http://{host}:{settings.port}", wanted.token or _first_token(settings))
    try:
        agent = _about(api)
    except AgentAway:
        return None
    # Compared only if it can be: a store in memory has no name.
    if file_of(settings.store) is not None and agent["store"] != absolute(settings.store):
        raise ConfigError(
            f"The agent at {api.url} is another one: its threads are in {agent['store']}, those of these settings in "
            f"{absolute(settings.store)}. Give one of them another port in its rapkit.toml, or say --url {api.url} to use that one."
        )
    return Reached(api, works=agent["works"])


def _about(api: AgentApi) -> Any:
    """What an agent says of itself; `ConfigError` if something else answers."""
    try:
        agent = api.get("agent")
    except AgentRefused as refusal:
        if refusal.status not in (HTTPStatus.OK, HTTPStatus.NOT_FOUND):
            raise
        agent = None
    if isinstance(agent, dict) and agent.keys() >= {"store", "works"}:
        return agent
    raise ConfigError(
        f"What listens at {api.url} is no agent. Name another with --url; or stop it, or give the agent another port in its rapkit.toml."
    )


def _first_token(settings: Settings) -> str | None:
    """One of those that the settings name: who may read them may use the agent."""
    return next((read_secret(each) for tokens in settings.tokens.values() for each in tokens), None)


def _check_that_there_is_one(settings: Settings) -> None:
    """Looking makes nothing: without a store there are no threads, and none is made."""
    file = file_of(settings.store)
    if file is None or not file.is_file():
        raise ConfigError(
            f"There is no agent here: none listens on {settings.host} port {settings.port}, and there is no store "
            f"{settings.store}. "
            "Run this where its rapkit.toml is, or name a running one with --url."
        )


@contextlib.contextmanager
def _run_here(settings: Settings, *, working: bool) -> Iterator[AgentApi]:
    # Who may use it is as configured: another command may want to talk to it while this one runs.
    host = _Host(settings, working=working)
    thread = threading.Thread(target=host.run, name="agent", daemon=True)
    thread.start()
    try:
        host.started.wait()
        if host.problem is not None:
            raise host.problem
        yield AgentApi(host.url, _first_token(settings))
    finally:
        host.stop()
        thread.join()


class _Host:
    """An agent in a thread of this process, with an event loop of its own."""

    def __init__(self, settings: Settings, *, working: bool) -> None:
        self._settings = settings
        self._life = self._work if working else self._be_looked_at
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self.started = threading.Event()
        self.problem: BaseException | None = None
        self.url = ""

    def run(self) -> None:
        """Until `stop`. What goes wrong before it runs is the `problem`."""
        try:
            asyncio.run(self._run())
        except BaseException as problem:
            if self.started.is_set():
                log.critical("the agent ended", exc_info=problem)
            self.problem = problem
        finally:
            self.started.set()

    def stop(self) -> None:
        """Let it end in order; `run` returns when it has."""
        if self._loop is not None and self._end is not None:
            with contextlib.suppress(RuntimeError):  # it has ended already
                self._loop.call_soon_threadsafe(self._end.set)

    async def _run(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with self._life() as end_streams:
            self.started.set()
            await self._end.wait()
            end_streams()

    @contextlib.asynccontextmanager
    async def _work(self) -> AsyncIterator[Callable[[], None]]:
        agent = self._settings.agent()
        host, port = self._settings.host, self._settings.port  # tools call back where the settings say
        with listen(host, port) as listener:
            self.url = url_of(host if host not in ("0.0.0.0", "::") else _LOOPBACK, listener)  # noqa: S104
            url = public_url(self._settings, listener.getsockname()[1] if not port else None)
            async with agent.lifespan(public_url=url), in_background(agent.app, listener):
                yield agent.end_streams

    @contextlib.asynccontextmanager
    async def _be_looked_at(self) -> AsyncIterator[Callable[[], None]]:
        """Only its store and the client API. Nothing is configured in the store, nor noted: where it receives is not here."""
        with listen(_LOOPBACK, 0) as listener:  # its port is left to an agent that comes meanwhile
            self.url = url_of(_LOOPBACK, listener)
            settings = self._settings
            plan = Plan(
                model=Scripted(_nobody),
                servers=(),
                store=settings.store,
                public_url=settings.public_url or self.url,
                limits=settings.limits,
                budget=settings.budget,
            )
            callers = Callers({name: [read_secret(each) for each in some] for name, some in settings.tokens.items()})
            async with opened(plan) as engine:
                app = make_app(
                    engine=lambda: engine,
                    callers=callers,
                    capacity=plan.capacity,
                    toolsets=(),
                    lifespan=lambda _app: contextlib.nullcontext(),
                )
                async with in_background(app, listener):
                    yield engine.hub.end


def _nobody(_question: "Question") -> str:
    raise AssertionError("Nobody works here, so nobody asks.")
