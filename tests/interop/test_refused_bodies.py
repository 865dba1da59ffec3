"""Every answer reaches its sender, also the answer to a body that is refused before all of it was read (item 3)."""

import json
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.conftest import Join, Serve, Up
from tests.interop.foreign_server import ForeignServer, result
from tests.interop.http_peer import PATIENCE, post

TOOLS = """
    from rapkit import Toolset

    tools = Toolset("greetings")

    @tools.tool
    async def greet(name: str) -> str:
        return f"Hello, {name}."
"""

PLAN = """
- user: work
  calls: [work]
- answer: work
  say: "It is {answer}."
- say: Fine.
"""

LARGE = b'{"text": "' + b"x" * (20 * 1024 * 1024) + b'"}'
"""Over every limit: 5 MB at a tool server, 17 MB at a callback URL; and far more than the buffers of a connection hold."""


def by_urllib(url: str, body: bytes) -> int:
    """As urllib does it: the whole request is written before the answer is read; `Connection: close`."""
    return post(url, body)[0]


def by_http_1_0(url: str, body: bytes) -> int:
    """HTTP/1.0, as a proxy speaks it."""
    return _raw(url, f"Content-Length: {len(body)}\r\n", body, version="1.0")


def by_keep_alive(url: str, body: bytes) -> int:
    """A connection that is to be used again."""
    return _raw(url, f"Content-Length: {len(body)}\r\nConnection: keep-alive\r\n", body)


def in_chunks(url: str, body: bytes) -> int:
    """A body whose size is not announced, and a connection that is closed afterwards."""
    size = 1024 * 1024
    chunks = [body[at : at + size] for at in range(0, len(body), size)]
    coded = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in [*chunks, b""])
    return _raw(url, "Transfer-Encoding: chunked\r\nConnection: close\r\n", coded)


SENDERS = [by_urllib, by_http_1_0, by_keep_alive, in_chunks]


def _raw(url: str, headers: str, body: bytes, version: str = "1.1") -> int:
    """Write all of a request, and only then read the answer."""
    host, _, path = url.removeprefix("http://").partition("/")
    name, _, port = host.partition(":")
    head = f"POST /{path} HTTP/{version}\r\nHost: {host}\r\nContent-Type: application/json\r\n{headers}\r\n"
    with socket.create_connection((name, int(port)), timeout=PATIENCE) as connection:
        connection.sendall(head.encode() + body)
        answer = b""
        while b"\r\n" not in answer:
            part = connection.recv(4096)
            assert part, f"the connection ended without an answer: {answer!r}"
            answer += part
    return int(answer.split()[1])


@pytest.mark.parametrize("send", SENDERS, ids=lambda send: send.__name__)
def test_a_tool_server_refuses_large_bodies_with_an_answer(
    serve: Serve, join: Join, send: Callable[[str, bytes], int]
) -> None:
    """Item 3: 413 from the endpoints of the protocol, 404 and 405 from the others, never a reset."""
    server = serve(TOOLS)

    assert send(f"{server.url}/invoke", LARGE) == 413
    assert send(f"{server.url}/nothing/here", LARGE) == 404
    assert send(f"{server.url}/healthz", LARGE) == 405
    assert send(f"{server.url}/answer/no-such-question", LARGE) == 413


@pytest.mark.parametrize("send", SENDERS, ids=lambda send: send.__name__)
def test_a_tool_server_answers_strangers_that_send_large_bodies(
    serve: Serve, send: Callable[[str, bytes], int]
) -> None:
    """Item 3: 401 is read by its sender too, though the body is not."""
    server = serve(TOOLS, ["--token", "runtime=0123456789abcdef"])

    assert send(f"{server.url}/invoke", LARGE) == 401


@pytest.mark.parametrize("send", SENDERS, ids=lambda send: send.__name__)
def test_a_runtime_refuses_large_bodies_with_an_answer(up: Up, join: Join, send: Callable[[str, bytes], int]) -> None:
    """Item 3: 413 at a callback URL, 404 at one that is none, and at any other path."""
    server = join(ForeignServer({"work": lambda call: []}))
    runtime = up(PLAN, [server.url])
    runtime.thread("work")
    (call,) = server.invocations("work", 1)

    assert send(call["callback_url"], LARGE) == 413
    assert send(f"{runtime.url}/callback/none-of-ours", LARGE) == 404
    assert send(f"{runtime.url}/nothing", LARGE) == 404
    assert send(f"{runtime.url}/v1/threads", LARGE) == 413


@pytest.fixture
def large_file(tmp_path: Path) -> Path:
    path = tmp_path / "large.json"
    path.write_bytes(LARGE)
    return path


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("option", ["--http1.1", "--http1.0"])
def test_curl_which_asks_first_is_answered(serve: Serve, large_file: Path, option: str) -> None:
    """Item 3: curl announces a large body with `Expect: 100-continue`, and sends it if it is not refused."""
    server = serve(TOOLS)
    words = ["curl", "-sS", option, "-o", "/dev/null", "-w", "%{http_code}", "-H", "Expect: 100-continue"]

    for path, status in (("/invoke", "413"), ("/nothing", "404")):
        done = subprocess.run(
            [*words, "--data-binary", f"@{large_file}", f"{server.url}{path}"],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        assert done.stdout == status, done.stderr


@pytest.mark.parametrize(
    "content_type", [None, "", "text/plain", "application/octet-stream", "application/vnd.api+json"]
)
def test_messages_are_taken_whatever_their_content_type(
    serve: Serve, up: Up, join: Join, content_type: str | None
) -> None:
    """Item 3: no 415 for an invocation, a notice or a callback."""
    ours = serve(TOOLS)
    server = join(ForeignServer({"work": lambda call: []}))
    runtime = up(PLAN, [server.url])
    thread = runtime.thread("work")
    (call,) = server.invocations("work", 1)
    declared = "" if content_type is None else f"Content-Type: {content_type}\r\n"

    def send(url: str, message: object) -> int:
        body = json.dumps(message).encode()
        host, _, path = url.removeprefix("http://").partition("/")
        name, _, port = host.partition(":")
        head = f"POST /{path} HTTP/1.1\r\nHost: {host}\r\n{declared}Content-Length: {len(body)}\r\n\r\n"
        with socket.create_connection((name, int(port)), timeout=PATIENCE) as connection:
            connection.sendall(head.encode() + body)
            return int(connection.recv(4096).split()[1])

    invocation = {"operation": "greet", "arguments": {"name": "Ada"}, "id": "c1", "group_id": "t1"}
    assert send(f"{ours.url}/invoke", {**invocation, "callback_url": f"{server.url}/callback"}) == 200
    assert send(f"{ours.url}/cancel_tool_call", {"thread_id": "t1", "tool_call_id": "c1"}) == 200
    assert send(f"{ours.url}/close_thread", {"thread_id": "t1"}) == 200
    assert send(call["callback_url"], result(call, "done")) == 200
    runtime.until(thread, "It is done.")
