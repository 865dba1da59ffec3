"""Toolsets that run in the agent's own process.

The agent reaches them directly, under a URL that has no meaning elsewhere. Of their routes only those are mounted in the agent's app that
are unauthenticated, such as where a browser comes back to after authorising, and webhooks: those carry their own proof.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rapkit.delivery.http_client import Fetcher, HttpResponse, Poster
from rapkit.errors import ConfigError, DeliveryError
from rapkit.http.authentication import is_loopback_host
from rapkit.http.requests import Refusal, send_problem
from rapkit.protocol import ToolsetDocument
from rapkit.runtime.server import Server

PATH = "/toolsets/"
_SCHEME = "toolset://"
_PATIENCE = 20.0
_ANSWERS = "/answer/"
_FOR_THE_AGENT_ALONE = ("/invoke", "/cancel_tool_call", "/close_thread", "/metrics", "/.well-known/rap-toolset")

Secrets = str | Mapping[str, str | Sequence[str]]


class InProcess(Protocol):
    """A toolset that can run in the agent's process: a `rapkit.Toolset`."""

    name: str
    tokens: Secrets | None
    caller_secrets: Secrets | None
    aws_keys: Mapping[str, Mapping[str, str]] | None
    client_certificates: Secrets | None

    @property
    def app(self) -> ASGIApp:
        """Its routes."""

    def lifespan(self, _app: object = None, *, loopback_callbacks: bool = ..., within: str | None = ...) -> Any:
        """The context in which it works. `within` is the URL below which the agent serves its unauthenticated endpoints."""


@dataclass(frozen=True, slots=True)
class InProcessServer(Server):
    """A toolset of this process, seen as a server. Threads remember it by its name."""

    def __post_init__(self) -> None:
        """There is nothing to check: its URL is ours."""

    @classmethod
    def of(cls, toolset: InProcess) -> "InProcessServer":
        """The server a toolset is."""
        others = (toolset.caller_secrets, toolset.aws_keys, toolset.client_certificates)
        if not toolset.tokens and any(each is not None for each in others):
            raise ConfigError(
                f"The toolset {toolset.name!r} knows callers by signatures or certificates alone, and an agent in the same process has "
                "none. Give it a token too."
            )
        return cls(_SCHEME + toolset.name, token=_first(toolset.tokens), name=f"toolset {toolset.name}")

    @property
    def is_local(self) -> bool:
        """It is nearer than that."""
        return True

    def endpoint(self, document: ToolsetDocument) -> str:
        """Not the one it tells others."""
        return f"{self.base}/invoke"

    def answer_url(self, document: ToolsetDocument | None, response_url: str) -> str | None:
        """The way to it that does not lead out of the process and back, whatever our own address was when it asked."""
        _, found, token = urlsplit(response_url).path.rpartition(_ANSWERS)
        return f"{self.base}{_ANSWERS}{token}" if found else None


def _first(tokens: Secrets | None) -> str | None:
    """A token of a toolset that wants one."""
    if tokens is None or isinstance(tokens, str):
        return tokens
    for each in tokens.values():
        return each if isinstance(each, str) else each[0]
    return None


def origin_of_in_process(url: str) -> str | None:
    """The origin of a toolset of this process; None for all other URLs."""
    if not url.startswith(_SCHEME):
        return None
    return _SCHEME + url.removeprefix(_SCHEME).partition("/")[0]


def place_of(url: str) -> str:
    """The origin of a URL, always with its port."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{parts.scheme}://{parts.hostname}:{port}"


class PublicRoutes:
    """Exposes the routes of an in-process toolset that are not only for the agent."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope["path"].removeprefix(scope.get("root_path", "")) in _FOR_THE_AGENT_ALONE:
            await send_problem(send, Refusal(404, "There is nothing here."))
            return
        await self._app(scope, receive, send)


class Transport(Poster, Fetcher, Protocol):
    """Sends POSTs and GETs."""


class TransportRouter:
    """Chooses the transport: into this process, to this machine, or to the network. Only the second one may lead to a loopback address.

    `certified` are lines that show a client certificate, by the origin they are for.
    """

    def __init__(
        self,
        far: Transport,
        near: Transport,
        toolsets: Sequence[InProcess],
        certified: Mapping[str, Transport] | None = None,
    ) -> None:
        self._certified = certified or {}
        self._far = far
        self._near = near
        self._toolsets = {toolset.name: toolset.app for toolset in toolsets}

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
        """POST to an in-process toolset or to any server."""
        if url.startswith(_SCHEME):
            status, _ = await self._ask("POST", url, body, {"content-type": "application/json", **headers})
            return HttpResponse(status)
        return await self._transport(url).post(url, body, headers)

    async def get(self, url: str, headers: Mapping[str, str], *, limit: int) -> tuple[int, bytes]:
        """GET from an in-process toolset or from any server."""
        if url.startswith(_SCHEME):
            return await self._ask("GET", url, b"", headers)
        return await self._transport(url).get(url, headers, limit=limit)

    def _transport(self, url: str) -> Transport:
        if self._certified and (transport := self._certified.get(place_of(url))):
            return transport
        return self._near if is_loopback_host(urlsplit(url).hostname or "") else self._far

    async def _ask(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        name, _, path = url.removeprefix(_SCHEME).partition("/")
        app = self._toolsets.get(name)
        if app is None:
            raise DeliveryError(f"There is no toolset {name!r} in this process.")
        return await _request(app, f"{PATH}{name}", method, path, body, headers)


async def _request(
    app: ASGIApp, root: str, method: str, path: str, body: bytes, headers: Mapping[str, str]
) -> tuple[int, bytes]:
    path = f"{root}/{path}"
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": root,
        "query_string": b"",
        "headers": [
            (b"host", b"127.0.0.1"),
            (b"content-length", str(len(body)).encode()),
            *((name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()),
        ],
        "client": ("127.0.0.1", 0),
        "server": ("127.0.0.1", None),
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
