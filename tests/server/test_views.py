"""What calls show while they run: views, and progress as one of them (VIE-1)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rapkit import Context, Event, Limits, Toolset, testing
from rapkit.testing import Call


@pytest.fixture
def tools() -> Toolset:
    tools = Toolset("tools")

    @tools.tool
    async def show(ctx: Context, contents: list[Any], pause: float = 0) -> str:
        """Show one thing after another."""
        for content in contents:
            await ctx.view("map", content)
            await ctx.sleep(pause)
        return "shown"

    @tools.tool(idempotent=True)
    async def work(ctx: Context, steps: int, pause: float = 1) -> str:
        """Show how far it has come."""
        for step in range(steps):
            await ctx.progress(step, steps, f"step {step}")
            await ctx.sleep(pause)
        return "worked"

    return tools


def shown(call: Call) -> list[Any]:
    """What a call has shown, one after the other."""
    return [message.content for message in call.messages if message.type == "view_update"]


@pytest.mark.parametrize(
    "content", [{"zoom": 3, "at": [1.5, None]}, [], "text", "", 0, False, None, {"deep": [[[{}]]]}]
)
async def test_a_view_shows_any_json_untouched(tools: Toolset, content: object) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("show", contents=[content])
        await call.result()

        assert client.views == {"map": content}
        assert call.messages[0].model_dump() == {
            "type": "view_update",
            "group_id": "thread_1",
            "view_type": "map",
            "content": content,
        }


async def test_a_view_is_shown_while_the_call_runs(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("show", contents=[1], pause=60)
        await client.settled()

        assert [message.type for message in call.messages] == ["view_update"]
        await client.advance(60)
        assert [message.type for message in call.messages] == ["view_update", "tool_result"]


async def test_of_updates_in_quick_succession_the_last_is_sent(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("show", contents=list(range(1000)))
        await call.result()

        assert shown(call)[-1] == 999
        assert len(shown(call)) <= 2
        assert call.messages[-1].type == "tool_result"


async def test_updates_are_spread_over_time(tools: Toolset) -> None:
    """A hundred in a second become a few, in order, and the last one is among them."""
    async with testing.serve(tools) as client:
        call = await client.start("show", contents=list(range(100)), pause=0.01)
        await client.advance(2)

        assert shown(call) == sorted(shown(call))
        assert shown(call)[0] == 0
        assert shown(call)[-1] == 99
        assert 3 <= len(shown(call)) <= 6


async def test_updates_that_are_far_apart_are_all_sent(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("show", contents=[1, 2, 3], pause=60)
        await client.advance(180)

        assert shown(call) == [1, 2, 3]


async def test_views_of_different_types_do_not_replace_each_other() -> None:
    tools = Toolset("tools")

    @tools.tool
    async def show(ctx: Context) -> None:
        """Show three views."""
        for number in range(3):
            await ctx.view("map", number)
            await ctx.view("table", -number)
            await ctx.progress(number)

    async with testing.serve(tools) as client:
        call = await client.start("show")
        await call.result()

        assert client.views == {
            "map": 2,
            "table": -2,
            "progress": {"call_id": call.id, "operation": "show", "done": 2},
        }


async def test_views_belong_to_the_thread(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        other = client.as_(thread_id="other")
        await client.call("show", contents=["ours"])
        await other.call("show", contents=["theirs"])
        await client.call("show", contents=["ours", "newer"])

        assert client.views == {"map": "newer"}
        assert other.views == {"map": "theirs"}


async def test_progress_tells_how_far_which_call_has_come(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("work", steps=3)
        await client.advance(1)
        assert client.views["progress"] == {
            "call_id": call.id,
            "operation": "work",
            "done": 1,
            "total": 3,
            "note": "step 1",
        }

        await client.advance(2)
        assert client.views["progress"]["done"] == 2
        assert (await call.result()).text == "worked"


async def test_a_runtime_that_is_down_is_shown_the_latest_and_not_all_it_missed(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        client.callbacks.down()
        call = await client.start("work", steps=100)
        await client.advance(50)
        client.callbacks.up()
        await client.advance(100)

        assert (await call.result()).text == "worked"
        steps = [view["done"] for view in shown(call)]
        assert steps[0] >= 49  # older ones were replaced, and not tried again
        assert steps == sorted(set(steps))


async def test_a_view_that_is_refused_does_not_hold_up_the_result(tools: Toolset) -> None:
    """Item 7: views have lanes of their own."""
    async with testing.serve(tools) as client:
        client.callbacks.fail()
        call = await client.start("show", contents=[1], pause=0.5)
        await client.settled()
        await client.advance(0.5)

        assert [message.type for message in call.messages] == ["tool_result"]
        await client.advance(60)
        assert shown(call) == [1]  # it still comes, after the result


async def test_a_view_that_hangs_does_not_hold_up_the_result(tools: Toolset) -> None:
    """Item 7: not even by the places of its origin; and once replaced it is not sent again."""
    async with testing.serve(tools) as client:
        client.callbacks.hang()
        await client.start("show", contents=[1], pause=1)
        await client.settled()
        await client.advance(1)
        assert client.callbacks.attempts == 2  # the view, and the result
        client.callbacks.up()


async def test_nothing_is_shown_after_the_result(events: list[str]) -> None:
    """The test's runtime would not let it pass."""
    tools = Toolset("tools")

    @tools.tool
    async def leave(ctx: Context) -> str:
        """Leave somebody behind who goes on showing."""

        async def go_on() -> None:
            for number in range(100):
                await ctx.view("map", number)
                await ctx.sleep(1)
                events.append("shown")

        events.append("begun")
        tasks.append(asyncio.create_task(go_on()))
        return "left"

    tasks: list[asyncio.Task[None]] = []
    async with testing.serve(tools) as client:
        call = await client.start("leave")
        await client.advance(60)

        assert call.messages[-1].type == "tool_result"
        assert events.count("shown") == 60
        tasks[0].cancel()


