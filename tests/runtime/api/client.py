"""A client of the API on a real socket: requests, and streams of events."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from starlette.routing import Router

from rapkit.http.authentication import Callers
from rapkit.mailbox import Store
from rapkit.runtime.api import api_routes
from rapkit.runtime.api.schemas import AgentDetail
from rapkit.runtime.broadcast import Broadcast
from rapkit.runtime.thread_commands import ThreadCommands
from rapkit.stores import open_store
from tests.server.served_toolset import Reply, exchange, serving_app
from tests.server.sink import PATIENCE

LARGEST = 64 * 1024


@dataclass(frozen=True)
class Sse:
    """One event of a stream."""

    name: str
    id: str | None
    data: Any


class Stream:
    """A stream of events, read as it comes. `comments` are signs of life."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._text = b""
        self.comments = 0
        self.retry: int | None = None

    async def next(self) -> Sse | None:
        """The next event; None at the end."""
        async with asyncio.timeout(PATIENCE):
            while True:
                block, found, rest = self._text.partition(b"\n\n")
                if found:
                    self._text = rest
                    if event := self._read(block.decode()):
                        return event
                elif not await self._more():
                    return None

    async def until(self, name: str, where: Callable[[Any], bool] = lambda _: True) -> list[Sse]:
        """The events up to the first of a name that is as wanted; the last is that one."""
        events: list[Sse] = []
        while True:
            event = await self.next()
            assert event is not None, f"the stream ended after {events}"
            events.append(event)
            if event.name == name and where(event.data):
                return events

    async def rest(self) -> list[Sse]:
        """All events until the stream ends."""
        events = []
        while event := await self.next():
            events.append(event)
        return events

    async def breath(self) -> None:
        """Return when there was another sign of life."""
        seen = self.comments
        async with asyncio.timeout(PATIENCE):
            while self.comments == seen:
                assert await self._more()
                *blocks, self._text = self._text.split(b"\n\n")
                for block in blocks:
                    self._read(block.decode())

    async def _more(self) -> bool:
        size = int(await self._reader.readline() or b"0", 16)
        self._text += await self._reader.readexactly(size)
        await self._reader.readline()
        return size > 0

    def _read(self, block: str) -> Sse | None:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        if "" in fields or block.startswith(":"):
            self.comments += 1
            return None
        if "retry" in fields:
            self.retry = int(fields["retry"])
            return None
        return Sse(fields["event"], fields.get("id"), json.loads(fields["data"]))


@dataclass(frozen=True)
class Client:
    """Somebody who uses the API, with a token or without."""

    port: int
    token: str | None = None

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str | None] | None = None
    ) -> Reply:
        """One request on a connection of its own. A header given as None is left out."""
        return await exchange(self.port, self._head(method, path, len(body), headers) + body)

    def _head(self, method: str, path: str, length: int, headers: dict[str, str | None] | None) -> bytes:
        given: dict[str, str | None] = {
            "Host": f"127.0.0.1:{self.port}",
            "Connection": "close",
            "Content-Length": str(length),
            "Authorization": f"Bearer {self.token}" if self.token else None,
            **({"Content-Type": "application/json"} if length else {}),
            **(headers or {}),
        }
        lines = [f"{name}: {value}\r\n" for name, value in given.items() if value is not None]
        return f"{method} {path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode("latin-1")

    async def get(self, path: str) -> Reply:
        """GET."""
        return await self.request("GET", path)

    async def post(self, path: str, message: object = None, key: str | None = None) -> Reply:
        """POST a document, or nothing."""
        body = b"" if message is None else json.dumps(message).encode()
        return await self.request("POST", path, body, {"Idempotency-Key": key})

    async def begin(self, text: str | None = None, **fields: Any) -> str:
        """Begin a thread; where it is."""
        reply = await self.post("/v1/threads", {"text": text, **fields})
        assert reply.status == 201, reply.body
        return f"/v1/threads/{reply.json['thread_id']}"

    async def look(self, thread: str) -> Any:
        """A thread as it is."""
        reply = await self.get(thread)
        assert reply.status == 200, reply.body
        return reply.json

    async def entries(self, thread: str) -> list[Any]:
        """Its journal."""
        reply = await self.get(f"{thread}/history?limit=1000")
        assert reply.status == 200, reply.body
        entries: list[Any] = reply.json["entries"]
        return entries

    @contextlib.asynccontextmanager
    async def events(self, thread: str, last: str | None = None, query: str = "") -> AsyncIterator[Stream]:
        """Follow a thread."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(self._head("GET", f"{thread}/events{query}", 0, {"Last-Event-ID": last}))
            async with asyncio.timeout(PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
            assert b" 200 " in head.split(b"\r\n")[0], head
            assert b"content-type: text/event-stream" in head
            yield Stream(reader)
        finally:
            writer.close()


@dataclass(frozen=True)
class Api:
    """The API over a store that nobody works on."""

    port: int
    store: Store
    threads: ThreadCommands
    broadcast: Broadcast

    def client(self, token: str | None = None) -> Client:
        """A client of it."""
        return Client(self.port, token)


def nobody() -> AgentDetail:
    """What the API says of an agent that is not there."""
    return AgentDetail(version="", model="", servers=[], store="", works=False)


@contextlib.asynccontextmanager
async def serving_api(
    store_url: str,
    *,
    tokens: dict[str, str] | None = None,
    keep_alive: float = 15.0,
    longest_stream: float = 600.0,
    now: Callable[[], float] | None = None,
) -> AsyncIterator[Api]:
    """The API, and nothing else of an agent."""
    store = open_store(store_url)
    broadcast = Broadcast()
    threads = ThreadCommands(store, broadcast) if now is None else ThreadCommands(store, broadcast, now)
    try:
        routes = api_routes(
            lambda: threads,
            nobody,
            Callers(tokens or {}),
            LARGEST,
            keep_alive=keep_alive,
            longest_stream=longest_stream,
        )
        async with serving_app(Router(routes=routes, redirect_slashes=False)) as port:
            yield Api(port, store, threads, broadcast)
    finally:
        await store.close()
