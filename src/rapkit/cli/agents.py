"""Which agent a command means: one that runs somewhere, or one of this folder's settings, run by the command itself."""

import contextlib
import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

import click

from rapkit.cli.agent_api import AgentApi, AgentAway, AgentRefused
from rapkit.cli.hosting import Host
from rapkit.cli.remote import printable, read_token
from rapkit.cli.settings_options import config_file
from rapkit.errors import ConfigError
from rapkit.runtime.server import Server
from rapkit.secret import read_secret
from rapkit.settings import Flags, Settings, load_settings
from rapkit.stores import absolute, file_of

F = TypeVar("F", bound=Callable[..., Any])

_SOON = 2.0
_PAUSE = 0.5  # between two tries to take over
_SCRIPTED = "scripted:"
_UNUSED = f"{_SCRIPTED}unused"  # where the model is not asked, it need not be configured


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was said about the agent: `url` of a running one; else its settings, from a file and from flags."""

    config: str
    url: str | None = None
    token: str | None = None
    flags: Flags = dataclasses.field(default_factory=Flags)


class Reached:
    """An agent that answers. `works`: somebody works on its threads."""

    def __init__(self, api: AgentApi, *, works: bool = True, here: "_Here | None" = None) -> None:
        self._here = here
        self.api = api
        self.works = works

    @property
    def is_ours(self) -> bool:
        """Whether it runs in this process now, and ends with the command."""
        return self._here is not None and self._here.runs

    def leave_at_once(self) -> None:
        """When the command ends, and the agent with it, nobody wants to wait for what is under way."""
        if self._here is not None:
            self._here.hurry()


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
    will do when it runs. Of one that another command runs we are the heirs: if it ends with that, it goes on here, at the same place.
    `ConfigError` says what is missing.
    """
    if wanted.url is not None:
        api = AgentApi(wanted.url, wanted.token)
        agent = _about(api)
        _check_flags(api, agent, wanted.flags, ())
        yield Reached(api, works=agent["works"])
        return
    settings = _settings(wanted, working=working)
    here = _Here(settings, working=working)
    with here.ended_with_the_command():
        yield _running(settings, wanted, here) or _run_here(settings, wanted, here, working=working)


def _settings(wanted: Wanted, *, working: bool) -> Settings:
    flags = wanted.flags
    if not working and flags.model is None:
        flags = dataclasses.replace(flags, model=_UNUSED)
    return load_settings(Path(wanted.config), flags)


def _running(settings: Settings, wanted: Wanted, here: "_Here") -> Reached | None:
    """The agent that listens where the settings say, if one does. If it does so only for a command, we are its heirs."""
    found = _listening(settings, wanted.token)
    if found is None:
        return None
    api, agent = found
    _check_flags(api, agent, wanted.flags, settings.servers)
    if here.may_work and not agent.get("lasting", True):
        api.when_gone = here.take_over
        return Reached(api, works=agent["works"], here=here)
    return Reached(api, works=agent["works"])


def _run_here(settings: Settings, wanted: Wanted, here: "_Here", *, working: bool) -> Reached:
    if not working:
        _check_that_there_is_one(settings)
    try:
        here.listen()
    except ConfigError:
        quicker = _running(settings, wanted, here) if working else None
        if quicker is not None:
            return quicker
        here.listen()  # it is gone again; or it is no agent, and this says that its port is taken
    url = here.begin()
    # Who may use it is as configured: another command may want to talk to it while this one runs.
    api = AgentApi(url, _first_token(settings))
    api.when_gone = here.take_over
    return Reached(api, works=working, here=here)


def is_lasting(settings: Settings) -> bool | None:
    """Whether the agent of these settings, which listens already, is run for good; None if it is not there.

    `RapkitError` if it is another one, or none.
    """
    found = _listening(settings, None, patience=_SOON)
    return None if found is None else bool(found[1].get("lasting", True))


