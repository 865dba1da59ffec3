"""When events do not get through, or not so fast."""

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rapkit import Context, Event, Limits, Toolset, testing
from tests.server.feeds import Feed, following, texts
from tests.server.served_toolset import invocation, serving, until
from tests.server.sink import Sink, answer

DAY = 24 * 3600.0
NUMBERS = [str(number) for number in range(1, 8)]


@pytest.fixture
def feed() -> Feed:
    return Feed()


@pytest.fixture
def tools(toolset: Callable[..., Toolset], feed: Feed) -> Toolset:
    return following(toolset(), feed)


# When events do not get through


async def test_a_generator_is_paused_while_its_events_do_not_get_through(
    tools: Toolset, feed: Feed, caplog: pytest.LogCaptureFixture
) -> None:
    """semantics 18"""
    asked = 0

    class Counting(list[str]):
        def __getitem__(self, index: Any) -> Any:
            nonlocal asked
            asked = max(asked, index + 1)
            return super().__getitem__(index)

    feed.items = Counting(str(number) for number in range(1, 251))
    async with testing.serve(tools) as client:
        subscription = await client.subscribe("follow")
        client.callbacks.down()
        await client.settled()
        paused_at = asked
        assert 100 <= paused_at <= 102 + len(subscription.events)
        await client.advance(100)
        assert asked == paused_at
        assert caplog.text.count("is paused") == 1

        client.callbacks.up()
        await client.advance(400)
        assert texts(subscription) == list(feed.items)


async def test_events_come_in_order_behind_their_confirmation_though_posts_fail(tools: Toolset, feed: Feed) -> None:
    """SUB-2, semantics 18: the client objects to what comes before the confirmation."""
    feed.add(*NUMBERS)
    async with testing.serve(tools) as client:
        client.callbacks.fail(3)
        call = await client.start("follow")
        await client.advance(60)
        client.callbacks.fail(2, 500)
        feed.add("8", "9")
        await client.advance(60)

        assert texts(await call.subscribed()) == [*NUMBERS, "8", "9"]


async def test_what_is_shown_gets_through_beside_the_events(toolset: Callable[..., Toolset]) -> None:
    """semantics 18: views have lanes of their own, so they wait for no event, and no event for them."""
    tools = toolset()

    @tools.subscription
    async def work(ctx: Context) -> AsyncIterator[str]:
        """Work."""
        yield "a"
        await ctx.view("table", [1, 2])

    async with testing.serve(tools) as client:
        client.callbacks.hang()
        await client.start("work")
        await client.settled()
        client.callbacks.up()
        await client.advance(1)

        assert sorted(message.type for message in client.messages) == [
            "subscription_event",
            "subscription_event",
            "tool_result",
            "view_update",
        ]


async def test_a_subscription_nobody_listens_to_ends_silently(
    tools: Toolset, feed: Feed, caplog: pytest.LogCaptureFixture
) -> None:
    """semantics 18"""
    caplog.set_level(logging.INFO)
    async with testing.serve(tools) as client:
        subscription = await client.subscribe("follow")
        await client.settled()
        client.callbacks.fail(1, 410)
        feed.add("rain")
        await client.settled()
        await until(lambda: feed.following == 0)
        attempts = client.callbacks.attempts
        feed.add("snow")
        await client.advance(3600)
        await client.crash()
        await client.advance(3600)

        assert client.callbacks.attempts == attempts
        assert texts(subscription) == []
        assert len(feed.followed_from) == 1
        assert "subscription ended" in caplog.text


