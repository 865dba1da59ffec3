"""An in-memory network: POSTs and GETs go straight to the participants of the test, by URL."""

from collections.abc import Mapping
from typing import Protocol
from urllib.parse import urlsplit

from starlette.types import ASGIApp

from rapkit.delivery.http_client import HttpResponse
from rapkit.errors import DeliveryError
from rapkit.testing.activity import Activity
from rapkit.testing.requests import Reply, request


class NetworkHost(Protocol):
    """A host that answers requests."""

    async def send(self, method: str, url: str, body: bytes = ..., headers: Mapping[str, str] | None = ...) -> Reply:
        """One request to a URL of theirs."""


class Network:
    """All hosts by their base URLs. A host that is down cannot be reached, and loses nothing."""

    def __init__(self, activity: Activity) -> None:
        self._activity = activity
        self._places: dict[str, tuple[str, NetworkHost]] = {}
        self._down: set[str] = set()

    def add(self, name: str, base: str, place: NetworkHost) -> None:
        """Add a host below a base URL."""
        self._places[name] = (base.rstrip("/"), place)

    def down(self, name: str) -> None:
        """Let nothing get through to a toolset, or to the "agent", until `up`."""
        self._check(name)
        self._down.add(name)

    def up(self, name: str) -> None:
        """Let everything through again."""
        self._check(name)
        self._down.discard(name)

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
        """POST a JSON body."""
        reply = await self._send("POST", url, body, {"content-type": "application/json", **headers})
        wait = reply.headers.get("retry-after", "")
        return HttpResponse(reply.status, float(wait) if wait.isdecimal() else None)

    async def get(self, url: str, headers: Mapping[str, str], *, limit: int) -> tuple[int, bytes]:
        """GET status and body."""
        reply = await self._send("GET", url, b"", headers)
        if len(reply.body) > limit:
            raise DeliveryError(f"{_origin(url)} answered with more than {limit} bytes.")
        return reply.status, reply.body

    async def _send(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> Reply:
        self._activity.note()
        try:
            return await self._at(url).send(method, url, body, headers)
        finally:
            self._activity.note()

    def _at(self, url: str) -> NetworkHost:
        for name, (base, place) in self._places.items():
            if url.startswith(f"{base}/"):
                if name in self._down:
                    raise DeliveryError(f"{_origin(url)}: the test has {name!r} be down.")
                return place
        raise DeliveryError(f"{_origin(url)}: there is nobody in this test at that address.")

    def _check(self, name: str) -> None:
        if name not in self._places:
            raise ValueError(f"There is no {name!r} in this test. There are: {', '.join(self._places)}.")


class AppHost:
    """An ASGI app below a base URL."""

    def __init__(self, app: ASGIApp, base: str) -> None:
        self._app = app
        self._host = urlsplit(base).netloc

    async def send(self, method: str, url: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Reply:
        """One request to a path, or to a whole URL."""
        parts = urlsplit(url)
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        return await request(self._app, method, target, body, {"host": self._host, **(headers or {})})


def _origin(url: str) -> str:
    """What of a URL is no secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
