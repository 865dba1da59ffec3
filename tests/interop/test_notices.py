"""How our tool server takes notices: each is sent once, by runtimes that may throw on anything but a 200."""

import http.client
from collections.abc import Mapping

from tests.interop.conftest import Join, Serve
from tests.interop.foreign_runtime import ForeignRuntime
from tests.interop.processes import OurServer

TOOLS = """
    import asyncio
    from rapkit import Toolset

    tools = Toolset("desk")

    @tools.tool
    async def wait() -> str:
        await asyncio.sleep(3600)
"""

TOKEN = "a-token-of-some-length"
PATHS = ("/close_thread", "/cancel_tool_call")
ODD_BODIES = (
    b"",
    b"null",
    b"[]",
    b"not json",
    b"\xff\xfe",
    b"{}",
    b'{"thread_id": 7, "tool_call_id": 7}',
    b'{"thread_id": null}',
    b'{"thread_id": "../../etc", "tool_call_id": {"$ne": ""}}',
    b"[" * 100_000,
)


def send(server: OurServer, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    """POST bytes with no other headers than these: `http.client` adds no content type."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("POST", path, body, {"Authorization": f"Bearer {TOKEN}", **(headers or {})})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def started(serve: Serve, runtime: ForeignRuntime) -> OurServer:
    server: OurServer = serve(TOOLS, ["--token", TOKEN, "--allow-callback", runtime.url])
    runtime.server = server.url
    runtime.headers = {"Authorization": f"Bearer {TOKEN}"}
    return server


def test_an_authentic_notice_is_answered_200_whatever_is_in_it(serve: Serve, join: Join) -> None:
    """Item 8: no body, no JSON, wrong types, no or a wrong content type: 200 and empty, logged, without effect."""
    runtime = join(ForeignRuntime())
    server = started(serve, runtime)
    call = runtime.call("wait")

    for path in PATHS:
        for body in ODD_BODIES:
            for headers in ({}, {"Content-Type": "text/plain"}, {"Content-Type": "application/json"}):
                assert send(server, path, body, headers) == (200, b""), (path, body[:40], headers)

    assert "a notice was not acted on" in server.log()
    assert runtime.callbacks() == []
    assert runtime.cancel(call) == 200
    assert runtime.result_of(call)["text"] == "Error: Cancelled."


def test_a_notice_without_a_content_type_is_acted_on(serve: Serve, join: Join) -> None:
    """Item 8: the body is fine, so it counts."""
    runtime = join(ForeignRuntime())
    server = started(serve, runtime)
    cancelled = runtime.call("wait", group_id="a")
    closed = runtime.call("wait", group_id="b")

    body = b'{"thread_id": "a", "tool_call_id": "%s"}' % cancelled["id"].encode()
    assert send(server, "/cancel_tool_call", body) == (200, b"")
    assert send(server, "/close_thread", b'{"thread_id": "b"}', {"Content-Type": "text/plain"}) == (200, b"")

    assert runtime.result_of(cancelled)["text"] == "Error: Cancelled."
    assert runtime.result_of(closed)["text"] == "Error: Cancelled."


def test_a_notice_that_is_far_too_large_is_answered_200(serve: Serve, join: Join) -> None:
    """Item 8: 5 MB are discarded, and the answer reaches a sender that closes after its request."""
    server = started(serve, join(ForeignRuntime()))

    for path in PATHS:
        body = b'{"thread_id": "t", "tool_call_id": "c", "x": "%s"}' % (b"x" * 5_000_000)
        assert send(server, path, body, {"Connection": "close"}) == (200, b"")


def test_an_unauthenticated_notice_gets_401_and_does_nothing(serve: Serve, join: Join) -> None:
    """Item 8: 401 is the one other answer, whatever the body."""
    runtime = join(ForeignRuntime())
    server = started(serve, runtime)
    call = runtime.call("wait")

    for path in PATHS:
        for body in (*ODD_BODIES, b'{"thread_id": "thread-1", "tool_call_id": "%s"}' % call["id"].encode()):
            assert send(server, path, body, {"Authorization": "Bearer another-token-entirely"})[0] == 401

    assert runtime.callbacks() == []
