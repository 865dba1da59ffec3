"""A journal in words, to be compared with what it should be."""

import re

from rapkit.kernel.entries import (
    Answered,
    Began,
    ChildEnded,
    ChildMade,
    ChoiceAsked,
    ChoiceMadeEntry,
    ClosedEntry,
    Happened,
    JournalEntry,
    ModelSaid,
    Reported,
    Summary,
    Tasked,
    Unsubscribed,
    UserSaid,
)
from tests.call_ids import plain
from tests.crash.runtime.evidence import Journal


def told(journal: Journal) -> list[str]:
    """The journal in words, without the order: what comes from two sides at once has none. Summaries are not told: they come anywhere."""
    return sorted(plain(_told(journal, entry)) for entry in journal.entries if not isinstance(entry, Summary))


def told_in_pieces(journal: Journal) -> list[str]:
    """The same, where it does not matter either what the model heard together. What came late may have come too late, and is left out."""
    lines = [line for line in told(journal) if not line.startswith("late ")]
    return sorted(piece for line in lines for piece in _pieces(line) if not piece.startswith("late "))


def _pieces(line: str) -> list[str]:
    if not line.startswith('said "heard '):
        return [line]
    heard, _, called = line.removeprefix('said "heard ').partition('"')
    return [*heard.split(", "), *(called.split(" and ")[1:])]


def _told(journal: Journal, entry: JournalEntry) -> str:
    match entry:
        case UserSaid(text):
            return f"user {text[9:12]}"
        case ModelSaid(text, calls):
            made = "".join(f" and called {call.name} {call.arguments.get('key', '')}".rstrip() for call in calls)
            return f'said "{_timeless(text)}"{made}'
        case Answered(call_id, _, text, subscription=subscription, late=late):
            return f"{'late ' * late}result of {call_id}: {'subscribed' if subscription else _timeless(text or '')}"
        case Happened(text=text, final=final, fate=fate):
            return f"event {text}, {fate}{', final' * final}"
        case ChildMade(thread_id, _, int(event)):
            happened = journal.entries[event - 1]
            assert isinstance(happened, Happened)
            return f"child {thread_id[-1]} for {happened.text}"
        case ChildMade(thread_id, task=str(task)):
            return f"child {thread_id[-1]} for {task[9:12]}"
        case ChildEnded(thread_id):
            return f"child {thread_id[-1]} closed"
        case Began(text=text):
            return f"began with {text}"
        case Tasked(text=text):
            return f"task {text[9:12]}"
        case Reported(_, thread_id, text, closed=closed):
            return f"child {thread_id[-1]} says {text}{', and that is all' * closed}"
        case ChoiceAsked(call_id, prompt):
            return f"{call_id} asks {prompt}"
        case ChoiceMadeEntry(call_id, selected, text=text):
            return f"chosen {selected if text is None else text} for {call_id}"
        case Unsubscribed(call_id, reason):
            return f"{call_id} is over: {reason}"
        case ClosedEntry(by):
            return f"closed by {by}"
    return str(entry)


def _timeless(text: str) -> str:
    """Without times and ids that are never the same, and in few words what is said in many."""
    text = re.sub(r"\d+ seconds have passed\. It is [^.]*\.", "some seconds have passed.", text)
    text = re.sub(r"Error: The call of '\w+' timed out .* or tell the user\.", "timed out", text)
    return re.sub(r"thr_\w+-0*(\d+)", r"child \1", text).replace(", and this", "; this")
