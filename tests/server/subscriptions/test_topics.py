"""Subscriptions to topics: what is emitted reaches everybody who is subscribed by then."""

import asyncio
import json
import logging
import random
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rapkit import Context, Durations, Event, Limits, ToolError, Toolset, testing
from rapkit.errors import ConfigError, StoreError
from rapkit.mailbox import Claim, Commit, Outcome, Settlement, TakenPost
from rapkit.server.subscriptions import topics
from rapkit.stores.sqlite import SqliteStore
from tests.server.feeds import dawdle, texts, without_failures
from tests.server.served_toolset import until

Make = Callable[..., Toolset]


@pytest.fixture
def tools(toolset: Make) -> Toolset:
    """A toolset with two subscriptions to topics of one shape, and one to another."""
    tools = toolset()

    @tools.subscription(topic="gh/{owner}/{repo}")
    async def pulls(owner: str, repo: str, payload: dict[str, Any]) -> str | None:
        """Tell me about new pull requests."""
        return f"{owner}/{repo}: {payload['title']}" if payload["action"] == "opened" else None

    @tools.subscription(topic="gh/{owner}/{repo}", associative=True)
    def everything(owner: str, repo: str, payload: Any, shout: bool = False) -> object:
        """Tell me everything."""
        return json.dumps(payload).upper() if shout else payload

    @tools.subscription(topic="news")
    async def news(payload: list[str]) -> list[str]:
        """Tell me the news."""
        return payload

    return tools


def opened(title: str) -> dict[str, Any]:
    return {"action": "opened", "title": title}


async def test_what_is_emitted_reaches_everybody_subscribed_to_the_topic(tools: Toolset) -> None:
    """SUB-2, SUB-3"""
    async with testing.serve(tools) as client:
        mine = await client.subscribe("pulls", owner="acme", repo="api")
        yours = await client.as_(thread_id="thread_2").subscribe("pulls", owner="acme", repo="api")
        other = await client.subscribe("pulls", owner="acme", repo="web")
        all_of_it = await client.subscribe("everything", owner="acme", repo="api", shout=True)
        await tools.emit("gh/acme/api", opened("Fix"), id="1")
        await tools.emit("gh/acme/api", {"action": "closed"}, id="2")
        event = await all_of_it.event()
        await all_of_it.event()
        await client.settled()

        assert mine.confirmation.text == "Subscribed to pulls. The id of the subscription is call_1."
        assert texts(mine) == texts(yours) == ["acme/api: Fix"]
        assert texts(other) == []
        assert texts(all_of_it) == ['{"ACTION": "OPENED", "TITLE": "FIX"}', '{"ACTION": "CLOSED"}']
        assert event.associative
        assert not mine.events[0].associative
        assert (mine.events[0].group_id, mine.events[0].tool_call_id) == ("thread_1", mine.id)