@pytest.mark.parametrize("status", [None, 503])
async def test_a_subscription_that_nobody_could_be_told_of_for_days_ends_silently_and_makes_room(
    tools: Toolset, feed: Feed, status: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """semantics 18"""
    caplog.set_level(logging.INFO)
    tools.limits = Limits(subscriptions=1)
    async with testing.serve(tools) as client:
        subscription = await client.subscribe("follow")
        await client.settled()
        if status is None:
            client.callbacks.down()
        else:
            client.callbacks.fail(1000, status)
        feed.add("rain", "wind")
        await client.advance(2 * DAY)
        assert feed.following == 1
        await client.advance(2 * DAY)
        await until(lambda: feed.following == 0)
        attempts = client.callbacks.attempts
        client.callbacks.up()
        feed.add("snow")
        await client.advance(DAY)

        assert client.callbacks.attempts == attempts
        assert texts(subscription) == []
        assert "subscription ended: nobody listens any more" in caplog.text
        again = await client.subscribe("follow")
        await client.settled()
        assert texts(again) == ["rain", "wind", "snow"]


async def test_the_rest_of_the_lane_is_dropped_when_nobody_listens(tools: Toolset, feed: Feed) -> None:
    """semantics 18"""
    async with testing.serve(tools) as client:
        await client.subscribe("follow")
        client.callbacks.hang()
        feed.add(*NUMBERS)
        await client.settled()
        attempts = client.callbacks.attempts
        client.callbacks.up()
        client.callbacks.fail(1, 410)
        await client.advance(60)

        assert client.callbacks.attempts == attempts
        assert feed.following == 0


async def test_one_404_loses_that_event_and_not_the_subscription(tools: Toolset, feed: Feed) -> None:
    """Item 9, semantics 18: it is not retried, and what follows still arrives."""
    async with testing.serve(tools) as client:
        subscription = await client.subscribe("follow")
        await client.settled()
        client.callbacks.fail(1, 404)
        feed.add("rain", "wind")
        await client.advance(3600)
        client.callbacks.fail(1, 404)
        feed.add("snow", "hail")
        await client.advance(3600)

        assert texts(subscription) == ["wind", "hail"]
        assert feed.following == 1


async def test_events_a_minute_apart_that_are_all_answered_404_end_the_subscription(
    tools: Toolset, feed: Feed, caplog: pytest.LogCaptureFixture
) -> None:
    """Item 9, semantics 18: through a crash in between."""
    caplog.set_level(logging.INFO)
    async with testing.serve(tools) as client:
        subscription = await client.subscribe("follow")
        await client.settled()
        client.callbacks.fail(10, 404)
        feed.add("rain", "wind")
        await client.advance(30)
        feed.add("snow")
        await client.advance(29)
        assert feed.following == 1
        await client.crash()
        await client.advance(10)
        await until(lambda: feed.following == 1)
        feed.add("hail")
        await client.settled()
        await until(lambda: feed.following == 0)
        client.callbacks.up()
        feed.add("sun")
        await client.advance(3600)

        assert texts(subscription) == []
        assert "subscription ended" in caplog.text


async def test_an_event_that_arrives_ends_the_doubt_that_a_404_has_raised(tools: Toolset, feed: Feed) -> None:
    """Item 9, semantics 18: through a crash in between, too."""
    async with testing.serve(tools) as client:
        subscription = await client.subscribe("follow")
        for text in ("rain", "snow"):
            await client.settled()
            client.callbacks.fail(1, 404)
            feed.add(text)
            await client.advance(61)
            feed.add(f"more {text}")
            await client.crash()
            await client.advance(61)

        assert texts(subscription) == ["more rain", "more snow"]
        assert feed.following == 1


async def test_a_confirmation_that_is_answered_404_does_not_end_the_subscription(tools: Toolset, feed: Feed) -> None:
    """Item 9, semantics 18"""
    async with testing.serve(tools) as client:
        client.callbacks.fail(2, 404)
        await client.start("follow")
        await client.advance(10)
        assert client.callbacks.attempts == 1
        feed.add("rain")
        await client.advance(10)
        assert (client.callbacks.attempts, feed.following) == (2, 1)
        await client.advance(60)
        client.callbacks.fail(1, 404)
        feed.add("snow")
        await client.advance(1)
        assert (client.callbacks.attempts, feed.following) == (3, 0)


async def test_a_refused_event_is_only_that(tools: Toolset, feed: Feed) -> None:
    """CB-4: other refusals do not end a subscription."""
    async with testing.serve(tools) as client:
        subscription = await client.subscribe("follow")
        await client.settled()
        client.callbacks.fail(1, 400)
        feed.add("rain", "wind")
        await client.settled()

        assert texts(subscription) == ["wind"]


async def test_a_crash_at_any_step_does_not_wake_a_subscription_nobody_listens_to(
    toolset: Callable[..., Toolset],
) -> None:
    """semantics 18"""
    steps = 0
    while True:
        feed = Feed()
        tools = following(toolset(), feed)
        async with testing.serve(tools) as client:
            subscription = await client.subscribe("follow")
            await client.settled()
            client.callbacks.fail(1, 410)
            feed.add("rain", "snow")
            client.crash_after(steps)
            await client.settled()
            lost = client.lost
            await client.crash()
            await client.advance(600)
            feed.add("wind")
            await client.advance(600)

            # If the server was lost before it wrote the answer down, it has asked again, and was answered otherwise.
            ended: tuple[list[str], int] = ([], 0)
            went_on = (["rain", "snow", "wind"], 1)
            assert (texts(subscription), feed.following) in (ended, went_on), f"lost after {steps} steps"
        if not lost:
            break
        steps += 1
    assert steps > 3


# Pace


async def test_a_generator_faster_than_its_rate_is_slowed_down_without_a_word(
    toolset: Callable[..., Toolset], caplog: pytest.LogCaptureFixture
) -> None:
    """SUB-8: what it would say is not piled up."""
    tools = toolset()
    said = 0

    @tools.subscription(rate=8)
    async def chatter() -> AsyncIterator[str]:
        """Say much."""
        nonlocal said
        for number in range(400):
            said = number + 1
            yield str(number)

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("chatter")
        for _ in range(60):
            await client.advance(1)
            assert said <= len(subscription.events) + 102

        assert texts(subscription) == [*map(str, range(400)), "The subscription has ended."]
        assert "paused" not in caplog.text


async def test_events_past_the_rate_are_delayed_and_none_is_lost(toolset: Callable[..., Toolset]) -> None:
    """SUB-8"""
    tools = toolset()

    @tools.subscription
    async def burst() -> AsyncIterator[str]:
        """Say much."""
        for number in range(40):
            yield str(number)

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("burst")
        await client.settled()
        assert len(subscription.events) == 20
        await client.advance(1.05)
        assert len(subscription.events) == 30
        await client.crash()
        await client.advance(1.15)
        assert texts(subscription) == [*map(str, range(40)), "The subscription has ended."]


async def test_with_batch_what_would_wait_is_put_together(toolset: Callable[..., Toolset], feed: Feed) -> None:
    """SUB-8"""
    tools = toolset()

    @tools.subscription(rate=0.5, batch=True)
    async def follow(ctx: Context) -> AsyncIterator[Event]:
        """Follow."""
        async for number, text in feed.after(ctx.cursor):
            yield Event(text, cursor=number)

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("follow")
        feed.add("1", "2", "3")
        await client.settled()
        assert texts(subscription) == ["1"]
        await client.advance(1)
        feed.add("4")
        await client.crash()
        await client.advance(1)
        assert texts(subscription) == ["1", "2\n3\n4"]
        feed.add("5")
        await client.restart()
        await client.advance(2)
        assert texts(subscription) == ["1", "2\n3\n4", "5"]


async def test_a_batch_is_not_kept_waiting_by_a_generator_that_fails(toolset: Callable[..., Toolset]) -> None:
    """SUB-8"""
    tools = toolset()

    @tools.subscription(rate=0.5, batch=True)
    async def shaky(ctx: Context) -> AsyncIterator[Event]:
        """Fail."""
        if ctx.cursor is None:
            for number in NUMBERS:
                yield Event(number, cursor=number)
        raise RuntimeError

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("shaky")
        await client.advance(2)

        assert texts(subscription) == ["1", "\n".join(NUMBERS[1:])]


async def test_a_server_that_sees_that_nobody_listens_ends_what_another_runs(
    toolset: Callable[..., Toolset], feed: Feed, sink: Sink
) -> None:
    """semantics 18"""
    both = following(toolset(), feed), following(toolset(), feed)

    async with serving(both[0]) as one, serving(both[1]):
        for number in range(6):
            await one.invoke(invocation(sink.url, "follow", id=f"c{number}"))
        await sink.received(6)
        await until(lambda: feed.following == 6)
        sink.otherwise = answer(410)
        feed.add("rain")
        await until(lambda: feed.following == 0)
        feed.add("snow")
        await one.quiet()

        assert sum(post.message.get("text") == "rain" for post in sink.posts) == 6
        assert not any(post.message.get("text") == "snow" for post in sink.posts)
