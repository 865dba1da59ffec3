"""The events of a thread, through lost connections and restarts of the agent."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rapkit.client.events import ChoiceEvent, DeltaEvent, EntryEvent, FeedEvent, ResetEvent, StatusEvent, read_event
from rapkit.client.sse import SseDecoder
from rapkit.client.transport import LARGEST, Transport
from rapkit.errors import AgentUnreachable, BadRequest, Unavailable

if TYPE_CHECKING:
    from rapkit.client.models import OpenQuestion

log = logging.getLogger("rapkit.client")


class EventFeed:
    """Iterate over it to follow a thread: `async for event in thread.events():`.

    Every event comes in order and once. When the connection breaks, or the agent is restarted, the feed connects again and continues after
    the last event it has yielded. It ends when the thread is closed and everything was read.

    `DeltaEvent`s are pieces of what the model is saying, without an id: they are best effort and never sent again. An `EntryEvent` has the
    whole text; a `ResetEvent` says that the pieces since the last entry are void, because the model failed or the connection broke. After
    a lost connection the rest of an unfinished text is left out.

    If the first connection fails, the error is raised after the client's usual retries. Later the feed tries for `reconnect_for` seconds,
    or for ever if that is None. `last_event_id` is where it is: pass it to `ClientThread.events(after=...)` to continue, in another process
    too. Use it as a context manager to close the connection where you leave the loop.
    """

    def __init__(self, transport: Transport, path: str, after: str | None, reconnect_for: float | None) -> None:
        if after is not None and not (after.isascii() and after.isprintable() and after.strip()):
            raise BadRequest(f"{after!r} is not the id of an event. Give the id of one, or the seq of an entry.")
        self._transport = transport
        self._path = path
        self._reconnect_for = reconnect_for
        self._seen = _Seen()
        self._events = self._follow()
        self.last_event_id = after

    def __aiter__(self) -> Self:
        """The feed itself: it can be iterated over once."""
        return self

    async def __anext__(self) -> FeedEvent:
        """The next event, when there is one."""
        return await anext(self._events)

    async def __aenter__(self) -> Self:
        """Follow the thread as long as the context lasts."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection and end the feed."""
        await self._events.aclose()

    async def _follow(self) -> AsyncGenerator[FeedEvent, None]:
        connected, failures, lost_at = False, 0, 0.0
        while True:
            try:
                async with contextlib.aclosing(self._connection()) as events:
                    async for event in events:
                        connected = True
                        if event is None:  # there is a connection; that it is of use, the first event shows
                            continue
                        if failures:
                            log.info("connected to %s again", self._transport.url.text)
                            failures = 0
                        yield event
                pause = 0.0 if self._seen.closed else self._transport.retries.first_pause
            except _NothingMore:
                return
            except (AgentUnreachable, Unavailable) as error:
                failures += 1
                lost_at = time.monotonic() if failures == 1 else lost_at
                wait = self._transport.pause_after(error, failures)
                if not connected and (wait is None or failures >= self._transport.retries.attempts):
                    raise
                pause = self._transport.retries.longest_pause if wait is None else wait
                if self._reconnect_for is not None and time.monotonic() + pause - lost_at > self._reconnect_for:
                    raise
                if failures == 1:
                    log.info("connecting again: %s", error)
            # Whatever was said in pieces stays unfinished: the entry, or the next attempt of the model, comes in its place.
            if self._seen.take_back():
                yield ResetEvent()
            await asyncio.sleep(pause)

    async def _connection(self) -> AsyncGenerator[FeedEvent | None, None]:
        """What one connection brings, first of all None; `_NothingMore` if there will never be more."""
        headers = {} if self.last_event_id is None else {"Last-Event-ID": self.last_event_id}
        async with self._transport.stream(self._path, headers) as stream:
            if stream is None:
                raise _NothingMore
            yield None
            decoder = SseDecoder(LARGEST)
            while (chunk := await stream.read()) is not None:
                for event in self._read(decoder, chunk):
                    if self._seen.is_news(event):
                        yield event

    def _read(self, decoder: SseDecoder, chunk: bytes) -> Iterator[FeedEvent]:
        with self._transport.naming_the_agent():
            sent = decoder.feed(chunk)
        for each in sent:
            with self._transport.naming_the_agent():
                event = read_event(each)
            # Set before the event is yielded: who takes it and then stops has it.
            self.last_event_id = event.id or self.last_event_id
            yield event


class _NothingMore(Exception):
    """The thread is closed and everything was read."""


class _Seen:
    """What was yielded, so that nothing is yielded twice, and no part of a text without its beginning."""

    def __init__(self) -> None:
        self._seq = 0
        self._status: tuple[str, str | None] | None = None
        self._asked: dict[str, OpenQuestion] = {}
        self._unfinished = False
        self._again = False
        self._began_unseen = False

    @property
    def closed(self) -> bool:
        """Whether the thread was closed, as far as it is known."""
        return self._status is not None and self._status[0] == "closed"

    def take_back(self) -> bool:
        """The connection is lost: whether pieces of a text were yielded that are void now."""
        was, self._unfinished, self._again = self._unfinished, False, True
        return was

    def is_news(self, event: FeedEvent) -> bool:
        """Whether it is to be yielded."""
        match event:
            case EntryEvent(entry=entry):
                self._unfinished = self._began_unseen = False
                was, self._seq = self._seq, max(self._seq, entry.seq)
                return entry.seq > was
            case StatusEvent(status=status, reason=reason):
                # Every connection begins with the status. If the model is at it then, the beginning of what it says may be missed.
                self._began_unseen = status == "running" and (self._again or self._began_unseen)
                self._again = False
                was_status, self._status = self._status, (status, reason)
                return self._status != was_status
            case ChoiceEvent(question=question):
                # An agent knows only for the time of one connection which questions it has sent.
                was_asked = self._asked.get(question.call_id)
                self._asked[question.call_id] = question
                return question != was_asked
            case DeltaEvent():
                self._unfinished = self._unfinished or not self._began_unseen
                return not self._began_unseen
            case ResetEvent():
                was_unfinished, self._unfinished, self._began_unseen = self._unfinished, False, False
                return was_unfinished
        return True
