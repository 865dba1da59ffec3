"""Subscriptions whose events come from a generator."""

import asyncio
import contextlib
import logging
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from rapkit import Context, Event, Limits, ToolError, Toolset, testing
from rapkit.server import subscriptions
from rapkit.testing import Client, Subscription
from tests.server.feeds import Feed, Tap
from tests.server.served import until

NUMBERS = [str(number) for number in range(1, 8)]


@pytest.fixture
def feed() -> Feed:
    return Feed()


@pytest.fixture
def tools(toolset: Callable[..., Toolset], feed: Feed) -> Toolset:
    """A toolset with a subscription that follows the feed, and never ends by itself."""
    tools = toolset()

    @tools.subscription(rate=None)
    async def follow(ctx: Context) -> AsyncIterator[Event]:
        """Tell me what is new."""
        async for number, text in feed.after(ctx.cursor):
            yield Event(text, cursor=number)

    return tools


def texts(subscription: Subscription) -> list[str]:
    """What the events said that have come so far."""
    return [event.text for event in subscription.events]


async def all_of(subscription: Subscription) -> list[str]:
    """What all events say, up to the final one."""
    return [event.text async for event in subscription]


# From the confirmation to the end


async def test_a_subscription_is_confirmed_and_then_each_event_is_a_message(tools: Toolset, feed: Feed) -> None:
    """SUB-2, SUB-3"""
    feed.add("rain", "wind")
    async with testing.serve(tools) as client:
        subscription = await client.subscribe("follow")
        await client.settled()
        feed.add("snow")
        await client.settled()

        assert [message.model_dump(exclude_none=True) for message in client.messages] == [
            {
                "type": "tool_result",
                "group_id": "thread_1",
                "id": "call_1",
                "text": "Subscribed to follow. The id of the subscription is call_1.",
                "subscription": True,
            },
            *(
                {"type": "subscription_event", "group_id": "thread_1", "tool_call_id": "call_1", "text": text}
                for text in ("rain", "wind", "snow")
            ),
        ]
        assert not subscription.ended


async def test_a_generator_that_returns_ends_the_subscription(toolset: Callable[..., Toolset]) -> None:
    """SUB-4"""
    tools = toolset()

    @tools.subscription(associative=True)
    async def count(to: int) -> AsyncIterator[object]:
        """Count."""
        for number in range(1, to + 1):
            yield {"n": number}

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("count", to=2)
        events = [event async for event in subscription]

        assert [event.text for event in events] == ['{"n":1}', '{"n":2}', "The subscription has ended."]
        assert [event.final for event in events] == [False, False, True]
        assert all(event.associative for event in events)


async def test_a_final_event_is_the_last_whatever_the_generator_would_still_say(
    toolset: Callable[..., Toolset],
) -> None:
    """SUB-4"""
    tools = toolset()
    closed = asyncio.Event()

    @tools.subscription
    async def talk() -> AsyncIterator[object]:
        """Talk."""
        try:
            yield "a"
            yield [Event("b", associative=True), Event("end", final=True), "never"]
            yield "never"
        finally:
            closed.set()

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("talk")

        assert await all_of(subscription) == ["a", "b", "end"]
        assert [event.associative for event in subscription.events] == [False, True, False]
        await asyncio.wait_for(closed.wait(), 5)


async def test_a_tool_error_ends_the_subscription_with_its_text(toolset: Callable[..., Toolset]) -> None:
    """SUB-4"""
    tools = toolset()

    @tools.subscription
    async def watch() -> AsyncIterator[str]:
        """Watch."""
        yield "a"
        raise ToolError("the station is closed.")

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("watch")

        assert await all_of(subscription) == ["a", "Error: the station is closed."]


async def test_what_cannot_be_sent_ends_the_subscription_with_an_error(
    toolset: Callable[..., Toolset], caplog: pytest.LogCaptureFixture
) -> None:
    tools = toolset()

    @tools.subscription
    async def watch() -> AsyncIterator[bytes]:
        """Watch."""
        yield b"\xff"

    async with testing.serve(tools) as client:
        (text,) = await all_of(await client.subscribe("watch"))

        assert text.startswith("Error: the tool returned raw bytes")
        assert "sent what cannot be sent" in caplog.text


