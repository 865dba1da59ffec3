"""The HTTP endpoints of a toolset, as plain ASGI: they are asked thousands of times a second.

Answers to invocations: 200 once it is durable; 409 for a stale toolset version; 400 only if no answer could ever be delivered; 401; 413;
415; 503 with Retry-After, never 429, because RAP senders do not come back after a 4xx. All else that is wrong travels by callback.
"""

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.types import Receive, Scope, Send

from rapkit.errors import ConfigError, ForbiddenTarget, InvalidMessage, StoreError
from rapkit.protocol import parse_call_cancelled, parse_invocation, parse_thread_closed
from rapkit.server.callers import Callers
from rapkit.server.engine import Admission, Engine, TooBusy
from rapkit.server.invocation import Call

_BODY_PATIENCE = 15.0
_RETRY_WHEN_STORE_FAILS = 5

log = logging.getLogger("rapkit.http")


class Refusal(Exception):
    """A request that is answered with a problem document."""

    def __init__(self, status: int, detail: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers


class Request:
    """What an endpoint needs to know of a request: who sent it, and its body."""

    def __init__(self, scope: Scope, receive: Receive, callers: Callers, largest: int) -> None:
        self._receive = receive
        self._largest = largest
        authorization = content_type = host = length = b""
        for name, value in scope["headers"]:
            if name == b"authorization":
                authorization = value
            elif name == b"content-type":
                content_type = value
            elif name == b"host":
                host = value
            elif name == b"content-length":
                length = value
        client = scope.get("client")
        caller = callers.identify(authorization, client[0] if client else None, host)
        if caller is None:
            raise unauthorized(callers)
        if content_type.partition(b";")[0].strip().lower() != b"application/json":
            raise Refusal(415, "Send Content-Type: application/json.")
        if length.isdigit() and int(length) > largest:
            raise _too_large(largest)
        self.caller = caller

    async def body(self) -> bytes:
        """The whole body, if it is not too large and does not take too long to come."""
        try:
            async with asyncio.timeout(_BODY_PATIENCE):
                return await self._read()
        except TimeoutError:
            raise Refusal(408, f"The body did not come within {_BODY_PATIENCE:g} seconds.") from None

    async def _read(self) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Refusal(400, "The body ended too early.")
            part: bytes = message.get("body", b"")
            size += len(part)
            if size > self._largest:
                raise _too_large(self._largest)
            if not message.get("more_body"):
                return b"".join([*parts, part]) if parts else part
            parts.append(part)


Handler = Callable[[Engine, Request], Awaitable[None]]


async def invoke(engine: Engine, request: Request) -> None:
    """An invocation (INV-8): return once it is durable."""
    body = await request.body()
    try:
        call = Call(engine.toolset, request.caller, parse_invocation(body), body)
        admission = await engine.admit(call)
    except InvalidMessage as error:
        raise Refusal(400, str(error)) from None
    except ForbiddenTarget as error:
        raise Refusal(400, f"callback_url: {error}") from None
    if admission is Admission.STALE:
        raise Refusal(409, "The toolset has changed. Fetch /.well-known/rap-toolset again and send the call anew.")


async def close_thread(engine: Engine, request: Request) -> None:
    """A thread was closed: its calls are stopped (CLO-4)."""
    try:
        notice = parse_thread_closed(await request.body())
    except InvalidMessage as error:
        raise Refusal(400, str(error)) from None
    await engine.cancel(request.caller, notice.thread_id, None)


async def cancel_tool_call(engine: Engine, request: Request) -> None:
    """A call was cancelled (CAN-2)."""
    try:
        notice = parse_call_cancelled(await request.body())
    except InvalidMessage as error:
        raise Refusal(400, str(error)) from None
    await engine.cancel(request.caller, notice.thread_id, notice.tool_call_id)


class Endpoint:
    """An ASGI app around a handler: every way it can end becomes an answer. A notice gets 200 even if it could not be heeded."""

    def __init__(
        self, handler: Handler, engine: Callable[[], Engine], callers: Callers, largest: int, *, notice: bool = False
    ) -> None:
        self._handler = handler
        self._notice = notice
        self._engine = engine
        self._callers = callers
        self._largest = largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            await self._handler(self._engine(), Request(scope, receive, self._callers, self._largest))
        except Refusal as refusal:
            await send_problem(send, refusal)
        except ConfigError as error:
            await send_problem(send, Refusal(503, str(error)))
        except TooBusy as busy:
            await send_problem(send, _come_back("Too much to do right now.", busy.retry_after))
        except StoreError as error:
            log.error("not stored: %s", error)
            if self._notice:
                await send_answer(send, 200)  # it is never sent again, whatever we say (CLO-4)
                return
            await send_problem(send, _come_back("The message could not be stored.", _RETRY_WHEN_STORE_FAILS))
        else:
            await send_answer(send, 200)


async def send_answer(
    send: Send, status: int, body: bytes = b"", headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """One whole answer."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
    await send({"type": "http.response.body", "body": body})


async def send_json(send: Send, document: Any, status: int = 200) -> None:
    """A JSON document."""
    await send_answer(send, status, json.dumps(document).encode(), ((b"content-type", b"application/json"),))


async def send_problem(send: Send, refusal: Refusal) -> None:
    """A problem document (RFC 9457)."""
    document = json.dumps(
        {"title": _TITLES.get(refusal.status, "Error"), "status": refusal.status, "detail": refusal.detail}
    )
    headers = ((b"content-type", b"application/problem+json"), *refusal.headers)
    await send_answer(send, refusal.status, document.encode(), headers)


_TITLES = {
    400: "Not a valid message",
    401: "Not authenticated",
    404: "Nothing here",
    405: "Wrong method",
    408: "Too slow",
    409: "Stale toolset",
    413: "Too large",
    415: "Not JSON",
    503: "Come back later",
}


def _come_back(detail: str, seconds: float) -> Refusal:
    after = max(1, math.ceil(seconds))
    return Refusal(503, f"{detail} Send it again in {after} s.", ((b"retry-after", str(after).encode()),))


def _too_large(largest: int) -> Refusal:
    return Refusal(413, f"A message may have {largest} bytes.")


def unauthorized(callers: Callers) -> Refusal:
    """What a stranger is told."""
    if callers.local_only:
        return Refusal(
            401,
            "No token is configured, so only callers on this machine are served, under a loopback address as Host. "
            "Configure tokens to serve others.",
        )
    return Refusal(
        401, "Send Authorization: Bearer with a token this server knows.", ((b"www-authenticate", b"Bearer"),)
    )
