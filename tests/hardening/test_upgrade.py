"""Requests that ask for another protocol are answered as HTTP/1.1, and lose nothing (`Upgrade: h2c` is what the JDK's client sends)."""

import json

import pytest

from tests.hardening.raw import Reply, connect, head
from tests.interop.conftest import Join, Serve, Up
from tests.interop.foreign_runtime import ForeignRuntime
from tests.interop.foreign_server import ForeignServer, result

TOOLS = """
    from rapkit import Toolset

    tools = Toolset("tools")

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

H2C = (
    "Connection: Upgrade, HTTP2-Settings",
    "Upgrade: h2c",
    "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
)
WEBSOCKET = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: x")


@pytest.mark.parametrize("upgrade", [H2C, WEBSOCKET], ids=["h2c", "websocket"])
@pytest.mark.parametrize("in_chunks", [False, True], ids=["length", "chunks"])
def test_an_invocation_that_asks_for_an_upgrade_is_read(
    serve: Serve, join: Join, upgrade: tuple[str, ...], in_chunks: bool
) -> None:
    """However its bytes come in, and with another request after it on the same connection."""
    server = serve(TOOLS)
    runtime = join(ForeignRuntime(server.url))

    with connect(server.url) as connection:
        for number, size in enumerate((1_000_000, 100, 1)):
            call = {"operation": "greet", "arguments": {"name": "Ada"}, "id": f"c{number}", "group_id": "t1"}
            body = json.dumps({**call, "callback_url": f"{runtime.url}/callback"}).encode()
            framing = "Transfer-Encoding: chunked" if in_chunks else f"Content-Length: {len(body)}"
            coded = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if in_chunks else body
            request = head("POST", f"{server.url}/invoke", *upgrade, framing) + coded
            for at in range(0, len(request), size):
                connection.sendall(request[at : at + size])
            assert Reply(connection).status == 200
        connection.sendall(head("GET", f"{server.url}/healthz", *upgrade) + head("GET", f"{server.url}/nothing"))
        assert Reply(connection).status == 200
        assert Reply(connection).status == 404
    results = runtime.callbacks("tool_result", 3)
    assert {(each["id"], each["text"]) for each in results} == {(f"c{n}", "Hello, Ada.") for n in range(3)}


def test_a_result_that_asks_for_an_upgrade_is_read(up: Up, join: Join) -> None:
    server = join(ForeignServer({"work": lambda call: []}))
    runtime = up(PLAN, [server.url])
    thread = runtime.thread("work")
    (call,) = server.invocations("work", 1)
    body = json.dumps(result(call, "done")).encode()

    with connect(runtime.url) as connection:
        connection.sendall(head("POST", call["callback_url"], *H2C, f"Content-Length: {len(body)}") + body)
        assert Reply(connection).status == 200
    runtime.until(thread, "It is done.")


def test_an_upgrade_that_is_refused_is_refused_in_words(serve: Serve) -> None:
    server = serve(TOOLS)

    with connect(server.url) as connection:
        connection.sendall(head("POST", f"{server.url}/nothing", *H2C, "Content-Length: 3") + b"abc")
        assert Reply(connection).status == 404
        connection.sendall(head("POST", f"{server.url}/invoke", *H2C, "Content-Length: 0"))
        assert Reply(connection).status == 400
