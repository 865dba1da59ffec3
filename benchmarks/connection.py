"""Just enough HTTP/1.1 to put load on a server from one event loop without being the bottleneck.

Callbacks instead of tasks and futures: a POST costs one write and one parsed answer. That is less than half the CPU
time pyreqwest needs, which matters where the load generator and the server share two cores.
"""

import asyncio
from collections.abc import Callable
from typing import Self, TypeAlias, cast
from urllib.parse import urlsplit

import httptools

Answered: TypeAlias = Callable[[int, bytes], None]
Received: TypeAlias = Callable[[bytes], None]

_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Connection(asyncio.Protocol):
    """A kept-alive connection that carries one POST at a time."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        target = urlsplit(url)
        lines = [
            f"POST {target.path or '/'} HTTP/1.1",
            f"Host: {target.netloc}",
            *(f"{name}: {value}" for name, value in headers.items()),
            "Content-Length: ",
        ]
        self._head = "\r\n".join(lines).encode()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._body = b""
        self._answered: Answered | None = None

    @classmethod
    async def open(cls, url: str, headers: dict[str, str] | None = None) -> Self:
        """Connect to where the URL points."""
        target = urlsplit(url)
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: cls(url, headers or {"Content-Type": "application/json"}), target.hostname or "", target.port or 80
        )
        return connection

    def post(self, body: bytes, answered: Answered) -> None:
        """Send a body; `answered` is called with status and body of the answer, or with 0 if the connection is lost."""
        self._answered = answered
        if self._transport is None:
            self._finish(0, b"")
        else:
            self._transport.write(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()

    def _finish(self, status: int, body: bytes) -> None:
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(status, body)

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._finish(0, b"")

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    # httptools' side

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        body, self._body = self._body, b""
        self._finish(self._parser.get_status_code(), body)


class Sink(asyncio.Protocol):
    """Takes POSTs, answers 200 at once and passes their bodies on."""

    def __init__(self, received: Received) -> None:
        self._received = received
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""

    @staticmethod
    async def listen(received: Received) -> tuple[asyncio.Server, str]:
        """Listen on a free loopback port; return the server and its URL."""
        server = await asyncio.get_running_loop().create_server(lambda: Sink(received), "127.0.0.1", 0)
        return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        body, self._body = self._body, b""
        self._transport.write(_OK)
        self._received(body)
