"""`rapkit up`."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from rapkit.cli.agent_selection import is_lasting
from rapkit.cli.banner import MOST_COUNTED, Banner
from rapkit.cli.on_accept import OnAcceptCommand
from rapkit.cli.options import log_format, log_level
from rapkit.cli.public_url import check_who_may_call, public_url
from rapkit.cli.settings_options import listening_options, settings_options
from rapkit.cli.toolset_report import log_findings, show_findings
from rapkit.cli.unknown_tools import unknown_tools
from rapkit.errors import ConfigError, RapkitError
from rapkit.http.http_server import listen, serve_until_signal, url_of
from rapkit.logs import set_up_logging
from rapkit.runtime.agent import Agent
from rapkit.runtime.stable_port import MEMORY
from rapkit.settings.settings import SERVERS, Flags, Settings, load_settings
from rapkit.work import background

if TYPE_CHECKING:
    from rapkit.runtime.toolsets import ToolsetFinding

_SOON = 2.0

log = logging.getLogger("rapkit.cli")


@click.command()
@settings_options
@listening_options
@click.option("--no-worker", is_flag=True, help="Only receive and keep what comes, until `rapkit wake` is run.")
@click.option(
    "--on-accept",
    metavar="COMMAND",
    help='What to run when there is something to do, like "rapkit wake". It runs once at a time, and without a shell.',
)
@log_format
@log_level
def command(
    config: Path,
    flags: Flags,
    no_worker: bool,
    on_accept: str | None,
    log_format: str,
    log_level: str,
) -> None:
    """Run the agent of rapkit.toml: callbacks of tools, the client API, and the work. With a --model it needs no file.

    What is said here wins over the environment (RAPKIT_CONFIG, RAPKIT_MODEL, RAPKIT_STORE, RAPKIT_PUBLIC_URL), and that over the file.
    Servers named here or in RAPKIT_SERVERS come on top of those of the file.
    """
    set_up_logging(log_format, log_level)
    settings = load_settings(config, flags)
    agent = settings.agent()
    agent.worker = not no_worker
    check_who_may_call(settings)
    if no_worker and settings.store == MEMORY:
        raise ConfigError(
            "A store in memory is this process's alone, so nobody could wake the agent. Keep it in a file."
        )
    on_accept_command = _on_accept_command(on_accept, agent, Path(config))
    with _listen(settings) as listener:
        up = _Up(agent, settings, listener, on_accept_command, as_json=log_format == "json")
        serve_until_signal(
            agent.app,
            listener,
            up.life(),
            on_start=lambda: None,
            ending=f"threads that run get {agent.patience.grace:g} s to end",
            on_stop=agent.end_streams,
            limits=agent.capacity.http,
        )


def _listen(settings: Settings) -> socket.socket:
    try:
        return listen(settings.host, settings.port)
    except ConfigError as taken:
        try:
            lasting = is_lasting(settings)
        except RapkitError:  # another program's port, then
            lasting = None
        if lasting is None:
            raise
        who = "" if lasting else ", for a command such as chat or ask, and ends with that"
        raise ConfigError(
            f"The agent of these settings runs already, on {settings.host} port {settings.port}{who}. Use it as it is, or stop it first."
        ) from taken


def _on_accept_command(on_accept: str | None, agent: Agent, config: Path) -> OnAcceptCommand | None:
    if on_accept is None:
        return None
    on_accept_command = OnAcceptCommand(on_accept, agent.patience.completion + agent.patience.grace)
    if on_accept_command.wakes and agent.worker:
        raise ConfigError(
            f"--on-accept runs {on_accept!r}, which has nothing to do as long as threads are worked on here. "
            "Add --no-worker, so that only it works on them, or leave --on-accept out."
        )
    if config.exists():  # without one, a model and servers are all there is
        on_accept_command.environment["RAPKIT_CONFIG"] = str(config.absolute())
    return on_accept_command


class _Up:
    """An agent that is served, and what people are told about it."""

    def __init__(
        self,
        agent: Agent,
        settings: Settings,
        listener: socket.socket,
        on_accept_command: OnAcceptCommand | None,
        *,
        as_json: bool,
    ) -> None:
        self._agent = agent
        self._settings = settings
        self._url = url_of(settings.host, listener)
        self._public_url = public_url(settings, listener.getsockname()[1])
        self._on_accept_command = on_accept_command
        self._as_json = as_json
        self._console = Console(stderr=True, highlight=False)

    @contextlib.asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        """The agent at work. Servers are asked while it is: one that does not answer holds up nothing, neither callbacks nor Ctrl-C."""
        async with self._commanding(), self._agent.lifespan(public_url=self._public_url):
            survey = asyncio.create_task(self._agent.engine.toolsets.survey())
            publisher = background.start(partial(self._tell, survey), "looking at the servers")
            try:
                yield
            finally:
                publisher.cancel()  # and not waited for here: what a second signal cuts short is to be the agent's own end
        await asyncio.wait({publisher, survey})  # both end now at the latest: the agent's connections are closed

    @contextlib.asynccontextmanager
    async def _commanding(self) -> AsyncIterator[None]:
        """The on-accept command runs when it is triggered. It finds the same agent, whatever options this command was given."""
        if self._on_accept_command is None:
            yield
            return
        self._agent.on_accept = self._on_accept_command.trigger
        self._on_accept_command.environment |= {
            "RAPKIT_MODEL": self._settings.model,
            "RAPKIT_STORE": self._settings.store,
            "RAPKIT_PUBLIC_URL": self._public_url,
            SERVERS: " ".join(server.url for server in self._settings.servers),
        }
        commanding = background.start(self._on_accept_command.run, "running the command of --on-accept")
        try:
            yield
        finally:
            await background.end(commanding)

    async def _tell(self, survey: "asyncio.Task[list[ToolsetFinding]]") -> None:
        done, _ = await asyncio.wait({survey}, timeout=_SOON)
        if not done:
            log.info("the agent runs; not all servers have said yet what they offer")
            await asyncio.wait({survey})
        findings = survey.result()
        unknown = unknown_tools(self._settings.limits, findings)
        banner = await self._banner()
        if self._as_json:  # where every line is to be JSON
            log_findings(log, findings, unknown)
            log.info("serving", extra=banner.fields())
            return
        show_findings(self._console, findings, unknown)
        click.echo(banner.text(), err=True)

    async def _banner(self) -> Banner:
        threads = self._agent.engine.threads
        return Banner(
            url=self._url,
            public_url=self._public_url,
            model=self._agent.model.name,
            store=self._agent.store,
            waiting=await threads.newest(status="waiting", limit=MOST_COUNTED),
            parked=await threads.newest(status="parked", limit=MOST_COUNTED),
            schedules=self._settings.schedules,
            has_tokens=bool(self._settings.tokens),
            works=self._agent.worker,
            hooked=self._on_accept_command is not None,
        )
