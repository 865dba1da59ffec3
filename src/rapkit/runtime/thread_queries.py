"""Queries on threads for clients: one thread, lists, families, journals and event feeds."""

import contextlib
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from heapq import merge
from typing import Any

from pydantic_core import from_json

from rapkit.errors import UnknownThread
from rapkit.kernel.budgets import BudgetAccount, accounts
from rapkit.kernel.limits import ThreadLimits
from rapkit.kernel.thread import OpenChoice, Pending, Subscription, Thread
from rapkit.mailbox import Box, Store
from rapkit.runtime.broadcast import Broadcast
from rapkit.runtime.callback_signatures import UNSIGNED
from rapkit.runtime.commit_builder import OAUTH, VIEW
from rapkit.runtime.event_feed import (
    EventFeed,
    JournalLine,
    ThreadEvent,
    is_running,
    read_lines,
    read_thread,
    status_of,
)
from rapkit.runtime.toolsets import THREAD

_PAGE = 200
_MOST_LOOKED_AT = 1000
_CHUNK = 100
_MOST_RELATIVES = 1000
_THREAD_ID = re.compile(r"[A-Za-z0-9_-]{1,512}")
_STORED_AS = {
    # A thread that has never run is stored as open, and what is running is not stored at all.
    "idle": ("open", "idle"),
    "running": ("open", "idle", "waiting", "parked"),
}


@dataclass(frozen=True, slots=True)
class ThreadSnapshot:
    """A thread as it is now."""

    thread: Thread
    running: bool
    created_at: float
    authorizations: dict[str, str]
    views: dict[str, Any]
    unsigned: dict[str, str] = field(default_factory=dict)
    """Why callbacks of calls were refused because of their signature, by the calls' ids."""

    @property
    def status(self) -> str:
        """What it is doing: idle, running, waiting, parked or closed."""
        return status_of(self.thread, self.running)

    @property
    def reason(self) -> str | None:
        """Why it is parked, if it is."""
        return self.thread.parked

    @property
    def pending_calls(self) -> dict[str, Pending]:
        """The calls that are not answered, by their ids."""
        return self.thread.pending

    @property
    def subscriptions(self) -> dict[str, Subscription]:
        """The active subscriptions, by the ids of the calls that made them."""
        return self.thread.subscriptions

    @property
    def choices(self) -> dict[str, OpenChoice]:
        """The questions to the user that are open, by the ids of the calls that ask."""
        return {call_id: questions[0] for call_id, questions in self.thread.choices.items()}


@dataclass(frozen=True, slots=True)
class SnapshotPage:
    """Some threads, without what they show; `next` is where to go on, if there may be more."""

    looks: list[ThreadSnapshot]
    next: str | None


@dataclass(frozen=True, slots=True)
class ThreadFamily:
    """A thread and its children, closed ones too, without what they show; `more` if there are others that are not shown."""

    look: ThreadSnapshot
    children: "list[ThreadFamily]"
    more: bool = False