async def test_yielding_nothing_is_no_event(toolset: Callable[..., Toolset]) -> None:
    tools = toolset()

    @tools.subscription
    async def watch() -> AsyncIterator[str | None]:
        """Watch."""
        yield None
        yield "a"
        yield None

    async with testing.serve(tools) as client:
        assert await all_of(await client.subscribe("watch")) == ["a", "The subscription has ended."]


async def test_arguments_are_checked_before_anything_is_confirmed(toolset: Callable[..., Toolset]) -> None:
    """SUB-2"""
    tools = toolset()

    @tools.subscription
    async def watch(city: str) -> AsyncIterator[str]:
        """Watch."""
        yield city

    async with testing.serve(tools) as client:
        result = await client.call("watch", town="Oslo")

        assert result.text.startswith("Error: watch: these arguments do not fit")
        assert len(client.messages) == 1


async def test_there_is_an_end_to_how_many_generators_a_server_takes_on(
    tools: Toolset, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "_MOST", 2)
    async with testing.serve(tools) as client:
        await client.subscribe("follow")
        second = await client.subscribe("follow")
        await until(lambda: feed.following == 2)
        refused = await client.call("follow")
        assert refused.text == "Error: the server has 2 subscriptions already and takes no more. Try again later."

        await second.cancel()
        await until(lambda: feed.following == 1)
        await client.settled()
        await client.subscribe("follow")


async def test_a_plain_generator_is_one_too(toolset: Callable[..., Toolset]) -> None:
    """SUB-4, SUB-5"""
    tools = toolset()
    tap = Tap("a", "b", "c")
    threads: set[str] = set()

    @tools.subscription
    def drip(ctx: Context, stop: bool = True) -> Iterator[Event]:
        """Drip."""
        for number, text in tap.after(ctx.cursor):
            threads.add(threading.current_thread().name)
            yield Event(text, cursor=number)
            if stop and number == "2":
                return

    async with testing.serve(tools) as client:
        assert await all_of(await client.subscribe("drip")) == ["a", "b", "The subscription has ended."]
        assert threading.current_thread().name not in threads

        tap.ended.clear()
        subscription = await client.subscribe("drip", stop=False)
        assert [(await subscription.event()).text for _ in range(3)] == ["a", "b", "c"]
        await subscription.cancel()
        assert not tap.ended.is_set()
        tap.closed.set()
        await until(tap.ended.is_set)


# Cancelling


async def test_a_cancelled_subscription_is_silent_and_its_generator_stops(tools: Toolset, feed: Feed) -> None:
    """SUB-5, CAN-2, CAN-3"""
    feed.add("rain")
    async with testing.serve(tools) as client:
        subscription = await client.subscribe("follow")
        await subscription.event()
        await subscription.cancel()
        await until(lambda: feed.following == 0)
        feed.add("snow")
        await client.advance(3600)

        assert texts(subscription) == ["rain"]
        await client.crash()
        await client.advance(3600)
        assert texts(subscription) == ["rain"]
        assert len(feed.followed_from) == 1


async def test_a_cancellation_deletes_what_is_queued_even_behind_a_final_event(toolset: Callable[..., Toolset]) -> None:
    """SUB-5"""
    tools = toolset()

    @tools.subscription
    async def brief() -> AsyncIterator[str]:
        """Say two things."""
        yield "a"
        yield "b"

    async with testing.serve(tools) as client:
        call = await client.start("brief")
        client.callbacks.down()
        await client.settled()
        assert client.callbacks.attempts > 0
        await call.cancel()
        client.callbacks.up()
        await client.advance(7 * 24 * 3600)

        assert client.messages == []


async def test_closing_a_thread_ends_its_subscriptions_only(tools: Toolset, feed: Feed) -> None:
    """CLO-5, SUB-5"""
    async with testing.serve(tools) as client:
        other = client.as_(thread_id="thread_2")
        mine, theirs = await client.subscribe("follow"), await other.subscribe("follow")
        await until(lambda: feed.following == 2)
        await client.close_thread()
        feed.add("rain")
        await client.settled()

        assert (texts(mine), texts(theirs)) == ([], ["rain"])
        assert feed.following == 1


