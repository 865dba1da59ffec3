"""The toolset as an ASGI app."""

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from rapkit.errors import ConfigError, InvalidMessage, StoreError
from rapkit.http.allowed_methods import AllowedMethods
from rapkit.http.authentication import Callers
from rapkit.http.body_limits import BodyLimits
from rapkit.http.health import Health, Readiness
from rapkit.http.metrics import MetricsPage
from rapkit.http.rate_limit import RateLimit
from rapkit.http.requests import (
    Body,
    Refusal,
    address_of,
    asked_url,
    host_of,
    retry_later,
    send_answer,
    send_problem,
    unauthorized,
)
from rapkit.http.unauthenticated import UnauthenticatedEndpoint
from rapkit.mailbox import AcceptResult
from rapkit.protocol import ToolsetDocument, dump, parse_choice_made
from rapkit.server.endpoints.invocations import (
    RETRY_WHEN_STORE_FAILS,
    InvocationEndpoint,
    invoke,
)
from rapkit.server.endpoints.notices import Act, NoticeEndpoint, cancel_tool_call, close_thread
from rapkit.server.endpoints.webhooks import Webhook, WebhookEndpoint
from rapkit.server.engine import ToolsetEngine
from rapkit.server.interaction.oauth import RedirectEndpoint
from rapkit.server.interaction.oauth.flow import REDIRECT_PATH
from rapkit.server.interaction.user_interaction import ANSWER_PATH
from rapkit.server.limits import Limits

DISCOVERY = "/.well-known/rap-toolset"
_JSON = ((b"content-type", b"application/json"),)
_LARGEST_UNAUTHENTICATED = 16 * 1024

log = logging.getLogger("rapkit.http")


def make_app(
    *,
    engine: Callable[[], ToolsetEngine],
    document: Callable[[str], ToolsetDocument],
    public_url: str | None,
    callers: Callers,
    limits: Limits,
    webhooks: Sequence[Webhook],
    lifespan: Callable[[Any], contextlib.AbstractAsyncContextManager[None]],
) -> ASGIApp:
    """Routes for a toolset. `engine` gives the running engine, or raises `ConfigError` if there is none."""
    notices = RateLimit(limits.notices)
    strangers = RateLimit(limits.strangers)

    def for_notices(act: Act) -> ASGIApp:
        return AllowedMethods(NoticeEndpoint(act, engine, callers, limits, notices), "POST")

    def unauthenticated(endpoint: ASGIApp) -> ASGIApp:
        return UnauthenticatedEndpoint(endpoint, strangers, _LARGEST_UNAUTHENTICATED)

    routes = Router(
        routes=[
            Route("/invoke", AllowedMethods(InvocationEndpoint(invoke, engine, callers, limits), "POST")),
            Route(DISCOVERY, AllowedMethods(DiscoveryEndpoint(engine, callers, document, public_url), "GET", "HEAD")),
            Route("/cancel_tool_call", for_notices(cancel_tool_call)),
            Route("/close_thread", for_notices(close_thread)),
            Route(f"{ANSWER_PATH}{{token}}", unauthenticated(AllowedMethods(ChoiceEndpoint(engine), "POST"))),
            Route(REDIRECT_PATH, unauthenticated(AllowedMethods(RedirectEndpoint(lambda: engine().oauth), "GET"))),
            Route("/metrics", AllowedMethods(MetricsPage(lambda: engine().metrics.render(), callers), "GET")),
            Route("/healthz", AllowedMethods(Health(), "GET", "HEAD")),
            Route("/readyz", AllowedMethods(Readiness(lambda: engine().problem()), "GET", "HEAD")),
            *(
                Route(webhook.path, AllowedMethods(WebhookEndpoint(webhook, engine, strangers, limits.body), "POST"))
                for webhook in webhooks
            ),
        ],
        redirect_slashes=False,  # no RAP peer follows a redirect, and it would go wherever the Host header says
        default=not_found,
        lifespan=lifespan,
    )
    return BodyLimits(routes, limits.http)


async def not_found(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request for a path there is none of."""
    if scope["type"] == "websocket":
        await WebSocketClose()(scope, receive, send)
        return
    await send_problem(
        send, Refusal(404, f"There is nothing here. What this server offers is told by GET {DISCOVERY}.")
    )


class DiscoveryEndpoint:
    """Serves the toolset document (DIS-1). Without a public URL its endpoint is below the address of the request."""

    def __init__(
        self,
        engine: Callable[[], ToolsetEngine],
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
        try:
            if self._callers.local_only and not self._is_local(scope):
                raise unauthorized(self._callers)
            asked = self._public_url or asked_url(scope)
        except Refusal as refusal:
            await send_problem(send, refusal)
            return
        try:
            self._engine()  # a toolset whose calls would be refused is not offered (DIS-2)
        except ConfigError as error:
            await send_problem(send, Refusal(503, str(error)))
            return
        try:
            document = self._document(asked)
        except ConfigError:
            # The toolset was checked when it was started, so it is the address that makes no URL.
            await send_problem(send, Refusal(400, "The Host header is not a host."))
            return
        await send_answer(send, 200, dump(document), _JSON)

    def _is_local(self, scope: Scope) -> bool:
        return self._callers.identify(b"", address_of(scope), host_of(scope)) is not None


class ChoiceEndpoint:
    """Receives users' choices at the `response_url` of the question, which is proof enough."""

    def __init__(self, engine: Callable[[], ToolsetEngine]) -> None:
        self._engine = engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            made = parse_choice_made(await Body(scope, receive, _LARGEST_UNAUTHENTICATED).read())
            accept_result = await self._engine().answer(scope["path_params"]["token"], made)
            if accept_result is AcceptResult.UNKNOWN:
                raise Refusal(404, "No question of this call was asked with this URL.")
            if accept_result is AcceptResult.UNWANTED:
                raise Refusal(
                    410, "This question is not open any more: it expired, it was refused, or its call has ended."
                )
        except InvalidMessage as error:
            await send_problem(send, Refusal(400, str(error)))
        except ConfigError as error:
            await send_problem(send, Refusal(503, str(error)))
        except StoreError as error:
            log.error("not stored: %s", error)
            await send_problem(send, retry_later("The answer could not be stored.", RETRY_WHEN_STORE_FAILS))
        else:
            await send_answer(send, 200)
