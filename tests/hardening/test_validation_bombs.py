"""Messages that are small to send and would be costly to read: refused before they are parsed, or at the first mistake."""

import json
import socket
from typing import Any

from tests.hardening.memory import peak_memory
from tests.interop.conftest import Join, Serve, Up
from tests.interop.foreign_server import ForeignServer, describe, result
from tests.interop.http_peer import PATIENCE, Json, eventually, get, post

MIB = 1024 * 1024

PLAN = """
- user: work
  calls: [work]
- answer: work
  say: "It is {answer}."
- say: Fine.
"""

TOOLS = """
    from rapkit import Toolset

    tools = Toolset("greetings")

    @tools.tool
    async def greet(name: str) -> str:
        return f"Hello, {name}."
"""


class SilentServer(ForeignServer):
    """Has one tool, and leaves it to the test to call back."""

    def __init__(self, **more: Any) -> None:
        super().__init__({"work": lambda _: []}, **more)

    def after(self, request: Any, answer: Any) -> None:
        pass


def test_an_unknown_callback_url_is_refused_before_its_body_has_come(up: Up, join: Join) -> None:
    """The parser cannot have seen what was never sent."""
    runtime = up(PLAN, [join(SilentServer()).url])

    with socket.create_connection(("127.0.0.1", runtime.port), timeout=PATIENCE) as connection:
        head = "POST /callback/unknown.token HTTP/1.1\r\nHost: x\r\nContent-Length: 65536\r\n\r\n"
        connection.sendall(head.encode() + b'{"display_as":[0,')
        answer = connection.recv(4096)

    assert answer.startswith(b"HTTP/1.1 404")


def test_a_result_of_very_many_values_is_refused_before_it_is_parsed(up: Up, join: Join) -> None:
    """5 MB of zeros took 1.4 GB, and the loop stood still for seconds."""
    server = join(SilentServer())
    runtime = up(PLAN, [server.url])
    thread = runtime.thread("work")
    (call,) = server.invocations("work", 1)
    before = peak_memory(runtime)

    status, body = post(call["callback_url"], _result(call, display_as=[0] * (5 * MIB // 3)))

    assert (status, json.loads(body)["detail"]) == (413, "A message may have at most 100000 JSON values.")
    assert peak_memory(runtime) - before < 100 * MIB
    runtime.until(thread, "answered, but its answer was refused: it is too large. A message may have at most 100000")
    assert get(f"{runtime.url}/readyz")[0] == 200


def test_a_result_of_nothing_but_mistakes_is_refused_at_the_first(up: Up, join: Join) -> None:
    server = join(SilentServer())
    runtime = up(PLAN, [server.url])
    thread = runtime.thread("work")
    (call,) = server.invocations("work", 1)

    status, body = post(call["callback_url"], _result(call, content=[0] * 90_000))

    assert (status, json.loads(body)["detail"]) == (400, "tool_result.content[0]: a number, must be an object")
    runtime.until(thread, "its answer was refused: it is not a valid message (tool_result.content[0]")


def test_how_many_values_a_message_may_have_is_a_setting(up: Up, join: Join) -> None:
    server = join(SilentServer())
    runtime = up(PLAN, [server.url], tables={"agent.capacity": {"values": 1000}})
    thread = runtime.thread("work")
    (call,) = server.invocations("work", 1)
    text = "one, two, three, " * 1000  # what stands in a text is no value

    assert post(call["callback_url"], _result(call, display_as=[{"type": "other", "content": [0] * 1000}]))[0] == 413
    assert post(call["callback_url"], _result(call, text=text))[0] == 200
    runtime.until(thread, text)


def test_a_call_of_very_many_values_is_refused_before_it_is_parsed(serve: Serve) -> None:
    server = serve(TOOLS)
    call = {"operation": "greet", "id": "c1", "group_id": "t1", "callback_url": "http://127.0.0.1:9/cb"}

    status, body = post(f"{server.url}/invoke", {**call, "arguments": {"name": [0] * 150_000}})

    assert (status, json.loads(body)["detail"]) == (413, "A message may have at most 100000 JSON values.")
    assert post(f"{server.url}/close_thread", {"thread_id": "t1", "more": [0] * 150_000})[0] == 200
    eventually(lambda: "a notice was not acted on: A message may have at most 100000 JSON values" in server.log())


def test_a_toolset_of_bombs_costs_the_agent_neither_memory_nor_its_other_tools(up: Up, join: Join) -> None:
    """600 patterns of 20 characters took 1.2 GB; 50,000 tools that are none took seconds."""
    patterns = {f"p{n}": {"type": "string", "pattern": rf"^\p{{L}}{{1,40}}{n}$"} for n in range(600)}
    bomb = {"name": "bomb", "description": "Many patterns.", "inputSchema": {"type": "object", "properties": patterns}}
    server = SilentServer(manifest={"tools": [describe("work"), bomb, *[0] * 50_000]})

    runtime = up(PLAN, [join(server).url])
    runtime.thread("work")

    server.invocations("work", 1)
    assert "tool 'bomb': inputSchema: the patterns of the schema" in runtime.log()
    assert "there are 50002, of which the first 1000 are used" in runtime.log()
    assert peak_memory(runtime) < 200 * MIB


def _result(call: Json, **fields: Any) -> Json:
    return {**result(call, ""), **fields}