async def test_nobody_ends_another_caller_s_subscription(toolset: Callable[..., Toolset], feed: Feed) -> None:
    """CLO-7"""
    tools = toolset(tokens={"ann": "a" * 32, "bob": "b" * 32})

    @tools.subscription
    async def follow() -> AsyncIterator[str]:
        """Follow."""
        async for _, text in feed.after(None):
            yield text

    async with testing.serve(tools, caller="ann") as client:
        subscription = await client.subscribe("follow")
        await client.as_(caller="bob").close_thread()
        feed.add("rain")

        assert (await subscription.event()).text == "rain"


@pytest.mark.parametrize("seed", range(4))
async def test_events_and_cancellations_race_and_nothing_comes_after_a_cancellation(
    toolset: Callable[..., Toolset], seed: int
) -> None:
    """SUB-5: many random interleavings; the client objects to whatever comes after its cancellation was acknowledged."""
    tools = toolset()
    dice = random.Random(seed)

    async def dawdle(turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)

    @tools.subscription(rate=None)
    async def chatter() -> AsyncIterator[Event]:
        """Chatter."""
        for number in range(dice.randrange(1, 8)):
            await dawdle(dice.randrange(12))
            yield Event(str(number))
        if dice.random() < 0.3:
            yield Event("end", final=True)
        await asyncio.Event().wait()

    async with testing.serve(tools) as client:

        async def race() -> None:
            call = await client.start("chatter")
            await dawdle(dice.randrange(60))
            await call.cancel()

        for _ in range(20):
            await asyncio.gather(*(race() for _ in range(10)))
        await client.settled()
        sent = len(client.messages)
        await client.advance(60)
        assert len(client.messages) == sent


# Crashes and restarts


async def test_a_subscription_goes_on_after_a_restart(tools: Toolset, feed: Feed) -> None:
    """SUB-6, SUB-1"""
    feed.add("1", "2")
    async with testing.serve(tools) as client:
        subscription = await client.subscribe("follow")
        await client.settled()
        await client.restart()
        feed.add("3")
        await client.settled()
        await client.crash()
        feed.add("4")
        await client.settled()

        assert texts(subscription) == ["1", "2", "3", "4"]
        assert feed.followed_from == [None, "2", "3"]


async def test_a_crash_at_any_step_makes_neither_gap_nor_repetition(toolset: Callable[..., Toolset]) -> None:
    """SUB-6, SUB-1, SUB-4: for the author who gives cursors."""
    steps = 0
    while True:
        tools = toolset()

        @tools.subscription
        async def count(ctx: Context) -> AsyncIterator[Event]:
            """Count."""
            for number in range(int(ctx.cursor or 0), 3):
                yield Event(NUMBERS[number], cursor=NUMBERS[number])

        async with testing.serve(tools) as client:
            call = await client.start("count")
            client.crash_after(steps)
            await client.settled()
            lost = client.lost
            await client.crash()
            await client.advance(600)
            subscription = await call.subscribed()

            assert texts(subscription) == ["1", "2", "3", "The subscription has ended."], f"lost after {steps} steps"
        if not lost:
            break
        steps += 1
    assert steps > 5


async def test_crashes_in_a_row_at_random_make_neither_gap_nor_repetition(toolset: Callable[..., Toolset]) -> None:
    """SUB-6"""
    dice = random.Random(3)
    for _ in range(15):
        tools = toolset()

        @tools.subscription(rate=dice.choice([None, 2.0]), batch=dice.choice([True, False]))
        async def count(ctx: Context) -> AsyncIterator[Event]:
            """Count."""
            for number in range(int(ctx.cursor or 0), 30):
                await ctx.sleep(1 / 16)
                yield Event(str(number + 1), cursor=str(number + 1))

        async with testing.serve(tools) as client:
            call = await client.start("count")
            for _ in range(dice.randrange(2, 8)):
                client.crash_after(dice.randrange(40))
                await client.advance(dice.randrange(80) / 16)
                await client.crash()
            await client.advance(3600)
            subscription = await call.subscribed()

            lines = [line for text in texts(subscription) for line in text.split("\n")]
            assert lines == [str(number + 1) for number in range(30)] + ["The subscription has ended."]


async def test_without_cursors_a_generator_begins_anew(toolset: Callable[..., Toolset]) -> None:
    """SUB-6"""
    tools = toolset()

    @tools.subscription
    async def talk() -> AsyncIterator[str]:
        """Talk."""
        yield "a"
        await asyncio.Event().wait()

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("talk")
        await client.settled()
        await client.crash()
        await client.settled()

        assert texts(subscription) == ["a", "a"]
