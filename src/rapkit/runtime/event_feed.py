"""The event feed of a thread: an ordered stream that a client can resume at any position."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic_core import from_json

from rapkit.errors import StoreError, UnknownThread
from rapkit.kernel.entries import (
    AuthorizationAsked,
    ChoiceAsked,
    ChoiceMadeEntry,
    JournalEntry,
    ViewChanged,
    load_entry,
)
from rapkit.kernel.thread import OpenChoice, Thread, load_thread
from rapkit.mailbox import Box, Entry, Store
from rapkit.runtime.broadcast import Broadcast, BroadcastEnded, BroadcastMessage, Changed, Delta, MaybeChanged, Reset
from rapkit.runtime.commit_builder import OAUTH, VIEW
from rapkit.work.offload import offload

_LOOK_AGAIN_AFTER = 1.0
_PAGE = 50
_MOST_BYTES = 1024 * 1024
"""What is read of a journal at once for one who follows it, and may not take what is sent. One line may be larger."""
_CLOSED = {"status": "closed", "reason": None}


@dataclass(frozen=True, slots=True)
class JournalLine:
    """A line of the journal; `size` is how many bytes it takes in the store."""

    seq: int
    at: float
    entry: JournalEntry
    size: int = field(default=0, compare=False)


class EventName(StrEnum):
    """The events of a thread's feed."""

    ENTRY = "entry"
    STATUS = "status"
    CHOICE = "choice"
    OAUTH = "oauth"
    VIEW = "view"
    DELTA = "delta"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class ThreadEvent:
    """Something that happened in a thread. A client that resumes says up to which `seq` it has the events.

    `entry` carries the line; `status` the status; `choice` the question a call has open now; `oauth` where to authorise, as long as that is
    open; `view` the latest content, None if it was cleared; `delta` a piece of text, which is void after `reset`. With `more` another event
    of line `seq` follows.
    """

    name: EventName
    seq: int | None = None
    line: JournalLine | None = None
    data: Any = None
    more: bool = False


async def read_lines(entries: Sequence[Entry]) -> list[JournalLine]:
    """Lines as they are stored."""
    return [await offload(len(entry.body), _read_line, entry) for entry in entries]


def _read_line(entry: Entry) -> JournalLine:
    try:
        return JournalLine(entry.seq, entry.at, load_entry(entry.body), len(entry.body))
    except ValueError:
        raise StoreError(f"Entry {entry.seq} of a journal cannot be read.") from None


def read_thread(box: Box) -> Thread:
    """A thread as it is stored."""
    try:
        return load_thread(box.state)
    except ValueError:
        raise StoreError(f"The state of thread {box.id} cannot be read.") from None


async def check_state(store: Store, thread_id: str) -> None:
    """`StoreError` if the state of a thread cannot be loaded: nothing is accepted that the thread could not act on (RUN-3).

    Checked for every message, because a state can be damaged, or written by a newer version, at any time. Reading and parsing it takes some
    60 µs; a mark set by the worker that failed to load it would cost nothing, but come after the first message was acknowledged.
    """
    box = await store.box(thread_id)
    if box is not None:
        read_thread(box)


def is_running(box: Box, thread: Thread) -> bool:
    """Whether a worker runs it, or will at once."""
    return box.busy or (thread.wants_model and thread.parked is None)


def status_of(thread: Thread, running: bool) -> str:
    """A thread's status as clients see it."""
    return "running" if running and not thread.closed else thread.status.value


def choice_shown(call_id: str, choice: OpenChoice, thread: Thread) -> dict[str, Any]:
    """A question as clients see it. Where its answer goes is not for them."""
    call = thread.pending.get(call_id)
    return {
        "call_id": call_id,
        "prompt": choice.prompt,
        "choices": list(choice.choices),
        "default": choice.default,
        "in_words": call is not None and call.awaits == "user",
        "asked_at": choice.asked_at,
    }


