"""The stores of both sides, read when all is over, or to see whether it is."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import apsw

from rapkit.kernel.compaction import room_for
from rapkit.kernel.effects import Step
from rapkit.kernel.entries import JournalEntry, load_entry
from rapkit.kernel.thread import load_thread
from rapkit.mailbox import Box, Entry, Store
from rapkit.runtime.commit_builder import VIEW
from rapkit.runtime.history import read_view
from rapkit.runtime.mail_codec import LIVE
from rapkit.runtime.toolsets import THREAD
from tests.crash.runtime.evidence import Journal
from tests.crash.runtime.runtime_process import LIMITS
from tests.kernel import strict_provider

_PAGE = 500
_UNFINISHED = """
    SELECT 'a POST to ' || origin || ' on the lane ' || lane FROM outbox WHERE dead_at IS NULL
    UNION ALL SELECT 'a letter ' || kind || ' in ' || box FROM mail
    UNION ALL SELECT 'the box ' || kind || ' ' || id FROM boxes WHERE due_at IS NOT NULL AND kind NOT LIKE 'thread-%'
        AND NOT (kind = 'schedule' AND due_at > unixepoch() + 3600)
    UNION ALL SELECT 'the call ' || id FROM boxes WHERE kind LIKE 'call/%' OR kind LIKE 'subscription/%'
"""
_TIMERS = "SELECT box, key FROM timers JOIN boxes ON boxes.id = timers.box WHERE kind = 'thread'"
_SCHEDULES = "SELECT created_at FROM boxes WHERE kind = 'schedule' AND id = 'rapkit/schedule/' || ?"
_DEAD = "SELECT kind, lane, problem FROM outbox WHERE dead_at IS NOT NULL"


def unfinished(path: Path) -> list[str]:
    """What a process would still do if it were left alone."""
    return [f"{path.name} still has {what}" for (what,) in _rows(path, _UNFINISHED)]


def dead_letters(path: Path) -> list[tuple[str, str, str]]:
    """What could not be delivered: kind, lane and problem."""
    return [(str(kind), str(lane), str(problem)) for kind, lane, problem in _rows(path, _DEAD)]


def configured_at(path: Path, schedule: str) -> float:
    """When a schedule was first known."""
    ((at,),) = _rows(path, _SCHEDULES, schedule)
    return float(at)


def _rows(path: Path, statement: str, *values: str) -> list[tuple[Any, ...]]:
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        db.set_busy_timeout(5000)
        return list(db.execute(statement, values))
    finally:
        db.close()


def is_sound(path: Path) -> bool:
    return _rows(path, "PRAGMA integrity_check") == [("ok",)]


async def threads_of(store: Store) -> list[Box]:
    """All threads."""
    boxes: list[Box] = []
    while page := await store.boxes(THREAD, after=boxes[-1].id if boxes else "", limit=_PAGE):
        boxes += page
    return boxes


async def journals_of(store: Store, path: Path) -> dict[str, Journal]:
    """All journals, with what is kept beside them."""
    unread = dict(_rows(path, "SELECT box, count(*) FROM mail GROUP BY box"))
    timers: dict[str, set[str]] = defaultdict(set)
    for box, key in _rows(path, _TIMERS):
        timers[box].add(key)
    return {
        box.id: await _journal(store, box, unread.get(box.id, 0), frozenset(timers[box.id]))
        for box in await threads_of(store)
    }


async def lines_after(store: Store, thread: str, number: int) -> list[JournalEntry]:
    """The lines of a journal behind one, in order."""
    lines: list[Entry] = []
    while page := await store.entries(thread, after=number + len(lines), limit=_PAGE):
        lines += page
    if [line.seq for line in lines] != list(range(number + 1, number + len(lines) + 1)):
        raise AssertionError(f"the lines of {thread} are not numbered one by one")
    return [load_entry(line.body) for line in lines]


async def _journal(store: Store, box: Box, unread: int, timers: frozenset[str]) -> Journal:
    thread = load_thread(box.state)
    try:
        view = await read_view(store, thread, Step(thread), LIMITS)
        strict_provider.accept(view.conversation(LIMITS, room_for(thread, LIMITS, None)))
        wrong = ""
    except AssertionError as error:
        wrong = str(error) or "it is not valid"
    return Journal(
        thread,
        tuple(await lines_after(store, box.id, 0)),
        live=frozenset(record.key for record in await store.records(box.id, LIVE)),
        views=frozenset(record.key for record in await store.records(box.id, VIEW)),
        timers=timers,
        unread=unread,
        busy=box.busy,
        wrong=wrong,
    )
