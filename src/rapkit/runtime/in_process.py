"""Toolsets that are served in the agent's own process.

They are mounted in the agent's app, so that browsers and their own URLs work; what the agent itself sends them goes to them directly, under
whatever port they had when the URL was made.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message

from rapkit.delivery.client import Answer, Fetcher, Poster
from rapkit.errors import DeliveryError

PATH = "/toolsets/"
_PATIENCE = 20.0


class InProcess(Protocol):
    """A toolset that can be served in our own process: a `rapkit.Toolset`."""

    name: str

    @property
    def app(self) -> ASGIApp:
        """Its routes."""

    def lifespan(self, _app: object = None, *, loopback_callbacks: bool = ...) -> Any:
        """The context in which it works."""


class Line(Poster, Fetcher, Protocol):
    """The way out: POSTs and GETs."""


class ShortCut:
    """A line to the world, and a shorter one to the toolsets of this process."""

    def __init__(self, line: Line, toolsets: Sequence[InProcess]) -> None:
        self._line = line
        self._toolsets = {f"{PATH}{toolset.name}": toolset.app for toolset in toolsets}

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """POST, to one of our own or to anybody."""
        mounted = self._mounted(url)
        if mounted is None:
            return await self._line.post(url, body, headers)
        status, _ = await _request(*mounted, "POST", url, body, {"content-type": "application/json", **headers})
        return Answer(status)

    async def get(self, url: str, headers: Mapping[str, str], *, limit: int) -> tuple[int, bytes]:
        """GET, from one of our own or from anybody."""
        mounted = self._mounted(url)
        if mounted is None:
            return await self._line.get(url, headers, limit=limit)
        return await _request(*mounted, "GET", url, b"", headers)

    def _mounted(self, url: str) -> tuple[ASGIApp, str] | None:
        path = urlsplit(url).path
        for root, app in self._toolsets.items():
            if path == root or path.startswith(f"{root}/"):
                return app, root
        return None


async def _request(
    app: ASGIApp, root: str, method: str, url: str, body: bytes, headers: Mapping[str, str]
) -> tuple[int, bytes]:
    parts = urlsplit(url)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": parts.scheme,
        "path": parts.path,
        "raw_path": parts.path.encode(),
        "root_path": root,
        "query_string": parts.query.encode(),
        "headers": [
            (b"host", parts.netloc.encode()),
            (b"content-length", str(len(body)).encode()),
            *((name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()),
        ],
        "client": ("127.0.0.1", 0),
        "server": (parts.hostname, parts.port),
        "state": {},
    }
    status = 0
    received = bytearray()

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            received.extend(message.get("body", b""))

    try:
        async with asyncio.timeout(_PATIENCE):
            await app(scope, receive, send)
    except TimeoutError:
        raise DeliveryError(f"{root}: no answer within {_PATIENCE:g} s.") from None
    return status, bytes(received)
