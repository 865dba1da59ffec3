"""Bodies have to make progress; what is refused before it was read is read all the same, within bounds."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from rapkit.http import body_limits
from rapkit.http.body_limits import BodyLimits
from rapkit.http.limits import HttpLimits
from rapkit.http.requests import Refusal

LIMITS = HttpLimits()


async def refuse(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 413, "headers": []})
    await send({"type": "http.response.body", "body": b"no"})


def scope(*headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http", "method": "POST", "headers": headers}


class Sender:
    """Sends parts of a body, and notes what happens in which order."""

    def __init__(self, *parts: Message) -> None:
        self.parts = list(parts)
        self.happened: list[object] = []

    async def receive(self) -> Message:
        part = self.parts.pop(0)
        self.happened.append(part.get("body"))
        return part

    async def send(self, message: Message) -> None:
        self.happened.append((message["type"].rpartition(".")[2], message.get("more_body", False)))


def part(body: bytes, *, more: bool = True) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


async def never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def received(receive: Callable[[], Awaitable[Message]], limits: HttpLimits) -> bytes:
    """What an endpoint gets that reads the whole body."""
    parts: list[bytes] = []

    async def read(_scope: Scope, receive: Receive, _send: Send) -> None:
        more = True
        while more:
            message = await receive()
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)

    async def send(_message: Message) -> None: ...

    await BodyLimits(read, limits)(scope((b"transfer-encoding", b"chunked")), receive, send)
    return b"".join(parts)


async def test_a_body_may_take_as_long_as_it_makes_progress() -> None:
    """Twenty parts, each after half the longest pause: five times as long as the pause."""
    limits = HttpLimits(body_pause_seconds=0.2, body_rate=1)
    left = list(range(20))

    async def receive() -> Message:
        await asyncio.sleep(0.05)
        left.pop()
        return part(b"x" * 10, more=bool(left))

    assert await received(receive, limits) == b"x" * 200


async def test_a_body_that_makes_no_progress_may_be_sent_again() -> None:
    with pytest.raises(Refusal, match="too slowly") as refused:
        await received(never, HttpLimits(body_pause_seconds=0.01))

    assert refused.value.status == 503
    assert refused.value.headers == ((b"retry-after", b"5"),)


async def test_a_body_of_a_byte_now_and_then_may_be_sent_again() -> None:
    """Each byte is progress; all of them together are too few."""

    async def receive() -> Message:
        await asyncio.sleep(0.02)
        return part(b"x")

    with pytest.raises(Refusal, match="too slowly"):
        await received(receive, HttpLimits(body_pause_seconds=0.1, body_rate=1000))


async def test_the_rest_of_a_body_that_was_too_slow_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limits, "DISCARD_PAUSE", 3600)

    async def read(_scope: Scope, receive: Receive, send: Send) -> None:
        with pytest.raises(Refusal, match="too slowly"):
            await receive()
        await refuse(_scope, receive, send)

    sender = Sender()
    async with asyncio.timeout(30):
        limits = HttpLimits(body_pause_seconds=0.01, discard_seconds=3600)
        await BodyLimits(read, limits)(scope((b"content-length", b"10")), never, sender.send)

    assert sender.happened == [("start", False), ("body", False)]


async def test_the_time_in_which_the_process_stood_still_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timers of a stopped process have expired before it has read its sockets: the body is there, and is read."""
    loop = asyncio.get_running_loop()
    stopped = 0.0
    now = loop.time
    monkeypatch.setattr(loop, "time", lambda: now() + stopped)
    waiting = asyncio.Event()
    arrived = asyncio.Event()

    async def receive() -> Message:
        waiting.set()
        await arrived.wait()
        return part(b"all", more=False)

    reading = asyncio.create_task(received(receive, HttpLimits(body_pause_seconds=60)))
    await waiting.wait()
    stopped = 3600.0
    await asyncio.sleep(0.01)
    arrived.set()

    assert await reading == b"all"


async def test_an_answer_waits_until_the_body_was_read() -> None:
    """A sender that writes first comes to the end of it, and a proxy in between does not stop passing it on."""
    sender = Sender(part(b"1"), part(b"2"), part(b"", more=False))

    await BodyLimits(refuse, LIMITS)(scope((b"content-length", b"2")), sender.receive, sender.send)

    assert sender.happened == [b"1", b"2", b"", ("start", False), ("body", False)]


@pytest.mark.parametrize(
    "header", [(b"expect", b"100-Continue"), (b"content-length", b"%d" % (LIMITS.discard_bytes + 1))]
)
async def test_a_sender_that_may_keep_its_body_is_answered_at_once(header: tuple[bytes, bytes]) -> None:
    sender = Sender(part(b"1"), part(b"", more=False))

    await BodyLimits(refuse, LIMITS)(scope(header, (b"transfer-encoding", b"chunked")), sender.receive, sender.send)

    assert sender.happened == [("start", False), ("body", True), b"1", b"", ("body", False)]


async def test_a_sender_that_is_gone_is_not_waited_for() -> None:
    sender = Sender(part(b"1"), {"type": "http.disconnect"})

    await BodyLimits(refuse, LIMITS)(scope((b"transfer-encoding", b"chunked")), sender.receive, sender.send)

    assert sender.happened[-1] == ("body", False)


@pytest.mark.parametrize("headers", [(), ((b"content-length", b"0"),)])
async def test_where_there_is_no_body_nothing_is_read(headers: Any) -> None:
    sender = Sender()

    await BodyLimits(refuse, LIMITS)(scope(*headers), sender.receive, sender.send)

    assert sender.happened == [("start", False), ("body", False)]


@pytest.mark.parametrize("received", [True, False])
async def test_a_body_that_was_received_as_a_whole_is_not_waited_for(received: bool) -> None:
    sender = Sender(part(b"1", more=False))
    whole = {**scope((b"content-length", b"1")), "state": {body_limits.WHOLE_BODY_RECEIVED: lambda: received}}

    await BodyLimits(refuse, LIMITS)(whole, sender.receive, sender.send)

    assert sender.happened == [*([] if received else [b"1"]), ("start", False), ("body", False)]


async def test_no_more_is_read_than_the_bound() -> None:
    sender = Sender(*[part(b"1") for _ in range(10)])

    await BodyLimits(refuse, HttpLimits(discard_bytes=2))(
        scope((b"content-length", b"10")), sender.receive, sender.send
    )

    assert len(sender.parts) == 7
    assert sender.happened[-1] == ("body", False)


@pytest.mark.parametrize(("limits", "pause"), [(HttpLimits(discard_seconds=0.01), 5.0), (LIMITS, 0.01)])
async def test_it_does_not_wait_longer_than_the_bound(
    monkeypatch: pytest.MonkeyPatch, limits: HttpLimits, pause: float
) -> None:
    monkeypatch.setattr(body_limits, "DISCARD_PAUSE", pause)
    sender = Sender()

    await BodyLimits(refuse, limits)(scope((b"content-length", b"10")), never, sender.send)

    assert sender.happened[-1] == ("body", False)
