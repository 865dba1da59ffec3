"""A thread's events as a stream of server-sent events, the format that browsers read natively."""

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from pydantic_core import to_json
from starlette.types import Receive, Send

from rapkit.errors import StoreError, ThreadError
from rapkit.http.requests import Refusal
from rapkit.runtime.api.entries import document_of
from rapkit.runtime.thread_commands import EventName, ThreadEvent
from rapkit.work.offload import offload

log = logging.getLogger("rapkit.api")

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # what makes nginx pass events on as they come
]
_RECONNECT_AFTER = b"retry: 1000\n\n"
_KEEP_ALIVE = b": still here\n\n"
_ID = re.compile(r"(0|[1-9][0-9]{0,14})(\.1)?")


def read_id(text: str) -> tuple[int, int]:
    """After which line to go on, and how many events of the line behind it are known; a `Refusal` if it is no id of ours."""
    found = _ID.fullmatch(text)
    if found is None or text == "0.1":
        raise Refusal(
            400, "Last-Event-ID: not an id of an event of this thread. Leave it out to begin at the beginning."
        )
    seq = int(found[1])
    return (seq - 1, 1) if found[2] else (seq, 0)


def _id_of(event: ThreadEvent) -> str:
    """The number of the line; `.1` behind it if this was not all that belongs to the line."""
    return f"{event.seq}.1" if event.more else str(event.seq)


def encode_event(event: ThreadEvent) -> bytes:
    """An event as it stands in the stream."""
    data = document_of(event.line) if event.name is EventName.ENTRY and event.line is not None else event.data
    id = b"" if event.seq is None else b"id: %s\n" % _id_of(event).encode()
    return b"event: %s\n%sdata: %s\n\n" % (event.name.value.encode(), id, to_json(data))


@dataclass(frozen=True, slots=True)
class StreamTiming:
    """After how many seconds without an event a stream sends a keep-alive, and after how many it ends."""

    keep_alive: float = 15.0
    longest: float = 600.0


class EventStream:
    """Sends events as they come, and a keep-alive when none do for a while.

    It ends after a while even if more may come: the client comes again, with the id of the last event it has. A server that stops waits for
    streams, and one that it cannot end would keep it for ever.
    """

    def __init__(self, events: AsyncGenerator[ThreadEvent, None], pace: StreamTiming) -> None:
        self._events = events
        self._pace = pace

    async def send(self, receive: Receive, send: Send) -> None:
        """Send them until there are no more, or the client is gone."""
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        gone = asyncio.create_task(_until_gone(receive))
        try:
            await _send_part(send, _RECONNECT_AFTER)
            async with contextlib.aclosing(self._events), contextlib.aclosing(self._parts(gone)) as parts:
                async for part in parts:
                    await _send_part(send, part)
            if not gone.done():
                await send({"type": "http.response.body", "body": b""})
        finally:
            await _end(gone)

    async def _parts(self, gone: "asyncio.Task[None]") -> AsyncGenerator[bytes, None]:
        upcoming: asyncio.Task[bytes | None] | None = None
        now = asyncio.get_running_loop().time
        end = now() + self._pace.longest
        try:
            while not gone.done() and (left := end - now()) > 0:
                upcoming = upcoming or asyncio.create_task(self._next())
                pause = min(self._pace.keep_alive, left)
                await asyncio.wait((gone, upcoming), timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                if not upcoming.done():
                    yield _KEEP_ALIVE
                    continue
                part = upcoming.result()
                if part is None:
                    return
                upcoming = None
                yield part
        finally:
            if upcoming is not None:
                await _end(upcoming)

    async def _next(self) -> bytes | None:
        try:
            event = await anext(self._events, None)
        except (StoreError, ThreadError) as error:
            # The client comes again, with the id of the last event it has.
            log.error("a stream of events ends early: %s", error)
            return None
        except Exception as error:
            log.critical("a stream of events ends early", exc_info=error)
            return None
        if event is None:
            return None
        return await offload(0 if event.line is None else event.line.size, encode_event, event)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_part(send: Send, part: bytes) -> None:
    await send({"type": "http.response.body", "body": part, "more_body": True})


async def _end(task: "asyncio.Task[object]") -> None:
    task.cancel()
    await asyncio.wait((task,))
