"""What clients can do with threads. Whatever is said to have happened is durable when it is said."""

import contextlib
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from heapq import merge
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from rapkit.errors import ThreadClosed, ThreadError, UnknownThread
from rapkit.ids import new_id
from rapkit.kernel.incoming import CancelCall, ChooseFor, CloseThread, Incoming, UserMessage
from rapkit.kernel.thread import OpenChoice, Pending, Subscription, Thread, dump_thread
from rapkit.mailbox import Box, Letter, NewBox, Reception, Store
from rapkit.protocol.fields import MAX_ID, Id
from rapkit.runtime.commits import OAUTH, VIEW
from rapkit.runtime.following import (
    EventName,
    Following,
    Line,
    ThreadEvent,
    is_running,
    read_line,
    read_thread,
    status_of,
)
from rapkit.runtime.hub import Hub, Perhaps
from rapkit.runtime.letters import letter
from rapkit.runtime.questions import FirstAnswers, GivenAnswer, is_open, name_of
from rapkit.runtime.repeats import Keyed, KeyReused, Repeats
from rapkit.runtime.toolsets import THREAD

__all__ = [
    "EventName",
    "KeyReused",
    "Line",
    "Look",
    "NoSuchChoice",
    "Page",
    "ThreadEvent",
    "Threads",
    "UnknownCall",
    "status_of",
]

_PAGE = 200
_MOST_LOOKED_AT = 1000
_CHUNK = 100
_THREAD_ID = re.compile(r"[A-Za-z0-9_-]{1,512}")
_USER_ID: TypeAdapter[str] = TypeAdapter(Id)
_STORED_AS = {
    # A thread that has never run is stored as open, and what is running is not stored at all.
    "idle": ("open", "idle"),
    "running": ("open", "idle", "waiting", "parked"),
}


class UnknownCall(ThreadError):
    """A thread has no pending call or active subscription by that id."""


class NoSuchChoice(ThreadError):
    """A question does not have that many choices."""


@dataclass(frozen=True, slots=True)
class Look:
    """A thread as it is now."""

    thread: Thread
    running: bool
    created_at: float
    authorizations: dict[str, str]
    views: dict[str, Any]

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
class Page:
    """Some threads, without what they show; `next` is where to go on, if there may be more."""

    looks: list[Look]
    next: str | None


