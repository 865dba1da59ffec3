"""`rapkit demo`."""

import contextlib
import os
import shutil
import sys

import click
from rich.console import Console
from rich.text import Text

from rapkit.cli.demo.demo_script import DemoScript
from rapkit.cli.demo.demo_state import DemoState
from rapkit.cli.demo.failure import DemoFailed
from rapkit.cli.demo.live_display import SMALLEST, LiveDisplay
from rapkit.cli.demo.live_model import live_model
from rapkit.cli.demo.participants import SCRIPT, Participants
from rapkit.cli.demo.plain_output import PlainOutput, summary, told
from rapkit.cli.demo.process import is_alive
from rapkit.cli.demo.sandbox import Sandbox, check_that_there_is_room
from rapkit.cli.demo.signals import DemoStopped, raise_on_signals
from rapkit.errors import ConfigError

_PATIENCE = 30.0
_PATIENCE_WITH_A_MODEL = 120.0
_NEXT = "Now your own: rapkit new makes one, rapkit serve and rapkit up run it, rapkit chat talks to it."


@click.command()
@click.option(
    "--live", is_flag=True, help="With a real model: RAPKIT_MODEL, or that of OPENAI_API_KEY or ANTHROPIC_API_KEY."
)
def command(live: bool) -> None:
    """See what RAP is for, in a minute: an agent waits without running, everything is killed with -9, and nothing is lost.

    A runtime, two tool servers and workers that come and go, each in its own process, on this machine alone. No key and no network is
    needed, and nothing is left behind.
    """
    if not hasattr(os, "killpg"):
        raise ConfigError("The demo kills processes the way Linux and macOS do. Run it there, or in WSL.")
    model = live_model() if live else SCRIPT
    check_that_there_is_room()
    console = Console(highlight=False, emoji=False)
    display = LiveDisplay(console) if _can_show_pictures(console) else None
    lines = PlainOutput(console, shutil.get_terminal_size().columns if console.is_terminal else None)
    demo_state = DemoState(display or lines, model if live else "scripted model, no key, no network")
    sandbox = Sandbox()
    try:
        with raise_on_signals() as stop, sandbox, display or contextlib.nullcontext():
            patience = _PATIENCE_WITH_A_MODEL if live else _PATIENCE
            DemoScript(demo_state, Participants(sandbox, model), stop, patience).tell()
        _check_that_nothing_is_left(sandbox, demo_state)
    except DemoFailed as failure:
        _end(console, demo_state, display)
        _complain(f"This should not have happened. {failure}")
        sys.exit(1)
    except DemoStopped as stopped:
        _complain("Stopped half-way. The processes and their files are gone.")
        sys.exit(stopped.exit_code)
    _end(console, demo_state, display)
    console.print(Text("\nNothing was lost, nothing came twice. Measured in this run:\n", "bold green"))
    after = Text(f"\n{_NEXT}", "dim")
    if display is None:
        lines.end(demo_state.facts, after)
    else:
        console.print(summary(demo_state.facts))
        console.print(after)


def _can_show_pictures(console: Console) -> bool:
    large_enough = console.width >= SMALLEST[0] and console.height >= SMALLEST[1]
    return console.is_terminal and not console.is_dumb_terminal and console.encoding == "utf-8" and large_enough


def _end(console: Console, demo_state: DemoState, display: LiveDisplay | None) -> None:
    """What was seen stays in the scrollback. Plain lines are there already."""
    if display is not None:
        console.print(told(demo_state))


def _check_that_nothing_is_left(sandbox: Sandbox, demo_state: DemoState) -> None:
    workers = demo_state.workers.came if demo_state.workers else []
    left = [pid for pid in (*sandbox.pids, *workers) if is_alive(pid)]
    if left or sandbox.folder.exists():
        raise DemoFailed(f"Nothing should be left, but there are processes {left} or the folder {sandbox.folder}.")
    demo_state.fact("left behind", f"{len(left)} of {len(sandbox.pids) + len(workers)} processes, no file")
    demo_state.fact("in all", f"{demo_state.elapsed:.1f} s")


def _complain(text: str) -> None:
    click.echo(f"\n{text}", err=True)
