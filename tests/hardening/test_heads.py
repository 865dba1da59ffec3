"""The head of a request, and the trailers of its body, are bounded before anything of them is kept."""

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from tests.hardening.raw import Reply, connect, head, is_closed
from tests.interop.conftest import Serve, Up

TOOLS = """
    from rapkit import Toolset

    tools = Toolset("tools")

    @tools.tool
    async def greet() -> str:
        return "Hello."
"""

HEALTHZ = "http://127.0.0.1/healthz"


@pytest.fixture(params=["serve", "up"])
def process(request: pytest.FixtureRequest, serve: Serve, up: Up):  # type: ignore[no-untyped-def]
    return serve(TOOLS) if request.param == "serve" else up("- say: Fine.", [])


def test_what_is_too_long_is_refused_in_words(process) -> None:  # type: ignore[no-untyped-def]
    url = f"{process.url}/healthz"
    for status, request in (
        (414, head("GET", f"{url}?{'x' * 9000}")),
        (431, head("GET", url, f"X-Large: {'x' * 40_000}")),
        (431, head("GET", url, *(f"X-{number}: 1" for number in range(200)))),
        (200, head("GET", f"{url}?{'x' * 8000}", *(f"X-{number}: {'x' * 300}" for number in range(90)))),
    ):
        with connect(url) as connection:
            connection.sendall(request)
            reply = Reply(connection)
            assert reply.status == status
            if status != 200:
                assert reply.headers["connection"] == "close"
                assert "at most" in reply.detail


@pytest.mark.parametrize("line", [b"x", b"X: 1\r\n"], ids=["one header", "many headers"])
def test_a_head_without_an_end_is_refused_before_it_fills_the_memory(serve: Serve, line: bytes) -> None:
    """50 MB of headers: little of it is kept, and the answer arrives."""
    server = serve(TOOLS)
    before = _peak(server.pid)
    part = line * (1024 * 1024 // len(line))

    with connect(server.url) as connection:
        connection.sendall(head("GET", f"{server.url}/healthz")[:-2] + b"X: ")
        _send_all(connection, part, 50)
        assert Reply(connection).status == 431
        assert is_closed(connection)
    assert _peak(server.pid) - before < 20_000


@pytest.mark.parametrize(
    "endless",
    [b"5\r\nhello\r\n0\r\nX: ", b"5\r\nhello\r\n0\r\n", b"5;x="],
    ids=["one trailer", "many trailers", "chunk extension"],
)
def test_trailers_and_chunk_extensions_without_an_end_are_refused(serve: Serve, endless: bytes) -> None:
    server = serve(TOOLS)
    before = _peak(server.pid)
    line = b"X: 1\r\n" if endless.endswith(b"0\r\n") else b"x"
    part = line * (1024 * 1024 // len(line))

    with connect(server.url) as connection:
        connection.sendall(head("POST", f"{server.url}/invoke", "Transfer-Encoding: chunked") + endless)
        _send_all(connection, part, 50)
        assert Reply(connection).status == 431
    assert _peak(server.pid) - before < 20_000


@pytest.mark.parametrize("line", [b"x", b"X:1\r\n"], ids=["one trailer", "many trailers"])
def test_a_large_body_is_no_reason_to_keep_large_trailers(serve: Serve, line: bytes) -> None:
    server = serve(TOOLS)
    part = line * (1024 * 1024 // len(line))

    with connect(server.url) as connection:
        connection.sendall(head("POST", f"{server.url}/nothing", "Transfer-Encoding: chunked"))
        connection.sendall(b"400000\r\n" + b"x" * 0x400000 + b"\r\n0\r\n" + b"X: "[: 3 if line == b"x" else 0])
        assert Reply(connection).status == 404
        before = _peak(server.pid)
        _send_all(connection, part, 50)
        assert is_closed(connection)
    assert _peak(server.pid) - before < 20_000


def test_small_chunks_and_ordinary_trailers_are_no_reason_to_refuse(serve: Serve) -> None:
    server = serve(TOOLS)
    body = b"".join(b"1\r\n%c\r\n" % new_mail for new_mail in b'{"operation": "greet"}' + b" " * 100_000)

    with connect(server.url) as connection:
        connection.sendall(head("POST", f"{server.url}/close_thread", "Transfer-Encoding: chunked"))
        connection.sendall(body + b"0\r\nDigest: x\r\nHost: other\r\n\r\n")
        assert Reply(connection).status == 200


@pytest.mark.parametrize(
    "lines",
    [
        ("Host: evil.example.com",),
        ("Content-Length: 2", "Content-Length: 3"),
        ("Content-Length: 2", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked, identity",),
    ],
    ids=["hosts", "lengths", "length and coding", "coding"],
)
def test_what_can_be_read_in_two_ways_is_refused(process, lines: tuple[str, ...]) -> None:  # type: ignore[no-untyped-def]
    for path in ("/.well-known/rap-toolset", "/healthz"):
        with connect(process.url) as connection:
            connection.sendall(head("GET", process.url + path, *lines) + b"{}")
            assert Reply(connection).status == 400


def _send_all(connection: socket.socket, part: bytes, times: int) -> None:
    """Send it so often, unless the other side does not take it any more."""
    try:
        for _ in range(times):
            connection.sendall(part)
    except ConnectionError:
        pass


def _peak(pid: int) -> int:
    """The most memory a process has had, in KiB; 0 where that cannot be known."""
    if sys.platform != "linux":
        return 0
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def test_what_follows_a_large_body_on_its_connection_is_not_counted_with_it(serve: Serve) -> None:
    """As proxies send it: the end of a body that was refused and the beginning of the next request, in one read."""
    limits = "from rapkit import HttpLimits, Limits, Toolset"
    few = 'Toolset("tools", limits=Limits(http=HttpLimits(header_bytes=1024, url_bytes=1024)))'
    server = serve(TOOLS.replace("from rapkit import Toolset", limits).replace('Toolset("tools")', few))
    refused = head("POST", f"{server.url}/nothing", "Content-Length: 40000") + b"x" * 40_000
    following = head("POST", f"{server.url}/invoke", "Content-Length: 100000") + b" " * 100_000
    complete = len(following) - 100_000

    for sent_with_it in (complete - 5, complete + 10):
        with connect(server.url) as connection:
            os.kill(server.pid, signal.SIGSTOP)
            try:
                connection.sendall(refused + following[:sent_with_it])
            finally:
                os.kill(server.pid, signal.SIGCONT)
            assert Reply(connection).status == 404
            connection.sendall(following[sent_with_it:])
            assert Reply(connection).status == 400  # it is no message
