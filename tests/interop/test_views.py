"""Views of our server at a runtime that has no use for them."""

import pytest

from tests.interop.conftest import Join, Serve
from tests.interop.foreign_runtime import ForeignRuntime
from tests.interop.http_peer import Answer, Received

TOOLS = """
    import asyncio

    from rapkit import Context, Toolset

    tools = Toolset("tools")

    @tools.tool
    async def work(ctx: Context) -> str:
        for step in range(3):
            await ctx.view("map", step)
            await ctx.progress(step, 3)
            await asyncio.sleep(0.4)
        return "worked"

    @tools.tool
    async def wait(ctx: Context) -> str:
        await ctx.view("map", "waiting")
        await asyncio.Event().wait()
        return "never"

    @tools.tool
    async def glance(ctx: Context, what: str) -> str:
        await ctx.view("map", what)
        return "glanced"
"""


@pytest.mark.parametrize("answer", [Answer(500), Answer(404), Answer(delay=3600)], ids=["500", "404", "hangs"])
def test_a_runtime_that_refuses_views_gets_the_result(answer: Answer, serve: Serve, join: Join) -> None:
    """Item 7: a view that fails, is refused or hangs does not hold up the result."""

    def answers(request: Received) -> Answer:
        return answer if request.json["type"] == "view_update" else Answer()

    runtime = join(ForeignRuntime(serve(TOOLS).url, answers=answers))

    call = runtime.call("work")

    assert runtime.result_of(call)["text"] == "worked"
    assert runtime.callbacks("view_update")


def test_a_newer_view_has_an_id_of_its_own_and_ends_the_retries_of_the_older_one(serve: Serve, join: Join) -> None:
    """Item 7: the last view comes also after the result; the older ones are not sent again after it."""

    def answers(request: Received) -> Answer:
        message = request.json
        return Answer(503) if message.get("view_type") == "map" and message["content"] != 2 else Answer()

    runtime = join(ForeignRuntime(serve(TOOLS).url, answers=answers))

    runtime.result_of(runtime.call("work"))
    runtime.callbacks("view_update", 1, lambda message: message["content"] == 2)

    views = runtime.received(lambda request: request.json.get("view_type") == "map")
    shown = [request.json["content"] for request in views]
    assert shown == sorted(shown)
    assert len({request.headers["webhook-id"] for request in views}) == len(set(shown))


def test_a_cancelled_call_shows_nothing_more(serve: Serve, join: Join) -> None:
    """Item 7: cancelling deletes the views that wait for another attempt."""
    runtime = join(ForeignRuntime(serve(TOOLS).url, answers=lambda _: Answer(500)))
    call = runtime.call("wait")
    runtime.callbacks("view_update", 1)

    assert runtime.cancel(call) == 200
    before = len(runtime.callbacks("view_update"))
    # Two attempts at the result take longer than the view's next one would have.
    runtime.callbacks("tool_result", 2)

    assert len(runtime.callbacks("view_update")) == before


def test_a_call_that_has_ended_shows_nothing_more_once_it_is_cancelled(serve: Serve, join: Join) -> None:
    """Item 7: cancelling deletes the views of a call that is over, too, and not those of others."""

    def answers(request: Received) -> Answer:
        return Answer(503 if request.json["type"] == "view_update" else 200)

    def views(content: str, count: int = 0) -> int:
        return len(runtime.callbacks("view_update", count, lambda message: message["content"] == content))

    runtime = join(ForeignRuntime(serve(TOOLS).url, answers=answers))
    call = runtime.call("glance", {"what": "cancelled"})
    runtime.result_of(call)
    views("cancelled", 1)

    assert runtime.cancel(call) == 200
    before = views("cancelled")
    runtime.call("glance", {"what": "other"})
    views("other", before + 2)  # by then there would have been another attempt

    assert views("cancelled") == before
