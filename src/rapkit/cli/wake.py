"""`rapkit wake`."""

import asyncio
import dataclasses
import json
import logging
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rapkit.cli.duration_text import format_duration
from rapkit.cli.options import in_seconds, log_format, log_level
from rapkit.cli.public_url import public_url as url_of
from rapkit.cli.settings_options import settings_options
from rapkit.logs import set_up_logging
from rapkit.settings.settings import Flags, load_settings

if TYPE_CHECKING:
    from rapkit.runtime.agent import Agent
    from rapkit.runtime.engine import WakeResult

log = logging.getLogger("rapkit.cli")


@click.command()
@settings_options
@click.option(
    "--at-most", callback=in_seconds, metavar="DURATION", help="Begin nothing more after this time, like 45s or 5m."
)
@log_format
@log_level
def command(config: Path, flags: Flags, at_most: float | None, log_format: str, log_level: str) -> None:
    """Do what is due for the agent of rapkit.toml, and end: for one that runs as `rapkit up --no-worker`, or not at all.

    Says what was done, and when there is more to do. Any number may run at once.
    """
    set_up_logging(log_format, log_level)
    settings = load_settings(config, flags)
    # Who may use the client API does not matter here: it is not served.
    agent = dataclasses.replace(settings, tokens={}).agent()
    try:
        woken = asyncio.run(_wake(agent, url_of(settings), at_most))
    except asyncio.CancelledError:
        raise click.Abort from None
    click.echo(_as_json(woken) if log_format == "json" else _as_text(woken))


async def _wake(agent: "Agent", url: str, at_most: float | None) -> "WakeResult":
    """Told to stop, it begins nothing more and lets what runs end; told twice, it does not wait for that."""
    task = asyncio.current_task()
    assert task is not None

    def stop(task: "asyncio.Task[WakeResult]" = task) -> None:
        if not task.cancelling():
            log.info(
                "stopping: threads that run get %g s to end; a second Ctrl-C does not wait for them",
                agent.patience.grace,
            )
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    return await agent.do_what_is_due(at_most=at_most, public_url=url)


def _as_json(woken: "WakeResult") -> str:
    later = None if woken.next is None else woken.next.isoformat(timespec="milliseconds")
    return json.dumps({"threads": woken.threads, "posts": woken.posts, "next": later})


def _as_text(woken: "WakeResult") -> str:
    done = "nothing was due"
    if woken.threads or woken.posts:
        done = f"{_counted(woken.threads, 'thread')} ran, {_counted(woken.posts, 'POST')} sent"
    if woken.next is None:
        return f"{done}; nothing is due later"
    seconds = (woken.next - datetime.now(UTC)).total_seconds()
    if seconds <= 0:
        return f"{done}; there is more to do now"
    return f"{done}; next at {woken.next:%Y-%m-%d %H:%M:%S} UTC (in {format_duration(seconds)})"


def _counted(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'s' * (number != 1)}"
