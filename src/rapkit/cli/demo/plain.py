"""The demo in plain lines, one for whatever happens: for logs, pipes and terminals that can do no more."""

import textwrap
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rapkit.cli.demo.scene import Fact, Kind, Line, Scene

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


class PlainLines:
    """Prints what happens as it happens."""

    paced = False

    def __init__(self, console: Console) -> None:
        self._console = console

    def chapter(self, scene: Scene) -> None:
        """A heading, and below it what it means."""
        chapter = scene.chapter
        self._print(Text(f"\n{scene.number}/{len(scene.chapters)}  {chapter.title}", "bold"))
        for line in textwrap.wrap(chapter.meaning, _WIDTH):
            self._print(Text(f"     {line}"))

    def line(self, line: Line) -> None:
        """The seconds since the beginning, who, what."""
        self._print(Text.assemble((f"{line.at:6.2f} s  ", "dim"), f"{label(line):<9}", spoken(line)))

    def _print(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)


def label(line: Line) -> str:
    """Who, with the direction of a POST."""
    return _ARROWS.get(line.kind, "") + line.who


def spoken(line: Line) -> Text:
    """What, and what was measured of it."""
    style = STYLES[line.kind]
    return Text.assemble((line.text, style), (f"  ({line.aside})" if line.aside else "", "dim"))


def told(scene: Scene) -> Table:
    """What happened, wrapped to the terminal's width."""
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", style="dim", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for number, line in enumerate(scene.lines):
        for chapter in (index for index, begin in enumerate(scene.begins, 1) if begin == number):
            table.add_row(
                Text(f"\n{chapter}/{len(scene.chapters)}"), "", Text(f"\n{scene.chapters[chapter - 1].title}", "bold")
            )
        if line.kind == "worker":
            continue  # there were many, and all alike
        table.add_row(f"{line.at:.1f} s", Text(label(line), STYLES[line.kind]), spoken(line))
    return table


def summary(facts: Sequence[Fact]) -> Table:
    """What was measured, a line each, wrapped to the terminal's width."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column()
    for fact in facts:
        table.add_row(_about(fact), fact.measured)
    return table


def summary_lines(facts: Sequence[Fact]) -> Text:
    """The same, not wrapped."""
    widest = max(len(fact.about) for fact in facts) + 4
    lines = []
    for fact in facts:
        about = _about(fact)
        about.pad_right(widest - len(about))
        lines.append(about + Text(fact.measured))
    return Text("\n").join(lines)


def _about(fact: Fact) -> Text:
    return Text.assemble(("✓ ", "green"), (fact.about, "bold"))