class EventFeed:
    """Follows a thread from line `after` on; the first `skip` events of the next line are known already."""

    def __init__(self, store: Store, broadcast: Broadcast, thread_id: str, after: int, skip: int) -> None:
        self._store = store
        self._broadcast = broadcast
        self._id = thread_id
        self._after = after
        self._skip = skip
        self._status: dict[str, Any] | None = None
        self._asked: dict[str, OpenChoice] = {}
        self._unsettled = False

    async def events(self) -> AsyncGenerator[ThreadEvent, None]:
        """Everything, until the thread is closed or the process stops."""
        with self._broadcast.watch(self._id) as watcher:
            news: BroadcastMessage = MaybeChanged()
            seen: Box | None = None
            while not isinstance(news, BroadcastEnded):
                box = await self._box()
                if self._unsettled and isinstance(news, Changed) and box.length <= self._after:
                    # We were so late that the entry came before the pieces of its text.
                    yield self._streamed(Reset())
                if box != seen:  # else nothing happened, as it mostly does when we look by ourselves
                    seen = box
                    async for event in self._news_of(box):
                        yield event
                    if self._status == _CLOSED and not box.busy:
                        return
                while isinstance(news := await watcher.next(_LOOK_AGAIN_AFTER), Delta | Reset):
                    yield self._streamed(news)

    async def _news_of(self, box: Box) -> AsyncGenerator[ThreadEvent, None]:
        thread = read_thread(box)
        async for event in self._caught_up(box.length, thread):
            yield event
        status = {"status": status_of(thread, is_running(box, thread)), "reason": thread.parked}
        if status != self._status:
            self._status = status
            yield ThreadEvent(EventName.STATUS, self._after, data=status)

    async def _box(self) -> Box:
        box = await self._store.box(self._id)
        if box is None:
            raise UnknownThread(f"There is no thread {self._id} any more.")
        return box

    async def _caught_up(self, length: int, thread: Thread) -> AsyncGenerator[ThreadEvent, None]:
        """The lines up to `length`. The thread is read first, and no line that is newer than it: what a line is about is there, or over."""
        while self._after < length:
            limit = min(_PAGE, length - self._after)
            entries = await self._store.entries(self._id, self._after, limit, _MOST_BYTES)
            lines = await read_lines(entries)
            if not lines:
                raise StoreError(f"The journal of thread {self._id} ends too early.")
            shown = await self._shown(lines, thread)
            for line in lines:
                self._unsettled = False
                for event in self._of(line, shown.get(line.seq)):
                    if self._skip:
                        self._skip -= 1
                    else:
                        yield event
                self._skip = 0
                self._after = line.seq

    def _of(self, line: JournalLine, shown: ThreadEvent | None) -> Iterator[ThreadEvent]:
        yield ThreadEvent(EventName.ENTRY, line.seq, line, more=shown is not None)
        if shown is not None:
            yield shown

    async def _shown(self, lines: Sequence[JournalLine], thread: Thread) -> dict[int, ThreadEvent]:
        """What is shown beside lines, by their numbers: each thing once, as it is now, with the last line that is about it."""
        last = {about: line for line in lines if (about := _about(line.entry))}
        names = {name for name, _ in last}
        authorizations = await self._records(OAUTH) if EventName.OAUTH in names else {}
        views = await self._records(VIEW) if EventName.VIEW in names else {}
        shown: dict[int, ThreadEvent] = {}
        for (name, key), line in last.items():
            data: dict[str, Any] | None = None
            if name is EventName.CHOICE:
                data = self._question(key, thread)
            elif name is EventName.OAUTH and key in authorizations:
                data = {"call_id": key, "auth_url": authorizations[key].decode()}
            elif name is EventName.VIEW:
                data = {"view_type": key, "content": from_json(views[key]) if key in views else None}
            if data is not None:
                shown[line.seq] = ThreadEvent(name, line.seq, line, data)
        return shown

    async def _records(self, kind: str) -> dict[str, bytes]:
        return {record.key: record.body for record in await self._store.records(self._id, kind)}

    def _question(self, call_id: str, thread: Thread) -> dict[str, Any] | None:
        """The question of a call that can be answered now, unless it was told already: they are asked one after the other."""
        questions = thread.choices.get(call_id)
        if not questions or self._asked.get(call_id) == questions[0]:
            return None
        self._asked[call_id] = questions[0]
        return choice_shown(call_id, questions[0], thread)

    def _streamed(self, news: Delta | Reset) -> ThreadEvent:
        self._unsettled = isinstance(news, Delta)
        if isinstance(news, Delta):
            return ThreadEvent(EventName.DELTA, data={"text": news.text})
        return ThreadEvent(EventName.RESET, data={})


def _about(entry: JournalEntry) -> tuple[EventName, str] | None:
    match entry:
        case ChoiceAsked(call_id) | ChoiceMadeEntry(call_id):
            return EventName.CHOICE, call_id
        case AuthorizationAsked(call_id):
            return EventName.OAUTH, call_id
        case ViewChanged(view_type):
            return EventName.VIEW, view_type
    return None
