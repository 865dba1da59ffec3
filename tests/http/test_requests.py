import pytest
from starlette.types import Message

from rapkit.http.requests import Body, Refusal, Request


def body_of(*messages: Message, largest: int = 10) -> Body:
    coming = iter(messages)

    async def receive() -> Message:
        return next(coming)

    return Body({"headers": []}, receive, largest)


def part(body: bytes, *, more: bool = True) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_a_body_is_put_together_from_its_parts() -> None:
    assert await body_of(part(b"a"), part(b""), part(b"b"), part(b"c", more=False)).read() == b"abc"
    assert await body_of(part(b"all", more=False)).read() == b"all"
    assert await body_of({"type": "http.request"}).read() == b""


async def test_half_a_body_is_none_and_may_be_sent_again() -> None:
    """Whoever hung up may have said half of what was meant."""
    with pytest.raises(Refusal, match="ended too early") as refused:
        await body_of(part(b"{}"), {"type": "http.disconnect"}).read()
    assert refused.value.status == 503


async def test_the_parts_are_counted_together() -> None:
    assert await body_of(part(b"12345"), part(b"67890", more=False)).read() == b"1234567890"
    with pytest.raises(Refusal, match="may have at most 10 bytes"):
        await body_of(part(b"12345"), part(b"67890"), part(b"!")).read()


def test_a_request_does_not_show_what_it_was_authenticated_with() -> None:
    shown = repr(Request("anna", b"secret", {b"authorization": b"secret"}))

    assert "anna" in shown
    assert "secret" not in shown
