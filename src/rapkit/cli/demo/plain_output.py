"""The demo as plain lines, for logs, pipes and simple terminals."""

import textwrap
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rapkit.cli.demo.demo_state import DemoFact, DemoLine, DemoState, Kind

STYLES: dict[Kind, str] = {
    "user": "bold green",
    "agent": "cyan",
    "child": "magenta",
    "out": "blue",
    "in": "blue",
    "shell": "yellow",
    "note": "dim",
    "worker": "dim",
}

_ARROWS: dict[Kind, str] = {"out": "→ ", "in": "← "}
_WIDTH = 100
_INDENT = 5
_MARGIN = 19  # before what is said: the time, and who
_NARROW = 60  # too narrow for a margin
_SMALL_MARGIN = 4


class PlainOutput:
    """Prints what happens as it happens. On a terminal, which has `columns`, lines are wrapped between words; elsewhere not at all."""

    paced = False

    def __init__(self, console: Console, columns: int | None = None) -> None:
        self._console = console
        self._columns = columns

    def chapter(self, demo_state: DemoState) -> None:
        """A heading, and below it what it means."""
        chapter = demo_state.chapter
        self._print(Text(f"\n{demo_state.number}/{len(demo_state.chapters)}  {chapter.title}", "bold"))
        indent = " " * self._margin(_INDENT)
        for line in textwrap.wrap(chapter.meaning, min(_WIDTH, max(1, (self._columns or _WIDTH * 2) - len(indent)))):
            self._print(Text(f"{indent}{line}"))

    def line(self, line: DemoLine) -> None:
        """The seconds since the beginning, who, what."""
        who = f"{label(line)}  " if self._is_narrow else f"{label(line):<9}"
        text = Text.assemble((f"{line.at:6.2f} s  ", "dim"), who, spoken(line))
        self._print(text, self._margin(_MARGIN))

    def end(self, facts: Sequence[DemoFact], after: Text) -> None:
        """What was measured, a line each, and a last word."""
        widest = max(len(fact.about) for fact in facts) + 4
        for fact in facts:
            about = _about(fact)
            about.pad_right(2 if self._is_narrow else widest - len(about))
            self._print(about + Text(fact.measured), self._margin(widest))
        self._print(after)

    @property
    def _is_narrow(self) -> bool:
        return self._columns is not None and self._columns < _NARROW

    def _margin(self, selection: int) -> int:
        return _SMALL_MARGIN if self._is_narrow else selection

    def _print(self, text: Text, margin: int = 0) -> None:
        """`margin` is that of the second line and those that follow it."""
        if self._columns is None:
            self._console.print(text, soft_wrap=True)
            return
        before = text[:margin]
        for line in text[margin:].wrap(self._console, max(1, self._columns - margin)):
            line.rstrip()
            self._console.print(before + line, soft_wrap=True)
            before = Text(" " * margin)


def label(line: DemoLine) -> str:
    """Who, with the direction of a POST."""
    return _ARROWS.get(line.kind, "") + line.who


def spoken(line: DemoLine) -> Text:
    """What, and what was measured of it."""
    style = STYLES[line.kind]
    return Text.assemble((line.text, style), (f"  ({line.aside})" if line.aside else "", "dim"))


def told(demo_state: DemoState) -> Table:
    """What happened, wrapped to the terminal's width."""
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", style="dim", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for number, line in enumerate(demo_state.lines):
        for chapter in (index for index, begin in enumerate(demo_state.begins, 1) if begin == number):
            table.add_row(
                Text(f"\n{chapter}/{len(demo_state.chapters)}"),
                "",
                Text(f"\n{demo_state.chapters[chapter - 1].title}", "bold"),
            )
        if line.kind == "worker":
            continue  # there were many, and all alike
        table.add_row(f"{line.at:.1f} s", Text(label(line), STYLES[line.kind]), spoken(line))
    return table


def summary(facts: Sequence[DemoFact]) -> Table:
    """What was measured, a line each, wrapped to the terminal's width."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column()
    for fact in facts:
        table.add_row(_about(fact), fact.measured)
    return table


def _about(fact: DemoFact) -> Text:
    return Text.assemble(("✓ ", "green"), (fact.about, "bold"))
