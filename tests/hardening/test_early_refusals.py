"""What is refused before it was read is refused in words, also to senders that write all of it before they read."""

import json
import socket

import pytest

from tests.hardening.raw import Reply, connect, head, is_closed
from tests.interop.conftest import Serve, Up
from tests.interop.http_peer import post

TOOLS = """
    from rapkit import HttpLimits, Limits, Toolset

    tools = Toolset("tools", limits=Limits(http=HttpLimits({limits})))

    @tools.tool
    async def greet() -> str:
        return "Hello."
"""

LARGE = b"x" * (20 * 1024 * 1024)
"""Far more than the buffers of a connection hold."""


@pytest.mark.parametrize(
    ("status", "lines"),
    [
        (400, ("Content-Length: 20971520", "Content-Length: 20971520")),
        (400, ("Content-Length: 20971520", "Host: other.example.com")),
        (400, ("Content-Length: 20971520", "not a header")),
        (400, ("Transfer-Encoding: chunked",)),
        (431, ("Content-Length: 20971520", f"X-Large: {'x' * 40_000}")),
    ],
    ids=["lengths", "hosts", "no header", "no chunks", "headers"],
)
def test_what_the_parser_refuses_is_refused_in_words(serve: Serve, status: int, lines: tuple[str, ...]) -> None:
    server = serve(TOOLS.format(limits=""))

    with connect(server.url) as connection:
        connection.sendall(head("POST", f"{server.url}/invoke", *lines) + LARGE)
        reply = Reply(connection)
        assert reply.status == status
        assert reply.headers["content-type"] == "application/problem+json"
        assert is_closed(connection)


def test_what_is_refused_is_not_read_without_end(serve: Serve) -> None:
    """A sender that goes on after its 413, on a connection that is kept alive, is cut off; others get their answers meanwhile."""
    server = serve(TOOLS.format(limits="discard_bytes=1024 * 1024"))

    with connect(server.url) as connection:
        connection.sendall(head("POST", f"{server.url}/invoke", f"Content-Length: {10**12}"))
        assert Reply(connection).status == 413
        with pytest.raises(ConnectionError):
            _send_for_ever(connection)


def test_a_sender_that_says_that_nothing_more_comes_gets_its_answer(serve: Serve) -> None:
    """Its message is stored before it is acknowledged, and by then the end of the connection was read."""
    server = serve(TOOLS.format(limits=""))
    call = {"id": "c1", "group_id": "t1", "operation": "greet", "arguments": {}, "callback_url": "http://127.0.0.1:9/"}
    body = json.dumps(call).encode()

    with connect(server.url) as connection:
        connection.sendall(head("POST", f"{server.url}/invoke", f"Content-Length: {len(body)}") + body)
        connection.shutdown(socket.SHUT_WR)
        assert Reply(connection).status == 200
        assert is_closed(connection)


def test_a_reader_that_says_that_nothing_more_comes_gets_its_answers(up: Up) -> None:
    """Those are read from the store, and by then the end of the connection was read."""
    runtime = up("- say: Hello.", [])
    request = head("GET", f"{runtime.url}/v1/threads")

    with connect(runtime.url) as connection:
        connection.sendall(request * 3)
        connection.shutdown(socket.SHUT_WR)
        assert [Reply(connection).status for _ in range(3)] == [200] * 3
        assert is_closed(connection)


def _send_for_ever(connection: socket.socket) -> None:
    while True:
        connection.sendall(LARGE)


@pytest.mark.parametrize("length", ["Content-Length: 1000000", "Transfer-Encoding: chunked"])
def test_a_refused_request_that_does_not_end_is_closed(serve: Serve, length: str) -> None:
    server = serve(TOOLS.format(limits="discard_seconds=0.5"))

    with connect(server.url) as connection:
        connection.sendall(head("POST", f"{server.url}/nothing", length))
        assert Reply(connection).status == 404
        assert is_closed(connection)


def test_a_connection_goes_on_after_a_refused_body_was_read(serve: Serve) -> None:
    server = serve(TOOLS.format(limits=""))

    with connect(server.url) as connection:
        for _ in range(2):
            connection.sendall(head("POST", f"{server.url}/invoke", f"Content-Length: {len(LARGE)}") + LARGE)
            assert Reply(connection).status == 413
        connection.sendall(head("GET", f"{server.url}/healthz"))
        assert Reply(connection).status == 200
    assert post(f"{server.url}/invoke", LARGE)[0] == 413
