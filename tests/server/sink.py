"""A runtime's end of a callback URL: an HTTP server that notes every POST and answers as a test tells it."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

PATIENCE = 60.0
"""How long anything may take that is expected to happen, in seconds."""

Behaviour = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True)
class Post:
    """A request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> dict[str, Any]:
        """The body as JSON."""
        message: dict[str, Any] = json.loads(self.body.decode("utf-8"))
        return message

    @property
    def text(self) -> str:
        """What the message says."""
        text: str = self.message["text"]
        return text

    @property
    def webhook_id(self) -> str:
        """Which message it is."""
        return self.headers["webhook-id"]


def answer(status: int, headers: str = "", body: bytes = b"") -> Behaviour:
    """Answer with a status."""

    async def behave(writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 {status} Whatever\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
        writer.write(head.encode() + body)
        await writer.drain()

    return behave


async def reset(writer: asyncio.StreamWriter) -> None:
    """Break the connection without an answer."""
    writer.transport.abort()


def after(event: asyncio.Event, then: Behaviour) -> Behaviour:
    """Keep the sender waiting until the event."""

    async def behave(writer: asyncio.StreamWriter) -> None:
        await event.wait()
        await then(writer)

    return behave


async def never(_writer: asyncio.StreamWriter) -> None:
    """Do not answer at all."""
    await asyncio.Event().wait()


class Listener:
    """Listens on a port of its own, and can be down for a while."""

    def __init__(self) -> None:
        self.port = 0
        self._listener: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """The origin, without a path."""
        return f"http://127.0.0.1:{self.port}"

    async def up(self) -> None:
        """Listen, on the same port as before."""
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", self.port, backlog=1024)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def down(self) -> None:
        """Refuse connections, and break those there are."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while True:
                await self._answer(await read_post(reader), writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answer(self, post: Post, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError


class Sink(Listener):
    """Notes requests in the order in which they arrived. `script` says how the next ones are answered, `otherwise` all others."""

    def __init__(self) -> None:
        super().__init__()
        self.posts: list[Post] = []
        self.script: list[Behaviour] = []
        self.otherwise: Behaviour = answer(200)
        self._news = asyncio.Condition()

    async def received(self, count: int) -> list[Post]:
        """All requests so far, once there are so many."""
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: len(self.posts) >= count)
        return list(self.posts)

    async def result(self, id: str) -> Post:
        """The first message for a call."""

        def found() -> Post | None:
            return next((post for post in self.posts if post.message.get("id") == id), None)

        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: found() is not None)
        post = found()
        assert post is not None
        return post

    async def _answer(self, post: Post, writer: asyncio.StreamWriter) -> None:
        async with self._news:
            self.posts.append(post)
            behave = self.script.pop(0) if self.script else self.otherwise
            self._news.notify_all()
        await behave(writer)


async def read_post(reader: asyncio.StreamReader) -> Post:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = re.fullmatch(r"\d+", headers.get("content-length", "0"))
    assert length is not None
    return Post(method, target, headers, await reader.readexactly(int(length[0])))


@contextlib.asynccontextmanager
async def listening() -> AsyncIterator[Sink]:
    """A sink on a port of its own."""
    sink = Sink()
    await sink.up()
    try:
        yield sink
    finally:
        await sink.down()
