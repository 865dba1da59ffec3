"""Acknowledged: in the journal exactly once, and in the order of acceptance."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from rapkit.kernel.entries import (
    Answered,
    ChoiceAsked,
    ChoiceMadeEntry,
    Happened,
    Ignored,
    JournalEntry,
    Unsubscribed,
    UserSaid,
    ViewChanged,
)
from tests.crash.runtime.evidence import Evidence, Journal
from tests.crash.runtime.questions import is_ours

_TOLD = ("user", "tool_result", "subscription_event", "user_choice", "view_update")
Name = tuple[str, str, str]
"""What is recognised again: its type, its call and its text, as far as the journal says so."""


@dataclass(frozen=True)
class _Told:
    """Something a thread was told, from the moment it was first sent to that of its acknowledgement."""

    name: Name
    begun: float
    answered: float | None


def account_acceptance(evidence: Evidence) -> Iterator[str]:
    for journal in evidence.journals.values():
        told = [*_spoken(evidence, journal), *_heard(evidence, journal)]
        yield from _lost_or_doubled(journal, told)
        yield from _out_of_order(journal, told)
        yield from _wishes(evidence, journal)


def _spoken(evidence: Evidence, journal: Journal) -> list[_Told]:
    return [_Told(("user", "", each.text), each.begun, each.answered) for each in evidence.spoken_by_thread[journal.id]]


def _heard(evidence: Evidence, journal: Journal) -> list[_Told]:
    return [
        _Told((each.type, each.call, "" if each.type == "tool_result" else each.text), each.at, each.answered)
        for each in evidence.heard_by_thread[journal.id]
    ]


def _lost_or_doubled(journal: Journal, told: list[_Told]) -> Iterator[str]:
    """Each is an entry of its own, or an ignored record of its kind; and there is nothing else."""
    written = Counter(name for entry in journal.entries if (name := _name_of(journal, entry)) is not None)
    said = Counter(each.name for each in told)
    acknowledged = Counter(each.name for each in told if each.answered is not None)
    for name, count in written.items():
        if count > said[name]:
            yield f"thread {journal.id} has {name} in its journal {count} times, and was told it {said[name]} times"
    ignored = Counter(
        (entry.what, entry.call_id or "") for entry in journal.entries if isinstance(entry, Ignored) and not entry.seqs
    )
    for kind in {*map(_kind, said), *(kind for kind in ignored if kind[0] in _TOLD)}:
        names = [name for name in said if _kind(name) == kind]
        least = {name: acknowledged[name] - written[name] for name in names if acknowledged[name] > written[name]}
        most = sum(said[name] - written[name] for name in names)
        if sum(least.values()) > ignored[kind]:
            yield f"thread {journal.id} acknowledged {sorted(least)}, which is not in its journal"
        if ignored[kind] > most:
            yield f"thread {journal.id} ignored {ignored[kind]} of {kind}, and was told {most} that it can be"


def _wishes(evidence: Evidence, journal: Journal) -> Iterator[str]:
    """What the user cancelled or chose had its effect once, or was ignored."""
    wanted = evidence.wishes_by_thread[journal.id]
    written = Counter(wish for entry in journal.entries if (wish := _granted(entry)) is not None)
    for what, call in {(wish.what, wish.call) for wish in wanted} | set(written):
        same = [wish for wish in wanted if (wish.what, wish.call) == (what, call)]
        least, found = sum(wish.acknowledged for wish in same), written[what, call]
        if what != "cancel" and _is_over(journal, call):
            least = 0  # it counted when it was given, and was overtaken on its way
        if not least <= found <= len(same):
            yield f"{journal.id}/{call}: {what} was wanted {len(same)} times, taken {least} times and done {found} times"


def _is_over(journal: Journal, call: str) -> bool:
    """Whether a question may have ended before its answer came: its time was over, or its thread closed."""
    expired = any(
        isinstance(entry, ChoiceMadeEntry) and entry.expired and entry.call_id == call for entry in journal.entries
    )
    return expired or journal.closed_at is not None


def _granted(entry: JournalEntry) -> tuple[str, str] | None:
    match entry:
        case Answered(call_id, by="runtime", text=str(text)) if "The user cancelled" in text:
            return "cancel", call_id
        case Unsubscribed(call_id, "cancelled by the user"):
            return "cancel", call_id
        case ChoiceMadeEntry(call_id, expired=False, text=text):
            return "choice" if text is None else "answer", call_id
        case Ignored("cancel" | "choice" | "answer" as what, _, str(call_id)):
            return what, call_id
    return None


def _out_of_order(journal: Journal, told: list[_Told]) -> Iterator[str]:
    """What was acknowledged before another thing was first said stands before it."""
    places = {name: number for number, entry in journal.numbered if (name := _name_of(journal, entry)) is not None}
    said = Counter(each.name for each in told)
    # A tool that runs again after a crash may show the same view again: which of them is which cannot be told.
    placed = [each for each in told if each.name in places and said[each.name] == 1]
    soonest: _Told | None = None
    for each in sorted(placed, key=lambda each: places[each.name], reverse=True):
        if soonest is not None and soonest.answered is not None and soonest.answered < each.begun:
            yield f"thread {journal.id} accepted {soonest.name} before {each.name}, and has them the other way round"
        if each.answered is not None and (soonest is None or each.answered < (soonest.answered or 0.0)):
            soonest = each


def _kind(name: Name) -> tuple[str, str]:
    return name[0], "" if name[0] in ("user", "view_update") else name[1]


def _name_of(journal: Journal, entry: JournalEntry) -> Name | None:
    match entry:
        case UserSaid(text):
            return "user", "", text
        case Answered(call_id, by="tool"):
            return "tool_result", call_id, ""
        case Happened(call_id, _, text):
            return "subscription_event", call_id, text
        case ChoiceAsked(call_id, prompt) if not is_ours(entry, journal.calls):
            return "user_choice", call_id, prompt
        case ViewChanged(view_type):
            return "view_update", "", view_type
    return None
