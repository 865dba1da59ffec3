"""What rapkit makes of refusals that mean little, and of those that mean much."""

from tests.interop.conftest import Join, Serve, Up
from tests.interop.foreign_runtime import ForeignRuntime
from tests.interop.foreign_server import ForeignServer, result
from tests.interop.http_peer import Answer, eventually

TOOLS = """
    from rapkit import ToolError, Toolset

    tools = Toolset("tools")

    @tools.tool
    async def withdraw() -> str:
        raise ToolError("Cancelled.")
"""

PLAN = """
- user: watch
  calls: [watch]
- say: Fine.
"""


def test_a_server_without_notices_alarms_nobody(up: Up, join: Join) -> None:
    """Item 16: 404 to /close_thread and /cancel_tool_call is no warning."""
    statuses = {"/close_thread": 404, "/cancel_tool_call": 404}
    tools = {"watch": lambda call: [result(call, "Watching.", subscription=True)]}
    server = join(ForeignServer(tools, statuses=statuses))
    runtime = up(PLAN, [server.url])
    thread = runtime.thread("watch")
    runtime.until(thread, "Fine.")

    runtime.close(thread)
    server.notices("/close_thread", 1)
    runtime.stop()

    assert "undeliverable" not in runtime.log()


def test_an_authors_words_are_not_taken_for_a_cancellation(serve: Serve, join: Join) -> None:
    """Item 17: `ToolError("Cancelled.")` is an error like any other, so a 404 to it is reported."""
    server = serve(TOOLS)
    runtime = join(ForeignRuntime(server.url, answers=lambda _: Answer(404)))

    call = runtime.call("withdraw")

    assert runtime.result_of(call)["text"] == "Error: Cancelled."
    eventually(lambda: f"undeliverable: {runtime.url} answered 404" in server.log())
