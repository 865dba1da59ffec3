"""What holds for schedules: each time once, none left out, in order and in the right thread."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from rapkit.kernel.entries import WokenUp
from tests.crash.runtime.evidence import Evidence, Timetable


def account_timetables(evidence: Evidence) -> Iterator[str]:
    told: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for journal in evidence.journals.values():
        for entry in journal.entries:
            if isinstance(entry, WokenUp):
                told[entry.schedule][journal.id].append(entry.due)
    for table in evidence.timetables:
        yield from _carried_out(table, told.pop(table.name, {}))
    yield from (f"there is no schedule {name}, and threads were told its times" for name in told)


def _carried_out(table: Timetable, threads: dict[str, list[str]]) -> Iterator[str]:
    due = Counter(table.due)
    found = Counter(at for each in threads.values() for at in each)
    for at in due | found:
        if due[at] != found[at]:
            yield f"schedule {table.name} was due {due[at]} times at {at}, and was told {found[at]} times"
    order = {at: number for number, at in enumerate(table.due)}
    for thread, times in threads.items():
        if sorted(times, key=lambda at: order.get(at, -1)) != times:
            yield f"schedule {table.name} was told out of order in {thread}: {times}"
        if table.new_thread and len(times) > 1:
            yield f"schedule {table.name} has {len(times)} times in {thread}, and wants a thread for each"
    if not table.new_thread and len(threads) > 1:
        yield f"schedule {table.name} has {len(threads)} threads, not one"
