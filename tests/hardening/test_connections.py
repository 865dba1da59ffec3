"""Connections that only wait are closed after a while, and make place for others when there are many."""

import json
import socket
import ssl
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.hardening.raw import ESTABLISHED, Reply, connect, head, is_closed, seen_from
from tests.interop.conftest import Join, Serve, Up
from tests.interop.foreign_server import ForeignServer
from tests.interop.http_peer import eventually, get

TOOLS = """
    from rapkit import HttpLimits, Limits, Toolset

    tools = Toolset("tools", limits=Limits(http=HttpLimits({limits})))

    @tools.tool
    async def greet() -> str:
        return "Hello."
"""


def tools(**limits: float) -> str:
    return TOOLS.format(limits=", ".join(f"{name}={value}" for name, value in limits.items()))


@pytest.mark.parametrize(
    "sent",
    [b"", b"\r\n\r\n", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half"],
    ids=["nothing", "blank lines", "half a head"],
)
def test_a_connection_without_a_whole_head_is_closed(serve: Serve, sent: bytes) -> None:
    server = serve(tools(head_seconds=0.5))

    with connect(server.url) as connection:
        connection.sendall(sent)
        assert connection.recv(100) == b""


def test_an_idle_connection_is_closed(up: Up) -> None:
    runtime = up("- say: Fine.", [], tables={"agent.capacity.http": {"idle_seconds": 0.5}})

    with connect(runtime.url) as connection:
        connection.sendall(head("GET", f"{runtime.url}/healthz"))
        assert Reply(connection).status == 200
        assert connection.recv(100) == b""


def test_idle_connections_keep_nobody_out(serve: Serve) -> None:
    """Ten times as many as there may be: idle ones, half-sent heads and half-sent bodies. Those that came first are closed."""
    server = serve(tools(connections=20))
    requests = [
        b"",
        head("GET", f"{server.url}/healthz")[:-2],
        head("POST", f"{server.url}/invoke", "Content-Length: 9"),
    ]

    with ExitStack() as stack:
        flood = [stack.enter_context(connect(server.url)) for _ in range(200)]
        for number, connection in enumerate(flood):
            _try_to_send(connection, requests[number % 3])
        assert get(f"{server.url}/healthz")[0] == 200
        assert get(f"{server.url}/readyz")[0] == 200
        assert all(is_closed(connection) for connection in flood[:150])


def test_a_request_that_was_sent_ahead_and_lacks_its_body_keeps_nobody_out(serve: Serve) -> None:
    server = serve(tools(connections=20))
    ahead = head("GET", f"{server.url}/healthz") + head("POST", f"{server.url}/nothing", "Content-Length: 9")

    with ExitStack() as stack:
        for _ in range(20):
            connection = stack.enter_context(connect(server.url))
            connection.sendall(ahead)
            assert Reply(connection).status == 200
        assert get(f"{server.url}/healthz")[0] == 200


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
def test_connections_without_a_tls_handshake_keep_nobody_out(serve: Serve, tmp_path: Path) -> None:
    """They are counted like others, so that they do not take all descriptors either."""
    authority = Authority(tmp_path)
    pair = authority.server()
    tls = ssl.create_default_context(cafile=authority.ca)
    server = serve(tools(connections=20), ["--tls-cert", pair.cert, "--tls-key", pair.key], tls=tls)

    def descriptors() -> int:
        return len(list(Path(f"/proc/{server.pid}/fd").iterdir()))

    before = descriptors()
    with ExitStack() as stack:
        for number in range(100):
            connection = stack.enter_context(connect(server.url.replace("https", "http")))
            _try_to_send(connection, b"\x16\x03\x01" if number % 2 else b"")
        assert get(f"{server.url}/healthz", tls=tls)[0] == 200
        assert descriptors() <= before + 40
        server.stop()  # they do not hold that up either


def test_a_connection_that_is_answered_keeps_its_place(up: Up) -> None:
    """Streams of events are not closed for newcomers; who finds no place is told to come again."""
    runtime = up("- say: Fine.", [], tables={"agent.capacity.http": {"connections": 2}})
    thread = runtime.thread("hello")
    runtime.until(thread, "Fine.")

    with ExitStack() as stack:
        streams = [stack.enter_context(connect(runtime.url)) for _ in range(2)]
        for stream in streams:
            stream.sendall(head("GET", f"{runtime.url}/v1/threads/{thread}/events"))
            assert Reply(stream).status == 200
        status, body = get(f"{runtime.url}/healthz")
        assert status == 503
        assert "Send it again" in json.loads(body)["detail"]
        for stream in streams:
            assert b"retry" in stream.recv(65536)


def test_only_so_many_requests_are_sent_ahead(serve: Serve) -> None:
    """The first are answered in order, and the connection is closed in order: the others may be sent again."""
    server = serve(tools(pipelined=5))

    with connect(server.url) as connection:
        connection.sendall(head("GET", f"{server.url}/healthz") * 3000)
        answers = 0
        while True:
            reply = Reply(connection)
            assert reply.status == 200
            answers += 1
            if reply.headers.get("connection") == "close":
                break
        assert answers == 6  # one that is answered, and five that wait
        assert connection.recv(100) == b""


def test_a_few_requests_may_be_sent_ahead(serve: Serve) -> None:
    server = serve(tools())

    with connect(server.url) as connection:
        paths = ["/healthz", "/nothing", "/readyz", "/healthz"] * 3
        connection.sendall(b"".join(head("GET", server.url + path) for path in paths))
        assert [Reply(connection).status for _ in paths] == [404 if path == "/nothing" else 200 for path in paths]


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
def test_an_answer_that_is_not_taken_does_not_keep_its_place(up: Up, join: Join) -> None:
    """A large page of a journal, of which the client reads nothing: the connection is closed, and its memory is free again."""
    server = join(ForeignServer({"work": lambda call: []}))
    runtime = up("- say: Fine.", [server.url], tables={"agent.capacity.http": {"write_pause_seconds": 0.5}})
    thread = runtime.thread("hello")
    for _ in range(40):
        runtime.say(thread, "x" * 250_000)
    page = len(get(f"{runtime.url}/v1/threads/{thread}/history")[1])
    assert page > 5_000_000

    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(60)
        connection.connect(("127.0.0.1", runtime.port))
        connection.sendall(head("GET", f"{runtime.url}/v1/threads/{thread}/history"))
        assert connection.recv(1) == b"H"
        port = connection.getsockname()[1]
        eventually(lambda: seen_from(runtime.pid, port).state != ESTABLISHED)


def _try_to_send(connection: socket.socket, data: bytes) -> None:
    with suppress(ConnectionError):  # it was closed for another
        connection.sendall(data)
