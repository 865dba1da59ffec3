"""Everything that must not have happened, in words. `test_account.py` shows what is caught."""

from collections import Counter
from collections.abc import Iterator

from rapkit.kernel.entries import (
    Answered,
    ChildMade,
    ChoiceMadeEntry,
    Happened,
    Ignored,
    ModelSaid,
    Reported,
    Summary,
    UserSaid,
    WokenUp,
)
from tests.crash.runtime.acceptance import account_acceptance
from tests.crash.runtime.calls import account_calls
from tests.crash.runtime.events import account_events
from tests.crash.runtime.evidence import Evidence, Journal, Run
from tests.crash.runtime.questions import account_questions
from tests.crash.runtime.relatives import account_relatives
from tests.crash.runtime.summaries import account_summaries
from tests.crash.runtime.times import TIMED_OUT, account_times
from tests.crash.runtime.timetables import account_timetables


def account(evidence: Evidence) -> list[str]:
    """All complaints."""
    return [
        *evidence.left,
        *_missing(evidence),
        *(complaint for journal in evidence.journals.values() for complaint in _unfit(journal)),
        *account_acceptance(evidence),
        *account_calls(evidence),
        *account_events(evidence),
        *account_times(evidence),
        *account_questions(evidence),
        *account_relatives(evidence),
        *account_timetables(evidence),
        *account_summaries(evidence),
        *_at_once(evidence),
    ]


def summary(evidence: Evidence) -> str:
    """How much was tried, in a line."""
    deaths = dict(Counter(death.who for death in evidence.deaths))
    all_entries = [entry for journal in evidence.journals.values() for entry in journal.entries]
    entries = Counter(map(type, all_entries))
    late = sum(isinstance(entry, Answered) and bool(TIMED_OUT.fullmatch(entry.text or "")) for entry in all_entries)
    slept = sum("seconds have passed" in (e.text or "") for e in all_entries if isinstance(e, Answered))
    spawned = sum(isinstance(entry, ChildMade) and entry.task is not None for entry in all_entries)
    return (
        f"{len(evidence.threads)} conversations, {len(evidence.journals)} threads, {entries[UserSaid]} messages, "
        f"{entries[ModelSaid]} replies, {entries[Answered]} results, {entries[Happened]} events, "
        f"{slept} sleeps, {late} timed out, {entries[ChoiceMadeEntry]} questions, {spawned} spawned, "
        f"{entries[Reported]} reports, {entries[WokenUp]} times of schedules, {entries[Summary]} summaries, "
        f"{entries[Ignored]} ignored, {len(evidence.runs)} slices, {len(evidence.samples)} lines looked at twice, deaths: {deaths}"
    )


def _missing(evidence: Evidence) -> Iterator[str]:
    for thread in evidence.threads:
        if thread not in evidence.journals:
            yield f"thread {thread} was acknowledged, and is not in the store"
    for journal in evidence.journals.values():
        by_schedule = bool(journal.entries) and isinstance(journal.entries[0], WokenUp)
        if journal.thread.parent is None and journal.id not in evidence.threads and not by_schedule:
            yield f"thread {journal.id} is in the store, and nobody was told of it"
        if journal.id in evidence.closed and not journal.thread.closed:
            yield f"thread {journal.id} was acknowledged to be closed, and is not"


def _unfit(journal: Journal) -> Iterator[str]:
    """What does not fit together in the store, or has not come to an end."""
    thread = journal.thread
    name = f"thread {journal.id}"
    if thread.length != len(journal.entries):
        yield f"{name} has {len(journal.entries)} lines in its journal, and counts {thread.length}"
    if journal.live != thread.live_calls:
        yield f"{name} has the live calls {sorted(thread.live_calls)}, and records of {sorted(journal.live)}"
    if journal.views != frozenset(thread.views):
        yield f"{name} has the views {sorted(thread.views)}, and records of {sorted(journal.views)}"
    if journal.wrong:
        yield f"{name} is nothing a provider would take: {journal.wrong}"
    if journal.unread:
        yield f"{name} has {journal.unread} unread letters"
    if journal.busy:
        yield f"{name} is still busy"
    if not thread.closed:
        waits = {
            "pending calls": thread.pending,
            "subscriptions": thread.subscriptions,
            "expired calls": thread.expired,
            "questions": thread.choices,
            "children": thread.children,
            "children it made": thread.spawned,
            "timers": thread.timers,
            "waiting events": thread.waiting_events,
            "a question to the model": thread.wants_model,
            "a reason to be parked": thread.parked,
        }
        for what, left in waits.items():
            if left:
                yield f"{name} still has {what}: {left}"


def _at_once(evidence: Evidence) -> Iterator[str]:
    """Runs of one thread that overlap: the second began though the first had neither ended nor died, or stood still."""
    died: dict[int, float] = {}
    for death in evidence.deaths:
        died[death.pid] = min(death.at, died.get(death.pid, float("inf")))
    before: dict[str, Run] = {}
    for run in sorted(evidence.runs, key=lambda run: run.begun):
        last = before.get(run.box)
        if last is not None:
            ended = float("inf") if last.ended is None else last.ended
            if run.begun < min(ended, died.get(last.pid, float("inf"))):
                yield f"thread {run.box} was run by {last.pid} and by {run.pid} at once"
        before[run.box] = run
