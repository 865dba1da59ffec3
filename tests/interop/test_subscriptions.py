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


WATCHER = """
    from pathlib import Path

    from rapkit import Context, Event, Toolset

    tools = Toolset("watcher")
    source = Path("source.txt")

    @tools.subscription(confirm_after=None)
    async def watch(ctx: Context):
        if ctx.cursor is None:
            with open("baselines.txt", "a") as baselines:
                baselines.write("x")
            await ctx.checkpoint(str(len(source.read_text().splitlines())))
        while True:
            lines = source.read_text().splitlines()
            for number in range(int(ctx.cursor), len(lines)):
                yield Event(lines[number], cursor=str(number + 1))
            await ctx.sleep(0.05)

    @tools.subscription
    async def doomed(ctx: Context):
        raise RuntimeError("the password is hunter2")
        yield "never"
"""


def test_what_happens_after_a_baseline_is_told_though_the_server_is_killed(serve: Serve, join: Join) -> None:
    """Item 4: a watcher that has taken a baseline and is killed before its first event does not take a new one."""
    server = serve(WATCHER, files={"source.txt": "old\n"})
    runtime = join(ForeignRuntime(server.url))
    call = runtime.call("watch")
    assert runtime.result_of(call)["subscription"] is True

    server.kill()
    with (server.folder / "source.txt").open("a") as source:
        source.write("while it was down\n")
    server.start()
    runtime.callbacks("subscription_event", 1)
    server.kill()
    with (server.folder / "source.txt").open("a") as source:
        source.write("down again\n")
    server.start()

    runtime.callbacks("subscription_event", 1, lambda event: event["text"] == "down again")
    # The server may have been killed before it knew that the first one had arrived: the same message comes again then.
    events = {request.headers["webhook-id"]: request.json for request in runtime.received()}
    told = [event["text"] for event in events.values() if event["type"] == "subscription_event"]
    assert told == ["while it was down", "down again"]
    assert (server.folder / "baselines.txt").read_text() == "x"
    assert runtime.cancel(call) == 200


def test_a_generator_that_raises_at_once_is_an_error_and_no_subscription(serve: Serve, join: Join) -> None:
    """Items 4 and 5: the call is answered with an error, and nothing is confirmed."""
    server = serve(WATCHER, files={"source.txt": ""})
    runtime = join(ForeignRuntime(server.url))
    result = runtime.result_of(runtime.call("doomed"))
    assert result["text"].startswith("Error: ")
    assert "hunter2" not in result["text"]
    assert not result.get("subscription")


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


BROKEN = """
    from rapkit import Context, Toolset

    tools = Toolset("broken")

    @tools.subscription(rate=None)
    async def watch(ctx: Context):
        with open("runs.txt", "a") as runs:
            runs.write("x")
        yield "begun"
        raise RuntimeError("the password is hunter2")

    @tools.subscription(topic="news", rate=None)
    async def news(payload: str) -> str:
        if payload == "bad":
            raise RuntimeError("the password is hunter2")
        return payload

    @tools.tool
    async def publish(text: str) -> str:
        await tools.emit("news", text)
        return "Published."
"""


def test_a_subscription_that_fails_tells_its_thread(serve: Serve, join: Join) -> None:
    """Item 5: an error event, inline, without what the exception says."""
    runtime = join(ForeignRuntime(serve(BROKEN).url))
    call = runtime.call("watch")
    begun, error = runtime.callbacks("subscription_event", 2)[:2]

    assert begun["text"] == "begun"
    assert error["text"].startswith("Error: the subscription watch failed unexpectedly (reference ")
    assert error["associative"] is True
    assert not error.get("final")
    assert "hunter2" not in error["text"]
    assert runtime.cancel(call) == 200


def test_an_event_that_cannot_be_handled_does_not_vanish(serve: Serve, join: Join) -> None:
    """Item 5: an error event takes its place, and the next one comes behind it."""
    runtime = join(ForeignRuntime(serve(BROKEN).url))
    runtime.result_of(runtime.call("news"))
    for text in ("a", "bad", "b"):
        runtime.result_of(runtime.call("publish", {"text": text}))

    first, error, last = runtime.callbacks("subscription_event", 3)
    assert (first["text"], last["text"]) == ("a", "b")
    assert error["text"].startswith("Error: the subscription news could not handle an event (reference ")
    assert "hunter2" not in error["text"]