class Threads:
    """Threads by their ids.

    A `key` makes a request repeatable: the same request with the same key again has the same answer and no effect, and a different one
    raises `KeyReused`. Keys of different methods, threads and calls have nothing to do with each other.
    """

    def __init__(
        self,
        store: Store,
        hub: Hub,
        now: Callable[[], float] = time.time,
        interrupt: Callable[[str], None] = lambda _thread_id: None,
    ) -> None:
        self._store = store
        self._hub = hub
        self._interrupt = interrupt
        self._repeats = Repeats(store, now)
        self._answers = FirstAnswers(store)

    # Making something happen

    async def create(self, *, text: str | None = None, user_id: str | None = None, key: str | None = None) -> str:
        """Begin a thread, with a first message if there is one; its id."""
        if user_id is not None:
            _check_user_id(user_id)
        if text is not None:
            _check_text(text)
        request = Keyed.of(key, ("create",), [text, user_id])
        thread_id = await self._repeats.find(request) or await self._repeats.note(request, new_id("thr"))
        box = NewBox(thread_id, THREAD, dump_thread(Thread(thread_id, user_id)), root=thread_id, idle=True)
        await self._store.create(box, None if text is None else _first_message(thread_id, text))
        return thread_id

    async def send(self, thread_id: str, text: str, key: str | None = None) -> str:
        """Say something to a thread; the id of the message."""
        _check_text(text)

        async def message_id() -> str:
            if key is not None:
                await self._open(thread_id)
            return new_id("usr")

        id = await self._noted(Keyed.of(key, ("send", thread_id), text), message_id)
        await self._accept(thread_id, UserMessage(text, id), dedup=id)
        return id

    async def close(self, thread_id: str) -> None:
        """Close a thread; one that is closed stays so."""
        with contextlib.suppress(ThreadClosed):
            await self._accept(thread_id, CloseThread(), dedup="close")
            self._interrupt(thread_id)  # what the model would say now, nobody wants to hear

    async def cancel(self, thread_id: str, call_id: str, key: str | None = None) -> None:
        """Cancel a pending call, or an active subscription."""

        async def cancellation() -> str:
            _check_call(await self._open(thread_id), call_id)
            return new_id("cancel")

        id = await self._noted(Keyed.of(key, ("cancel", thread_id, call_id)), cancellation)
        await self._accept(thread_id, CancelCall(call_id), dedup=id)

    async def choose(self, thread_id: str, call_id: str, selected: int | None, key: str | None = None) -> None:
        """Answer the open question of a call; None dismisses it, so that its default stands. Only the first answer counts."""

        async def question() -> str:
            return name_of(call_id, _question(await self._open(thread_id), call_id, selected))

        request = Keyed.of(key, ("choose", thread_id, call_id), selected)
        name = await self._noted(request, question)
        by = new_id("answer") if request is None else request.place
        first = await self._answer(thread_id, call_id, name, GivenAnswer(by, selected))
        if first.by != by:
            raise ThreadError(f"The question of {call_id!r} was answered already, and only the first answer counts.")

    async def _answer(self, thread_id: str, call_id: str, question: str, answer: GivenAnswer) -> GivenAnswer:
        """The first answer to a question, which is this one if there is none. It is in the mail then, whoever gave it.

        Who gave it may have died before it could send it; and there is one letter per question: a second answer must not be taken for one
        to the question that is asked next.
        """
        thread = read_thread(await self._box(thread_id))
        waits = is_open(thread, call_id, question)
        first = await self._answers.find(thread_id, question)
        if first is None and waits:
            first = await self._answers.give(thread_id, question, answer)
        if first is None:
            await self._open(thread_id)
            raise ThreadError(_no_question(call_id))
        if waits:
            # If it was closed just now, that comes to the same as if it had been closed just after.
            with contextlib.suppress(ThreadClosed):
                await self._accept(thread_id, ChooseFor(call_id, first.selected), dedup=question)
        return first

    async def _noted(self, request: Keyed | None, make_id: Callable[[], Awaitable[str]]) -> str:
        """The id of a request: the one it got when it came first, or else a new one, unless making that refuses the request."""
        noted = await self._repeats.find(request)
        if noted is not None:
            return noted
        try:
            id = await make_id()
        except ThreadError:
            # Perhaps it is refused because the same request was carried out just now.
            noted = await self._repeats.find(request)
            if noted is None:
                raise
            return noted
        return await self._repeats.note(request, id)

    async def _accept(self, thread_id: str, message: Incoming, *, dedup: str) -> None:
        _check_id(thread_id)
        reception = await self._store.accept(letter(thread_id, message, dedup=dedup))
        if reception not in (Reception.ACCEPTED, Reception.DUPLICATE):
            await self._open(thread_id)
            # There was no such thread a moment ago, and there is one now.
            raise ThreadError(f"Thread {thread_id} was only just begun and did not take it yet. Send it again.")
        self._hub.tell(thread_id, Perhaps())

    async def _open(self, thread_id: str) -> Thread:
        thread = read_thread(await self._box(thread_id))
        if thread.closed:
            raise ThreadClosed(f"Thread {thread_id} is closed, and takes nothing more. Begin a new one.")
        return thread

    async def _box(self, thread_id: str) -> Box:
        _check_id(thread_id)
        box = await self._store.box(thread_id)
        if box is None or box.kind != THREAD:
            raise UnknownThread(f"There is no thread {thread_id[:80]!r}.")
        return box

    # Looking

    async def look(self, thread_id: str) -> Look:
        """A thread as it is now."""
        box = await self._box(thread_id)
        authorizations = {each.key: each.body.decode() for each in await self._store.records(thread_id, OAUTH)}
        views = {each.key: from_json(each.body) for each in await self._store.records(thread_id, VIEW)}
        thread = read_thread(box)
        return Look(thread, is_running(box, thread), box.created_at, authorizations, views)

    async def newest(
        self, *, parent: str | None = None, status: str | None = None, after: str = "", limit: int = 50
    ) -> Page:
        """Threads, the latest first: those after the id `after`, of a parent, of a status.

        The store does not know which threads are running, so with a `status` it may take looking at many to find a few. Not more than a
        thousand are looked at for one page: it may hold fewer than `limit`, even none, and there may be more all the same.
        """
        looks: list[Look] = []
        looked_at = 0
        chunk = max(limit + 1, _CHUNK if status is not None else 0)
        while looked_at < _MOST_LOOKED_AT:
            boxes = await self._boxes(parent, status, after, chunk)
            for number, box in enumerate(boxes, 1):
                thread = read_thread(box)
                look = Look(thread, is_running(box, thread), box.created_at, {}, {})
                if status in (None, look.status):
                    looks.append(look)
                if len(looks) == limit:
                    return Page(looks, box.id if number < len(boxes) or len(boxes) == chunk else None)
            if len(boxes) < chunk:
                return Page(looks, None)
            after = boxes[-1].id
            looked_at += len(boxes)
        return Page(looks, after)

    async def _boxes(self, parent: str | None, status: str | None, after: str, limit: int) -> list[Box]:
        """The next `limit` that may be of a status."""
        stored = [None] if status is None else _STORED_AS.get(status, (status,))
        pages = [
            await self._store.boxes(THREAD, parent=parent, status=each, after=after, limit=limit) for each in stored
        ]
        return list(merge(*pages, key=lambda box: box.id, reverse=True))[:limit]

    async def history(self, thread_id: str, after: int = 0, limit: int = _PAGE) -> list[Line]:
        """The journal, oldest first, from the line after `after`."""
        await self._box(thread_id)
        return [read_line(entry) for entry in await self._store.entries(thread_id, after=after, limit=limit)]

    async def follow(self, thread_id: str, after: int = 0, skip: int = 0) -> AsyncGenerator[ThreadEvent, None]:
        """What has happened since line `after`, and what happens from now on, until the thread is closed.

        `skip` events of the line behind `after` are left out: those somebody has who did not get all of it.
        """
        await self._box(thread_id)
        following = Following(self._store, self._hub, thread_id, after, skip)
        async with contextlib.aclosing(following.events()) as events:
            async for event in events:
                yield event

    async def standing(self, thread_id: str) -> tuple[int, bool]:
        """How many lines the journal has, and whether those will be all: the thread is closed, and nothing is left to do."""
        box = await self._box(thread_id)
        return box.length, read_thread(box).closed and not box.busy


