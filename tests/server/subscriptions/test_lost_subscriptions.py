"""Subscriptions go on: after crashes and restarts, when their generator or the store fails, on several servers."""

import asyncio
import itertools
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import pytest

from rapkit import Context, Event, Toolset, testing
from rapkit.errors import StoreError
from rapkit.mailbox import Claim, Commit, Outcome, Settlement, TakenPost
from rapkit.stores.sqlite import SqliteStore
from tests.server.feeds import Feed, following, texts, without_failures
from tests.server.served_toolset import failing, invocation, serving, until
from tests.server.sink import Sink

NUMBERS = [str(number) for number in range(1, 8)]


@pytest.fixture
def feed() -> Feed:
    return Feed()


@pytest.fixture
def tools(toolset: Callable[..., Toolset], feed: Feed) -> Toolset:
    return following(toolset(), feed)


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
        assert without_failures(subscription) == ["a"]

        broken = False
        await client.advance(300)
        assert without_failures(subscription) == ["a", "b", "The subscription has ended."]
        assert "failed and is started again in 256 s" in caplog.text
        assert "the secret password" in caplog.text


async def test_a_new_cursor_or_a_quiet_minute_makes_up_for_failures(toolset: Callable[..., Toolset]) -> None:
    """semantics 25"""
    tools = toolset()
    started: list[float] = []

    @tools.subscription
    async def shaky(ctx: Context) -> AsyncIterator[Event]:
        """Fail."""
        started.append(client.clock.now())
        if len(started) == 1:
            await ctx.checkpoint("0")
        if len(started) == 4:
            yield Event("news", cursor="1")
        if len(started) == 7:
            await ctx.sleep(61)
        raise RuntimeError

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("shaky")
        await client.advance(80)

        pauses = [round(later - sooner) for sooner, later in itertools.pairwise(started)]
        assert pauses[:8] == [1, 2, 4, 1, 2, 4, 62, 2]
        assert without_failures(subscription) == ["news"]


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
            yield "begun"
            raise error
        yield "fine"

    @tools.subscription
    def plain() -> Iterator[str]:
        """Fail once."""
        runs.append("plain")
        if runs.count("plain") == 1:
            yield "begun"
            raise error
        yield "fine"

    async with testing.serve(tools) as client:
        for name in ("shaky", "plain"):
            subscription = await client.subscribe(name)
            await until(lambda name=name: name in runs)  # type: ignore[misc]
            while "fine" not in texts(subscription):
                await client.advance(1)

            assert texts(subscription)[0] == "begun"


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


async def test_what_a_lost_server_left_running_for_a_subscription_is_looked_for(
    toolset: Callable[..., Toolset], monkeypatch: pytest.MonkeyPatch
) -> None:
    """semantics 28: however many events it has sent since. That it is found then, tests of `kill_leftovers` show."""
    sought: list[str] = []

    async def seek(tokens: Sequence[str]) -> None:
        sought.extend(tokens)

    monkeypatch.setattr("rapkit.server.services.kill_leftovers", seek)
    tools = toolset()

    @tools.subscription
    async def work(ctx: Context) -> AsyncIterator[str]:
        """Work."""
        async for line in ctx.run(["sh", "-c", "echo $RAPKIT_RUN; sleep 60"]):
            yield line

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("work")
        token = (await subscription.event()).text
        assert sought == []
        await client.crash()
        await client.settled()

        assert sought == [token]


@pytest.mark.parametrize("instead", ["nothing", "a tool", "a topic"])
async def test_a_subscription_waits_for_its_function_to_come_back(tools: Toolset, feed: Feed, instead: str) -> None:
    """SUB-6: a version of the server that does not have it is no reason to lose it."""
    async with testing.serve(tools) as client:
        subscription = await client.subscribe("follow")
        await client.settled()
        (function,) = dict(tools.tools).values()
        mapping: Any = tools.tools
        next_version = Toolset("next")
        next_version.tool(name="follow" if instead == "a tool" else "other")(lambda: "x")
        if instead == "a topic":
            next_version.subscription(name="follow", topic="x")(lambda payload: payload)
        mapping.clear()
        mapping.update(next_version.tools)
        await client.restart()
        feed.add("rain")
        await client.advance(600)
        assert texts(subscription) == []
        if instead != "nothing":
            return

        mapping["follow"] = function
        await client.advance(300)
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

    async def fail_at_times(
        store: SqliteStore, claim: Claim, what: Commit, sender: str | None = None
    ) -> list[TakenPost]:
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
        call = await client.start("count")
        await client.advance(600)
        subscription = await call.subscribed()

        lines = [line for text in texts(subscription) for line in text.split("\n")]
        assert lines == [*(str(number + 1) for number in range(30)), "The subscription has ended."]
    assert failures > 3


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
    toolset: Callable[..., Toolset], feed: Feed, sink: Sink
) -> None:
    """SUB-5, SUB-6"""
    both = following(toolset(), feed), following(toolset(), feed)

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


async def test_a_generator_that_tells_the_same_and_fails_every_time_is_started_ever_more_seldom() -> None:
    """Every event wakes an agent."""
    tools = Toolset("stuck")

    @tools.subscription
    async def stuck() -> AsyncIterator[str]:
        """Tell me."""
        yield "one"
        raise ValueError("two")

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("stuck")
        await client.advance(130)  # 1 + 2 + 4 + 8 + 16 + 32 + 64

        assert len(without_failures(subscription)) == 8
        await subscription.cancel()
