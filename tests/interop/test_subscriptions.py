"""Subscriptions of our tool server, seen by a foreign runtime on real sockets."""

from tests.interop.conftest import Join, Serve
from tests.interop.foreign_runtime import ForeignRuntime
from tests.interop.http_peer import Answer, Received

NEWS = """
    from rapkit import Toolset

    tools = Toolset("news")

    @tools.subscription(topic="news")
    async def news(payload: str) -> str:
        return payload

    @tools.tool
    async def publish(text: str) -> str:
        await tools.emit("news", text)
        return "Published."
"""


def test_one_404_does_not_end_a_subscription(serve: Serve, join: Join) -> None:
    """Item 9: the event that was answered 404 is not sent again, and the subscription goes on."""

    def answers(request: Received) -> Answer:
        return Answer(404) if request.json.get("text") == "first" else Answer()

    runtime = join(ForeignRuntime(serve(NEWS).url, answers=answers))
    call = runtime.call("news")
    assert runtime.result_of(call)["subscription"] is True

    for text in ("first", "second", "third"):
        runtime.result_of(runtime.call("publish", {"text": text}))

    events = runtime.callbacks("subscription_event", 3)
    assert [event["text"] for event in events] == ["first", "second", "third"]


def test_a_410_ends_a_subscription(serve: Serve, join: Join) -> None:
    """Item 9: the runtime says that nothing lives there any more."""

    def answers(request: Received) -> Answer:
        return Answer(410) if request.json.get("text") == "first" else Answer()

    runtime = join(ForeignRuntime(serve(NEWS).url, answers=answers))
    gone = runtime.call("news")
    runtime.result_of(gone)
    runtime.result_of(runtime.call("publish", {"text": "first"}))
    runtime.callbacks("subscription_event", 1)
    other = runtime.call("news")
    runtime.result_of(other)
    runtime.result_of(runtime.call("publish", {"text": "second"}))

    runtime.callbacks("subscription_event", 1, lambda event: event["text"] == "second")
    runtime.result_of(runtime.call("publish", {"text": "third"}))
    runtime.callbacks("subscription_event", 1, lambda event: event["text"] == "third")
    told = [(event["tool_call_id"], event["text"]) for event in runtime.callbacks("subscription_event")]
    assert told == [(gone["id"], "first"), (other["id"], "second"), (other["id"], "third")]
