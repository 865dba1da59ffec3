"""Each event of a subscription once, in order, in one place: the thread or one made for it; and nothing after the end."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from rapkit.kernel.entries import (
    Began,
    ChildEnded,
    ChildMade,
    ClosedEntry,
    Happened,
    Ignored,
    Released,
    Unsubscribed,
)
from tests.crash.runtime.evidence import Evidence, Journal


def account_events(evidence: Evidence) -> Iterator[str]:
    for journal in evidence.journals.values():
        yield from _in_order(journal)
        yield from _in_one_place(journal)
        yield from _after_the_end(journal)
        yield from _children(evidence, journal)


def _in_order(journal: Journal) -> Iterator[str]:
    made = {call.id: call.arguments for call in journal.made}
    happened: dict[str, list[Happened]] = defaultdict(list)
    for entry in journal.entries:
        if isinstance(entry, Happened):
            happened[entry.call_id].append(entry)
    for call_id, events in happened.items():
        arguments = made.get(call_id, {})
        texts = [event.text for event in events]
        if texts != [f"{arguments.get('key')}/{number}" for number in range(1, len(texts) + 1)]:
            yield f"{journal.id}/{call_id} had the events {texts}"
        if events[-1].final and len(events) != arguments.get("last"):
            yield f"{journal.id}/{call_id} ended after {len(events)} of {arguments.get('last')} events"
    ended = {call for call, events in happened.items() if events[-1].final}
    ended |= {entry.call_id for entry in journal.entries if isinstance(entry, Unsubscribed)}
    subscribed = {call for call in made if any(answer.subscription for answer in journal.answers(call))}
    if journal.closed_at is None:
        yield from (f"{journal.id}/{call_id} never ended" for call_id in sorted(subscribed - ended))


def _in_one_place(journal: Journal) -> Iterator[str]:
    """An event is shown in the thread, or given to one child, or never shown, and the journal says which."""
    children = Counter(entry.event for entry in journal.entries if isinstance(entry, ChildMade) and entry.event)
    released = Counter(seq for entry in journal.entries if isinstance(entry, Released) for seq in entry.seqs)
    refused = Counter(seq for entry in journal.entries if isinstance(entry, Ignored) for seq in entry.seqs)
    for number, entry in journal.numbered:
        if isinstance(entry, Happened):
            places = children[number] + released[number] + refused[number] + (entry.fate == "shown")
            if places != 1:
                yield f"{journal.id}: the event {entry.text} ({entry.fate}) has {places} places, not one"


def _after_the_end(journal: Journal) -> Iterator[str]:
    ended: dict[str, str] = {}
    closed = False
    for number, entry in journal.numbered:
        if closed and not isinstance(entry, Ignored):
            yield f"{journal.id} is closed, and has {entry} in line {number}"
        match entry:
            case ClosedEntry():
                closed = True
            case Happened(call_id, _, text, _, final):
                if call_id in ended:
                    yield f"{journal.id}/{call_id} had the event {text} after its end"
                if final:
                    ended.setdefault(call_id, "finished")
            case Released(_, call_id) if ended.get(call_id) == "cancelled":
                yield f"{journal.id}/{call_id} had an event shown after it was cancelled"
            case ChildMade(_, call_id) if ended.get(call_id) == "cancelled":
                yield f"{journal.id}/{call_id} had a thread made for an event after it was cancelled"
            case Unsubscribed(call_id, reason):
                ended[call_id] = "cancelled" if "cancelled" in reason else "finished"


def _children(evidence: Evidence, journal: Journal) -> Iterator[str]:
    made = [entry for entry in journal.entries if isinstance(entry, ChildMade)]
    ended = Counter(entry.thread_id for entry in journal.entries if isinstance(entry, ChildEnded))
    for id, count in Counter(entry.thread_id for entry in made).items():
        if count > 1:
            yield f"{journal.id} made the thread {id} {count} times"
    for entry in made:
        child = evidence.journals.get(entry.thread_id)
        if child is None:
            yield f"{journal.id} made the thread {entry.thread_id}, which is not there"
            continue
        if entry.event is not None:
            yield from _beginning(journal, entry.event, child)
        if journal.closed_at is None and ended[child.id] != (child.closed_at is not None):
            yield f"{journal.id} was told {ended[child.id]} times that {child.id} was closed"
    parent = journal.thread.parent
    if parent is not None:
        entries = evidence.journals[parent].entries if parent in evidence.journals else ()
        if not any(isinstance(entry, ChildMade) and entry.thread_id == journal.id for entry in entries):
            yield f"thread {journal.id} is there, and its parent {parent} never made it"


def _beginning(journal: Journal, number: int, child: Journal) -> Iterator[str]:
    event = journal.entries[number - 1] if 0 < number <= len(journal.entries) else None
    begins = [entry for entry in child.entries if isinstance(entry, Began)]
    if not isinstance(event, Happened) or [(b.parent, b.call_id, b.text) for b in begins] != [
        (journal.id, event.call_id, event.text)
    ]:
        yield f"{child.id} begins with {begins}, and was made by {journal.id} for {event}"
    if child.thread.parent != journal.id or not child.thread.closed:
        yield f"{child.id}, a child of {journal.id}, is not closed or not a child of it"
