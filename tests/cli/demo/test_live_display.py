"""The picture of the demo, whatever the size of the terminal."""

import io
import math
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from rapkit.cli.demo.chapters import CHAPTERS
from rapkit.cli.demo.demo_state import DemoState, ThreadSeen
from rapkit.cli.demo.live_display import SMALLEST, Drawn, LiveDisplay
from rapkit.cli.demo.plain_output import PlainOutput
from rapkit.cli.demo.process import DemoProcess, State


def process(name: str, state: State) -> DemoProcess:
    made = DemoProcess(name, (), Path(), 20000, "/", lambda _word: None)
    made.state, made.purpose = state, "has tools"
    made.pids.append(4711)
    return made


def demo_state() -> DemoState:
    """In the middle, with much to show."""
    shown = LiveDisplay(Console(file=io.StringIO()))
    made = DemoState(shown, "scripted model, no key, no network", CHAPTERS)
    made.processes = [process("runtime", "alive"), process("lab", "killed"), process("ops", "starting")]
    made.doing, made.thread = (
        {"lab": "load_test ━━━━━━──── 7/12 s"},
        ThreadSeen("waiting", "for load_test, watch_alerts"),
    )
    for number in range(4):
        made.next_chapter()
        for turn in range(12):
            made.say(
                "agent", "agent", f"This is what I say in chapter {number}, and for the {turn}th time.", "after 8 ms"
            )
    made.say("user", "you", "The newest line.")
    return made


def drawn(columns: int, rows: int) -> list[str]:
    console = Console(file=io.StringIO(), width=columns, height=rows, force_terminal=True)
    lines = console.render_lines(Drawn(demo_state()), console.options.update(height=rows))
    return ["".join(segment.text for segment in line) for line in lines]


@pytest.mark.parametrize(
    ("columns", "rows"), [SMALLEST, (60, 24), (80, 24), (120, 30), (200, 60)], ids=["least", "60", "80", "120", "200"]
)
def test_it_fills_the_terminal_and_shows_the_newest_line(columns: int, rows: int) -> None:
    lines = drawn(columns, rows)
    assert [cell_len(line) for line in lines] == [columns] * rows
    whole = "\n".join(lines)
    assert "4/8  kill -9, everything" in whole
    assert "The newest line." in whole
    assert "● runtime pid 4711" in whole
    assert "✗ lab     killed" in whole
    assert "▤ thread  waiting" in whole


def test_before_the_first_chapter_there_is_nothing_to_see() -> None:
    out = io.StringIO()
    with LiveDisplay(Console(file=out, force_terminal=True, width=80, height=24)):
        pass
    assert "rapkit demo" not in out.getvalue()


def plainly(columns: int | None) -> list[str]:
    """What is printed where there is no picture."""
    out = io.StringIO()
    lines = PlainOutput(Console(file=out, width=80, highlight=False), columns)
    made = DemoState(lines, "scripted model, no key, no network", CHAPTERS, began=math.inf)
    made.next_chapter()
    made.say("out", "lab", "load_test: build 42 holds, and is as quick as before", "acknowledged after 8 ms")
    made.fact("exactly once", "4 calls, 4 answers in the journals, each to another call")
    lines.end(made.facts, Text("Now your own: rapkit new makes one, rapkit serve and rapkit up run it."))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("columns", [20, 40, 59, 60, 80, 200])
def test_without_a_picture_lines_are_wrapped_between_words(columns: int) -> None:
    lines = plainly(columns)
    assert max(map(cell_len, lines)) <= columns
    words = [word for line in plainly(None) for word in line.split()]
    assert [word for line in lines for word in line.split()] == words


def test_without_a_terminal_lines_are_not_wrapped() -> None:
    lines = plainly(None)
    assert lines[-3].endswith(
        "→ lab    load_test: build 42 holds, and is as quick as before  (acknowledged after 8 ms)"
    )
    assert lines[-2] == "✓ exactly once  4 calls, 4 answers in the journals, each to another call"
