"""Read and authenticate requests, and write responses and problem documents."""

import asyncio
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from rapkit.http.authentication import Callers, is_loopback_host
from rapkit.http.sigv4 import NotAuthentic
from rapkit.protocol.value_count import ValueCount

_RETRY_WHEN_CUT_SHORT = 5.0
_RETRY_WHEN_FULL = 5.0
_SMALL = 64 * 1024
_MOST_DIGITS = 18
# A name or an address, and a port. Anything else would make links that lead nowhere, or that no message can carry.
_HOST = re.compile(r"([A-Za-z0-9._~-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{0,5})?")

Headers = tuple[tuple[bytes, bytes], ...]


class Refusal(Exception):
    """A request that is answered with a problem document."""

    def __init__(self, status: int, detail: str, headers: Headers = ()) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers


@dataclass(frozen=True, slots=True)
class Request:
    """An authenticated request."""

    caller: str
    body: bytes = field(repr=False)
    headers: Mapping[bytes, bytes] = field(repr=False)
    """By their names in lower case. They hold what the caller authenticates with: nothing to be logged."""
    asked_url: str = ""
    """Where we were asked, up to where our own paths begin; see `asked_url`."""


async def read_request(
    scope: Scope,
    receive: Receive,
    callers: Callers,
    largest: int,
    values: int | None = None,
    *,
    is_json: bool = False,
) -> Request:
    """The whole request once it is known who sent it, or a `Refusal`.

    A caller with a token is authenticated before the body is read, one that signed it afterwards; unknown callers are rejected then. With
    `is_json` a body that is not declared to be JSON is refused; RAP messages are taken whatever they are declared to be.
    """
    headers = dict(scope["headers"])
    caller = identify(scope, callers)
    if is_json and not _is_declared_json(headers):
        raise Refusal(415, "Send Content-Type: application/json.")
    body = await Body(scope, receive, largest, values).read()
    return Request(caller or check_signature(scope, callers, body), body, headers, asked_url(scope))


def identify(scope: Scope, callers: Callers) -> str | None:
    """The caller, None if that depends on the signature of its body; a `Refusal` with 401 if it has no credentials."""
    headers = dict(scope["headers"])
    caller = callers.identify(headers.get(b"authorization", b""), address_of(scope), host_of(scope))
    caller = caller or callers.identify_certificate(scope)
    if caller is None and not callers.may_be_signed(headers):
        raise _turned_away(callers, scope, _what_is_missing(callers, scope, headers))
    # A browser connects from this machine, or with its user's certificate, whatever page has it do so.
    by_connection = callers.local_only or callers.have_certificates
    if by_connection and not _is_declared_json(headers) and _is_from_another_page(scope, headers):
        raise _turned_away(callers, scope, "a web page sent it, and where it comes from is no proof then")
    return caller


def check_signature(scope: Scope, callers: Callers, body: bytes) -> str:
    """The caller that signed this body; a `Refusal` with 401 if none of ours did."""
    try:
        return callers.identify_signed(scope, dict(scope["headers"]), body)
    except NotAuthentic as error:
        raise _turned_away(callers, scope, str(error)) from None


def _is_declared_json(headers: Mapping[bytes, bytes]) -> bool:
    return headers.get(b"content-type", b"").partition(b";")[0].strip().lower() == b"application/json"


