"""The live display of the demo: the chapter, the processes, the messages."""

from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.layout import Layout
from rich.live import Live
from rich.panel import Panel
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from rapkit.cli.demo.demo_state import DemoLine, DemoState
from rapkit.cli.demo.plain_output import STYLES, label, spoken
from rapkit.cli.demo.process import State

SMALLEST = (50, 18)
"""Columns and rows below which there is nothing to be seen of it."""

_FRAMES = 5  # a second
_SIDE_BY_SIDE = 118
_ASIDE = 54
_MARKS: dict[State, tuple[str, str]] = {
    "off": ("○", "dim"),
    "starting": ("◌", "yellow"),
    "alive": ("●", "green"),
    "killed": ("✗", "bold red"),
    "ended": ("○", "dim"),
}


class LiveDisplay:
    """Fills the terminal, follows its size, and gives the screen back as it was. For what is to stay, print it afterwards."""

    paced = True

    def __init__(self, console: Console) -> None:
        self._demo_state: DemoState | None = None
        self._live = Live(console=console, screen=True, get_renderable=self._drawn, refresh_per_second=_FRAMES)

    def __enter__(self) -> Self:
        """From here on it is shown."""
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The screen is as it was."""
        self._live.stop()

    def chapter(self, demo_state: DemoState) -> None:
        """It is drawn several times a second, so it only needs to keep the state."""
        self._demo_state = demo_state

    def line(self, line: DemoLine) -> None:
        """Nor here."""

    def _drawn(self) -> RenderableType:
        if self._demo_state is None:
            return Text("")
        return Drawn(self._demo_state)


class Drawn:
    """The state of the demo, drawn in the current size of the terminal."""

    def __init__(self, demo_state: DemoState) -> None:
        self._demo_state = demo_state

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        demo_state = self._demo_state
        width = options.max_width
        chapter = _chapter(demo_state)
        wide = width >= _SIDE_BY_SIDE
        alive = _alive(demo_state)
        said = _panel("what happens", _Newest(demo_state))
        whole = Layout()
        heading = Layout(chapter, size=len(console.render_lines(chapter, options.update(height=None))))
        if wide:
            below = Layout()
            below.split_row(Layout(said), Layout(alive, size=_ASIDE))
            whole.split_column(heading, below)
        else:
            rows = len(console.render_lines(alive, options.update(height=None)))
            whole.split_column(heading, Layout(alive, size=rows), Layout(said))
        yield whole


def _chapter(demo_state: DemoState) -> RenderableType:
    count, number = len(demo_state.chapters), demo_state.number
    dots = Text("●" * (number - 1) + "◉" + "○" * (count - number), "cyan")
    head = Table.grid(expand=True)
    head.add_column()
    head.add_column(justify="right", no_wrap=True)
    title = Text.assemble(
        ("rapkit demo", "bold"), (f"  {demo_state.subtitle}", "dim"), no_wrap=True, overflow="ellipsis"
    )
    head.add_row(title, Text.assemble(dots, f"  {demo_state.elapsed:4.1f} s"))
    chapter = demo_state.chapter
    all_dead = bool(demo_state.processes) and all(process.state == "killed" for process in demo_state.processes)
    return Group(
        head,
        Panel(
            Text(chapter.meaning),
            title=Text(f"{number}/{count}  {chapter.title}", "bold"),
            title_align="left",
            border_style="red" if all_dead else "cyan",
            box=box.ROUNDED,
        ),
    )


def _alive(demo_state: DemoState) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True, width=9)
    table.add_column(no_wrap=True, width=11)
    table.add_column()  # the one that gives way where there is little room
    for process in demo_state.processes:
        mark, style = _MARKS[process.state]
        doing = demo_state.doing.get(process.name, process.purpose) if process.state == "alive" else ""
        state = f"pid {process.pid}" if process.state == "alive" else process.state
        table.add_row(Text(f"{mark} {process.name}", style), Text(state, style), _remark(doing))
    workers = demo_state.workers
    if workers is not None:
        now = sorted(workers.now)
        mark, style = _MARKS["alive" if now else "off"]
        state = f"pid {now[0]}" if now else "none"
        came = f"{len(workers.came)} came, {len(workers.came) - len(now)} went" if workers.came else ""
        table.add_row(Text(f"{mark} worker", style), Text(state, style), _remark(came))
    table.add_row(
        Text("▤ thread", "cyan"), Text(demo_state.thread.status, "cyan"), _remark(demo_state.thread.waits_for)
    )
    return _panel("who is alive, and what is on disk", table)


def _remark(text: str) -> Text:
    return Text(text, "dim", no_wrap=True, overflow="ellipsis")


def _panel(title: str, content: RenderableType) -> Panel:
    return Panel(content, title=title, title_align="left", border_style="dim", box=box.ROUNDED)


class _Newest:
    """The lines that fit, the newest last."""

    def __init__(self, demo_state: DemoState) -> None:
        self._demo_state = demo_state

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        grid = Table.grid(padding=(0, 1))
        grid.add_column(no_wrap=True, min_width=7)
        grid.add_column()
        demo_state = self._demo_state
        for number, line in enumerate(demo_state.lines):
            if line.kind == "worker":
                continue  # these are seen elsewhere
            old = number < demo_state.begins[-1]
            text = Text(spoken(line).plain, "dim") if old else spoken(line)
            grid.add_row(Text(label(line), "dim" if old else STYLES[line.kind]), text)
        rows = console.render_lines(grid, options.update(height=None))
        for row in rows[-(options.height or len(rows)) :]:
            yield from row
            yield Segment.line()
