"""What holds for threads that a model made: each is there once, begins with its task, and what is said between relatives arrives once."""

from collections import Counter
from collections.abc import Iterator

from rapkit.kernel.entries import (
    Answered,
    ChildMade,
    Ignored,
    JournalEntry,
    MadeCall,
    ModelSaid,
    ParentSaid,
    Reported,
    Tasked,
)
from tests.crash.runtime.evidence import Evidence, Journal

_CLOSED_BY = "It was closed by "


def account_relatives(evidence: Evidence) -> Iterator[str]:
    for journal in evidence.journals.values():
        yield from _spawned(evidence, journal)
        yield from _reports(evidence, journal)
        yield from _messages(evidence, journal)
        thread = journal.thread
        if thread.task and thread.owes_report and not thread.closed:
            yield f"{journal.id} has come to rest, and never said anything to its parent"


def _spawned(evidence: Evidence, journal: Journal) -> Iterator[str]:
    made = {entry.call_id: entry for entry in journal.entries if isinstance(entry, ChildMade) and entry.task}
    if len(made) < sum(isinstance(entry, ChildMade) and entry.task is not None for entry in journal.entries):
        yield f"{journal.id}: one call has made two threads"
    for call in _done(journal, "spawn_thread"):
        entry = made.pop(call.id, None)
        if entry is None or entry.task != call.arguments["task"]:
            yield f"{journal.id}/{call.id} wanted a thread for {call.arguments['task']}, and got {entry}"
            continue
        child = evidence.journals.get(entry.thread_id)
        begins = None if child is None else _tasks(child)
        if begins != [(1, journal.id, entry.task)]:
            yield f"{entry.thread_id} was made by {journal.id} for {entry.task}, and begins with {begins}"
    for call_id in made:
        yield f"{journal.id}/{call_id} made a thread, and says that it did not"
    tasks = Counter(entry.task for entry in journal.entries if isinstance(entry, ChildMade) and entry.task)
    yield from (f"{journal.id} made {count} threads for {task}" for task, count in tasks.items() if count > 1)


def _tasks(child: Journal) -> list[tuple[int, str, str]]:
    return [(number, entry.parent, entry.text) for number, entry in child.numbered if isinstance(entry, Tasked)]


def _reports(evidence: Evidence, journal: Journal) -> Iterator[str]:
    """What a child has to say is heard once by its parent, unless that is closed."""
    parent = evidence.journals.get(journal.thread.parent or "")
    if parent is None or not journal.thread.task:
        return
    heard = Counter(
        entry.text for entry in parent.entries if isinstance(entry, Reported) and entry.thread_id == journal.id
    )
    asked = [call.arguments["text"] for call in _done(journal, "report_to_parent")]
    told = Counter(asked) + Counter(_last_words(entry) for entry in journal.entries)
    for text, count in heard.items():
        if count > told[text] and not text.startswith(_CLOSED_BY):
            yield f"{parent.id} heard {text!r} from {journal.id} {count} times, which said it {told[text]} times"
    if parent.closed_at is None:
        yield from (f"{parent.id} never heard {text!r} from {journal.id}" for text in asked if not heard[text])
        if not heard:
            closing = any(call.arguments.get("thread_id") == journal.id for call in _done(parent, "close_thread"))
            if not closing:
                yield f"{parent.id} never heard anything of {journal.id}"


def _last_words(entry: JournalEntry) -> str:
    """What is reported if a child comes to rest without a word."""
    return entry.text if isinstance(entry, ModelSaid) and not entry.calls else ""


def _messages(evidence: Evidence, journal: Journal) -> Iterator[str]:
    """What a parent says to its child is heard once, unless that is closed."""
    parent = evidence.journals.get(journal.thread.parent or "")
    heard = Counter(entry.text for entry in journal.entries if isinstance(entry, ParentSaid))
    calls = [] if parent is None else _done(parent, "send_message_to_child")
    told = Counter(call.arguments["text"] for call in calls if call.arguments["thread_id"] == journal.id)
    ignored = sum(isinstance(entry, Ignored) and entry.what == "parent" for entry in journal.entries)
    for text in heard | told:
        if heard[text] > told[text]:
            yield f"{journal.id} heard {text!r} from its parent {heard[text]} times, which said it {told[text]} times"
    if journal.closed_at is None and (heard.total() < told.total() or ignored):
        yield f"{journal.id} was told {told.total()} things by its parent, and heard {heard.total()}"


def _done(journal: Journal, name: str) -> list[MadeCall]:
    """The calls of a tool of ours that were done."""
    refused = {
        entry.call_id
        for entry in journal.entries
        if isinstance(entry, Answered) and (entry.text or "").startswith("Error: ")
    }
    return [call for call in journal.made if call.name == name and call.id not in refused]
