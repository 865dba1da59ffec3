"""What holds for journals that are summed up: they only grow, and a summary is about what stands before it."""

from collections.abc import Iterator

from rapkit.kernel.entries import ModelSaid, Summary
from tests.crash.runtime.evidence import Evidence, Journal


def account_summaries(evidence: Evidence) -> Iterator[str]:
    for journal in evidence.journals.values():
        yield from _about_what_was_before(journal)
    for sample in evidence.samples:
        known = evidence.journals.get(sample.thread)
        now = None if known is None or sample.number > len(known.entries) else known.entries[sample.number - 1]
        if now != sample.entry:
            yield f"line {sample.number} of {sample.thread} was {sample.entry}, and is {now}"


def _about_what_was_before(journal: Journal) -> Iterator[str]:
    upto, last = 0, None
    made: set[str] = set()
    for number, entry in journal.numbered:
        if isinstance(entry, ModelSaid):
            made |= {call.id for call in entry.calls}
        if not isinstance(entry, Summary):
            continue
        # The first one of a child may be about nothing but what it inherits.
        if not upto <= entry.upto < number or (last is not None and entry.upto == upto):
            yield f"{journal.id}: the summary in line {number} goes up to line {entry.upto}, and the one before to {upto}"
        if unknown := {call.id for call in entry.live} - made:
            yield f"{journal.id}: the summary in line {number} tells of calls nobody made: {sorted(unknown)}"
        upto, last = entry.upto, number
    known = journal.thread.summary
    if (known and (known.seq, known.upto)) != (last and (last, upto)):
        yield f"{journal.id} is summed up as {known} says, and its journal says line {last}, up to {upto}"