def _is_from_another_page(scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser sends this for a web page that is not ours: any page can have it POST what is not JSON without asking us first."""
    origin = headers.get(b"origin")
    return scope["method"] == "POST" and origin is not None and origin.partition(b"//")[2] != host_of(scope)


class TooLarge(Refusal):
    """A body past one of its limits."""

    def __init__(self, most: int, what: str = "bytes") -> None:
        super().__init__(413, f"A message may have at most {most} {what}.")


@dataclass(slots=True)
class Held:
    """How many bytes of bodies are in memory, and how many may be before large ones have to come again."""

    most: int
    bytes: int = 0

    def check(self, size: int) -> None:
        """Raise a `Refusal` if a body of this size has to go, because there are too many."""
        if self.bytes > self.most and size > _SMALL:
            raise retry_later("Too many large messages come in at once.", _RETRY_WHEN_FULL)


class Body:
    """A body that comes in, if it is not too large: else a `Refusal`. How long it may take is up to `BodyLimits`.

    With `values` it is JSON, and may have as many values. With `held` it is counted there until it is `dropped`.
    """

    def __init__(
        self, scope: Scope, receive: Receive, largest: int, values: int | None = None, held: Held | None = None
    ) -> None:
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
        self._declared_too_large = length.isdigit() and (len(length) > _MOST_DIGITS or int(length) > largest)
        self._receive = receive
        self._largest = largest
        self._values = values
        self._held = held
        self._kept = 0
        self._size = 0
        self._ended = False
        self._parts: list[bytes] = []

    async def read(self) -> bytes:
        """The whole of it."""
        if self._declared_too_large:
            raise TooLarge(self._largest)
        while not self._ended:
            await self._read_part()
            if self._size > self._largest:
                raise TooLarge(self._largest)
        # A value takes at least two bytes, so that few messages have to be looked at.
        if self._values is not None and self._size > 2 * self._values:
            await self._count_values(self._values)
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    async def _count_values(self, most: int) -> None:
        """Raise `TooLarge` if parsing the body would make too many objects: that keeps everything else waiting, and takes memory."""
        count = ValueCount()
        for part in self._parts:
            count.feed(part)
            if count.values > most:
                raise TooLarge(most, "JSON values")
            await asyncio.sleep(0)

    async def beginning(self, size: int) -> bytes:
        """The first bytes of a body that may be too large."""
        while not self._ended and self._size < size:
            await self._read_part()
        return b"".join(self._parts)[:size]

    async def feed(self, consume: Callable[[bytes], None], most: int) -> None:
        """Give all parts of a body to a function, those read before and those beyond its limit, up to about `most` bytes."""
        for part in self._parts:
            consume(part)
        while not self._ended and self._size <= most:
            consume(await self._next_part())

    async def _read_part(self) -> None:
        part = await self._next_part()
        self._parts.append(part)
        if self._held is not None:
            self._kept += len(part)
            self._held.bytes += len(part)
            self._held.check(self._kept)

    def dropped(self) -> None:
        """Say that nothing of it is in memory any more."""
        if self._held is not None:
            self._held.bytes -= self._kept
            self._kept = 0
            self._parts.clear()  # who refused it is not done with it before its sender is

    async def _next_part(self) -> bytes:
        message = await self._next()
        if message["type"] == "http.disconnect":
            # Its sender has gone. Should anything pass this answer on to one that has not, it is to come again.
            raise retry_later("The body ended too early.", _RETRY_WHEN_CUT_SHORT)
        part: bytes = message.get("body", b"")
        return part

    async def receive(self) -> Message:
        """The next message, as an ASGI app gets it."""
        if self._declared_too_large:
            raise TooLarge(self._largest)
        if self._ended:
            # What comes now is that the client has gone, and that may take as long as it likes.
            return await self._receive()
        message = await self._next()
        if self._size > self._largest:
            raise TooLarge(self._largest)
        return message

    async def _next(self) -> Message:
        message = await self._receive()
        self._size += len(message.get("body", b""))
        self._ended = not message.get("more_body", False)
        return message


def host_of(scope: Scope) -> bytes:
    """The Host header, b"" if there is none; a `Refusal` if there are several, because others may read another one of them."""
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    if len(hosts) > 1:
        raise Refusal(400, "A request has one Host header.")
    return hosts[0] if hosts else b""


def asked_url(scope: Scope) -> str:
    """The base URL under which the sender of a request reaches this server, up to where its own paths begin.

    "" if the Host header is no host.
    """
    host = host_of(scope).decode("latin-1").strip()
    if not host:
        address, port = scope.get("server") or ("localhost", None)
        host = address if port is None else f"{address}:{port}"
    elif not _HOST.fullmatch(host):
        return ""
    return f"{scope['scheme']}://{host}{scope.get('root_path', '')}"


def address_of(scope: Scope) -> str | None:
    """The address a request comes from; None for a Unix socket."""
    client = scope.get("client")
    return client[0] if client else None


async def send_answer(send: Send, status: int, body: bytes = b"", headers: Headers = ()) -> None:
    """One whole answer."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
    await send({"type": "http.response.body", "body": body})


async def send_json(send: Send, document: Any, status: int = 200) -> None:
    """A JSON document."""
    await send_answer(send, status, json.dumps(document).encode(), ((b"content-type", b"application/json"),))


async def send_problem(send: Send, refusal: Refusal) -> None:
    """A problem document (RFC 9457)."""
    headers, body = problem_document(refusal)
    await send_answer(send, refusal.status, body, headers)


def problem_document(refusal: Refusal) -> tuple[Headers, bytes]:
    """The headers and the body of a problem document."""
    title = _TITLES.get(refusal.status, "Error")
    document = {"type": "about:blank", "title": title, "status": refusal.status, "detail": refusal.detail}
    return ((b"content-type", b"application/problem+json"), *refusal.headers), json.dumps(document).encode()


_TITLES = {
    400: "Not a valid message",
    401: "Not authenticated",
    404: "Nothing here",
    405: "Wrong method",
    409: "Conflict",
    410: "Gone",
    413: "Too large",
    414: "URL too long",
    415: "Not JSON",
    431: "Headers too large",
    500: "Failed",
    503: "Come back later",
}


def retry_later(detail: str, seconds: float) -> Refusal:
    """The refusal of a request that may be retried after so many seconds. Never 429: RAP senders do not come back after a 4xx."""
    after = max(1, math.ceil(seconds))
    return Refusal(503, f"{detail} Send it again in {after} s.", ((b"retry-after", str(after).encode()),))


def _turned_away(callers: Callers, scope: Scope, why: str) -> Refusal:
    # The sender may not read the response, so the operator is told too.
    callers.rejected_log.log_rejection(address_of(scope), why)
    return unauthorized(callers)


def _what_is_missing(callers: Callers, scope: Scope, headers: Mapping[bytes, bytes]) -> str:
    if callers.local_only:
        address = address_of(scope)
        if address is None or is_loopback_host(address):
            return "its Host is no loopback address, and no token is configured"
        return "it comes from another machine, and no token is configured"
    if b"authorization" in headers:
        return "its token is not known here"
    if callers.have_tokens:
        return "it has no token"
    if callers.have_secrets or callers.have_aws_keys:
        return "it has no signature"
    return "it has no client certificate with a name that is known here"


def unauthorized(callers: Callers) -> Refusal:
    """The refusal of an unauthenticated request."""
    if callers.local_only:
        return Refusal(
            401,
            "No token is configured, so only callers on this machine are served, under a loopback address as Host. "
            "Configure tokens to serve others.",
        )
    ways = []
    if callers.have_tokens:
        ways.append("send Authorization: Bearer with a token this server knows")
    if callers.have_secrets:
        ways.append(
            "sign the body as Standard Webhooks do (webhook-id, webhook-timestamp within 5 minutes, webhook-signature) "
            "with a secret this server knows"
        )
    if callers.have_aws_keys:
        ways.append(
            "sign the request with AWS Signature Version 4 (body and x-amz-date included) with a key this server knows"
        )
    if callers.have_certificates:
        ways.append("connect with a client certificate whose name this server knows")
    schemes = [b"Bearer"] * callers.have_tokens + [b"AWS4-HMAC-SHA256"] * callers.have_aws_keys
    detail = ", or ".join(ways)
    return Refusal(401, f"{detail[0].upper()}{detail[1:]}.", tuple((b"www-authenticate", scheme) for scheme in schemes))
