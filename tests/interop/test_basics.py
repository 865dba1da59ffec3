"""Both foreign peers get on with rapkit in the ordinary cases; the other files of this folder are about the rest."""

from tests.interop.conftest import Join, Serve, Up
from tests.interop.foreign_runtime import ForeignRuntime
from tests.interop.foreign_server import ForeignServer, event, result
from tests.interop.http_peer import Json

TOOLS = """
    from rapkit import Toolset

    tools = Toolset("greetings")

    @tools.tool
    async def greet(name: str) -> str:
        return f"Hello, {name}."
"""

PLAN = """
- user: add
  calls: [add: {a: 1}]
- user: watch
  calls: [watch]
- answer: add
  say: "It is {answer}."
- event: watch
  say: "Heard {text}."
- say: Fine.
"""


def test_a_foreign_runtime_calls_our_server(serve: Serve, join: Join) -> None:
    runtime = join(ForeignRuntime(serve(TOOLS).url))

    assert [tool["name"] for tool in runtime.discover()["tools"]] == ["greet"]
    call = runtime.call("greet", {"name": "Ada"})

    assert runtime.result_of(call)["text"] == "Hello, Ada."


def test_a_foreign_runtime_without_a_callback_path_is_answered(serve: Serve, join: Join) -> None:
    runtime = join(ForeignRuntime(serve(TOOLS).url, callback_path=""))

    assert runtime.result_of(runtime.call("greet", {"name": "Ada"}))["text"] == "Hello, Ada."


def test_our_runtime_calls_a_foreign_server(up: Up, join: Join) -> None:
    server = join(ForeignServer({"add": lambda call: [result(call, "3")]}))
    runtime = up(PLAN, [server.url])

    thread = runtime.thread("add")

    runtime.until(thread, "It is 3.")


def test_a_result_and_events_that_come_before_the_acknowledgement_are_taken(up: Up, join: Join) -> None:
    def watch(call: Json) -> list[Json]:
        return [event(call, "early", associative=True), result(call, "Watching.", subscription=True)]

    server = join(ForeignServer({"watch": watch}, calls_back_first=True))
    runtime = up(PLAN, [server.url])

    thread = runtime.thread("watch")

    runtime.until(thread, "Heard early.")
    assert [status for _, status in server.answers] == [200, 200]
