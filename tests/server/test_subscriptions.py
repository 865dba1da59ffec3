"""Subscriptions whose events come from a generator."""

import asyncio
import contextlib
import functools
import itertools
import json
import logging
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from rapkit import Context, Event, ToolError, Toolset, testing
from rapkit.errors import StoreError
from rapkit.mailbox import Claim, Commit, Outcome, Settlement, Taken
from rapkit.server import subscriptions
from rapkit.stores.sqlite import SqliteStore
from rapkit.testing import Subscription
from tests.server.feeds import Feed, Tap
from tests.server.served import failing, invocation, serving, until
from tests.server.sink import Sink, answer

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


async def test_a_post_in_flight_is_stopped_before_the_cancellation_is_acknowledged(tools: Toolset, feed: Feed) -> None:
    """SUB-5"""
    async with testing.serve(tools) as client:
        subscription = await client.subscribe("follow")
        client.callbacks.hang()
        before = client.callbacks.attempts
        feed.add("rain", "wind")
        await client.settled()
        assert client.callbacks.attempts == before + 1
        await subscription.cancel()
        client.callbacks.up()
        await client.advance(3600)

        assert texts(subscription) == []
        assert client.callbacks.attempts == before + 1


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

        async def falter() -> None:
            while True:
                client.callbacks.hang()
                await dawdle(dice.randrange(12))
                client.callbacks.up()
                await dawdle(dice.randrange(12))

        faltering = asyncio.create_task(falter())
        for _ in range(20):
            await asyncio.gather(*(race() for _ in range(10)))
        faltering.cancel()
        client.callbacks.up()
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


async def test_a_generator_that_fails_is_started_again_with_patience(
    toolset: Callable[..., Toolset], caplog: pytest.LogCaptureFixture
) -> None:
    """semantics 25"""
    tools = toolset()
    started: list[tuple[float, str | None]] = []
    broken = True

    @tools.subscription
    async def shaky(ctx: Context) -> AsyncIterator[Event]:
        """Fail."""
        started.append((client.clock.now(), ctx.cursor))
        if ctx.cursor is None:
            yield Event("a", cursor="1")
        if broken:
            raise RuntimeError("the secret password")
        yield Event("b", cursor="2")

    async with testing.serve(tools) as client:
        begin = client.clock.now()
        subscription = await client.subscribe("shaky")
        await client.advance(1500)
        pauses = [round(later - sooner) for (sooner, _), (later, _) in itertools.pairwise(started)]
        assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
        assert {cursor for at, cursor in started if at > begin} == {"1"}
        assert texts(subscription) == ["a"]

        broken = False
        await client.advance(300)
        assert texts(subscription) == ["a", "b", "The subscription has ended."]
        assert "failed and is started again in 256 s" in caplog.text
        assert "the secret password" in caplog.text


async def test_an_event_or_a_quiet_minute_makes_up_for_failures(toolset: Callable[..., Toolset]) -> None:
    """semantics 25"""
    tools = toolset()
    started: list[float] = []

    @tools.subscription
    async def shaky(ctx: Context) -> AsyncIterator[str | None]:
        """Fail."""
        started.append(client.clock.now())
        if len(started) == 4:
            yield "news"
        if len(started) == 7:
            await ctx.sleep(61)
        raise RuntimeError

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("shaky")
        await client.advance(80)

        pauses = [round(later - sooner) for sooner, later in itertools.pairwise(started)]
        assert pauses[:8] == [1, 2, 4, 1, 2, 4, 62, 2]
        assert texts(subscription) == ["news"]


@pytest.mark.parametrize(
    "error", [KeyError("x"), SystemExit(3), asyncio.CancelledError(), KeyboardInterrupt(), StopIteration()]
)
async def test_whatever_a_generator_raises_only_it_is_started_again(
    toolset: Callable[..., Toolset], error: BaseException
) -> None:
    tools = toolset()
    runs: list[str] = []

    @tools.subscription
    async def shaky() -> AsyncIterator[str]:
        """Fail once."""
        runs.append("shaky")
        if len(runs) == 1:
            raise error
        yield "fine"

    @tools.subscription
    def plain() -> Iterator[str]:
        """Fail once."""
        runs.append("plain")
        if runs.count("plain") == 1:
            raise error
        yield "fine"

    async with testing.serve(tools) as client:
        for name in ("shaky", "plain"):
            subscription = await client.subscribe(name)
            await until(lambda name=name: name in runs)  # type: ignore[misc]
            while not subscription.events:
                await client.advance(1)

            assert texts(subscription)[0] == "fine"


