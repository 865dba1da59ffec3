"""Write about threads to a terminal of any width."""

import json
import sys
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from rapkit.cli.agent_selection import ReachedAgent
from rapkit.printable import printable

_NARROWEST = 20
STATUS_STYLES = {"running": "green", "waiting": "cyan", "parked": "red", "closed": "dim", "idle": ""}


class TerminalWriter:
    """Standard output for people, or standard error: wrapped to the width of the terminal, with untrusted text made harmless."""

    def __init__(self, *, error: bool = False) -> None:
        self._console = Console(highlight=False, stderr=error)

    @property
    def width(self) -> int:
        """How many columns there are."""
        return self._console.width

    def title(self, text: str) -> None:
        """A line in bold, with an empty one before it."""
        self.line()
        self.line(Text(text, "bold"))

    def line(self, text: Text | str = "", *, indent: int = 0, first: Text | str = "") -> None:
        """A text, wrapped; `first` stands before its first line, and the others are indented as far as `indent`."""
        text = Text(text) if isinstance(text, str) else text
        head = Text(first) if isinstance(first, str) else first
        text.plain, head.plain = printable(text.plain), printable(head.plain)
        text.expand_tabs(4)
        head.pad_right(indent - head.cell_len)
        for number, line in enumerate(text.wrap(self._console, max(_NARROWEST, self.width - indent)) or [Text()]):
            line.rstrip()
            whole = (head if number == 0 else Text(" " * indent)) + line
            whole.rstrip()
            self._console.print(whole, soft_wrap=True)

    def whole(self, text: Text | str) -> None:
        """A line that is not wrapped, because it is to be copied: with an id, a URL or a command in it."""
        text = Text(text) if isinstance(text, str) else text
        text.plain = printable(text.plain).replace("\n", " ")
        self._console.print(text, soft_wrap=True)


def status_text(thread: Any) -> Text:
    """What a thread is doing, or that it asks the user something."""
    if thread["asks_user"] and thread["status"] != "closed":
        return Text("asks you", "bold yellow")
    return Text(thread["status"], STATUS_STYLES.get(thread["status"], ""))


def print_json(value: Any) -> None:
    """One JSON document. On a terminal nothing in it can steer that."""
    click.echo(as_json(value))


def as_json(value: Any, *, indent: int | None = 2) -> str:
    """A value as JSON: readable in any language, but for a terminal in plain ASCII."""
    return json.dumps(value, indent=indent, ensure_ascii=sys.stdout.isatty())


def say_done(agent: ReachedAgent, done: str) -> None:
    """Say what was done; or that it will be, where no worker runs the threads now."""
    later = "" if agent.works else f" Nobody works on threads now: it is done {when_it_works(agent)}."
    click.echo(f"{printable(done)}{later}")


def when_it_works(agent: ReachedAgent) -> str:
    """When a worker will run threads that none runs now: an agent without a worker hibernates.

    Whether that is woken by a command of its own, it does not tell.
    """
    if agent.is_ours:
        return f"when the agent runs ({agent.said.up})"
    return f"when the agent is woken ({agent.said.wake}), unless it is woken by itself"
