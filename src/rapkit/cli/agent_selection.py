"""Select the agent of a command: one that runs somewhere, or one that the command runs itself from this folder's settings."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from rapkit.cli.agent_api import PATIENCE, AgentApi, AgentRefused, AgentUnreachable
from rapkit.cli.command_hints import CommandHints
from rapkit.cli.local_agent import LocalAgent
from rapkit.cli.options import read_token
from rapkit.cli.settings_options import config_file
from rapkit.errors import ConfigError
from rapkit.printable import printable
from rapkit.secret import read_bearer
from rapkit.settings.agent_location import AgentLocation, Flags
from rapkit.store_url import absolute, file_of, shown

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rapkit.runtime.server import Server
    from rapkit.settings.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])

_SOON = 2.0
_SCRIPTED = "scripted:"
_UNUSED = f"{_SCRIPTED}unused"  # where the model is not asked, it need not be configured


@dataclass(frozen=True, slots=True)
class AgentSelection:
    """What was said about the agent: `url` of a running one; else its settings, from a file and from flags. `said` is how it was said."""

    config: str
    url: str | None = None
    token: str | None = None
    flags: Flags = dataclasses.field(default_factory=Flags)
    said: CommandHints = dataclasses.field(default_factory=CommandHints)


class ReachedAgent:
    """An agent that answers. `works`: a worker runs its threads. `said` are the options that selected it."""

    def __init__(
        self, api: AgentApi, said: CommandHints, *, works: bool = True, local_agent: LocalAgent | None = None
    ) -> None:
        self._local_agent = local_agent
        self.api = api
        self.said = said
        self.works = works

    @property
    def is_ours(self) -> bool:
        """Whether it runs in this process now, and ends with the command."""
        return self._local_agent is not None and self._local_agent.runs

    def look_at_servers(self) -> "Future[dict[str, str]] | None":
        """Ask its tool servers, if it runs in this process: what is wrong with those that do not answer as they should, by their names."""
        return self._local_agent.look_at_servers() if self._local_agent is not None and self.is_ours else None

    def leave_at_once(self) -> None:
        """When the command ends, and the agent with it, work under way is not waited for."""
        if self._local_agent is not None:
            self._local_agent.hurry()


def agent_options(command: F) -> F:
    """The options that say which agent is meant, and how it is run if it does not; the command gets them as `selection`."""
    model = click.option("--model", metavar="NAME", help="The model of an agent that does not run yet.")
    servers = click.option(
        "--server", "servers", multiple=True, metavar="URL", help="A tool server for it. Repeat for several."
    )
    return query_options(model(servers(command)))


def query_options(command: F) -> F:
    """The options that say which agent is meant, for commands that never run it; they get them as `selection`."""

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
        said = CommandHints(
            _typed("config"), _typed("url"), _typed("token"), _typed("store"), model=_typed("model"), servers=servers
        )
        return command(*args, selection=AgentSelection(config, url, read_token(token), flags, said), **others)

    return with_options  # type: ignore[return-value]


def _typed(option: str) -> str | None:
    """What stood on the command line for an option, if it did."""
    context = click.get_current_context()
    is_typed = context.get_parameter_source(option) is ParameterSource.COMMANDLINE
    return context.params.get(option) if is_typed else None


@contextlib.contextmanager
def reach_agent(selection: AgentSelection, *, working: bool, ends_at: float | None = None) -> Iterator[ReachedAgent]:
    """The agent that is meant, as long as the context lasts.

    One that does not run yet runs in this process: `working`, with everything it has to do; or only to be looked at, and to be told what it
    will do when it runs. Of one that another command runs we are the heirs: if it ends with that, it goes on here, at the same place.
    `ConfigError` says what is missing. `ends_at` is how long the `api` of one that another process runs waits for answers.
    """
    if selection.url is not None:
        api = AgentApi(selection.url, selection.token, ends_at=ends_at)
        agent = _about(api)
        _check_flags(api, agent, selection.flags, ())
        yield ReachedAgent(api, selection.said.of(agent["store"]), works=agent["works"])
        return
    flags = selection.flags
    if not working and flags.model is None:
        flags = dataclasses.replace(flags, model=_UNUSED)
    local_agent = LocalAgent(Path(selection.config), flags, working=working)
    with local_agent.ended_with_the_command():
        yield _running(selection, local_agent, ends_at) or _run_here(selection, local_agent, ends_at)


def _running(selection: AgentSelection, local_agent: LocalAgent, ends_at: float | None) -> ReachedAgent | None:
    """The agent that listens where the settings say, if one does. If it does so only for a command, we are its heirs."""
    found = _listening(local_agent.location, selection.token, ends_at=ends_at)
    if found is None:
        return None
    api, agent = found
    # Their names are in the settings, which take a while to be loaded.
    _check_flags(api, agent, selection.flags, local_agent.settings.servers if selection.flags.servers else ())
    if local_agent.may_work and not agent.get("lasting", True):
        local_agent.prepare()
        api.when_gone = local_agent.take_over
        return ReachedAgent(api, selection.said.of(agent["store"]), works=agent["works"], local_agent=local_agent)
    return ReachedAgent(api, selection.said.of(agent["store"]), works=agent["works"])


def _run_here(selection: AgentSelection, local_agent: LocalAgent, ends_at: float | None) -> ReachedAgent:
    local_agent.prepare()
    if not local_agent.may_work:
        _check_that_there_is_one(local_agent.location)
    try:
        local_agent.listen()
    except ConfigError:
        quicker = _running(selection, local_agent, ends_at) if local_agent.may_work else None
        if quicker is not None:
            return quicker
        local_agent.listen()  # it is gone again; or it is no agent, and this says that its port is taken
    url = local_agent.begin()
    # Who may use it is as configured: another command may want to talk to it while this one runs.
    api = AgentApi(url, _first_token(local_agent.location))
    api.when_gone = local_agent.take_over
    return ReachedAgent(
        api, selection.said.of(local_agent.location.store), works=local_agent.may_work, local_agent=local_agent
    )


def is_lasting(settings: "Settings") -> bool | None:
    """Whether the agent of these settings, which listens already, is run for good; None if it is not there.

    `RapkitError` if it is another one, or none.
    """
    found = _listening(settings.location, None, patience=_SOON)
    return None if found is None else bool(found[1].get("lasting", True))


def _listening(
    where: AgentLocation, token: str | None, *, patience: float = PATIENCE, ends_at: float | None = None
) -> tuple[AgentApi, Any] | None:
    """Who listens where the settings say, and what it says of itself; `ConfigError` if it is not the agent of these settings."""
    if not where.port:
        return None
    host = f"[{where.host}]" if ":" in where.host else where.host
    api = AgentApi(f"http://{host}:{where.port}", token or _first_token(where), patience=patience, ends_at=ends_at)
    try:
        agent = _about(api)
    except AgentUnreachable:
        return None
    ours = absolute(where.store)
    # A store in memory is one process's alone, and so never the one that another process has.
    if agent["store"] != ours or file_of(where.store) is None:
        raise ConfigError(
            f"The agent at {api.url} is another one: its threads are in {printable(str(agent['store']))}, those of these settings in "
            f"{shown(ours)}{' of their own' * (agent['store'] == ours)}. "
            f"Give one of them another port in its rapkit.toml, or say --url {api.url} to use that one."
        )
    return api, agent


def _check_flags(api: AgentApi, agent: Any, flags: Flags, servers: "Sequence[Server]") -> None:
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
    if isinstance(agent, dict) and agent.keys() >= {"store", "works"} and isinstance(agent.get("servers", []), list):
        return agent
    raise ConfigError(
        f"What listens at {api.url} is no agent. Name another with --url; or stop it, or give the agent another port in its rapkit.toml."
    )


def _first_token(where: AgentLocation) -> str | None:
    """One of those that are named: who may read them may use the agent."""
    return next((read_bearer(each) for tokens in where.tokens.values() for each in tokens), None)


def _check_that_there_is_one(where: AgentLocation) -> None:
    """Looking makes nothing: without a store there are no threads, and none is made."""
    file = file_of(where.store)
    if file is None or not file.is_file():
        raise ConfigError(
            f"There is no agent here: none listens on {where.host} port {where.port}, and there is no store "
            f"{shown(where.store)}. Run this where its rapkit.toml is, or name a running one with --url."
        )
