import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.requests import Request as StarletteRequest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rapkit.http.body_limits import BodyLimits
from rapkit.http.limits import HttpLimits
from rapkit.http.rate_limit import RateLimit
from rapkit.http.requests import Refusal
from rapkit.http.unauthenticated import UnauthenticatedEndpoint, rate_key
from tests.server.endpoint_server import opened
from tests.server.served_toolset import exchange

LARGEST = 100


class Echo:
    """An endpoint as other people write them: it reads its body and gives it back."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked += 1
        body = await StarletteRequest(scope, receive).body()
        await PlainTextResponse(body)(scope, receive, send)


def guarded(endpoint: ASGIApp, rate: float | None = None) -> UnauthenticatedEndpoint:
    return UnauthenticatedEndpoint(endpoint, RateLimit(rate, lambda: 0.0), LARGEST)


async def test_what_is_within_the_limits_gets_through() -> None:
    async with opened({"/": guarded(Echo())}) as doors:
        assert (await doors.post("/", b"x" * LARGEST)).body == b"x" * LARGEST
        assert (await doors.request("GET", "/", headers={"Content-Length": None})).status == 200


async def test_past_the_rate_an_address_is_asked_to_come_back_and_the_endpoint_not_bothered() -> None:
    echo = Echo()
    async with opened({"/": guarded(echo, rate=3)}) as doors:
        replies = [await doors.post("/", b"x") for _ in range(5)]

    assert [reply.status for reply in replies] == [200, 200, 200, 503, 503]
    assert replies[-1].headers["retry-after"] == "1"
    assert replies[-1].detail == "Too many requests come from your address. Send it again in 1 s."
    assert echo.asked == 3


async def test_each_address_has_a_rate_of_its_own() -> None:
    endpoint = guarded(Echo(), rate=1)

    assert await status(endpoint, "192.0.2.1") == 200
    assert await status(endpoint, "192.0.2.1") == 503
    assert await status(endpoint, "192.0.2.2") == 200
    assert await status(endpoint, "2001:db8::1") == 200
    assert await status(endpoint, "2001:db8::2:3:4:5") == 503
    assert await status(endpoint, "2001:db8:0:1::1") == 200


@pytest.mark.parametrize(
    ("client", "who"),
    [
        (("192.0.2.1", 5), "192.0.2.1"),
        (("2001:db8:1:2:3:4:5:6", 5), "2001:db8:1:2::"),
        (("::ffff:192.0.2.1", 5), "192.0.2.1"),
        (("fe80::1%eth0", 5), "fe80::"),
        (("testclient", 5), "testclient"),
        (None, ""),
    ],
)
def test_who_a_stranger_is(client: tuple[str, int] | None, who: str) -> None:
    assert rate_key({"client": client}) == who


async def test_a_body_that_is_too_large_is_refused_however_it_comes() -> None:
    async with opened({"/": guarded(Echo())}) as doors:
        announced = await doors.post("/", b"x" * (LARGEST + 1))
        chunks = b"".join(b"32\r\n" + b"x" * 50 + b"\r\n" for _ in range(3)) + b"0\r\n\r\n"
        head = f"POST / HTTP/1.1\r\nHost: 127.0.0.1:{doors.port}\r\nTransfer-Encoding: chunked\r\n\r\n"
        in_pieces = await exchange(doors.port, head.encode() + chunks)

    for reply in (announced, in_pieces):
        assert (reply.status, reply.detail) == (413, "A message may have at most 100 bytes.")


async def test_a_length_nobody_could_count_to_is_too_large() -> None:
    sent = await run(guarded(Echo()), [], headers=[(b"content-length", b"9" * 5000)])

    assert sent[0]["status"] == 413


async def test_a_body_that_does_not_come_is_given_up() -> None:
    async with opened({"/": BodyLimits(guarded(Echo()), HttpLimits(body_pause_seconds=0.1))}) as doors:
        reply = await doors.post_no_body("/")

    assert (reply.status, reply.detail) == (503, "The body came too slowly. Send it again in 5 s.")


async def test_waiting_for_the_client_to_go_is_not_limited() -> None:
    heard: list[str] = []

    class Lingering:
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            heard.append((await receive())["type"])
            heard.append((await receive())["type"])

    messages = iter(["http.request", "http.disconnect"])

    async def receive() -> Message:
        message = next(messages)
        await asyncio.sleep(0.1 * len(heard))
        return {"type": message}

    async def send(message: Message) -> None:
        raise AssertionError(message)

    patient = BodyLimits(guarded(Lingering()), HttpLimits(body_pause_seconds=0.01))
    await patient({"type": "http", "headers": [(b"content-length", b"1")]}, receive, send)
    assert heard == ["http.request", "http.disconnect"]


async def test_what_was_begun_to_be_answered_is_not_answered_twice() -> None:
    class Hasty:
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await receive()

    with pytest.raises(Refusal):
        await run(guarded(Hasty()), [{"type": "http.request", "body": b"x" * 101}])


async def status(endpoint: ASGIApp, address: str) -> int:
    sent = await run(endpoint, [{"type": "http.request", "body": b""}], address)
    found: int = sent[0]["status"]
    return found


async def run(
    endpoint: ASGIApp,
    messages: list[dict[str, Any]],
    address: str = "192.0.2.1",
    headers: Sequence[tuple[bytes, bytes]] = (),
) -> list[Message]:
    coming = iter(messages)
    sent: list[Message] = []

    async def receive() -> Message:
        return next(coming)

    async def send(message: Message) -> None:
        sent.append(message)

    await endpoint({"type": "http", "method": "POST", "headers": headers, "client": (address, 5)}, receive, send)
    return sent
