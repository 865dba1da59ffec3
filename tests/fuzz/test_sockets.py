"""What no HTTP library would send, and callers that leave or dawdle."""

import json
import socket
import time

import pytest
from hypothesis import strategies as st

from tests.fuzz.hunt import few_or_many, hunt
from tests.fuzz.target import Sent, Target
from tests.fuzz.wire import DEADLINE, ask, request, talk


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    head = request(headers={"Content-Length": None, "Transfer-Encoding": "chunked"})
    return head + b"".join(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n" for chunk in chunks) + end


@few_or_many
def test_any_bytes_at_all(target: Target, examples: int) -> None:
    words = st.sampled_from(
        (b"GET / HTTP/1.1\r\n", b"POST /invoke HTTP/1.1\r\n", b"Host: localhost\r\n", b"\r\n", b"Content-Length: 5\r\n")
    )

    def check(raw: bytes) -> None:
        for answer in talk(target.port, raw):
            answer.check()

    hunt(examples, st.lists(st.binary(max_size=80) | words, max_size=8).map(b"".join), check)


@few_or_many
def test_a_good_request_with_a_few_bytes_changed(target: Target, examples: int) -> None:
    # The body is no invocation, so that no change of it can send the server elsewhere.
    good = request(path="/cancel_tool_call", body=b'{"thread_id": "t", "tool_call_id": "c"}')

    def check(changes: list[tuple[int, bytes]]) -> None:
        raw = bytearray(good)
        for at, replacement in changes:
            raw[at : at + len(replacement)] = replacement
        for answer in talk(target.port, bytes(raw)):
            answer.check()

    changes = st.tuples(st.integers(0, len(good)), st.binary(min_size=1, max_size=4))
    hunt(examples, st.lists(changes, min_size=1, max_size=4), check)


def test_a_caller_that_leaves_at_any_moment(target: Target) -> None:
    raw = request(body=json.dumps(target.invocation()).encode())
    for length in range(0, len(raw), 3):
        with socket.create_connection(("127.0.0.1", target.port), timeout=DEADLINE) as connection:
            connection.sendall(raw[:length])


def test_a_caller_that_slams_the_door(target: Target) -> None:
    """A reset instead of a goodbye, at once or as the answer is being written."""
    raw = request(body=json.dumps(target.invocation()).encode())
    for wait in (0.0, 0.0, 0.001, 0.002, 0.005, 0.01):
        connection = socket.create_connection(("127.0.0.1", target.port), timeout=DEADLINE)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        connection.sendall(raw)
        time.sleep(wait)
        connection.close()


def test_several_requests_at_once_are_answered_in_order(target: Target) -> None:
    good = [target.invocation() for _ in range(5)]
    raw = b""
    for each in good:
        raw += request(body=json.dumps(each).encode()) + request(body=b"no") + request("GET", "/nothing")
    answers = talk(target.port, raw, expect=15)

    assert [answer.check().status for answer in answers] == [200, 400, 404] * 5
    for each in good:
        assert target.result(Sent.of(each)).text == each["arguments"]["text"]


@pytest.mark.parametrize(
    "length", ["-1", "+5", "5, 5", "0x5", "5 5", "", "five", "9" * 30, "٣", "1e2", "18446744073709551616"]
)
def test_lengths_that_are_none(target: Target, length: str) -> None:
    raw = request(body=b"hello").replace(b"Content-Length: 5", b"Content-Length: " + length.encode())
    for answer in talk(target.port, raw):
        assert answer.check().status in (400, 413)


def test_a_length_that_is_too_small(target: Target) -> None:
    body = json.dumps({"thread_id": "t"}).encode()
    raw = request(path="/close_thread", body=body, headers={"Content-Length": str(len(body) - 4)})
    notice, *rest = talk(target.port, raw)
    assert notice.check().status == 200  # whatever its body
    assert [answer.check().status for answer in rest] in ([], [400])


def test_a_length_that_is_too_large_and_then_nothing_more(target: Target) -> None:
    raw = request(path="/close_thread", body=b'{"thread_id": "t"}', headers={"Content-Length": "5000"})
    for answer in talk(target.port, raw):
        assert answer.check().status in (400, 503)


def test_a_length_beyond_the_limit_is_refused_before_the_body_comes(target: Target) -> None:
    assert ask(target.port, request(headers={"Content-Length": str(10**9)})).status == 413


def test_two_lengths(target: Target) -> None:
    raw = request(body=b"hello").replace(b"Content-Length: 5", b"Content-Length: 5\r\nContent-Length: 6")
    for answer in talk(target.port, raw):
        assert answer.check().status == 400


def test_a_length_and_chunks(target: Target) -> None:
    """The two together are how requests are smuggled past proxies."""
    raw = chunked(b"{}").replace(b"Transfer-Encoding", b"Content-Length: 3\r\nTransfer-Encoding")
    for answer in talk(target.port, raw):
        assert answer.check().status == 400


def test_a_body_in_chunks(target: Target) -> None:
    good = target.invocation()
    body = json.dumps(good).encode()
    raw = chunked(*(body[at : at + 7] for at in range(0, len(body), 7)))

    assert ask(target.port, raw).status == 200
    assert target.result(Sent.of(good)).text == good["arguments"]["text"]


def test_chunks_without_end_are_stopped_at_the_limit(target: Target) -> None:
    (answer, *_) = talk(target.port, chunked(*[b"x" * 60_000] * 30), expect=1)
    assert answer.check().status == 413


@pytest.mark.parametrize(
    "raw",
    [
        chunked(b"{}", end=b""),
        chunked(b"{}", end=b"0\r\n"),
        chunked(b"{}", end=b"zz\r\n\r\n"),
        chunked(b"{}", end=b"-1\r\n\r\n"),
        chunked(b"{}", end=b"ffffffffffffffff1\r\n"),
        chunked(b"{}", end=b"0\r\nTrailer: x\r\n\r\n"),
        chunked(b"{}", end=b"5;ext=1\r\nhello\r\n0\r\n\r\n"),
        chunked(b"{}", end=b"2\r\n{}0\r\n\r\n"),
        chunked().replace(b"chunked", b"chunked, chunked"),
        chunked().replace(b"chunked", b"gzip"),
        chunked().replace(b"chunked", b"\x0bchunked"),
    ],
)
def test_chunks_that_are_none(target: Target, raw: bytes) -> None:
    for answer in talk(target.port, raw):
        assert answer.check().status in (400, 503)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500,  # TLS
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /healthz\r\n\r\n",
        b"GET /healthz HTTP/0.9\r\n\r\n",
        b"GET /healthz HTTP/1.0\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET  /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\nHost: localhost\n\n",
        b"GET /healthz HTTP/1.1\r\nHost : localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nNo colon\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n: empty\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: local\x00host\r\n\r\n",
        b"GET /heal\x00thz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + b"X: y\r\n" * 2_000 + b"\r\n",
        b"GET /healthz HTTP/1.1\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
        b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\r\n\r\n\r\n",
        b"\x00" * 1_000,
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n",
        b"EHLO localhost\r\n",
        b"HEAD\x00",
        b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\nHost: other\r\n\r\n",
        b"HEAD /\x00 HTTP/1.1\r\n\r\n" + b"GET /healthz HTTP/1.1\r\n\r\n",
        b"*1\r\n$4\r\nPING\r\n",
    ],
)
def test_what_is_no_request(target: Target, raw: bytes) -> None:
    for answer in talk(target.port, raw):
        assert answer.check().status in (200, 400, 404, 405, 414, 431)