class ThreadQueries:
    """The queries of clients, on threads given by id."""

    def __init__(self, store: Store, broadcast: Broadcast, limits: ThreadLimits | None = None) -> None:
        self._store = store
        self._broadcast = broadcast
        self._limits = limits or ThreadLimits()

    def budget(self, thread: Thread) -> tuple[BudgetAccount, ...]:
        """What a thread has used, and how much there is."""
        return accounts(thread, self._limits)

    async def _box(self, thread_id: str) -> Box:
        check_id(thread_id)
        box = await self._store.box(thread_id)
        if box is None or box.kind != THREAD:
            raise UnknownThread(f"There is no thread {thread_id[:80]!r}.")
        return box

    async def look(self, thread_id: str) -> ThreadSnapshot:
        """A thread as it is now."""
        box = await self._box(thread_id)
        authorizations = {each.key: each.body.decode() for each in await self._store.records(thread_id, OAUTH)}
        views = {each.key: from_json(each.body) for each in await self._store.records(thread_id, VIEW)}
        unsigned = {each.key: each.body.decode() for each in await self._store.records(thread_id, UNSIGNED)}
        thread = read_thread(box)
        return ThreadSnapshot(thread, is_running(box, thread), box.created_at, authorizations, views, unsigned)

    async def newest(
        self, *, parent: str | None = None, status: str | None = None, after: str = "", limit: int = 50
    ) -> SnapshotPage:
        """Threads, the latest first: those after the id `after`, of a parent, of a status.

        The store does not know which threads are running, so with a `status` it may take looking at many to find a few. Not more than a
        thousand are looked at for one page: it may hold fewer than `limit`, even none, and there may be more all the same.
        """
        looks: list[ThreadSnapshot] = []
        looked_at = 0
        chunk = max(limit + 1, _CHUNK if status is not None else 0)
        while looked_at < _MOST_LOOKED_AT:
            boxes = await self._boxes(parent, status, after, chunk)
            for number, box in enumerate(boxes, 1):
                thread = read_thread(box)
                look = ThreadSnapshot(thread, is_running(box, thread), box.created_at, {}, {})
                if status in (None, look.status):
                    looks.append(look)
                if len(looks) == limit:
                    return SnapshotPage(looks, box.id if number < len(boxes) or len(boxes) == chunk else None)
            if len(boxes) < chunk:
                return SnapshotPage(looks, None)
            after = boxes[-1].id
            looked_at += len(boxes)
        return SnapshotPage(looks, after)

    async def _boxes(self, parent: str | None, status: str | None, after: str, limit: int) -> list[Box]:
        """The next `limit` that may be of a status."""
        stored = [None] if status is None else _STORED_AS.get(status, (status,))
        pages = [
            await self._store.boxes(THREAD, parent=parent, status=each, after=after, limit=limit) for each in stored
        ]
        return list(merge(*pages, key=lambda box: box.id, reverse=True))[:limit]

    async def history(
        self, thread_id: str, after: int = 0, limit: int = _PAGE, most_bytes: int | None = None
    ) -> list[JournalLine]:
        """The journal, oldest first, from the line after `after`; with `most_bytes` no more than that, but at least one line."""
        await self._box(thread_id)
        return await read_lines(await self._store.entries(thread_id, after, limit, most_bytes))

    async def follow(self, thread_id: str, after: int = 0, skip: int = 0) -> AsyncGenerator[ThreadEvent, None]:
        """What has happened since line `after`, and what happens from now on, until the thread is closed.

        `skip` events of the line behind `after` are left out: those that a client already has of it.
        """
        await self._box(thread_id)
        following = EventFeed(self._store, self._broadcast, thread_id, after, skip)
        async with contextlib.aclosing(following.events()) as events:
            async for event in events:
                yield event

    async def family(self, thread_id: str) -> ThreadFamily:
        """A thread, its children, their children, and so on: the latest first, and not more than a thousand of them."""
        room = [_MOST_RELATIVES]
        return await self._family(await self._box(thread_id), room)

    async def _family(self, box: Box, room: list[int]) -> ThreadFamily:
        thread = read_thread(box)
        look = ThreadSnapshot(thread, is_running(box, thread), box.created_at, {}, {})
        if not thread.children_made:
            return ThreadFamily(look, [])
        boxes = await self._store.boxes(THREAD, parent=thread.id, limit=room[0] + 1)
        shown = boxes[: room[0]]
        room[0] -= len(shown)
        return ThreadFamily(look, [await self._family(each, room) for each in shown], more=len(boxes) > len(shown))

    async def journal_end(self, thread_id: str) -> tuple[int, bool]:
        """How many lines the journal has, and whether those will be all: the thread is closed, and nothing is left to do."""
        box = await self._box(thread_id)
        return box.length, read_thread(box).closed and not box.busy


def check_id(thread_id: str) -> None:
    # What is no id of a thread may be that of a box of our own.
    if not _THREAD_ID.fullmatch(thread_id):
        raise UnknownThread(f"There is no thread {thread_id[:80]!r}.")
