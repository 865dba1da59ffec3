"""What is answered before it was read is read all the same, within bounds."""

import asyncio
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from rapkit.http import unread_body
from rapkit.http.unread_body import DiscardUnreadBody


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


async def test_an_answer_is_sent_at_once_and_ends_when_the_body_was_read() -> None:
    """A sender that reads while it writes can stop; one that writes first comes to the end of it."""
    sender = Sender(part(b"1"), part(b"2"), part(b"", more=False))

    await DiscardUnreadBody(refuse)(scope((b"content-length", b"2")), sender.receive, sender.send)

    assert sender.happened == [("start", False), ("body", True), b"1", b"2", b"", ("body", False)]


async def test_a_sender_that_is_gone_is_not_waited_for() -> None:
    sender = Sender(part(b"1"), {"type": "http.disconnect"})

    await DiscardUnreadBody(refuse)(scope((b"transfer-encoding", b"chunked")), sender.receive, sender.send)

    assert sender.happened[-1] == ("body", False)


@pytest.mark.parametrize("headers", [(), ((b"content-length", b"0"),)])
async def test_where_there_is_no_body_nothing_is_read(headers: Any) -> None:
    sender = Sender()

    await DiscardUnreadBody(refuse)(scope(*headers), sender.receive, sender.send)

    assert sender.happened == [("start", False), ("body", False)]


async def test_no_more_is_read_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread_body, "MOST_BYTES", 2)
    sender = Sender(*[part(b"1") for _ in range(10)])

    await DiscardUnreadBody(refuse)(scope((b"content-length", b"10")), sender.receive, sender.send)

    assert len(sender.parts) == 7
    assert sender.happened[-1] == ("body", False)


@pytest.mark.parametrize("bound", ["LONGEST", "LONGEST_PAUSE"])
async def test_it_does_not_wait_longer_than_the_bound(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    monkeypatch.setattr(unread_body, bound, 0.01)
    sender = Sender()

    async def never() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    await DiscardUnreadBody(refuse)(scope((b"content-length", b"10")), never, sender.send)

    assert sender.happened[-1] == ("body", False)
