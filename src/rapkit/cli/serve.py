"""`rapkit serve`."""

import subprocess
import sys
from pathlib import Path

import click
import watchfiles

from rapkit.cli.loading import load_toolset
from rapkit.errors import ConfigError
from rapkit.logs import set_up_logging
from rapkit.server.serving import serve
from rapkit.server.toolset import Toolset


@click.command()
@click.argument("target")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    default=8001,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="The port to listen on; 0 for any free one.",
)
@click.option("--store", metavar="URL", help="Where invocations are kept.  [default: sqlite:///.rapkit/<toolset>.db]")
@click.option(
    "--token",
    "tokens",
    multiple=True,
    metavar="[NAME=]TOKEN",
    help="Who may call: env:VARIABLE, file:PATH or the token itself. Repeat for several; two of one name are both good.",
)
@click.option(
    "--public-url", metavar="URL", help="Where callers reach this server, if not at the address it listens on."
)
@click.option(
    "--allow-callback",
    "allow",
    multiple=True,
    metavar="CIDR",
    help="A network, address or origin (http://host:port) that results may be sent to though it is not public.",
)
@click.option("--reload", is_flag=True, help="Restart when a Python file changes.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def command(
    target: str,
    host: str,
    port: int,
    store: str | None,
    tokens: tuple[str, ...],
    public_url: str | None,
    allow: tuple[str, ...],
    reload: bool,
    log_format: str,
    log_level: str,
) -> None:
    """Serve the toolset of TARGET: weather.py, weather.py:tools or package.module:tools."""
    set_up_logging(log_format, log_level)
    if reload:
        _reload(target)
        return
    toolset = load_toolset(target)
    toolset.store = store or toolset.store
    toolset.public_url = public_url or toolset.public_url
    toolset.allow_callbacks = (*toolset.allow_callbacks, *allow)
    if tokens:
        toolset.tokens = _by_name(tokens)
    serve(toolset, host, port, on_start=lambda url: _announce(toolset, url))


def _announce(toolset: Toolset, url: str) -> None:
    count = len(toolset.tools)
    click.echo(f"{toolset.name}: {count} tool{'s' * (count != 1)} at {url}, kept in {toolset.store_url}", err=True)
    if toolset.callers.local_only:
        click.echo("No token is configured: only callers on this machine are served.", err=True)


def _by_name(tokens: tuple[str, ...]) -> dict[str, list[str]]:
    named: dict[str, list[str]] = {}
    for each in tokens:
        name, separator, token = each.partition("=")
        if not separator or ":" in name:  # env:X and base64 tokens that end in "="
            name, token = "default", each
        if not token:
            raise ConfigError(
                f"--token {each}: no token behind the name. Write NAME=env:VARIABLE, NAME=file:PATH or NAME=TOKEN."
            )
        named.setdefault(name, []).append(token)
    return named


def _reload(target: str) -> None:
    """Run this command without --reload in a process of its own, and start it anew whenever a Python file changes."""
    place = target.partition(":")[0]
    folder = Path(place).resolve().parent if place.endswith(".py") else Path.cwd()
    arguments = [sys.executable, "-m", "rapkit", *(word for word in sys.argv[1:] if word != "--reload")]
    child = subprocess.Popen(arguments)  # noqa: S603 - our own command line
    try:
        for changes in watchfiles.watch(folder, watch_filter=watchfiles.PythonFilter()):
            changed = ", ".join(sorted({Path(path).name for _, path in changes}))
            click.echo(f"{changed} changed; restarting", err=True)
            _stop(child)
            child = subprocess.Popen(arguments)  # noqa: S603
    finally:
        _stop(child)


def _stop(child: "subprocess.Popen[bytes]") -> None:
    child.terminate()
    try:
        child.wait(timeout=15)
    except subprocess.TimeoutExpired:
        child.kill()  # nothing is lost: what it had accepted is in the store
        child.wait()
