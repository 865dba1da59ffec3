"""`rapkit outbox`."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click
from rich.console import Console
from rich.table import Table

from rapkit.errors import ConfigError
from rapkit.mailbox import Parcel, Store
from rapkit.stores import open_store

T = TypeVar("T")

_store = click.option(
    "--store", required=True, metavar="URL", help="The server's store, e.g. sqlite:///.rapkit/weather.db"
)


@click.group()
def command() -> None:
    """Look at what could not be delivered, and send it again."""


@command.command("list")
@_store
@click.option("--waiting", is_flag=True, help="Show what waits for its next attempt instead of what was given up.")
@click.option("--limit", default=100, show_default=True)
def list_(store: str, waiting: bool, limit: int) -> None:
    """List messages that were given up. URLs and contents are secret and not shown."""
    parcels = _with(store, lambda opened: opened.outbox(dead=not waiting, limit=limit))
    if not parcels:
        click.echo("Nothing waits." if waiting else "Nothing was given up.")
        return
    table = Table("message", "to", "kind", "attempts", "next attempt" if waiting else "given up", "problem", box=None)
    for parcel in parcels:
        table.add_row(parcel.id, parcel.origin, parcel.kind, str(parcel.attempts), _when(parcel), parcel.problem or "")
    Console(highlight=False).print(table)


@command.command()
@_store
@click.argument("ids", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Send everything again that was given up.")
def resend(store: str, ids: tuple[str, ...], everything: bool) -> None:
    """Put given-up messages back into the outbox; a running server sends them at once, a stopped one when it starts."""
    if bool(ids) == everything:
        raise ConfigError("Name the messages to send again, or say --all.")

    async def work(opened: Store) -> int:
        if not everything:
            return await opened.resend(ids)
        count = 0
        while parcels := await opened.outbox(dead=True, limit=500):
            count += await opened.resend([parcel.id for parcel in parcels])
        return count

    count = _with(store, work)
    if not count:
        raise ConfigError("There is no such message among those given up. See: rapkit outbox list")
    click.echo(f"{count} message{'s' * (count != 1)} will be sent again.")


def _with(url: str, work: Callable[[Store], Awaitable[T]]) -> T:
    path = Path(url.removeprefix("sqlite:///"))
    if url.startswith("sqlite:///") and not path.is_file():
        raise ConfigError(f"There is no store at {path}. Name the one the server uses with --store.")

    async def run() -> T:
        store = open_store(url)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def _when(parcel: Parcel) -> str:
    if parcel.dead_at is not None:
        return f"{_span(time.time() - parcel.dead_at)} ago"
    if parcel.due_at is None:
        return "after another"
    seconds = parcel.due_at - time.time()
    return f"in {_span(seconds)}" if seconds > 0 else "now"


def _span(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