async def test_a_generator_that_takes_the_server_down_is_not_let_at_it_again_at_once(
    toolset: Callable[..., Toolset], caplog: pytest.LogCaptureFixture
) -> None:
    """SUB-6: it is delayed and never given up."""
    tools = toolset()
    started: list[float] = []

    @tools.subscription
    async def deadly() -> AsyncIterator[str]:
        """Stay."""
        started.append(client.clock.now())
        await asyncio.Event().wait()
        yield "never"

    async with testing.serve(tools) as client:
        caplog.set_level(logging.INFO)
        await client.subscribe("deadly")
        for crashes in range(1, 12):
            await client.settled()
            assert len(started) == crashes
            await client.crash()
            await client.advance(0.5)
            if crashes > 3:
                assert len(started) == crashes, "it was not delayed"
                assert f"was lost with the server {crashes} times" in caplog.text
            await client.advance(2 ** max(0, crashes - 4))
        assert len(started) == 12

        await client.settled()
        await client.advance(61)
        await client.crash()
        await client.settled()
        assert len(started) == 13, "after a quiet minute it is started at once again"


async def test_crashes_of_the_server_are_no_fault_of_a_subscription_that_gets_on(tools: Toolset, feed: Feed) -> None:
    """SUB-6"""
    async with testing.serve(tools) as client:
        subscription = await client.subscribe("follow")
        for number in NUMBERS:
            feed.add(number)
            await client.settled()
            await client.crash()
        await client.settled()

        assert texts(subscription) == NUMBERS
        assert len(feed.followed_from) == len(NUMBERS) + 1


async def test_a_subscription_waits_for_its_function_to_come_back(
    toolset: Callable[..., Toolset], tools: Toolset, feed: Feed
) -> None:
    """SUB-6: a version of the server that does not have it is no reason to lose it."""
    async with testing.serve(tools) as client:
        subscription = await client.subscribe("follow")
        await client.settled()
        (function,) = dict(tools.tools).values()
        mapping: Any = tools.tools
        mapping.clear()
        tools.tool(name="other")(lambda: "x")
        await client.restart()
        feed.add("rain")
        await client.advance(3600)
        assert texts(subscription) == []

        mapping["follow"] = function
        await client.advance(60)
        assert texts(subscription) == ["rain"]

        del mapping["follow"]
        await client.restart()
        await client.advance(25 * 3600)
        assert texts(subscription) == ["rain", "Error: the server has no subscription follow any more."]
        assert subscription.ended


