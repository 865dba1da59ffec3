"""Commands on threads for clients. A command is durable when it returns."""

import contextlib
import math
import time
from collections.abc import Awaitable, Callable

from pydantic import TypeAdapter, ValidationError

from rapkit.errors import ThreadClosed, ThreadError
from rapkit.ids import new_id
from rapkit.kernel.incoming import AnswerFor, CancelCall, ChooseFor, CloseThread, Grant, Incoming, UserMessage
from rapkit.kernel.limits import ThreadLimits
from rapkit.kernel.thread import OpenChoice, Thread, dump_thread
from rapkit.mailbox import AcceptResult, NewBox, NewMail, Store
from rapkit.protocol.fields import MAX_ID, Id
from rapkit.runtime.broadcast import Broadcast, MaybeChanged
from rapkit.runtime.event_feed import EventName, JournalLine, ThreadEvent, read_thread, status_of
from rapkit.runtime.first_answers import FirstAnswers, GivenAnswer, is_open, question_key
from rapkit.runtime.idempotency import IdempotencyKeys, IdempotentRequest, KeyReused
from rapkit.runtime.mail_codec import encode_mail
from rapkit.runtime.thread_queries import SnapshotPage, ThreadFamily, ThreadQueries, ThreadSnapshot
from rapkit.runtime.toolsets import THREAD

__all__ = [
    "EventName",
    "JournalLine",
    "KeyReused",
    "NoSuchChoice",
    "SnapshotPage",
    "ThreadCommands",
    "ThreadEvent",
    "ThreadFamily",
    "ThreadSnapshot",
    "UnknownCall",
    "status_of",
]

_USER_ID: TypeAdapter[str] = TypeAdapter(Id)


class UnknownCall(ThreadError):
    """A thread has no pending call or active subscription by that id."""


class NoSuchChoice(ThreadError):
    """A question does not have that many choices."""