def _first_message(thread_id: str, text: str) -> Letter:
    message_id = f"usr_{thread_id.removeprefix('thr_')}"
    return letter(thread_id, UserMessage(text, message_id), dedup=message_id)


def _check_id(thread_id: str) -> None:
    # What is no id of a thread may be that of a box of our own.
    if not _THREAD_ID.fullmatch(thread_id):
        raise UnknownThread(f"There is no thread {thread_id[:80]!r}.")


def _check_text(text: str) -> None:
    if not text.strip():
        raise ThreadError("A message needs a text, and this one is empty.")
    _check_unicode("The message", text)


def _check_user_id(user_id: str) -> None:
    """Tools are told it, so it has to be what an id may be there."""
    _check_unicode("The user_id", user_id)
    try:
        _USER_ID.validate_python(user_id, strict=True)
    except ValidationError:
        raise ThreadError(f"A user_id has 1 to {MAX_ID} characters, and no control characters among them.") from None


def _check_unicode(what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ThreadError(
            f"{what} cannot be sent: its character {error.start + 1} is half of a surrogate pair, which is no text. "
            "Such halves come from bytes that were decoded wrongly."
        ) from None


def _check_call(thread: Thread, call_id: str) -> None:
    live = (*thread.pending, *thread.subscriptions)
    if call_id not in live:
        raise UnknownCall(
            f"{call_id[:80]!r} is no pending call or active subscription of this thread. There are: "
            f"{', '.join(live) or 'none'}."
        )


def _question(thread: Thread, call_id: str, selected: int | None) -> OpenChoice:
    _check_call(thread, call_id)
    questions = thread.choices.get(call_id)
    if not questions:
        raise ThreadError(_no_question(call_id))
    last = len(questions[0].choices) - 1
    if selected is not None and not 0 <= selected <= last:
        raise NoSuchChoice(f"There is no choice {selected}; there are 0 to {last}.")
    return questions[0]


def _no_question(call_id: str) -> str:
    return f"No question of {call_id!r} is open: it was answered, or none was asked."
