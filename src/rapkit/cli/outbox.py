"""`rapkit outbox`."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click

from rapkit.cli.duration_text import format_duration
from rapkit.errors import ConfigError
from rapkit.mailbox import OutboxRow, Store
from rapkit.stores import file_of, open_store

T = TypeVar("T")

_SQLITE = "sqlite:///"
_MEMORY = "sqlite:///:memory:"
_FOLDER = Path(".rapkit")  # where `rapkit serve` keeps its stores by default

_store = click.option(
    "--store", metavar="URL", help="The store of a tool server or an agent.  [default: the one in .rapkit]"
)


@click.group()
def command() -> None:
    """Look at what could not be delivered, and send it again."""


@command.command("list", short_help="List messages that were given up, or that wait.")
@_store
@click.option("--waiting", is_flag=True, help="Show what waits for its next attempt instead of what was given up.")
@click.option(
    "--limit",
    default=100,
    show_default=True,
    metavar="NUMBER",
    type=click.IntRange(min=1),
    help="How many to show at most.",
)
def list_(store: str | None, waiting: bool, limit: int) -> None:
    """List messages that were given up. URLs and contents are secret and not shown."""
    outbox_rows = _with(store, lambda opened: opened.outbox(dead=not waiting, limit=limit))
    if not outbox_rows and waiting:
        click.echo("Nothing waits.")
        return
    if not outbox_rows:
        others = len(_with(store, lambda opened: opened.outbox(dead=False, limit=limit)))
        more = (
            f" {others} wait{'s' * (others == 1)} for another attempt: rapkit outbox list --waiting" if others else ""
        )
        click.echo(f"Nothing was given up.{more}")
        return
    head = ("message", "to", "kind", "attempts", "next attempt" if waiting else "given up", "problem")
    rows = [head, *map(_row, outbox_rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:  # never cut or wrapped: the ids are for `resend`
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@command.command(short_help="Send messages again that were given up.")
@_store
@click.argument("ids", nargs=-1, metavar="[MESSAGE]...")
@click.option("--all", "everything", is_flag=True, help="Send everything again that was given up.")
def resend(store: str | None, ids: tuple[str, ...], everything: bool) -> None:
    """Send messages again that were given up: those named, or --all.

    A running server sends them at once, a stopped one when it is started.
    """
    if bool(ids) == everything:
        raise ConfigError("Name the messages to send again, or say --all.")

    async def work(opened: Store) -> int:
        if not everything:
            return await opened.resend(ids)
        count = 0
        while outbox_rows := await opened.outbox(dead=True, limit=500):
            count += await opened.resend([outbox_row.id for outbox_row in outbox_rows])
        return count

    count = _with(store, work)
    if not count and everything:
        click.echo("Nothing was given up.")
        return
    if not count:
        raise ConfigError("There is no such message among those given up. See: rapkit outbox list")
    click.echo(f"{count} message{'s' * (count != 1)} will be sent again.")
    if not everything and (missing := len(set(ids)) - count):
        click.echo(f"{missing} of those named {'is' if missing == 1 else 'are'} not among those given up.", err=True)


def _with(url: str | None, work: Callable[[Store], Awaitable[T]]) -> T:
    url = _only_store() if url is None else url
    if url == _MEMORY:
        raise ConfigError("A store in memory is its server's alone and cannot be looked at from outside.")
    file = file_of(url)
    if file is not None and not file.is_file():
        raise ConfigError(f"There is no store at {file}. Name the one the server uses with --store.")

    async def run() -> T:
        store = open_store(url)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def _only_store() -> str:
    found = [f"{_SQLITE}{path}" for path in sorted(_FOLDER.glob("*.db"))]
    if not found:
        raise ConfigError(f"There is no store in {_FOLDER} here. Name the one the server uses with --store.")
    if len(found) > 1:
        raise ConfigError(f"There are several stores here. Name one with --store: {', '.join(found)}")
    return found[0]


def _row(outbox_row: OutboxRow) -> tuple[str, ...]:
    problem = (outbox_row.problem or "").removeprefix(outbox_row.origin).lstrip(": ")
    return outbox_row.id, outbox_row.origin, outbox_row.kind, str(outbox_row.attempts), _when(outbox_row), problem


def _when(outbox_row: OutboxRow) -> str:
    if outbox_row.dead_at is not None:
        return f"{format_duration(time.time() - outbox_row.dead_at)} ago"
    if outbox_row.due_at is None:
        return "after another"
    seconds = outbox_row.due_at - time.time()
    return f"in {format_duration(seconds)}" if seconds > 0 else "now"