class ThreadCommands(ThreadQueries):
    """The commands of clients, on threads given by id.

    A `key` makes a request repeatable: the same request with the same key again has the same answer and no effect, and a different one
    raises `KeyReused`. Keys of different methods, threads and calls have nothing to do with each other.
    """

    def __init__(
        self,
        store: Store,
        broadcast: Broadcast,
        now: Callable[[], float] = time.time,
        interrupt: Callable[[str], None] = lambda _thread_id: None,
        on_accept: Callable[[str], None] = lambda _thread_id: None,
        limits: ThreadLimits | None = None,
    ) -> None:
        super().__init__(store, broadcast, limits)
        self._interrupt = interrupt
        self._on_accept = on_accept
        self._idempotency_keys = IdempotencyKeys(store, now)
        self._answers = FirstAnswers(store)

    # Making something happen

    async def create(self, *, text: str | None = None, user_id: str | None = None, key: str | None = None) -> str:
        """Begin a thread, with a first message if there is one; its id."""
        if user_id is not None:
            _check_user_id(user_id)
        if text is not None:
            _check_text(text)
        request = IdempotentRequest.of(key, ("create",), [text, user_id])
        thread_id = await self._idempotency_keys.find(request) or await self._idempotency_keys.note(
            request, new_id("thr")
        )
        box = NewBox(thread_id, THREAD, dump_thread(Thread(thread_id, user_id)), root=thread_id, idle=True)
        await self._store.create(box, None if text is None else _first_message(thread_id, text))
        if text is not None:
            self._on_accept(thread_id)
        return thread_id

    async def send(self, thread_id: str, text: str, key: str | None = None) -> str:
        """Say something to a thread; the id of the message."""
        _check_text(text)

        async def message_id() -> str:
            if key is not None:
                await self._open(thread_id)
            return new_id("usr")

        id = await self._noted(IdempotentRequest.of(key, ("send", thread_id), text), message_id)
        await self._accept(thread_id, UserMessage(text, id), dedup=id)
        return id

    async def close(self, thread_id: str) -> None:
        """Close a thread; one that is closed stays so."""
        with contextlib.suppress(ThreadClosed):
            await self._accept(thread_id, CloseThread(), dedup="close")
            self._interrupt(thread_id)  # the model's reply is no longer wanted

    async def cancel(self, thread_id: str, call_id: str, key: str | None = None) -> None:
        """Cancel a pending call, or an active subscription."""

        async def cancellation() -> str:
            _check_call(await self._open(thread_id), call_id)
            return new_id("cancel")

        id = await self._noted(IdempotentRequest.of(key, ("cancel", thread_id, call_id)), cancellation)
        await self._accept(thread_id, CancelCall(call_id), dedup=id)

    async def choose(
        self,
        thread_id: str,
        call_id: str,
        selected: int | None,
        key: str | None = None,
        asked_at: float | None = None,
    ) -> None:
        """Answer the open question of a call; None dismisses it, so that its default stands. Only the first answer counts.

        `asked_at` is when the question was asked that is meant: if another one is open by now, this one is over.
        """

        async def question() -> str:
            return question_key(call_id, _question(await self._open(thread_id), call_id, selected, asked_at))

        request = IdempotentRequest.of(
            key, ("choose", thread_id, call_id), selected if asked_at is None else [selected, asked_at]
        )
        await self._answer(thread_id, call_id, request, question, selected=selected)

    async def answer(
        self, thread_id: str, call_id: str, text: str, key: str | None = None, asked_at: float | None = None
    ) -> None:
        """Answer the open question of a call in words, if it is the model that asks. Only the first answer counts."""
        _check_text(text)

        async def question() -> str:
            return question_key(call_id, _question_in_words(await self._open(thread_id), call_id, asked_at))

        request = IdempotentRequest.of(
            key, ("answer", thread_id, call_id), text if asked_at is None else [text, asked_at]
        )
        await self._answer(thread_id, call_id, request, question, text=text)

    async def grant(
        self, thread_id: str, *, slices: int = 0, tokens: int = 0, cost: float = 0.0, key: str | None = None
    ) -> None:
        """Let a thread use more than its budget. If it was parked because it had used that up, it goes on."""
        if not all(math.isfinite(each) and each >= 0 for each in (slices, tokens, cost)) or not (
            slices or tokens or cost
        ):
            raise ThreadError("Grant some slices, tokens or cost: a number above 0.")

        async def grant_id() -> str:
            await self._open(thread_id)
            return new_id("grant")

        id = await self._noted(IdempotentRequest.of(key, ("grant", thread_id), [slices, tokens, cost]), grant_id)
        await self._accept(thread_id, Grant(slices, tokens, cost), dedup=id)

    async def _answer(
        self,
        thread_id: str,
        call_id: str,
        request: IdempotentRequest | None,
        question: Callable[[], Awaitable[str]],
        *,
        selected: int | None = None,
        text: str | None = None,
    ) -> None:
        name = await self._noted(request, question)
        by = new_id("answer") if request is None else request.place
        first = await self._first_answer(thread_id, call_id, name, GivenAnswer(by, selected, text))
        if first.by != by:
            raise ThreadError(f"The question of {call_id!r} was answered already, and only the first answer counts.")

    async def _first_answer(self, thread_id: str, call_id: str, question: str, answer: GivenAnswer) -> GivenAnswer:
        """The first answer to a question, which is this one if there is none. It is in the mail then, whichever request gave it.

        Who gave it may have died before it could send it; and there is one mail per question: a second answer must not be taken for one
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
            asked_at = thread.choices[call_id][0].asked_at
            message: Incoming = ChooseFor(call_id, first.selected, asked_at)
            if first.text is not None:
                message = AnswerFor(call_id, first.text, asked_at)
            # If it was closed just now, that comes to the same as if it had been closed just after.
            with contextlib.suppress(ThreadClosed):
                await self._accept(thread_id, message, dedup=question)
        return first

    async def _noted(self, request: IdempotentRequest | None, make_id: Callable[[], Awaitable[str]]) -> str:
        """The id of a request: the one it got when it came first, or else a new one, unless making that refuses the request."""
        noted = await self._idempotency_keys.find(request)
        if noted is not None:
            return noted
        try:
            id = await make_id()
        except ThreadError:
            # Perhaps it is refused because the same request was carried out just now.
            noted = await self._idempotency_keys.find(request)
            if noted is None:
                raise
            return noted
        return await self._idempotency_keys.note(request, id)

    async def _accept(self, thread_id: str, message: Incoming, *, dedup: str) -> None:
        # RUN-3: nothing is accepted for a thread whose state cannot be loaded.
        read_thread(await self._box(thread_id))
        accept_result = await self._store.accept(encode_mail(thread_id, message, dedup=dedup))
        if accept_result not in (AcceptResult.ACCEPTED, AcceptResult.DUPLICATE):
            await self._open(thread_id)
            # There was no such thread a moment ago, and there is one now.
            raise ThreadError(f"Thread {thread_id} was only just begun and did not take it yet. Send it again.")
        self._on_accept(thread_id)
        self._broadcast.publish(thread_id, MaybeChanged())

    async def _open(self, thread_id: str) -> Thread:
        thread = read_thread(await self._box(thread_id))
        if thread.closed:
            raise ThreadClosed(f"Thread {thread_id} is closed, and takes nothing more. Begin a new one.")
        return thread


def _first_message(thread_id: str, text: str) -> NewMail:
    message_id = f"usr_{thread_id.removeprefix('thr_')}"
    return encode_mail(thread_id, UserMessage(text, message_id), dedup=message_id)


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


def _question(thread: Thread, call_id: str, selected: int | None, asked_at: float | None) -> OpenChoice:
    question = _open_question(thread, call_id, asked_at)
    last = len(question.choices) - 1
    if selected is not None and last < 0:
        raise NoSuchChoice("This question has no choices. Answer it in words, or dismiss it.")
    if selected is not None and not 0 <= selected <= last:
        raise NoSuchChoice(f"There is no choice {selected}; there are 0 to {last}.")
    return question


def _question_in_words(thread: Thread, call_id: str, asked_at: float | None) -> OpenChoice:
    question = _open_question(thread, call_id, asked_at)
    call = thread.pending.get(call_id)
    if call is None or call.awaits != "user":
        raise ThreadError(f"The question of {call_id!r} is answered with one of its choices, not in words.")
    return question


def _open_question(thread: Thread, call_id: str, asked_at: float | None) -> OpenChoice:
    _check_call(thread, call_id)
    questions = thread.choices.get(call_id)
    if not questions:
        raise ThreadError(_no_question(call_id))
    if asked_at is not None and asked_at != questions[0].asked_at:
        raise ThreadError(
            f"The question of {call_id!r} that you mean is over, and another one is open. Look at it first."
        )
    return questions[0]


def _no_question(call_id: str) -> str:
    return f"No question of {call_id!r} is open: it was answered, or none was asked."
