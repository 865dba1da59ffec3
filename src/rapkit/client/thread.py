"""`ClientThread`: one thread of an agent, over HTTP."""

from collections.abc import AsyncIterator
from typing import Any, TypeVar

from rapkit.client.entries import AssistantEntry, ClosedEntry, Entry, EntryPage, IgnoredEntry, ParkedEntry, UserEntry
from rapkit.client.event_feed import EventFeed
from rapkit.client.events import EntryEvent
from rapkit.client.models import AcceptedMessage, OpenQuestion, Relative, ThreadDetail
from rapkit.client.transport import Transport, path_of
from rapkit.errors import ThreadClosed, ThreadError, ThreadParked

T = TypeVar("T")


class ClientThread:
    """A thread of an agent. Get it from `Client.create_thread`, or by its id from `Client.thread`.

    What changes something returns when the agent has stored it; what becomes of it is in the thread's history and events. Every such
    request has an idempotency key, so that the client can send it again when the answer was lost. Give your own `idempotency_key` to
    repeat a request from another process, or after an `AgentTimeout`, without doing it twice.
    """

    def __init__(self, transport: Transport, thread_id: str) -> None:
        self._transport = transport
        self.id = thread_id

    def __repr__(self) -> str:
        return f"ClientThread({self.id!r})"

    # Looking at it

    async def get(self) -> ThreadDetail:
        """The thread as it is now: its status, what it waits for, what it asks, what it has used."""
        return await self._get(ThreadDetail)

    async def family(self) -> Relative:
        """The thread with its children, and theirs."""
        return await self._get(Relative, "family")

    async def history(self, *, after: int = 0, page_size: int = 200) -> AsyncIterator[Entry]:
        """All entries of the journal behind number `after`, the oldest first; fetched in pages of up to `page_size`, at most 1000."""
        cursor: int | str | None = after
        while cursor is not None:
            page = await self.history_page(cursor=cursor, limit=page_size)
            for entry in page.entries:
                yield entry
            cursor = page.next_cursor

    async def history_page(self, *, cursor: int | str = 0, limit: int = 200) -> EntryPage:
        """One page of the journal. `cursor` is the `next_cursor` of the page before, or the number of the last entry you have."""
        return await self._get(EntryPage, "history", cursor=cursor, limit=limit)

    def events(self, after: str | int | None = None, *, reconnect_for: float | None = None) -> EventFeed:
        """Everything that happens in the thread, as it happens, until it is closed.

        `after` is the id of the last event you have, or the number of the last entry; None begins at the beginning. The feed survives lost
        connections and restarts of the agent, for up to `reconnect_for` seconds without it, or for as long as it takes.
        """
        path = path_of("threads", self.id, "events")
        return EventFeed(self._transport, path, None if after is None else str(after), reconnect_for)

    # Talking to it

    async def send(self, text: str, *, idempotency_key: str | None = None) -> str:
        """Send a message; its id, which the entry in the journal will have."""
        sent = await self._post("messages", body={"text": text}, key=idempotency_key)
        return self._transport.read(AcceptedMessage, sent).message_id

    async def ask(self, text: str) -> str:
        """Send a message and wait for the next answer, through restarts of the agent.

        `ThreadParked`, `ThreadClosed` or another `ThreadError` says why there is none. If the thread asks the user something first, it
        waits for that answer: follow `events` to give it. Use `asyncio.timeout` to wait for a limited time; the thread goes on.
        """
        after = (await self.get()).length
        message_id = await self.send(text)
        heard, aside = False, None
        async with self.events(after) as events:
            async for event in events:
                match event:
                    case EntryEvent(entry=UserEntry(id=id)) if id == message_id:
                        heard = True
                    case EntryEvent(entry=AssistantEntry(text=answer, calls=[])) if heard:
                        return answer
                    case EntryEvent(entry=ParkedEntry(reason=reason)) if heard:
                        raise ThreadParked(reason)
                    case EntryEvent(entry=ClosedEntry()):
                        break
                    case EntryEvent(entry=IgnoredEntry(what="user", reason=reason)):
                        aside = reason
                if isinstance(event, EntryEvent):
                    after = event.entry.seq
                if aside is not None and not heard and await self._rests_after(after):
                    # It may be another message that was set aside. If it was not ours, ours is heard before the thread rests.
                    raise ThreadError(f"The message was not taken into thread {self.id}: {aside}")
        raise ThreadClosed(f"Thread {self.id} was closed before it answered.")

    async def _rests_after(self, seq: int) -> bool:
        thread = await self.get()
        return thread.status != "running" and thread.length <= seq

    async def close(self, *, idempotency_key: str | None = None) -> None:
        """Close the thread: it takes nothing more, its calls and subscriptions are cancelled. A closed thread stays closed."""
        await self._post("close", key=idempotency_key)

    async def cancel(self, call_id: str, *, idempotency_key: str | None = None) -> None:
        """Cancel a pending call or an active subscription."""
        await self._post("calls", call_id, "cancel", key=idempotency_key)

    async def choose(self, question: OpenQuestion | str, selected: int, *, idempotency_key: str | None = None) -> None:
        """Answer a question with the choice of this number, counted from 0.

        Give the question itself rather than the id of its call: then `Conflict` is raised if another one of the same call is open by
        now. `NotFound` is raised if the call is over.
        """
        await self._answer(question, "choice", {"selected": selected}, idempotency_key)

    async def dismiss(self, question: OpenQuestion | str, *, idempotency_key: str | None = None) -> None:
        """Dismiss a question, so that its default stands. `question` is as in `choose`."""
        await self._answer(question, "choice", {"selected": None}, idempotency_key)

    async def answer(self, question: OpenQuestion | str, text: str, *, idempotency_key: str | None = None) -> None:
        """Answer a question in words, if it is `in_words`. `question` is as in `choose`."""
        await self._answer(question, "answer", {"text": text}, idempotency_key)

    async def grant(
        self, *, slices: int = 0, tokens: int = 0, cost: float = 0.0, idempotency_key: str | None = None
    ) -> None:
        """Let the thread use more than its budget: requests to the model, tokens, US dollars. If that had parked it, it goes on."""
        body = {"slices": slices, "tokens": tokens, "cost": cost}
        await self._post("budget", body=body, key=idempotency_key)

    async def _answer(
        self, question: OpenQuestion | str, how: str, body: dict[str, Any], idempotency_key: str | None
    ) -> None:
        if isinstance(question, OpenQuestion):
            body = {**body, "asked_at": question.asked_at}
        call_id = question.call_id if isinstance(question, OpenQuestion) else question
        await self._post("calls", call_id, how, body=body, key=idempotency_key)

    async def _get(self, kind: type[T], *path: str, **query: Any) -> T:
        return self._transport.read(kind, await self._transport.get(path_of("threads", self.id, *path), query))

    async def _post(self, *path: str, body: dict[str, Any] | None = None, key: str | None = None) -> Any:
        return await self._transport.post(path_of("threads", self.id, *path), body, key)
