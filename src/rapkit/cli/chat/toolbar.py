"""The toolbar below the input line: the thread, and what it waits for."""

import time
from typing import Any

from rich.cells import cell_len

from rapkit.cli.chat.block import clipped
from rapkit.cli.chat.displayed_thread import DisplayedThread
from rapkit.cli.chat.journal_renderer import short_id
from rapkit.cli.chat.picker import Fragments
from rapkit.cli.progress import Progress

_MOST_LINES = 5
_BAR = 10
_GAPS = 5
_AWAITS = {"tool": "", "permission": "needs your permission", "user": "waits for your answer", "time": "sleeps"}
_STATUS = {"new": "your first message begins it", "running": "thinking…"}


def toolbar(displayed: DisplayedThread, unsent: int, hint: str | None, width: int) -> Fragments:
    """Its lines: the first always the thread and its state, then a line for each call, subscription and child that matters now."""
    now = time.time()
    calls = [_call(call, displayed, now, width) for call in displayed.pending]
    calls += [_subscription(each, displayed, now, width) for each in displayed.subscriptions]
    if (more := len(calls) - _MOST_LINES) > 0:
        calls = [*calls[:_MOST_LINES], f" {clipped(f'… and {more} more', width - 1)}"]
    asking = [_asking(id, displayed, width) for id in displayed.asking_children]
    fragments: Fragments = [_first(displayed, unsent, hint, width, now)]
    for style, lines in (("class:toolbar.call", calls), ("class:toolbar.asks", asking)):
        for line in lines:
            fragments += [("", "\n"), (style, line)]
    return fragments


def ago(seconds: float) -> str:
    """A duration in its largest unit."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _first(displayed: DisplayedThread, unsent: int, hint: str | None, width: int, now: float) -> tuple[str, str]:
    parts = [short_id(displayed.id) if displayed.id else "new thread"]
    style = "class:toolbar.status"
    if displayed.away_since is not None:
        style = "class:toolbar.away"
        parts.append(f"the agent is away for {ago(now - displayed.away_since)}, trying again")
        if unsent:
            parts.append(f"{unsent} {'message' if unsent == 1 else 'messages'} to send")
    else:
        parts.append(_STATUS.get(displayed.status, displayed.status))
        parts += _counts(displayed)
    if hint:
        parts = [parts[0], hint]
    line = clipped(" · ".join(parts), width - 2)
    # Not as wide as the screen: what reaches its edge is broken in two when the window is made smaller.
    return style, f" {line} "


def _counts(displayed: DisplayedThread) -> list[str]:
    counted = (
        (len(displayed.pending), "call", "calls"),
        (len(displayed.subscriptions), "subscription", "subscriptions"),
        (len(displayed.children), "child", "children"),
        (len(displayed.questions), "question", "questions"),
    )
    return [f"{count} {one if count == 1 else many}" for count, one, many in counted if count]


def _call(call: dict[str, Any], displayed: DisplayedThread, now: float, width: int) -> str:
    state = [ago(now - call["made_at"])]
    if call["call_id"] in displayed.authorizing:
        state.append("wants to be authorised, see above")
    elif call["call_id"] in displayed.questions:
        state.append("asks you")
    elif about := _AWAITS.get(call["awaits"], call["awaits"]):
        state.append(about)
    if call["until"] is not None and call["awaits"] == "time":
        state.append(f"{ago(call['until'] - now)} more")
    return _line(f"→ {call['display']}", state, displayed.progress.get(call["call_id"]), width)


def _subscription(each: dict[str, Any], displayed: DisplayedThread, now: float, width: int) -> str:
    state = [f"for {ago(now - each['since'])}"]
    return _line(f"◇ {each['display']}", state, displayed.progress.get(each["call_id"]), width)


def _line(left: str, state: list[str], progress: Progress | None, width: int) -> str:
    if progress is None:
        return _aligned(left, ", ".join(state), width)
    bar = progress.bar(_BAR)
    right = ", ".join([*state, progress.in_words])
    if bar and cell_len(left) + len(bar) + cell_len(right) + _GAPS <= width:
        right = ", ".join([*state, f"{bar} {progress.in_words}"])
    return _aligned(left, right, width)


def _aligned(left: str, right: str, width: int) -> str:
    """One line; the left is clipped so that the right can be read. If that is long, each has at least half of the screen."""
    right = clipped(right, max(8, width // 2, width - cell_len(left) - 4))
    left = clipped(left, width - cell_len(right) - 4)
    return f" {left}  {right}"


def _asking(child: str, displayed: DisplayedThread, width: int) -> str:
    text = f"? a child asks you: /switch {child.removeprefix(displayed.id or '')}"
    return f" {clipped(text, width - 1)}"