async def test_nothing_is_shown_after_a_cancellation(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("work", steps=1000)
        await client.advance(10)
        await call.cancel()
        before = len(shown(call))
        await client.advance(60)

        assert len(shown(call)) == before
        assert (await call.result()).text == "Error: Cancelled."


async def test_what_waits_to_be_shown_is_not_after_a_cancellation(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        client.callbacks.fail()
        call = await client.start("work", steps=1000)
        await client.settled()
        await call.cancel()
        await client.advance(60)

        assert shown(call) == []


@pytest.mark.parametrize("operation", ["glance", "follow"])
async def test_what_waits_to_be_shown_is_not_after_a_cancellation_of_what_has_ended(
    tools: Toolset, operation: str
) -> None:
    """Item 7: although its box is forgotten."""

    @tools.tool
    async def glance(ctx: Context) -> str:
        """Show one thing, and return."""
        await ctx.view("map", 1)
        await ctx.sleep(0.4)
        return "over"

    @tools.subscription
    async def follow(ctx: Context) -> AsyncIterator[Event]:
        """Show one thing, and end."""
        await ctx.view("map", 1)
        await ctx.sleep(0.4)
        yield Event("over", final=True)

    async with testing.serve(tools) as client:
        client.callbacks.fail()
        call = await client.start(operation)
        await client.settled()
        await client.advance(0.4)  # less than the view waits for its next attempt
        assert call.messages[-1].type in ("tool_result", "subscription_event")
        assert shown(call) == []

        await call.cancel()
        await client.advance(60)

        assert shown(call) == []


async def test_a_view_does_not_make_a_call_repeatable(tools: Toolset) -> None:
    """That something was shown is no proof that nothing was done (semantics 23)."""
    async with testing.serve(tools) as client:
        once = await client.start("show", contents=[1, 2], pause=10)
        twice = await client.start("work", steps=2, pause=10)
        await client.advance(1)
        await client.crash()
        await client.advance(60)

        assert "not known whether it took effect" in (await once.result()).text
        assert shown(once) == [1]
        assert (await twice.result()).text == "worked"
        assert [view["done"] for view in shown(twice)] == [0, 0, 1]


@pytest.fixture
def events() -> list[str]:
    return []


@pytest.mark.parametrize(
    ("view_type", "content", "problem"),
    [
        ("map", "x" * 2000, "The view 'map' has 2,0.. bytes, and 1,000 can be sent"),
        ("map", object(), "content"),
        ("map", float("nan"), "content"),
        ("", {}, "view_type"),
        ("x" * 5000, {}, "view_type"),
        (7, {}, "view_type"),
    ],
)
async def test_what_cannot_be_shown_is_told_to_the_author(view_type: Any, content: Any, problem: str) -> None:
    tools = Toolset("tools", limits=Limits(result=1000))

    @tools.tool
    async def show(ctx: Context) -> str:
        """Show what cannot be shown."""
        with pytest.raises(ValueError, match=problem):
            await ctx.view(view_type, content)
        return "told"

    async with testing.serve(tools) as client:
        call = await client.start("show")

        assert (await call.result()).text == "told"
        assert shown(call) == []


async def test_subscriptions_show_things_too_and_nothing_after_their_end() -> None:
    tools = Toolset("tools")

    @tools.subscription
    async def count(ctx: Context) -> AsyncIterator[Event]:
        """Count, and show more than is told."""
        for number in range(6):
            await ctx.view("count", number)
            await ctx.sleep(10)
            if number % 2:
                yield Event(str(number), final=number == 5)

    async with testing.serve(tools) as client:
        watch = await client.subscribe("count")
        await client.advance(25)
        assert client.views == {"count": 2}
        assert [event.text for event in watch.events] == ["1"]

        await client.advance(60)
        assert client.views == {"count": 5}
        assert [message.type for message in client.messages][-1] == "subscription_event"
        assert watch.ended


async def test_a_cancelled_subscription_shows_nothing() -> None:
    tools = Toolset("tools")

    @tools.subscription
    async def count(ctx: Context) -> AsyncIterator[Event]:
        """Show a number every second."""
        for number in range(1000):
            await ctx.view("count", number)
            await ctx.sleep(1)
        yield Event("done")

    async with testing.serve(tools) as client:
        watch = await client.subscribe("count")
        await client.advance(10)
        await watch.cancel()
        before = client.views["count"]
        await client.advance(60)

        assert client.views["count"] == before