@pytest.mark.parametrize("seed", range(5))
async def test_a_store_that_fails_and_may_have_written_makes_neither_gap_nor_repetition(
    toolset: Callable[..., Toolset], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """SUB-6: what becomes of an event is open then, so the generator starts anew from the cursor that is stored."""
    dice = random.Random(seed)
    commit = SqliteStore.commit
    failures = 0

    async def fail_at_times(store: SqliteStore, claim: Claim, what: Commit, sender: str | None = None) -> list[Taken]:
        nonlocal failures
        an_event = claim.box.kind.startswith("subscription/") and what.state is not None
        if an_event and dice.random() < 0.2:
            failures += 1
            raise StoreError("the disk was full")
        taken = await commit(store, claim, what, sender)
        if an_event and dice.random() < 0.2:
            failures += 1
            # They are not handed to anybody, so that they wait for the end of a lease that has none here.
            for one in taken:
                await store.settle(one, Settlement(Outcome.RETRY))
            raise StoreError("the disk did not answer")
        return taken

    monkeypatch.setattr(SqliteStore, "commit", fail_at_times)
    tools = toolset()

    @tools.subscription(rate=2, batch=dice.choice([True, False]))
    async def count(ctx: Context) -> AsyncIterator[Event]:
        """Count."""
        for number in range(int(ctx.cursor or 0), 30):
            await ctx.sleep(1 / 4)
            yield Event(str(number + 1), cursor=str(number + 1))

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("count")
        await client.advance(600)

        lines = [line for text in texts(subscription) for line in text.split("\n")]
        assert lines == [*(str(number + 1) for number in range(30)), "The subscription has ended."]
    assert failures > 3


# When events do not get through


async def test_a_generator_is_paused_while_its_events_do_not_get_through(tools: Toolset, feed: Feed) -> None:
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


async def test_what_is_shown_comes_before_the_final_event(toolset: Callable[..., Toolset]) -> None:
    """SUB-4"""
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

        assert [message.type for message in client.messages[1:]] == [
            "subscription_event",
            "view_update",
            "subscription_event",
        ]


@pytest.mark.parametrize("status", [404, 410])
async def test_a_subscription_nobody_listens_to_ends_silently(
    tools: Toolset, feed: Feed, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """semantics 18"""
    caplog.set_level(logging.INFO)
    async with testing.serve(tools) as client:
        subscription = await client.subscribe("follow")
        await client.settled()
        client.callbacks.fail(1, status)
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


async def test_the_rest_of_the_lane_is_dropped_when_nobody_listens(tools: Toolset, feed: Feed) -> None:
    """semantics 18"""
    async with testing.serve(tools) as client:
        await client.subscribe("follow")
        client.callbacks.hang()
        feed.add(*NUMBERS)
        await client.settled()
        attempts = client.callbacks.attempts
        client.callbacks.up()
        client.callbacks.fail(1, 404)
        await client.advance(60)

        assert client.callbacks.attempts == attempts
        assert feed.following == 0


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
        tools, feed = toolset(), Feed()

        @tools.subscription
        async def follow(ctx: Context) -> AsyncIterator[Event]:
            """Follow."""
            async for number, text in feed.after(ctx.cursor):  # noqa: B023 - it runs in this round of the loop
                yield Event(text, cursor=number)

        async with testing.serve(tools) as client:
            subscription = await client.subscribe("follow")
            await client.settled()
            client.callbacks.fail(10, 410)
            feed.add("rain", "snow")
            client.crash_after(steps)
            await client.settled()
            lost = client.lost
            await client.crash()
            await client.advance(3600)
            attempts = client.callbacks.attempts
            feed.add("wind")
            await client.advance(3600)

            assert feed.following == 0, f"lost after {steps} steps"
            assert client.callbacks.attempts == attempts
            assert texts(subscription) == []
        if not lost:
            break
        steps += 1
    assert steps > 3


# Pace


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


# What a generator has at hand


async def test_the_context_of_a_subscription(toolset: Callable[..., Toolset]) -> None:
    tools = toolset()
    seen: dict[str, Any] = {}

    @tools.subscription
    async def work(ctx: Context) -> AsyncIterator[Event]:
        """Work."""
        seen["ids"] = (ctx.user_id, ctx.thread_id, ctx.call_id, ctx.cursor)
        ctx.state["events"] = 1
        (ctx.workspace() / "log.txt").write_text("begun")
        yield Event("a", cursor="1")
        seen["cursor"] = ctx.cursor
        await ctx.progress(1, 2)
        await ctx.sleep(1)
        done = await ctx.run(["echo", "hello"])
        yield Event(done.stdout.strip())
        assert ctx.cursor == "1"
        ctx.state["events"] = 3
        with pytest.raises(ToolError, match="cannot ask the user"):
            await ctx.choose("Really?", ["Yes", "No"])

    @tools.tool
    async def state(ctx: Context) -> dict[str, Any]:
        """Look."""
        return {**ctx.state, "file": (ctx.workspace() / "log.txt").read_text()}

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("work")
        await client.settled()
        assert seen == {"ids": ("user_1", "thread_1", "call_1", None), "cursor": "1"}
        assert (await client.call("state")).text == '{"events":1,"file":"begun"}'
        await client.advance(1)
        assert (await subscription.event()).text == "a"
        assert (await subscription.event()).text == "hello"
        await subscription.event()

        assert client.views["progress"] == {"call_id": "call_1", "operation": "work", "done": 1, "total": 2}
        assert (await client.call("state")).text == '{"events":3,"file":"begun"}'


async def test_state_that_cannot_be_kept_ends_the_subscription_or_has_it_started_again(
    toolset: Callable[..., Toolset], caplog: pytest.LogCaptureFixture
) -> None:
    tools = toolset()

    @tools.subscription
    async def work(ctx: Context) -> AsyncIterator[str]:
        """Work."""
        ctx.state["list"] = []
        ctx.state["list"].append(object())
        yield "a"

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("work")
        await client.advance(1)

        assert texts(subscription) == []
        assert "cannot be kept" in caplog.text


async def test_timeouts_and_groups_may_be_open_across_a_yield(toolset: Callable[..., Toolset]) -> None:
    """They belong to the task they were opened in, so a generator has one of its own."""
    tools = toolset()
    fired = asyncio.Event()

    async def fail_soon() -> None:
        await fired.wait()
        raise ToolError("the line is dead.")

    @tools.subscription
    async def watch() -> AsyncIterator[str]:
        """Watch."""
        try:
            async with asyncio.timeout(0.01):
                yield "a"
                await asyncio.sleep(5)
        except TimeoutError:
            yield "b"
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail_soon())
                fired.set()
                for _ in range(1000):
                    yield "c"
        except* ToolError:
            pass
        yield "d"

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("watch")
        assert (await subscription.event()).text == "a"
        assert (await subscription.event()).text == "b"
        while not subscription.ended:
            await client.advance(1)

        assert texts(subscription)[-2:] == ["d", "The subscription has ended."]


async def test_a_generator_behind_a_decorator_is_one(toolset: Callable[..., Toolset]) -> None:
    tools = toolset()

    def loud(function: Callable[..., AsyncIterator[str]]) -> Callable[..., AsyncIterator[str]]:
        @functools.wraps(function)
        async def louder(*args: Any, **kwargs: Any) -> AsyncIterator[str]:
            async for text in function(*args, **kwargs):
                yield text.upper()

        return louder

    @tools.subscription
    @loud
    async def talk(word: str) -> AsyncIterator[str]:
        """Talk."""
        yield word

    async with testing.serve(tools) as client:
        assert await all_of(await client.subscribe("talk", word="hi")) == ["HI", "The subscription has ended."]


# Generators that do not want to end


async def test_a_generator_that_ignores_its_cancellation_is_not_heard_again(
    toolset: Callable[..., Toolset], caplog: pytest.LogCaptureFixture
) -> None:
    """SUB-5"""
    tools = toolset()
    release, stubborn = asyncio.Event(), asyncio.Event()

    @tools.subscription
    async def nag() -> AsyncIterator[str]:
        """Nag."""
        yield "a"
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()
                return
            stubborn.set()

    async with testing.serve(tools) as client:
        caplog.set_level(logging.INFO)
        subscription = await client.subscribe("nag")
        await client.settled()
        await subscription.cancel()
        await asyncio.wait_for(stubborn.wait(), 5)
        await client.advance(60)
        assert texts(subscription) == ["a"]
        release.set()


@pytest.mark.parametrize("way", ["yields", "raises", "hangs"])
async def test_a_generator_that_does_not_end_well_does_not_keep_the_server_from_stopping(
    toolset: Callable[..., Toolset], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SUB-6: and it goes on after the restart."""
    monkeypatch.setattr("rapkit.server.generating._PATIENCE_WITH_CLOSED", 0.05)
    tools = toolset()
    release = asyncio.Event()

    @tools.subscription
    async def nag(ctx: Context) -> AsyncIterator[Event]:
        """Nag."""
        try:
            if ctx.cursor is None:
                yield Event("a", cursor="1")
            else:
                yield Event("b", final=True)
            await asyncio.Event().wait()
        finally:
            if ctx.cursor == "1" and not release.is_set():
                if way == "yields":
                    yield Event("late")
                elif way == "raises":
                    raise RuntimeError("no")
                else:
                    with contextlib.suppress(asyncio.CancelledError):
                        await release.wait()

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("nag")
        await client.settled()
        await client.restart()
        release.set()
        await client.settled()

        assert texts(subscription) == ["a", "b"]


# On real sockets and files


async def test_callback_urls_are_sealed_in_the_store_and_absent_from_logs(
    tools: Toolset, feed: Feed, sink: Sink, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SUB-9, SUB-3, SUB-5"""
    caplog.set_level(logging.DEBUG)
    secret = "hidden-7f3a9c"
    feed.add("rain")

    @tools.subscription
    async def shaky() -> AsyncIterator[str]:
        """Fail."""
        yield "a"
        raise RuntimeError

    async with serving(tools) as server:
        for number, operation in enumerate(("follow", "shaky")):
            await server.invoke(invocation(f"{sink.url}/cb/{secret}?t={secret}", operation, id=f"c{number}"))
        await sink.received(4)
        sink.otherwise = answer(503)
        feed.add("wind")
        await sink.received(5)
        written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        await server.cancel("thread_1", "c0")
        sink.otherwise = answer(410)
        await server.cancel("thread_1", "c1")
        await until(lambda: caplog.text.count("ended: it was cancelled") == 2)

    assert len(written) > 10_000
    for told in (written, *(path.read_bytes() for path in tmp_path.iterdir())):
        assert secret.encode() not in told
        assert b"rain" not in told
    assert secret not in caplog.text
    assert "is started again" in caplog.text
    assert all(post.target == f"/cb/{secret}?t={secret}" for post in sink.posts)


async def test_nothing_is_left_of_subscriptions_that_are_over(
    toolset: Callable[..., Toolset], feed: Feed, sink: Sink
) -> None:
    tools = toolset()

    @tools.subscription
    async def brief() -> AsyncIterator[str]:
        """End at once."""
        yield "a"

    @tools.subscription(topic="news")
    async def news(payload: str) -> Event:
        """Tell me."""
        return Event(payload, final=payload == "end")

    async with serving(tools) as server:
        await server.invoke(invocation(sink.url, "brief"))
        for id in ("c1", "c2", "c3"):
            await server.invoke(invocation(sink.url, "news", id=id))
        await sink.received(6)
        await server.cancel("thread_1", "c1")
        sink.script = [answer(404)]
        await tools.emit("news", "a")
        await sink.received(8)
        await tools.emit("news", "end")
        await sink.received(9)

        def left() -> list[tuple[str, str]]:
            with contextlib.closing(apsw.Connection(tools.store_url.removeprefix("sqlite:///"))) as db:
                db.set_busy_timeout(5000)
                boxes = db.execute("SELECT 'box', kind FROM boxes").fetchall()
                return [
                    *boxes,
                    *db.execute("SELECT 'record', kind FROM records"),
                    *db.execute("SELECT 'post', lane FROM outbox WHERE dead_at IS NULL"),
                ]

        await until(lambda: left() == [("box", "topic/tools")])


async def test_events_continue_the_trace_of_their_call(tools: Toolset, feed: Feed, sink: Sink) -> None:
    feed.add("rain")
    trace = "0af7651916cd43dd8448eb211c80319c"
    body = json.dumps(invocation(sink.url, "follow", id="c1")).encode()
    async with serving(tools) as server:
        await server.request("POST", "/invoke", body, {"traceparent": f"00-{trace}-b7ad6b7169203331-01"})
        posts = await sink.received(2)

        assert [post.headers["traceparent"].split("-")[1] for post in posts] == [trace, trace]
        await server.cancel("thread_1", "c1")


async def test_a_disk_that_fails_delays_an_event_and_loses_none(tools: Toolset, feed: Feed, sink: Sink) -> None:
    """SUB-6"""
    async with serving(tools) as server:
        await server.invoke(invocation(sink.url, "follow", id="c1"))
        await sink.received(1)
        await until(lambda: feed.following == 1)
        with failing(tools.store_url, "INSERT", "outbox"):
            feed.add("rain")
            await until(lambda: len(feed.followed_from) >= 2)
        posts = await sink.received(2)

        assert [post.text for post in posts[1:]] == ["rain"]
        await server.cancel("thread_1", "c1")


async def test_servers_that_share_a_store_run_a_subscription_once_and_any_can_cancel_it(
    toolset: Callable[..., Toolset], sink: Sink
) -> None:
    """SUB-5, SUB-6"""
    feed = Feed()
    both = toolset(), toolset()
    for tools in both:

        @tools.subscription
        async def follow(ctx: Context) -> AsyncIterator[Event]:
            """Follow."""
            async for number, text in feed.after(ctx.cursor):
                yield Event(text, cursor=number)

    async with serving(both[0]) as one:
        async with serving(both[1]) as other:
            for number in range(8):
                await (one, other)[number % 2].invoke(invocation(sink.url, "follow", id=f"c{number}"))
            await sink.received(8)
            await until(lambda: feed.following == 8)
            feed.add("rain")
            await sink.received(16)
            assert feed.following == 8
        await until(lambda: feed.following == 8)
        feed.add("wind")
        posts = await sink.received(24)
        events = [(post.message["tool_call_id"], post.text) for post in posts if "tool_call_id" in post.message]
        assert sorted(events) == sorted((f"c{number}", text) for number in range(8) for text in ("rain", "wind"))

        async with serving(both[1]) as other:
            for number in range(8):
                assert (await other.cancel("thread_1", f"c{number}")).status == 200
            feed.add("snow")
            await until(lambda: feed.following == 0)
        await one.quiet()
        assert len(sink.posts) == 24


async def test_a_server_that_sees_that_nobody_listens_ends_what_another_runs(
    toolset: Callable[..., Toolset], sink: Sink
) -> None:
    """semantics 18"""
    feed = Feed()
    both = toolset(), toolset()
    for tools in both:

        @tools.subscription
        async def follow(ctx: Context) -> AsyncIterator[Event]:
            """Follow."""
            async for number, text in feed.after(ctx.cursor):
                yield Event(text, cursor=number)

    async with serving(both[0]) as one, serving(both[1]):
        for number in range(6):
            await one.invoke(invocation(sink.url, "follow", id=f"c{number}"))
        await sink.received(6)
        await until(lambda: feed.following == 6)
        sink.otherwise = answer(404)
        feed.add("rain")
        await until(lambda: feed.following == 0)
        feed.add("snow")
        await one.quiet()

        assert sum(post.message.get("text") == "rain" for post in sink.posts) == 6
        assert not any(post.message.get("text") == "snow" for post in sink.posts)
