"""The endpoints for notices: thread closed, call cancelled.

A runtime sends a notice once and ignores the answer, so there is nothing to negotiate. An unauthenticated notice gets 401. Every other one
gets an empty 200, whatever is in it and whatever becomes of it (CLO-4, CAN-2); a notice that cannot be read or acted on is logged.
"""

import logging
from collections.abc import Awaitable, Callable

from starlette.types import Receive, Scope, Send

from rapkit.errors import ConfigError, InvalidMessage, StoreError
from rapkit.http.authentication import Callers
from rapkit.http.rate_limit import RateLimit
from rapkit.http.requests import (
    Body,
    Refusal,
    check_signature,
    identify,
    send_answer,
    send_problem,
    unauthorized,
)
from rapkit.protocol import parse_call_cancelled, parse_thread_closed
from rapkit.server.engine import ToolsetEngine
from rapkit.server.limits import Limits

log = logging.getLogger("rapkit.http")

Act = Callable[[ToolsetEngine, str, bytes], Awaitable[None]]
"""What a notice asks for: it is given the caller and the body."""


async def close_thread(engine: ToolsetEngine, caller: str, body: bytes) -> None:
    """Stop a thread's calls and clean up what is kept for it (CLO-5)."""
    notice = parse_thread_closed(body)
    if _is_cancellation(body):
        # A signature does not say where to: a cancellation that is replayed here must not close the thread.
        raise InvalidMessage("It is the cancellation of one call, which belongs to /cancel_tool_call.")
    await engine.close_thread(caller, notice.thread_id)


def _is_cancellation(body: bytes) -> bool:
    try:
        parse_call_cancelled(body)
    except InvalidMessage:
        return False
    return True


async def cancel_tool_call(engine: ToolsetEngine, caller: str, body: bytes) -> None:
    """Stop every call that has these ids (CAN-3)."""
    notice = parse_call_cancelled(body)
    await engine.cancel(caller, notice.thread_id, notice.tool_call_id)


class NoticeEndpoint:
    """An ASGI app that takes one kind of notice. `rate` bounds how many a caller may send; those past it are not acted on (CLO-8)."""

    def __init__(
        self, act: Act, engine: Callable[[], ToolsetEngine], callers: Callers, limits: Limits, rate: RateLimit
    ) -> None:
        self._act = act
        self._engine = engine
        self._callers = callers
        self._limits = limits
        self._rate = rate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one notice."""
        try:
            caller, body = await self._read(scope, receive)
            engine = self._engine()
        except Refusal as refusal:
            await send_problem(send, refusal)
        except ConfigError as error:
            await send_problem(send, Refusal(503, str(error)))
        else:
            if body is not None:
                await self._heed(engine, caller, body)
            await send_answer(send, 200)

    async def _read(self, scope: Scope, receive: Receive) -> tuple[str, bytes | None]:
        """The authenticated caller and the body, None if it cannot be had; a `Refusal` with 401 otherwise."""
        caller = identify(scope, self._callers)
        try:
            body = await Body(scope, receive, self._limits.body, self._limits.values).read()
        except Refusal as refusal:
            if caller is None:  # whose signature cannot be checked without the body
                raise unauthorized(self._callers) from None
            self._tell(caller, refusal.detail)
            return caller, None
        return caller or check_signature(scope, self._callers, body), body

    async def _heed(self, engine: ToolsetEngine, caller: str, body: bytes) -> None:
        if self._rate.wait(caller):
            self._tell(caller, "Its sender sends too many.")
            return
        try:
            await self._act(engine, caller, body)
        except InvalidMessage as error:
            self._tell(caller, str(error))
        except StoreError as error:
            log.error("a notice was not acted on: it could not be stored: %s", error, extra={"caller": caller})
        except Exception:
            log.exception("a notice was not acted on: the server failed", extra={"caller": caller})

    def _tell(self, caller: str, why: str) -> None:
        log.warning("a notice was not acted on: %s", why, extra={"caller": caller})
