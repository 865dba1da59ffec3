"""What holds for time: a sleep ends once and not too early, what timed out may still answer once, and no timer outlives its call."""

import re
from collections.abc import Iterator

from rapkit.kernel.entries import Answered, MadeCall
from tests.crash.runtime.evidence import Evidence, Journal

_LATE = re.compile(r"\w_late")
_SLEEPS = {"sleep": "seconds", "sleep_until": "", "wait_for_event": "at_most_seconds"}
_WAITED = re.compile(r"(Interrupted by what follows\. )?(\d+) seconds have passed\. It is .* UTC\.")
_ENDED_OTHERWISE = ("Error: Cancelled.", "Error: That is over")
TIMED_OUT = re.compile(r"Error: The call of '\w_late' timed out after 0\.4 s\. .*")


def account_times(evidence: Evidence) -> Iterator[str]:
    for journal in evidence.journals.values():
        for call in journal.made:
            if call.name in _SLEEPS:
                yield from _sleep(journal, call)
        yield from _timers(journal)


def timed_out(call: MadeCall, answers: list[Answered]) -> bool:
    """Whether a call was given up; then it may have one more answer, a late one of the tool's own."""
    first = answers[0] if answers else None
    return (
        first is not None
        and first.by == "runtime"
        and bool(_LATE.fullmatch(call.name) and TIMED_OUT.fullmatch(first.text or ""))
        and all(answer.late and answer.by == "tool" for answer in answers[1:])
    )


def _sleep(journal: Journal, call: MadeCall) -> Iterator[str]:
    """How often it is answered is counted with all the others."""
    for answer in journal.answers(call.id):
        text = answer.text or ""
        waited = _WAITED.fullmatch(text)
        if waited is None:
            if not text.startswith(_ENDED_OTHERWISE):
                yield f"{journal.id}/{call.id} ({call.name}) ended with {text!r}"
        elif not waited[1] and int(waited[2]) < round(call.arguments.get(_SLEEPS[call.name], 0)):
            yield f"{journal.id}/{call.id} ({call.name} {call.arguments}) ended too early: {text!r}"


def _timers(journal: Journal) -> Iterator[str]:
    thread = journal.thread
    known = {f"call/{call_id}" for call_id in (*thread.pending, *thread.subscriptions)}
    known |= {f"expired/{call_id}" for call_id in thread.expired}
    if left := journal.timers - (frozenset() if thread.closed else known):
        yield f"thread {journal.id} has timers of what is over: {sorted(left)}"
    if missing := {f"call/{call_id}" for call_id in thread.timers} - journal.timers:
        yield f"thread {journal.id} waits for timers that are not there: {sorted(missing)}"
