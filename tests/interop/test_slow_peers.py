"""Runtimes that take their time to answer a callback."""

from tests.interop.conftest import Join, Serve
from tests.interop.foreign_runtime import ForeignRuntime
from tests.interop.http_peer import Answer, Received, eventually

TOOLS = """
    from rapkit import Toolset

    tools = Toolset("tools")

    @tools.tool
    async def greet() -> str:
        return "Hello."
"""

SLOW = 25.0
"""Seconds: longer than the 20 s after which a callback was once given up and sent again."""


def test_a_runtime_that_answers_when_its_model_has_spoken_is_asked_once(serve: Serve, join: Join) -> None:
    """Item 12: it answers after 25 s, and gets the message once. Meanwhile another runtime is served."""
    server = serve(TOOLS)
    answered: list[str] = []

    class Slow(ForeignRuntime):
        def after(self, request: Received, answer: Answer) -> None:
            answered.append(request.json["id"])

    slow = join(Slow(server.url, answers=lambda _: Answer(delay=SLOW)))
    quick = join(ForeignRuntime(server.url))

    call = slow.call("greet")
    slow.result_of(call)
    assert quick.result_of(quick.call("greet", group_id="thread-2"))["text"] == "Hello."
    assert answered == []
    eventually(lambda: answered)
    server.stop()

    assert len(slow.callbacks("tool_result")) == 1


def test_how_long_a_runtime_may_take_can_be_set(serve: Serve, join: Join) -> None:
    """Item 12: one that never answers is asked again after `Durations.response`."""
    tools = TOOLS.replace("import Toolset", "import Durations, Toolset").replace(
        'Toolset("tools")', 'Toolset("tools", durations=Durations(connect=5, response=0.2))'
    )
    runtime = join(ForeignRuntime(serve(tools).url, answers=lambda _: Answer(delay=3600)))

    call = runtime.call("greet")

    runtime.callbacks("tool_result", 2, lambda message: message["id"] == call["id"])
