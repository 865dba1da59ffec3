"""Subscriptions whose events come from a generator: from the confirmation to the end."""

import asyncio
import contextlib
import functools
import json
import logging
import queue
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from rapkit import Context, Event, Limits, ToolError, Toolset, testing
from rapkit.errors import StoreError
from rapkit.mailbox import Claim, Commit, TakenPost
from rapkit.stores.sqlite import SqliteStore
from tests.server.feeds import Feed, Tap, all_of, dawdle, following, texts, without_failures
from tests.server.served_toolset import invocation, serving, until
from tests.server.sink import Sink, answer

NUMBERS = [str(number) for number in range(1, 8)]


@pytest.fixture
def feed() -> Feed:
    return Feed()


@pytest.fixture
def tools(toolset: Callable[..., Toolset], feed: Feed) -> Toolset:
    return following(toolset(), feed)


# From the confirmation to the end


async def test_a_subscription_is_confirmed_and_then_each_event_is_a_message(tools: Toolset, feed: Feed) -> None:
    """SUB-2, SUB-3"""
    feed.add("rain", "wind")
    async with testing.serve(tools) as client:
        subscription = await client.subscribe("follow")
        await client.settled()
        feed.add("snow")
        await client.settled()

        assert [message.model_dump(exclude_none=True, exclude={"call_id"}) for message in client.messages] == [
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
        await asyncio.wait_for(closed.wait(), 60)


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
    async def watch() -> AsyncIterator[str | bytes]:
        """Watch."""
        yield "a"
        yield b"\xff"

    async with testing.serve(tools) as client:
        _, text = await all_of(await client.subscribe("watch"))

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


async def test_there_is_an_end_to_how_many_generators_a_server_takes_on(tools: Toolset, feed: Feed) -> None:
    tools.limits = Limits(subscriptions=2)
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


async def test_a_subscription_cancelled_at_any_turn_leaves_no_generator_running(tools: Toolset, feed: Feed) -> None:
    """CAN-3: also if it was claimed already, and its generator was about to start."""
    started = 0
    async with testing.serve(tools) as client:
        for turns in range(80):
            call = await client.start("follow")
            await dawdle(turns)
            await asyncio.gather(*(call.cancel() for _ in range(3)))
            await client.settled()

            assert feed.following == 0, f"cancelled after {turns} turns"
            started += bool(feed.followed_from)
            feed.followed_from.clear()
    assert 0 < started < 80


@pytest.mark.parametrize("seed", range(4))
async def test_events_and_cancellations_race_and_nothing_comes_after_a_cancellation(
    toolset: Callable[..., Toolset], seed: int
) -> None:
    """SUB-5: many random interleavings; the client objects to whatever comes after its cancellation was acknowledged."""
    tools = toolset()
    dice = random.Random(seed)

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


@pytest.mark.parametrize("end", ["cancelled", "over"])
async def test_nothing_goes_on_for_a_subscription_that_has_ended(toolset: Callable[..., Toolset], end: str) -> None:
    """CAN-3: neither the programs it runs nor what sends its views."""
    tools = toolset()
    begun = asyncio.Event()

    @tools.subscription
    async def work(ctx: Context) -> AsyncIterator[str]:
        """Work."""
        await ctx.view("table", [1])
        process = ctx.run(["sh", "-c", "echo $$; sleep 60"])
        lines = aiter(process)
        yield await anext(lines)
        begun.set()
        if end == "cancelled":
            await anext(lines)

    async with testing.serve(tools) as client:
        await client.settled()
        alarm = client.clock.next_alarm()
        subscription = await client.subscribe("work")
        pid = int((await subscription.event()).text)
        await asyncio.wait_for(begun.wait(), 60)
        if end == "cancelled":
            await subscription.cancel()
        await until(lambda: not Path(f"/proc/{pid}").exists())
        await until(lambda: client.clock.next_alarm() == alarm)


async def test_state_that_cannot_be_kept_ends_the_subscription_or_has_it_started_again(
    toolset: Callable[..., Toolset], caplog: pytest.LogCaptureFixture
) -> None:
    tools = toolset()

    @tools.subscription
    async def work(ctx: Context) -> AsyncIterator[str]:
        """Work."""
        await ctx.checkpoint("begun")
        ctx.state["list"] = []
        ctx.state["list"].append(object())
        yield "a"

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("work")
        await client.advance(1)

        assert without_failures(subscription) == []
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
        await asyncio.wait_for(stubborn.wait(), 60)
        await client.advance(60)
        assert texts(subscription) == ["a"]
        release.set()


@pytest.mark.parametrize("way", ["yields", "raises", "hangs"])
async def test_a_generator_that_does_not_end_well_does_not_keep_the_server_from_stopping(
    toolset: Callable[..., Toolset], way: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """SUB-6: and it goes on after the restart."""
    monkeypatch.setattr("rapkit.server.subscriptions.generator_runner._PATIENCE_WITH_CLOSED", 0.05)
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
        told = {"yields": "failed when it was ended", "raises": "failed when it was ended", "hangs": "does not stop"}
        assert told[way] in caplog.text


async def test_a_plain_generator_is_not_started_again_while_its_step_still_runs(
    toolset: Callable[..., Toolset], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rapkit.server.subscriptions.generator_runner._PATIENCE_WITH_CLOSED", 60)
    monkeypatch.setattr("rapkit.testing.activity._PATIENCE_WITH_THREADS", 0.05)
    tools = toolset()
    said: queue.SimpleQueue[str] = queue.SimpleQueue()
    running, most, begun, asked = 0, 0, 0, 0

    @tools.subscription(rate=0.5, batch=True)
    def listen() -> Iterator[str]:
        """Listen."""
        nonlocal running, most, begun, asked
        running, begun = running + 1, begun + 1
        most = max(most, running)
        try:
            while True:
                asked += 1
                yield said.get()
        finally:
            running -= 1

    commit = SqliteStore.commit
    failed = asyncio.Event()

    async def fail_once(store: SqliteStore, claim: Claim, what: Commit, sender: str | None = None) -> list[TakenPost]:
        if what.outgoing and not failed.is_set():
            failed.set()
            raise StoreError("the disk was full")
        return await commit(store, claim, what, sender)

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("listen")
        said.put("a")
        await subscription.event()
        said.put("b")
        await until(lambda: asked == 3)  # so the second is in a batch
        monkeypatch.setattr(SqliteStore, "commit", fail_once)
        await client.advance(10)
        assert failed.is_set()
        assert (running, begun) == (1, 1)

        said.put("its step ends")
        await until(lambda: running == 0)
        await client.advance(10)
        await until(lambda: begun == 2)
        assert most == 1
        assert (await subscription.event()).text == "b"
        await subscription.cancel()
        said.put("its step ends too")
        await until(lambda: running == 0)


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
