"""`rapkit threads list`."""

import itertools
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import click
from rich.text import Text

from rapkit.cli.agent_api import AgentApi
from rapkit.cli.agent_selection import AgentSelection, query_options, reach_agent
from rapkit.cli.duration_text import format_duration
from rapkit.cli.threads.journal_reader import read_journal
from rapkit.cli.threads.terminal_writer import TerminalWriter, print_json, status_text
from rapkit.cli.threads.thread_lookup import all_threads, complete_thread, find_thread, path_of
from rapkit.cli.threads.timeline import dollars
from rapkit.printable import printable

_STATUSES = ("idle", "running", "waiting", "parked", "closed")
_AT_ONCE = 8
_LAST_LINES = (5, 200)  # a tool that shows its progress may fill many
_GAP = 2
_ROOM_FOR_WORDS = 12
_WORDS = 200


@dataclass(frozen=True, slots=True)
class _Row:
    id: str
    status: Text
    age: str
    calls: str
    cost: str
    words: str


@click.command("list", short_help="List threads, the latest first.")
@click.option("--status", type=click.Choice(_STATUSES), help="Only those with this status.")
@click.option("--parent", metavar="THREAD", shell_complete=complete_thread, help="Only the children of this thread.")
@click.option(
    "--limit",
    default=20,
    show_default=True,
    metavar="NUMBER",
    type=click.IntRange(min=1),
    help="How many to show at most.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what the HTTP API says of them: {threads, more}.")
@query_options
def list_(selection: AgentSelection, status: str | None, parent: str | None, limit: int, as_json: bool) -> None:
    """List threads, the latest first: what they are doing, and what was last said in them.

    "asks you" is where somebody waits for your answer: see `rapkit threads show`. Calls are those that are not answered yet.
    """
    with reach_agent(selection, working=False) as agent:
        parent_id = None if parent is None else find_thread(agent.api, parent, agent.said)["thread_id"]
        found = all_threads(agent.api, status=status, parent=parent_id, limit=min(limit + 1, 200))
        threads = list(itertools.islice(found, limit + 1))
        more = len(threads) > limit
        threads = threads[:limit]
        if as_json:
            print_json({"threads": threads, "more": more})
            return
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            rows = list(pool.map(lambda thread: _row(agent.api, thread), threads))
    options = "".join(f" --{name} {value}" for name, value in (("status", status), ("parent", parent_id)) if value)
    _print(rows, agent.said.threads(f"list{options} --limit {limit * 5}") if more else None)


def _row(api: AgentApi, summary: Any) -> _Row:
    thread = api.get(path_of(summary["thread_id"]))
    return _Row(
        id=thread["thread_id"],
        status=status_text(thread),
        age=format_duration(time.time() - thread["created_at"]),
        calls=str(len(thread["pending_calls"]) or ""),
        cost=dollars(thread["usage"]["cost"]) if thread["usage"]["cost"] else "",
        words=_last_words(api, thread),
    )


def _last_words(api: AgentApi, thread: Any) -> str:
    """What tells a thread from others: why it stopped, what it was made for, or what was said last."""
    words = thread["reason"] or thread["task"] or ""
    for lines in _LAST_LINES:
        if words:
            break
        after = max(0, thread["length"] - lines)
        for entry in read_journal(api, thread["thread_id"], after):
            said = entry.get("text") if entry["kind"] in ("user", "assistant", "schedule", "report", "event") else None
            words = said or words
    return " ".join(printable(words).split())[:_WORDS]


def _print(rows: Sequence[_Row], to_see_more: str | None) -> None:
    writer = TerminalWriter()
    if not rows:
        writer.line("There are no such threads.")
        return
    head = _Row("thread", Text("status"), "age", "calls", "cost", "last words")
    widths = [_width([_cells(row)[number] for row in rows], cell) for number, cell in enumerate(_cells(head))]
    left = writer.width - sum(width + _GAP for width in widths if width)
    if left < _ROOM_FOR_WORDS:
        for row in rows:
            _print_narrow(writer, row)
    else:
        for row in (head, *rows):
            _print_wide(writer, row, widths, left, "dim" if row is head else "")
    if to_see_more is not None:
        writer.line()
        writer.whole(f"There are more: {to_see_more}")


def _cells(row: _Row) -> list[Text]:
    return [Text(row.id), row.status, Text(row.age), Text(row.calls), Text(row.cost)]


def _width(cells: list[Text], head: Text) -> int:
    """How wide a column is: not at all, if there is nothing in it."""
    widest = max(cell.cell_len for cell in cells)
    return max(widest, head.cell_len) if widest else 0


def _print_wide(writer: TerminalWriter, row: _Row, widths: list[int], left: int, style: str) -> None:
    line = Text(style=style)
    for number, (cell, width) in enumerate(zip(_cells(row), widths, strict=True)):
        if not width:
            continue
        space = " " * (width - cell.cell_len)
        line += cell + Text(space) if number < 2 else Text(space) + cell
        line.append(" " * _GAP)
    words = Text(row.words)
    words.truncate(left, overflow="ellipsis")
    line += words
    line.rstrip()
    writer.whole(line)


def _print_narrow(writer: TerminalWriter, row: _Row) -> None:
    writer.whole(Text(row.id, "bold"))
    about = row.status.copy()
    calls = f"{row.calls} call{'s' * (row.calls != '1')}" if row.calls else ""
    for part in filter(None, (row.age, calls, row.cost)):
        about.append(f", {part}")
    writer.line(about, indent=2)
    if row.words:
        words = Text(row.words)
        words.truncate(max(1, writer.width - 2), overflow="ellipsis")
        writer.line(words, indent=2)