def _listening(settings: Settings, token: str | None, **patience: float) -> tuple[AgentApi, Any] | None:
    """Who listens where the settings say, and what it says of itself; `ConfigError` if it is not the agent of these settings."""
    if not settings.port:
        return None
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    api = AgentApi(f"http://{host}:{settings.port}", token or _first_token(settings), **patience)
    try:
        agent = _about(api)
    except AgentAway:
        return None
    ours = absolute(settings.store)
    # A store in memory is one process's alone, and so never the one that another process has.
    if agent["store"] != ours or file_of(settings.store) is None:
        raise ConfigError(
            f"The agent at {api.url} is another one: its threads are in {printable(str(agent['store']))}, those of these settings in "
            f"{ours}{' of their own' * (agent['store'] == ours)}. "
            f"Give one of them another port in its rapkit.toml, or say --url {api.url} to use that one."
        )
    return api, agent


def _check_flags(api: AgentApi, agent: Any, flags: Flags, servers: Sequence[Server]) -> None:
    """Who names a model or a server must not be answered by something else."""
    names = {server.base: server.key for server in servers}
    given = [(url, url.rstrip("/")) for url in flags.servers]
    missing = [url for url, base in given if names.get(base, base) not in agent.get("servers", ())]
    if flags.model is not None and not _is_same(flags.model, str(agent.get("model"))):
        differs = f"with the model {printable(str(agent.get('model')))}, not {flags.model}"
    elif missing:
        differs = f"without the server {', '.join(missing)}"
    else:
        return
    raise ConfigError(
        f"The agent at {api.url} runs already, {differs}. Leave out --model and --server to use it as it is; or stop it first, "
        "or run another beside it, with a port and a --store of its own."
    )


def _is_same(model: str, other: str) -> bool:
    if not (model.startswith(_SCRIPTED) and other.startswith(_SCRIPTED)):
        return model == other
    # A file, named from wherever each of us is.
    short, long = sorted((Path(each.removeprefix(_SCRIPTED)).parts for each in (model, other)), key=len)
    return long[-len(short) :] == short


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


class _Here:
    """The agent of some settings in this process: from the beginning, or from when the one that was found has ended. Never two at once."""

    def __init__(self, settings: Settings, *, working: bool) -> None:
        self._settings = settings
        self._one_at_a_time = threading.Lock()
        self._host: Host | None = None
        self._not_before = 0.0
        self._over = self._hurried = False
        self.may_work = working

    @property
    def runs(self) -> bool:
        """Whether it does now."""
        return self._host is not None and self._host.runs

    def listen(self) -> None:
        """Have its port; `ConfigError` if it cannot be had."""
        self._host = Host(self._settings, working=self.may_work)

    def begin(self) -> str:
        """Run it where it listens; that is returned. `RapkitError` if it cannot run."""
        assert self._host is not None
        self._host.start()
        return self._host.url

    def take_over(self) -> bool:
        """Run it, because nobody is there any more; whether it does. Any thread may ask, and as often as it likes.

        `AgentRefused` if it cannot run. That its port is taken is no reason: somebody else was quicker, and will do.
        """
        with self._one_at_a_time:
            if self._host is not None and not self._over:
                return self._runs_still(self._host)
            if self._over or time.monotonic() < self._not_before:
                return False
            self._not_before = time.monotonic() + _PAUSE
            try:
                self._host = Host(self._settings, working=True)
            except ConfigError:
                return False
            try:
                self._host.start()
            except Exception as problem:
                raise AgentRefused(
                    0, f"The agent has ended with the command that ran it, and cannot run here: {problem}"
                ) from problem
            return True

    def _runs_still(self, host: Host) -> bool:
        if host.runs:
            return True
        raise AgentRefused(0, f"The agent, which ran here, has ended: {host.problem}")

    def hurry(self) -> None:
        """Do not wait for what is under way when it ends."""
        self._hurried = True

    @contextlib.contextmanager
    def ended_with_the_command(self) -> Iterator[None]:
        """It ends after this: in order, or if the command failed or was interrupted, at once."""
        try:
            yield
        except BaseException:
            self.hurry()
            raise
        finally:
            self._over = True
            with self._one_at_a_time:
                host = self._host
            if host is not None:
                host.stop(at_once=self._hurried)
