"""The agent as an ASGI app: the callback endpoint and the client API."""

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

from starlette.routing import Mount, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from rapkit import __version__
from rapkit.delivery.signatures import IncomingSignature
from rapkit.errors import ConfigError, StoreError
from rapkit.http.allowed_methods import AllowedMethods
from rapkit.http.authentication import Callers
from rapkit.http.body_limits import BodyLimits
from rapkit.http.health import Health, Readiness
from rapkit.http.metrics import MetricsPage
from rapkit.http.rate_limit import RateLimit
from rapkit.http.requests import (
    Body,
    Held,
    Refusal,
    TooLarge,
    address_of,
    retry_later,
    send_answer,
    send_problem,
)
from rapkit.runtime.api import api_routes
from rapkit.runtime.api.schemas import AgentDetail
from rapkit.runtime.callback_urls import PATH as CALLBACK_PATH
from rapkit.runtime.callback_urls import CallbackTarget
from rapkit.runtime.config import Capacity
from rapkit.runtime.engine import AgentEngine
from rapkit.runtime.in_process import PATH as TOOLSETS_PATH
from rapkit.runtime.in_process import InProcess, PublicRoutes
from rapkit.runtime.refused_callbacks import LOOKED_AT
from rapkit.stores import absolute

_RETRY_WHEN_STORE_FAILS = 5
_UNAUTHENTICATED_A_SECOND = 20.0

log = logging.getLogger("rapkit.http")

FindEngine = Callable[[], AgentEngine]
"""The running engine; `ConfigError` if there is none."""


def make_app(
    *,
    engine: FindEngine,
    callers: Callers,
    capacity: Capacity,
    toolsets: Sequence[InProcess],
    lifespan: Callable[[Any], contextlib.AbstractAsyncContextManager[None]],
) -> ASGIApp:
    """Routes for an agent."""
    routes = Router(
        routes=[
            Route(f"{CALLBACK_PATH}{{token}}", AllowedMethods(CallbackEndpoint(engine, capacity), "POST")),
            *api_routes(lambda: engine().threads, lambda: _about(engine()), callers, capacity.message, capacity.values),
            Route("/metrics", AllowedMethods(_metrics_page(engine, callers), "GET")),
            Route("/healthz", AllowedMethods(Health(), "GET", "HEAD")),
            Route("/readyz", AllowedMethods(Readiness(lambda: engine().problem()), "GET", "HEAD")),
            *(Mount(f"{TOOLSETS_PATH}{toolset.name}", PublicRoutes(toolset.app)) for toolset in toolsets),
        ],
        redirect_slashes=False,
        default=_nothing_here,
        lifespan=lifespan,
    )
    return BodyLimits(routes, capacity.http)


def _about(engine: AgentEngine) -> AgentDetail:
    config = engine.config
    return AgentDetail(
        version=__version__,
        model=config.model.name,
        servers=[server.key for server in config.servers],
        store=absolute(config.store),
        works=engine.works,
        lasting=config.lasting,
    )


def _metrics_page(engine: FindEngine, callers: Callers) -> MetricsPage:
    return MetricsPage(lambda: engine().metrics.render(), callers, read=lambda: engine().metrics.read())


class CallbackEndpoint:
    """The callback endpoint, in plain ASGI because it takes thousands of requests a second.

    In this order: 404 a URL that is none of ours; 401 not signed, where it has to be; 413; 400 no message; 404 it is about another call;
    410 nothing waits for it any more; 200 once the message is durable, or was before; 503 if it cannot be stored now.
    """

    def __init__(self, engine: FindEngine, capacity: Capacity) -> None:
        self._engine = engine
        self._largest = capacity.callback
        self._most_discarded = capacity.http.discard_bytes
        self._values = capacity.values
        self._held = Held(4 * capacity.mail)
        self._strangers = RateLimit(_UNAUTHENTICATED_A_SECOND)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            engine = self._engine()
        except ConfigError as error:
            await send_problem(send, Refusal(503, str(error)))
            return
        status = 200
        try:
            await self._accept(engine, scope, receive)
            await send_answer(send, 200)
        except Refusal as refusal:
            status = refusal.status
            await send_problem(send, refusal)
        except StoreError as error:
            log.error("a callback was not stored: %s", error)
            status = 503
            await send_problem(send, retry_later("The message could not be stored.", _RETRY_WHEN_STORE_FAILS))
        engine.metrics.callback(status)

    async def _accept(self, engine: AgentEngine, scope: Scope, receive: Receive) -> None:
        call = self._call(engine, scope)
        headers = dict(scope["headers"])
        signed = engine.callbacks.signed(call, headers)
        body = Body(scope, receive, self._largest, self._values, self._held)
        try:
            await self._accept_body(engine, call, signed, headers, body)
        finally:
            body.dropped()

    async def _accept_body(
        self,
        engine: AgentEngine,
        call: CallbackTarget,
        signed: IncomingSignature | None,
        headers: dict[bytes, bytes],
        body: Body,
    ) -> None:
        try:
            message = await body.read()
        except TooLarge as refusal:
            beginning = await body.beginning(LOOKED_AT)
            if signed is not None:
                await body.feed(signed.update, self._most_discarded)
                await engine.callbacks.verify(call, signed)
            await engine.callbacks.refuse_too_large(call, beginning, headers, refusal)
            raise
        if signed is not None:
            signed.update(message)
            await engine.callbacks.verify(call, signed)
        await engine.callbacks.accept(call, message, headers)

    def _call(self, engine: AgentEngine, scope: Scope) -> CallbackTarget:
        try:
            return engine.callbacks.call_of(scope["path_params"]["token"])
        except Refusal:
            if wait := self._strangers.wait(address_of(scope) or ""):
                raise retry_later("Too many requests to URLs that are none of ours.", wait) from None
            raise


async def _nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await WebSocketClose()(scope, receive, send)
        return
    await send_problem(send, Refusal(404, "There is nothing here. What there is, is told by GET /openapi.json."))
