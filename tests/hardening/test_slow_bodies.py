"""A body has to make progress, and may take as long as it does: a slow link or a stopped process costs no acknowledged result."""

import json
import os
import signal
import sys
import time

import pytest

from tests.hardening.raw import ESTABLISHED, Reply, Seen, connect, head, seen_from
from tests.interop.conftest import Join, Serve, Up
from tests.interop.foreign_runtime import ForeignRuntime
from tests.interop.foreign_server import ForeignServer, result
from tests.interop.http_peer import eventually

TOOLS = """
    from rapkit import HttpLimits, Limits, Toolset

    tools = Toolset("tools", limits=Limits(http=HttpLimits(body_pause_seconds=2, body_rate=100)))

    @tools.tool
    async def size(text: str) -> str:
        return f"{len(text)} letters."
"""

PLAN = """
- user: work
  calls: [work]
- answer: work
  say: "It is {answer}."
- say: Fine.
"""

SHORT = {"agent.capacity.http": {"body_pause_seconds": 2, "body_rate": 100}}


def test_a_slow_invocation_is_accepted_though_it_takes_longer_than_any_pause(serve: Serve, join: Join) -> None:
    """Ten parts, a third of a second apart: longer than the longest pause, and never that long without a byte."""
    server = serve(TOOLS)
    runtime = join(ForeignRuntime(server.url))
    call = {"operation": "size", "arguments": {"text": "x" * 20_000}, "id": "c1", "group_id": "t1"}
    body = json.dumps({**call, "callback_url": f"{runtime.url}/callback"}).encode()

    with connect(server.url) as connection:
        connection.sendall(head("POST", f"{server.url}/invoke", f"Content-Length: {len(body)}"))
        step = len(body) // 10 + 1
        for at in range(0, len(body), step):
            connection.sendall(body[at : at + step])
            time.sleep(0.3)
        assert Reply(connection).status == 200
    assert runtime.callbacks("tool_result", 1)[0]["text"] == "20000 letters."


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
def test_a_body_that_was_sent_while_the_process_was_stopped_is_read(up: Up, join: Join) -> None:
    """The body of a result lies in the socket of a stopped runtime for longer than any pause: it is accepted when the runtime goes on."""
    server = join(ForeignServer({"work": lambda call: []}))
    runtime = up(PLAN, [server.url], tables=SHORT)
    thread = runtime.thread("work")
    (call,) = server.invocations("work", 1)
    body = json.dumps(result(call, "done")).encode()

    with connect(runtime.url) as connection:
        connection.sendall(head("POST", call["callback_url"], f"Content-Length: {len(body)}") + body[:10])
        port = connection.getsockname()[1]
        eventually(lambda: seen_from(runtime.pid, port) == Seen(ESTABLISHED, 0))
        os.kill(runtime.pid, signal.SIGSTOP)
        try:
            connection.sendall(body[10:])
            time.sleep(3)  # what is tested is that this time does not count
        finally:
            os.kill(runtime.pid, signal.SIGCONT)
        assert Reply(connection).status == 200
    runtime.until(thread, "It is done.")


@pytest.mark.parametrize("sent", [b"", b'{"group_id": '], ids=["nothing", "half"])
def test_a_body_that_stops_coming_may_be_sent_again(up: Up, join: Join, sent: bytes) -> None:
    """503, never a 4xx: senders take a 4xx as final, and what was slow once may be fast the next time."""
    server = join(ForeignServer({"work": lambda call: []}))
    runtime = up(PLAN, [server.url], tables=SHORT)
    runtime.thread("work")
    (call,) = server.invocations("work", 1)

    with connect(runtime.url) as connection:
        connection.sendall(head("POST", call["callback_url"], "Content-Length: 500") + sent)
        reply = Reply(connection)
    assert reply.status == 503
    assert reply.headers["retry-after"] == "5"


def test_a_sender_of_single_bytes_does_not_keep_its_place(serve: Serve) -> None:
    server = serve(TOOLS)

    with connect(server.url) as connection:
        connection.sendall(head("POST", f"{server.url}/invoke", "Content-Length: 10000"))
        connection.settimeout(0.1)
        answer = b""
        while not answer:
            connection.sendall(b" ")
            try:
                answer = connection.recv(4096)
            except TimeoutError:
                continue
    assert answer.startswith(b"HTTP/1.1 503 ")
