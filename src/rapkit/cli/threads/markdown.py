"""Render a thread as Markdown."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from rapkit.cli.threads.time_format import clock, day, lasted
from rapkit.cli.threads.timeline import Timeline, dollars

_SPOKEN = ("user", "assistant", "schedule", "task", "parent", "report")
_TICKS = re.compile(r"`+")


def in_markdown(thread: Any, entries: Iterable[Any]) -> Iterator[str]:
    """Its parts in order: a heading, what it is, then everything that happened."""
    yield f"# Thread {thread['thread_id']}\n\n"
    yield f"- status: {thread['status']}{': ' + thread['reason'] if thread['reason'] else ''}\n"
    yield f"- begun: {day(thread['created_at'])} {clock(thread['created_at'])}\n"
    for key, what in (("parent_id", "child of"), ("user_id", "for user"), ("task", "task")):
        if thread[key]:
            yield f"- {what}: {_in_one_line(thread[key])}\n"
    usage = thread["usage"]
    tokens = usage["input_tokens"] + usage["output_tokens"]
    yield f"- used: {usage['requests']} requests to the model, {tokens:,} tokens, {dollars(usage['cost'])}\n\n"
    timeline = Timeline()
    for entry in entries:
        moment = timeline.moment(entry)
        if moment is None:
            continue
        took = "" if moment.took is None else f", after {lasted(moment.took)}"
        yield f"**{_in_one_line(moment.who)}**, {day(moment.at)} {clock(moment.at)}{took}\n\n"
        # What people and models say is Markdown more often than not. What tools say may be anything.
        yield f"{moment.text}\n\n" if entry["kind"] in _SPOKEN else _fenced(moment.text)


def _fenced(text: str) -> str:
    longest = max(map(len, _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}\n\n"


def _in_one_line(text: str) -> str:
    return " ".join(text.split())
