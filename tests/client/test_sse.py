from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapkit.client.sse import ServerSentEvent, SseDecoder
from rapkit.errors import InvalidAnswer

STREAM = (
    b"\xef\xbb\xbfretry: 1000\n\n: still here\n\nevent: entry\nid: 1.1\ndata: {\ndata: }\n\nid:2\r\ndata:x\r\n\r\n"
    b"event: delta\rdata: \xc3\xa9\r\rid: a\x00b\ndata\n\nevent: empty\n\nunknown: 1\ndata: last\n\nevent: entry\ndata: cut of"
)
EVENTS = [
    ServerSentEvent("entry", "{\n}", "1.1"),
    ServerSentEvent("message", "x", "2"),
    ServerSentEvent("delta", "é", None),
    ServerSentEvent("message", "", None),
    ServerSentEvent("message", "last", None),
]


def test_a_stream_is_read_as_the_standard_says() -> None:
    assert SseDecoder(1000).feed(STREAM) == EVENTS


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_it_does_not_matter_in_which_pieces_it_comes(cuts: list[int]) -> None:
    decoder = SseDecoder(1000)
    places = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[begin:end] for begin, end in pairwise(places)]

    assert [event for piece in pieces for event in decoder.feed(piece)] == EVENTS


def test_byte_by_byte_too() -> None:
    decoder = SseDecoder(1000)

    assert [event for byte in STREAM for event in decoder.feed(bytes([byte]))] == EVENTS


@pytest.mark.parametrize("endless", [b"x", b"data: more\n"])
def test_an_event_does_not_grow_without_end(endless: bytes) -> None:
    decoder = SseDecoder(100)

    def feed_for_ever() -> None:
        for _ in range(200):
            decoder.feed(endless)

    with pytest.raises(InvalidAnswer, match="more than 100 bytes"):
        feed_for_ever()


def test_the_limit_is_for_one_event_and_not_for_the_stream() -> None:
    decoder = SseDecoder(100)

    assert sum(len(decoder.feed(b"data: some text of an event\n\n")) for _ in range(100)) == 100