def test_a_body_that_comes_slowly_is_waited_for(target: Target) -> None:
    good = target.invocation()
    raw = request(body=json.dumps(good).encode())
    with socket.create_connection(("127.0.0.1", target.port), timeout=DEADLINE) as connection:
        for at in range(0, len(raw), 16):
            connection.sendall(raw[at : at + 16])
            time.sleep(0.02)
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
    assert target.result(Sent.of(good)).text == good["arguments"]["text"]


def test_callers_that_dawdle_hold_nobody_up(target: Target) -> None:
    dawdlers = [socket.create_connection(("127.0.0.1", target.port), timeout=DEADLINE) for _ in range(200)]
    try:
        for n, dawdler in enumerate(dawdlers):
            dawdler.sendall(request(body=b"{" * 50)[: 20 + n])
        target.check()
    finally:
        for dawdler in dawdlers:
            dawdler.close()


@pytest.mark.soak
@pytest.mark.parametrize("begun", [b"", b"{"], ids=["nothing of it", "a byte of it"])
@pytest.mark.parametrize(("path", "status"), [("/invoke", b"503"), ("/close_thread", b"200")])
def test_a_body_that_never_comes_is_given_up(target: Target, path: str, status: bytes, begun: bytes) -> None:
    """A call may come again, a notice is sent once whatever is answered."""
    raw = request(path=path, headers={"Content-Length": "5000"}) + begun
    with socket.create_connection(("127.0.0.1", target.port), timeout=120) as connection:
        connection.sendall(raw)
        assert connection.recv(100).startswith(b"HTTP/1.1 " + status)


def test_a_flood_of_connections(target: Target) -> None:
    connections = [socket.create_connection(("127.0.0.1", target.port), timeout=DEADLINE) for _ in range(300)]
    for connection in connections:
        connection.sendall(request("GET", "/healthz"))
    try:
        for connection in connections:
            assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
    finally:
        for connection in connections:
            connection.close()
