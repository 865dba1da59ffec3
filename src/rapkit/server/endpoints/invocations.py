"""The endpoint for invocations, in plain ASGI because it takes thousands of requests a second.

Answers to invocations: 200 once it is durable; 409 for a stale toolset version; 400 only if no answer could ever be delivered; 401; 413;
503 with Retry-After, never 429, because RAP senders do not come back after a 4xx. All else that is wrong travels by callback.
"""

import logging
from collections.abc import Awaitable, Callable

from starlette.types import Receive, Scope, Send

from rapkit.errors import ConfigError, ForbiddenTarget, InvalidMessage, StoreError
from rapkit.http.authentication import Callers
from rapkit.http.requests import Refusal, Request, read_request, retry_later, send_answer, send_problem
from rapkit.protocol import parse_invocation
from rapkit.server.engine import Admission, TooBusy, ToolsetEngine
from rapkit.server.invocation import StoredCall
from rapkit.server.limits import Limits
from rapkit.tracing import read_traceparent
from rapkit.work.offload import offload

RETRY_WHEN_STORE_FAILS = 5
_STALE = 409
_ADVICE = "allow its network"
_OPTION = " (rapkit serve --allow-callback, or Toolset(allow_callbacks=...))."

log = logging.getLogger("rapkit.http")

Handler = Callable[[ToolsetEngine, Request], Awaitable[None]]


async def invoke(engine: ToolsetEngine, request: Request) -> None:
    """An invocation (INV-8): return once it is durable."""
    base_url = engine.public_url or request.asked_url
    if not base_url:
        raise Refusal(400, "The Host header is not a host.")
    try:
        call = StoredCall(
            engine.toolset,
            request.caller,
            await offload(len(request.body), parse_invocation, request.body),
            request.body,
            base_url,
            read_traceparent(request.headers.items()),
        )
        admission = await engine.admit(call)
    except InvalidMessage as error:
        raise Refusal(400, str(error)) from None
    except ForbiddenTarget as error:
        # The runtime need not read our answer (its body means nothing in RAP), so the operator is told too.
        problem = _how_to_allow(error)
        log.warning("a call was refused: callback_url: %s", problem, extra={"caller": request.caller})
        raise Refusal(400, f"callback_url: {problem}") from None
    engine.metrics.invocation(admission.value)
    if admission is Admission.STALE:
        raise Refusal(_STALE, "The toolset has changed. Fetch /.well-known/rap-toolset again and send the call anew.")


def _how_to_allow(error: ForbiddenTarget) -> str:
    """What a guard says, and what its advice is called where this server is started."""
    text = str(error)
    return f"{text.rstrip('.')}{_OPTION}" if _ADVICE in text else text


class InvocationEndpoint:
    """An ASGI app around a handler, which maps its errors to responses."""

    def __init__(
        self,
        handler: Handler,
        engine: Callable[[], ToolsetEngine],
        callers: Callers,
        limits: Limits,
    ) -> None:
        self._handler = handler
        self._engine = engine
        self._callers = callers
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            engine = self._engine()
        except ConfigError as error:
            await send_problem(send, Refusal(503, str(error)))
            return
        try:
            limits = self._limits
            request = await read_request(scope, receive, self._callers, limits.body, limits.values)
            await self._handler(engine, request)
        except Refusal as refusal:
            if refusal.status != _STALE:
                engine.metrics.invocation("refused")
            await send_problem(send, refusal)
        except TooBusy as busy:
            engine.metrics.invocation("busy")
            await send_problem(send, retry_later("Too much to do right now.", busy.retry_after))
        except StoreError as error:
            log.error("not stored: %s", error)
            engine.metrics.invocation("busy")
            await send_problem(send, retry_later("The message could not be stored.", RETRY_WHEN_STORE_FAILS))
        else:
            await send_answer(send, 200)