async def test_a_list_is_several_events(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        subscription = await client.subscribe("news")
        await tools.emit("news", ["a", "b"])
        await tools.emit("news", [])
        await tools.emit("news", ["c"])
        await client.settled()

        assert texts(subscription) == ["a", "b", "c"]


async def test_what_was_emitted_before_somebody_subscribed_does_not_reach_him(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        await tools.emit("news", ["nobody hears it"])
        first = await client.subscribe("news")
        await tools.emit("news", ["one"])
        second = await client.subscribe("news")
        await tools.emit("news", ["two"])
        await client.settled()

        assert (texts(first), texts(second)) == (["one", "two"], ["two"])


async def test_the_same_id_is_told_once(toolset: Make) -> None:
    tools = toolset(durations=Durations(remember_events=3600))

    @tools.subscription(topic="{room}")
    async def talk(room: str, payload: str) -> str:
        """Talk."""
        return payload

    async with testing.serve(tools) as client:
        a, b = await client.subscribe("talk", room="a"), await client.subscribe("talk", room="b")
        for _ in range(3):
            await tools.emit("a", "hello", id="1")
            await client.settled()
        await client.crash()
        await tools.emit("a", "hello", id="1")
        await tools.emit("b", "hello", id="1")
        await tools.emit("a", "again")
        await tools.emit("a", "again")
        await client.settled()
        assert (texts(a), texts(b)) == (["hello", "again", "again"], ["hello"])

        await client.advance(3601)
        await tools.emit("a", "a day later", id="1")
        await client.settled()
        assert texts(a)[-1] == "a day later"


async def test_what_was_emitted_is_told_though_the_server_is_lost(tools: Toolset) -> None:
    """SUB-6: emit is durable when it returns; at any step."""
    steps = 0
    while True:
        async with testing.serve(tools) as client:
            first = await client.subscribe("news")
            second = await client.subscribe("news")
            await client.settled()
            await tools.emit("news", ["a", "b"], id="1")
            await tools.emit("news", ["c"], id="2")
            client.crash_after(steps)
            await client.settled()
            lost = client.lost
            await client.crash()
            await client.advance(600)
            await tools.emit("news", ["a", "b"], id="1")
            await client.settled()

            assert texts(first) == texts(second) == ["a", "b", "c"], f"lost after {steps} steps"
        if not lost:
            break
        steps += 1
    assert steps > 5


async def test_a_cancelled_subscription_hears_no_more_and_the_others_do(tools: Toolset) -> None:
    """SUB-5"""
    async with testing.serve(tools) as client:
        first, second = await client.subscribe("news"), await client.subscribe("news")
        await client.settled()
        await first.cancel()
        await tools.emit("news", ["a"])
        await client.settled()

        assert (texts(first), texts(second)) == ([], ["a"])


async def test_a_cancellation_deletes_what_is_queued_and_what_is_unread(tools: Toolset) -> None:
    """SUB-5"""
    async with testing.serve(tools) as client:
        subscription = await client.subscribe("news")
        client.callbacks.hang()
        await tools.emit("news", [str(number) for number in range(150)])
        await tools.emit("news", ["more"])
        await client.settled()
        await subscription.cancel()
        client.callbacks.up()
        await client.advance(600)

        assert texts(subscription) == []


@pytest.mark.parametrize("seed", range(3))
async def test_emitting_and_cancelling_race_and_nothing_comes_after_a_cancellation(tools: Toolset, seed: int) -> None:
    """SUB-5: many random interleavings; the client objects to whatever comes after its cancellation was acknowledged."""
    dice = random.Random(seed)
    async with testing.serve(tools) as client:

        async def race() -> None:
            call = await client.start("news")
            await dawdle(dice.randrange(80))
            await call.cancel()

        for number in range(30):
            racing = [asyncio.create_task(race()) for _ in range(3)]
            for _ in range(4):
                await dawdle(dice.randrange(30))
                await tools.emit("news", [str(number)])
            await asyncio.gather(*racing)
        await client.settled()


async def test_a_final_event_ends_a_subscription_to_a_topic(toolset: Make) -> None:
    """SUB-4"""
    tools = toolset()
    heard: list[str] = []

    @tools.subscription(topic="builds")
    async def wait_for(payload: str) -> Event | None:
        """Wait for one."""
        heard.append(payload)
        return Event(payload, final=payload == "done")

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("wait_for")
        for payload in ("begun", "done", "done", "begun"):
            await tools.emit("builds", payload)
        await client.settled()
        await tools.emit("builds", "done")
        await client.settled()

        assert texts(subscription) == ["begun", "done"]
        assert heard == ["begun", "done"]


async def test_a_subscription_nobody_listens_to_leaves_its_topic(toolset: Make) -> None:
    """semantics 18"""
    tools = toolset()
    heard: list[str] = []

    @tools.subscription(topic="news")
    async def news(payload: str) -> str:
        """Tell me."""
        heard.append(payload)
        return payload

    async with testing.serve(tools) as client:
        await client.subscribe("news")
        await client.settled()
        client.callbacks.fail(1, 410)
        await tools.emit("news", "a")
        await client.settled()
        await tools.emit("news", "b")
        await client.settled()

        assert heard == ["a"]
        assert client.callbacks.attempts == 2


async def test_a_topic_s_value_has_no_slash_and_is_not_empty(tools: Toolset) -> None:
    """Refused before anything is confirmed."""
    async with testing.serve(tools) as client:
        for owner in ("", "a/b"):
            result = await client.call("pulls", owner=owner, repo="api")
            assert result.text == "Error: owner is part of a topic: it cannot be empty, and there can be no '/' in it."


async def test_emitting_where_nobody_can_be_subscribed_is_said(
    tools: Toolset, caplog: pytest.LogCaptureFixture
) -> None:
    async with testing.serve(tools):
        await tools.emit("gh/acme/api", {})
        assert "nobody can be subscribed" not in caplog.text
        await tools.emit("gh/acme", {})

        assert "nobody can be subscribed to the topic 'gh/acme'" in caplog.text
        assert "'gh/{owner}/{repo}', 'news'" in caplog.text


async def test_a_payload_that_is_not_json_is_the_emitter_s_mistake(tools: Toolset) -> None:
    async with testing.serve(tools):
        with pytest.raises(ValueError, match="serialize"):
            await tools.emit("news", object())


async def test_thousands_of_subscribers_are_told_in_parts(tools: Toolset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "_MOST_MAILS", 10)
    async with testing.serve(tools) as client:
        subscriptions = [await client.subscribe("news") for _ in range(7)]
        await asyncio.gather(*(tools.emit("news", [str(number)]) for number in range(20)))
        await client.settled()
        await client.advance(10)

        assert all(sorted(texts(each), key=int) == [str(number) for number in range(20)] for each in subscriptions)
        assert len({tuple(texts(each)) for each in subscriptions}) == 1


async def test_one_event_for_very_many_is_told_in_parts_and_once_though_the_server_is_lost(
    tools: Toolset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SUB-6: at any step, in order with what was emitted before and after."""
    monkeypatch.setattr(topics, "_MOST_MAILS", 2)
    commit, most = SqliteStore.commit, 0

    async def count(store: SqliteStore, claim: Claim, what: Commit, sender: str | None = None) -> list[TakenPost]:
        nonlocal most
        most = max(most, len(what.new_mails))
        return await commit(store, claim, what, sender)

    monkeypatch.setattr(SqliteStore, "commit", count)
    steps = 0
    while True:
        async with testing.serve(tools) as client:
            subscriptions = [await client.subscribe("news") for _ in range(3)]
            await client.settled()
            for text in "ab":
                await tools.emit("news", [text], id=text)
            client.crash_after(steps)
            await client.settled()
            lost = client.lost
            await client.crash()
            await client.advance(600)
            late = await client.subscribe("news")
            await tools.emit("news", ["c"])
            await client.settled()

            assert [texts(each) for each in subscriptions] == [["a", "b", "c"]] * 3, f"lost after {steps} steps"
            assert texts(late) == ["c"]
        if not lost:
            break
        steps += 1
    assert steps > 12
    assert most == 2


async def test_a_payload_larger_than_what_comes_in_may_be_is_the_emitter_s_mistake(toolset: Make) -> None:
    tools = toolset(limits=Limits(body=1000))

    @tools.subscription(topic="news")
    async def news(payload: str) -> str:
        """Tell me."""
        return payload

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("news")
        with pytest.raises(ValueError, match="The payload has 1,001 bytes, and 1,000 are taken"):
            await tools.emit("news", "x" * 999)
        await tools.emit("news", "x" * 998)
        await client.settled()

        assert texts(subscription) == ["x" * 998]


# Functions that fail


async def test_a_function_that_hangs_is_given_up_after_its_timeout_and_the_next_event_comes(
    toolset: Make, caplog: pytest.LogCaptureFixture
) -> None:
    tools = toolset(limits=Limits(concurrency=1))
    tried: list[str] = []

    @tools.subscription(topic="news", timeout=5)
    async def slow(payload: str) -> str:
        """Tell me."""
        tried.append(payload)
        if payload == "bad":
            await asyncio.Event().wait()
        return payload

    @tools.subscription(topic="other")
    async def other(payload: str) -> str:
        """Tell me too."""
        return payload

    async with testing.serve(tools) as client:
        subscription, neighbour = await client.subscribe("slow"), await client.subscribe("other")
        for payload in ("a", "bad", "b"):
            await tools.emit("news", payload)
        await client.settled()
        await tools.emit("other", "x")
        await client.advance(4)
        assert (tried, texts(neighbour)) == (["a", "bad"], [])
        await client.advance(60)

        assert tried == ["a", "bad", "bad", "bad", "b"]
        assert (without_failures(subscription), texts(neighbour)) == (["a", "b"], ["x"])
        assert "goes on without an event of its topic: it failed 3 times: TimeoutError" in caplog.text


def test_a_timeout_is_for_functions_with_a_topic(tools: Toolset) -> None:
    async def endless() -> AsyncIterator[str]:
        """Go on."""
        yield "a"

    async def heard(payload: str) -> str:
        """Tell me."""
        return payload

    with pytest.raises(ConfigError, match="a generator may take as long as it likes"):
        tools.subscription(timeout=5)(endless)
    for seconds in (0, -1, float("inf"), float("nan")):
        with pytest.raises(ConfigError, match="timeout is a number of seconds above 0"):
            tools.subscription(topic="news", timeout=seconds)(heard)
    tools.subscription(topic="news", timeout=5, long_running=True)(heard)
    tools.subscription(long_running=True)(endless)

    assert {"heard", "endless"} <= tools.tools.keys()


async def test_a_function_that_fails_is_tried_three_times_and_then_the_next_event_comes(
    toolset: Make, caplog: pytest.LogCaptureFixture
) -> None:
    tools = toolset()
    tried: list[str] = []

    @tools.subscription(topic="news")
    async def shaky(payload: str) -> str:
        """Tell me."""
        tried.append(payload)
        if payload.startswith("bad"):
            raise RuntimeError("secret")
        return payload

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("shaky")
        for payload in ("a", "bad 1", "bad 2", "b"):
            await tools.emit("news", payload)
        await client.settled()
        assert tried == ["a", "bad 1"]
        await client.advance(1)
        assert tried == ["a", "bad 1", "bad 1"]
        await client.advance(10)

        assert tried == ["a", *["bad 1"] * 3, *["bad 2"] * 3, "b"]
        assert without_failures(subscription) == ["a", "b"]
        assert "goes on without an event of its topic: it failed 3 times: RuntimeError" in caplog.text


async def test_a_function_that_fails_once_loses_nothing(toolset: Make) -> None:
    tools = toolset()
    tried: list[str] = []

    @tools.subscription(topic="news")
    def shaky(payload: str) -> str:
        """Tell me."""
        tried.append(payload)
        if len(tried) in (1, 4, 5):
            raise SystemExit(1)
        return payload

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("shaky")
        for payload in "abc":
            await tools.emit("news", payload)
        while len(subscription.events) < 3:
            await asyncio.sleep(0.005)
            await client.advance(1)

        assert texts(subscription) == ["a", "b", "c"]
        assert tried == ["a", "a", "b", "c", "c", "c"]


async def test_a_tool_error_ends_a_subscription_to_a_topic(toolset: Make) -> None:
    """SUB-4"""
    tools = toolset()

    @tools.subscription(topic="news", associative=True)
    async def shaky(payload: str) -> str:
        """Tell me."""
        raise ToolError(f"{payload} is over.")

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("shaky")
        await tools.emit("news", "it")
        await tools.emit("news", "more")
        await client.settled()

        (event,) = subscription.events
        assert (event.text, event.final, event.associative) == ("Error: it is over.", True, True)


async def test_a_payload_that_takes_the_server_down_is_set_aside(
    toolset: Make, caplog: pytest.LogCaptureFixture
) -> None:
    tools = toolset()
    tried: list[str] = []

    @tools.subscription(topic="news")
    async def deadly(payload: str) -> str:
        """Tell me."""
        tried.append(payload)
        if payload == "deadly":
            await asyncio.Event().wait()
        return payload

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("deadly")
        await client.settled()
        for payload in ("a", "deadly", "b"):
            await tools.emit("news", payload)
        await client.settled()
        for _ in range(4):
            await client.crash()
            await client.settled()

        assert tried.count("deadly") <= 4
        assert without_failures(subscription) == ["a", "b"]
        assert "times on it" in caplog.text


async def test_a_running_function_is_cancelled_with_its_subscription(toolset: Make) -> None:
    """CAN-3"""
    tools = toolset()
    events: list[str] = []

    @tools.subscription(topic="news")
    async def slow(payload: str, ctx: Context) -> str:
        """Tell me."""
        events.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            events.append("cancelled" if ctx.cancelled else "interrupted")
        return payload

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("slow")
        await tools.emit("news", "a")
        await until(lambda: bool(events))
        await subscription.cancel()
        await until(lambda: len(events) == 2)
        assert events == ["begun", "cancelled"]

        await client.subscribe("slow")
        await tools.emit("news", "b")
        await until(lambda: len(events) == 3)
        await client.restart()
        await until(lambda: len(events) >= 5)
        assert events[3:5] == ["interrupted", "begun"]


async def test_only_so_many_functions_run_at_once(toolset: Make) -> None:
    tools = toolset(limits=Limits(concurrency=2))
    running, most = 0, 0

    @tools.subscription(topic="news")
    async def slow(payload: str, ctx: Context) -> str:
        """Tell me."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await ctx.sleep(1)
        running -= 1
        return payload

    async with testing.serve(tools) as client:
        subscriptions = [await client.subscribe("slow") for _ in range(6)]
        await tools.emit("news", "a")
        await client.advance(10)

        assert all(texts(each) == ["a"] for each in subscriptions)
        assert most == 2


# When events do not get through


async def test_mail_stays_unread_while_events_do_not_get_through(toolset: Make) -> None:
    """semantics 18"""
    tools = toolset()
    heard = 0

    @tools.subscription(topic="news", rate=None)
    async def news(payload: str) -> str:
        """Tell me."""
        nonlocal heard
        heard += 1
        return payload

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("news")
        client.callbacks.down()
        for number in range(250):
            await tools.emit("news", str(number))
        await client.advance(30)
        paused_at = heard
        assert 100 <= paused_at <= 102
        for _ in range(5):
            await client.crash()
            await client.advance(10)
        assert heard == paused_at, "a pause is neither a failure nor a loss"

        client.callbacks.up()
        await client.advance(1000)
        assert texts(subscription) == [str(number) for number in range(250)]
        assert heard == 250


@pytest.mark.parametrize("seed", range(4))
async def test_a_store_that_fails_and_may_have_written_loses_and_repeats_nothing(
    tools: Toolset, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """SUB-6"""
    dice = random.Random(seed)
    commit = SqliteStore.commit
    failures = 0

    async def fail_at_times(
        store: SqliteStore, claim: Claim, what: Commit, sender: str | None = None
    ) -> list[TakenPost]:
        nonlocal failures
        ours = claim.box.kind.startswith(("subscription/", "topic/")) and what.consumed
        if ours and dice.random() < 0.2:
            failures += 1
            raise StoreError("the disk was full")
        taken = await commit(store, claim, what, sender)
        if ours and dice.random() < 0.2:
            failures += 1
            for one in taken:
                await store.settle(one, Settlement(Outcome.RETRY))
            raise StoreError("the disk did not answer")
        return taken

    monkeypatch.setattr(SqliteStore, "commit", fail_at_times)
    async with testing.serve(tools) as client:
        subscription = await client.subscribe("news")
        await client.advance(100)
        for number in range(30):
            await tools.emit("news", [str(number)])
            await client.advance(dice.choice([0, 1]))
        await client.advance(100)

        assert texts(subscription) == [str(number) for number in range(30)]
    assert failures > 3


# Pace


async def test_events_of_a_topic_are_delayed_and_put_together_like_any(toolset: Make) -> None:
    """SUB-8"""
    tools = toolset()

    @tools.subscription(topic="news", rate=0.5)
    async def delayed(payload: str) -> str:
        """Tell me."""
        return payload

    @tools.subscription(topic="news", rate=0.5, batch=True)
    async def together(payload: str) -> str:
        """Tell me."""
        return payload

    async with testing.serve(tools) as client:
        one, other = await client.subscribe("delayed"), await client.subscribe("together")
        for payload in "abc":
            await tools.emit("news", payload)
        await client.settled()
        assert (texts(one), texts(other)) == (["a"], ["a"])
        await client.advance(1)
        await client.crash()
        await client.advance(1)
        assert (texts(one), texts(other)) == (["a", "b"], ["a", "b\nc"])
        await client.advance(2)
        assert (texts(one), texts(other)) == (["a", "b", "c"], ["a", "b\nc"])
        await tools.emit("news", "d")
        await client.advance(10)
        assert texts(other) == ["a", "b\nc", "d"]


async def test_a_function_has_its_context(toolset: Make) -> None:
    tools = toolset()

    @tools.subscription(topic="news")
    async def tally(payload: int, ctx: Context) -> Event | None:
        """Add up."""
        ctx.state["sum"] = ctx.state.get("sum", 0) + payload
        total = ctx.state["sum"]
        return Event(f"{total} after {ctx.cursor}", cursor=str(total)) if total % 2 == 0 else None

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("tally")
        for number in (1, 1, 3, 5):
            await tools.emit("news", number)
        await client.settled()

        assert texts(subscription) == ["2 after None", "10 after 2"]


async def test_what_a_function_shows_comes_with_its_event_or_without(toolset: Make) -> None:
    tools = toolset()

    @tools.subscription(topic="news")
    async def show(payload: int, ctx: Context) -> str | None:
        """Show."""
        await ctx.view("last", payload)
        return None if payload == 2 else str(payload)

    async with testing.serve(tools) as client:
        await client.settled()
        alarm = client.clock.next_alarm()
        await client.subscribe("show")
        for number in (1, 2):
            await tools.emit("news", number)
            await client.settled()

            assert client.views["last"] == number
        assert client.clock.next_alarm() == alarm, "nothing goes on when the function has returned"


async def test_a_batch_is_not_forgotten_when_the_next_version_does_not_batch(toolset: Make) -> None:
    tools = toolset()

    async def news(payload: str) -> str:
        """Tell me."""
        return payload

    tools.subscription(topic="news", rate=0.5, batch=True)(news)
    async with testing.serve(tools) as client:
        subscription = await client.subscribe("news")
        for payload in "abc":
            await tools.emit("news", payload)
        await client.settled()
        next_version = toolset("next")
        next_version.subscription(topic="news", rate=0.5)(news)
        known: Any = tools.tools
        known.update(next_version.tools)
        await client.restart()
        await tools.emit("news", "d")
        await client.advance(20)

        assert texts(subscription) == ["a", "b\nc", "d"]


async def test_lines_in_the_log_say_what_becomes_of_a_subscription(
    tools: Toolset, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with testing.serve(tools) as client:
        subscription = await client.subscribe("news")
        await client.settled()
        await subscription.cancel()
        await client.settled()

        lines = [record for record in caplog.records if record.name == "rapkit.subscriptions"]
        assert [line.getMessage() for line in lines] == [
            "subscription started",
            "subscription ended: it was cancelled",
        ]
        assert {(line.operation, line.thread_id, line.call_id) for line in lines} == {("news", "thread_1", "call_1")}  # type: ignore[attr-defined]


async def test_a_plain_function_that_hears_an_event_may_end_when_the_server_stops_and_hears_it_once(
    toolset: Make,
) -> None:
    """SUB-3, INV-13: as calls may."""
    tools = toolset()
    begun, go_on = threading.Event(), threading.Event()
    heard: list[str] = []

    @tools.subscription(topic="news")
    def hear(payload: str) -> str:
        """Hear."""
        heard.append("begun")
        begun.set()
        go_on.wait(10)
        heard.append("ended")
        return payload

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("hear")
        await tools.emit("news", "it rains")
        assert await asyncio.to_thread(begun.wait, 10)
        restarting = asyncio.create_task(client.restart())
        await dawdle(100)
        assert not restarting.done()
        go_on.set()
        await restarting
        await client.settled()

        assert heard == ["begun", "ended"]
        assert texts(subscription) == ["it rains"]


async def test_what_failed_is_not_tried_again_before_its_time_whatever_else_is_emitted(toolset: Make) -> None:
    """A busy topic must not use up the tries of an event in no time."""
    tools, runs = toolset(), list[str]()

    @tools.subscription(topic="news")
    async def news(payload: str) -> str:
        """Tell me."""
        runs.append(payload)
        if len(runs) < 3:
            raise ValueError("the database is down")
        return payload

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("news")
        for payload in "abcde":
            await tools.emit("news", payload)
            await client.settled()
        assert runs == ["a"]
        await client.advance(10)

        assert texts(subscription) == ["a", "b", "c", "d", "e"]
