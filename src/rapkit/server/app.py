"""The toolset as an ASGI app."""

import contextlib
from collections.abc import Callable
from typing import Any

from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from rapkit.errors import ConfigError
from rapkit.protocol import ToolsetDocument, dump
from rapkit.server.callers import Callers
from rapkit.server.endpoints import (
    Endpoint,
    Handler,
    Refusal,
    cancel_tool_call,
    close_thread,
    invoke,
    send_answer,
    send_json,
    send_problem,
    unauthorized,
)
from rapkit.server.engine import Engine

_DISCOVERY = "/.well-known/rap-toolset"
_JSON = ((b"content-type", b"application/json"),)


def make_app(
    *,
    engine: Callable[[], Engine],
    document: Callable[[str], ToolsetDocument],
    public_url: str | None,
    callers: Callers,
    largest: int,
    lifespan: Callable[[Any], contextlib.AbstractAsyncContextManager[None]],
) -> Router:
    """Routes for a toolset. `engine` gives the running engine, or raises `ConfigError` if there is none."""

    def door(handler: Handler, *, notice: bool = False) -> Endpoint:
        return Endpoint(handler, engine, callers, largest, notice=notice)

    return Router(
        routes=[
            Route("/invoke", Only(door(invoke), "POST")),
            Route(_DISCOVERY, Only(Discovery(engine, callers, document, public_url), "GET", "HEAD")),
            Route("/cancel_tool_call", Only(door(cancel_tool_call, notice=True), "POST")),
            Route("/close_thread", Only(door(close_thread, notice=True), "POST")),
            Route("/healthz", Only(Health(), "GET", "HEAD")),
            Route("/readyz", Only(Readiness(engine), "GET", "HEAD")),
        ],
        redirect_slashes=False,  # nobody in RAP follows a redirect, and it would go wherever the Host header says
        default=nothing_here,
        lifespan=lifespan,
    )


class Only:
    """An endpoint for some methods. The others are refused in words, as everything is."""

    def __init__(self, endpoint: ASGIApp, *methods: str) -> None:
        self._endpoint = endpoint
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] in self._methods:
            await self._endpoint(scope, receive, send)
            return
        allowed = ", ".join(self._methods)
        detail = f"{scope['method']} is not possible here. Send {' or '.join(self._methods)}."
        await send_problem(send, Refusal(405, detail, ((b"allow", allowed.encode()),)))


async def nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request for a path there is none of."""
    if scope["type"] == "websocket":
        await WebSocketClose()(scope, receive, send)
        return
    await send_problem(
        send, Refusal(404, f"There is nothing here. What this server offers is told by GET {_DISCOVERY}.")
    )


class Discovery:
    """What the server offers (DIS-1). Without a public URL the endpoint is under the address that was asked."""

    def __init__(
        self,
        engine: Callable[[], Engine],
        callers: Callers,
        document: Callable[[str], ToolsetDocument],
        public_url: str | None,
    ) -> None:
        self._engine = engine
        self._callers = callers
        self._document = document
        self._public_url = public_url

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        if self._callers.local_only and not self._is_local(scope):
            await send_problem(send, unauthorized(self._callers))
            return
        try:
            self._engine()  # a toolset whose calls would be refused is not offered (DIS-2)
        except ConfigError as error:
            await send_problem(send, Refusal(503, str(error)))
            return
        try:
            document = self._document(self._public_url or _asked_url(scope))
        except ConfigError:
            # The toolset was checked when it was started, so it is the address that makes no URL.
            await send_problem(send, Refusal(400, "The Host header is not a host."))
            return
        await send_answer(send, 200, dump(document), _JSON)

    def _is_local(self, scope: Scope) -> bool:
        client = scope.get("client")
        host = next((value for name, value in scope["headers"] if name == b"host"), b"")
        return self._callers.identify(b"", client[0] if client else None, host) is not None


class Readiness:
    """Whether invocations can be accepted now."""

    def __init__(self, engine: Callable[[], Engine]) -> None:
        self._engine = engine

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            ready = await self._engine().ready()
        except ConfigError:
            ready = False
        await send_json(send, {"ready": ready}, 200 if ready else 503)


class Health:
    """Whether the process answers at all."""

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        await send_json(send, {"ok": True})


def _asked_url(scope: Scope) -> str:
    host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), None)
    if not host:
        address, port = scope.get("server") or ("localhost", None)
        host = address if port is None else f"{address}:{port}"
    return f"{scope['scheme']}://{host}{scope.get('root_path', '')}"
