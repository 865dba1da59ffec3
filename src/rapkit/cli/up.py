"""`rapkit up`."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from rapkit import background
from rapkit.cli.findings import log_findings, show_findings
from rapkit.cli.options import log_format, log_level, tokens_by_name
from rapkit.errors import ConfigError
from rapkit.http.callers import is_loopback_host
from rapkit.http.serving import listen, serve_until_signal, url_of
from rapkit.logs import set_up_logging
from rapkit.runtime.agent import Agent
from rapkit.runtime.threads import Page
from rapkit.settings import DEFAULT_FILE, DEFAULT_HOST, DEFAULT_PORT, Flags, Settings, load_settings

if TYPE_CHECKING:
    from rapkit.runtime.toolsets import Finding

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what to call back instead: nobody can be called back there
_MOST_COUNTED = 1000
_SOON = 2.0

log = logging.getLogger("rapkit.cli")


@click.command()
@click.option(
    "-c", "--config", default=str(DEFAULT_FILE), show_default=True, metavar="FILE", help="The file with the settings."
)
@click.option("--host", metavar="ADDRESS", help=f"The address to listen on.  [default: {DEFAULT_HOST}]")
@click.option(
    "--port",
    metavar="NUMBER",
    type=click.IntRange(0, 65535),
    help=f"The port to listen on; 0 for any free one.  [default: {DEFAULT_PORT}]",
)
@click.option("--store", metavar="URL", help="Where threads are kept.  [default: sqlite:///.rapkit/agent.db]")
@click.option("--public-url", metavar="URL", help="Where tools call back, if not at the address it listens on.")
@click.option("--model", metavar="NAME", help="The model, such as openai:gpt-5-mini or scripted:plan.yaml.")
@click.option(
    "--token",
    "tokens",
    multiple=True,
    metavar="[NAME=]TOKEN",
    help="Who may use the client API: env:VARIABLE, file:PATH or the token itself. Repeat for several.",
)
@log_format
@log_level
def command(
    config: str,
    host: str | None,
    port: int | None,
    store: str | None,
    public_url: str | None,
    model: str | None,
    tokens: tuple[str, ...],
    log_format: str,
    log_level: str,
) -> None:
    """Run the agent of rapkit.toml: callbacks of tools, the client API, and the work.

    What is said here wins over the environment (RAPKIT_MODEL, RAPKIT_STORE, RAPKIT_PUBLIC_URL), and that over the file.
    """
    set_up_logging(log_format, log_level)
    flags = Flags(model, store, public_url, host, port, tokens_by_name(tokens) if tokens else None)
    settings = load_settings(Path(config), flags)
    agent = settings.agent()
    _check(settings)
    with listen(settings.host, settings.port) as listener:
        up = _Up(agent, settings, url_of(settings.host, listener), as_json=log_format == "json")
        serve_until_signal(
            agent.app,
            listener,
            up.life(),
            on_start=lambda: None,
            ending=f"threads that run get {agent.patience.grace:g} s to end",
            on_stop=agent.end_streams,
        )


def _check(settings: Settings) -> None:
    if not settings.tokens and not is_loopback_host(settings.host):
        raise ConfigError(
            f"{settings.host} can be reached from other machines, and no token is configured: anybody could use your agent. "
            "Configure a token (--token, or [agent.tokens] in the file), or listen on 127.0.0.1."
        )


class _Up:
    """An agent that is served, and what people are told about it."""

    def __init__(self, agent: Agent, settings: Settings, url: str, *, as_json: bool) -> None:
        self._agent = agent
        self._settings = settings
        self._url = url
        self._as_json = as_json
        self._console = Console(stderr=True, highlight=False)

    @contextlib.asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        """The agent at work. Servers are asked while it is: one that does not answer holds up nothing, neither callbacks nor Ctrl-C."""
        async with self._agent.lifespan(public_url=self._public_url):
            survey = asyncio.create_task(self._agent.engine.toolsets.survey())
            telling = background.start(partial(self._tell, survey), "looking at the servers")
            try:
                yield
            finally:
                telling.cancel()  # and not waited for here: what a second signal cuts short is to be the agent's own end
        await asyncio.wait({telling, survey})  # both end now at the latest: the agent's connections are closed

    @property
    def _public_url(self) -> str:
        if self._settings.public_url is not None:
            return self._settings.public_url
        host = self._settings.host
        return self._url.replace(host, _EVERYWHERE.get(host, host), 1)

    async def _tell(self, survey: "asyncio.Task[list[Finding]]") -> None:
        done, _ = await asyncio.wait({survey}, timeout=_SOON)
        if not done:
            log.info("the agent runs; not all servers have said yet what they offer")
            await asyncio.wait({survey})
        findings = survey.result()
        page = await self._agent.engine.threads.newest(status="waiting", limit=_MOST_COUNTED)
        if self._as_json:  # where every line is to be JSON
            log_findings(log, findings)
            about = {"url": self._url, "public_url": self._public_url, "model": self._agent.model.name}
            log.info("serving", extra={**about, "store": self._agent.store, "waiting": len(page.looks)})
            return
        show_findings(self._console, findings)
        public = f" (for tools {self._public_url})" if self._public_url != self._url else ""
        click.echo(
            f"agent at {self._url}{public}, model {self._agent.model.name}, kept in {self._agent.store}, {_counted(page)}\n"
            + (
                "Only clients with a token are served."
                if self._settings.tokens
                else "No token is configured: only clients on this machine are served."
            ),
            err=True,
        )


def _counted(waiting: Page) -> str:
    count = len(waiting.looks)
    if waiting.next is not None:
        return f"{count} or more threads waiting"
    return f"{count or 'no'} thread{'s' * (count != 1)} waiting"
