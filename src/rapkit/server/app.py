"""The toolset as an ASGI app."""

import contextlib
from collections.abc import Callable
from typing import Any

from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from rapkit.errors import ConfigError
from rapkit.protocol import ToolsetDocument, dump
from rapkit.server.callers import Callers
from rapkit.server.endpoints import (
    Endpoint,
    Handler,
    cancel_tool_call,
    close_thread,
    invoke,
    send_answer,
    send_json,
)
from rapkit.server.engine import Engine

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

    def door(handler: Handler) -> Endpoint:
        return Endpoint(handler, engine, callers, largest)

    return Router(
        routes=[
            Route("/invoke", door(invoke), methods=["POST"]),
            Route("/.well-known/rap-toolset", Discovery(document, public_url), methods=["GET"]),
            Route("/cancel_tool_call", door(cancel_tool_call), methods=["POST"]),
            Route("/close_thread", door(close_thread), methods=["POST"]),
            Route("/healthz", Health(), methods=["GET"]),
            Route("/readyz", Readiness(engine), methods=["GET"]),
        ],
        lifespan=lifespan,
    )


class Discovery:
    """What the server offers (DIS-1). Without a public URL the endpoint is under the address that was asked."""

    def __init__(self, document: Callable[[str], ToolsetDocument], public_url: str | None) -> None:
        self._document = document
        self._public_url = public_url

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        await send_answer(send, 200, dump(self._document(self._public_url or _asked_url(scope))), _JSON)


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
