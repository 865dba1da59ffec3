"""Cancelled calls and closed threads: each call still ends in exactly one result."""

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from rapkit import Context, Durations, Limits, ToolError, Toolset, testing
from tests.server.served_toolset import invocation, serving, until
from tests.server.sink import Sink, answer
from tests.server.store_interception import meddle

CANCELLED = "Error: Cancelled."


@pytest.fixture
def events() -> list[str]:
    return []


@pytest.fixture
def tools(toolset: Callable[..., Toolset], events: list[str]) -> Toolset:
    tools = toolset(limits=Limits(concurrency=2))

    @tools.tool
    async def wait(name: str = "wait") -> None:
        """Take for ever."""
        events.append(f"{name} started")
        try:
            await asyncio.Event().wait()
        finally:
            events.append(f"{name} stopped")

    @tools.tool
    def block(ctx: Context) -> None:
        """Take until cancelled."""
        events.append("block started")
        while not ctx.cancelled:
            threading.Event().wait(0.005)
        events.append("block stopped")

    @tools.tool
    async def quick() -> str:
        """Take no time."""
        events.append("quick")
        return "done"

    return tools


async def test_a_cancelled_async_handler_is_stopped_and_its_call_ends_in_one_result(
    tools: Toolset, events: list[str], sink: Sink
) -> None:
    """CAN-2, CAN-3, CB-5, CB-6"""
    async with serving(tools) as server:
        await server.invoke(invocation(sink.url, "wait", id="c1", call_id="fc_1"))
        await until(lambda: "wait started" in events)

        reply = await server.cancel("thread_1", "c1")
        assert (reply.status, reply.body) == (200, b"")
        post = await sink.result("c1")
        await server.quiet()

        assert post.message == {
            "type": "tool_result",
            "group_id": "thread_1",
            "id": "c1",
            "call_id": "fc_1",
            "text": CANCELLED,
        }
        assert events == ["wait started", "wait stopped"]
        assert len(sink.posts) == 1


@pytest.mark.parametrize(("status", "new_mails"), [(404, 0), (410, 0), (400, 1)])
async def test_nobody_waiting_for_the_end_of_a_cancelled_call_is_no_trouble(
    tools: Toolset, events: list[str], sink: Sink, status: int, new_mails: int
) -> None:
    """A runtime that has closed the thread, or forgotten the call, says so: the end has come where it was wanted."""
    sink.otherwise = answer(status)
    async with serving(tools) as server:
        await server.invoke(invocation(sink.url, "wait", id="c1"))
        await until(lambda: "wait started" in events)
        await server.cancel("thread_1", "c1")
        await sink.result("c1")
        await server.quiet()

        assert len(await server.dead_letters()) == new_mails
        assert len(sink.posts) == 1


async def test_an_error_that_reads_like_a_cancellation_is_none(toolset: Callable[..., Toolset], sink: Sink) -> None:
    """Item 17: the author's own words do not make a call cancelled, so a 404 to them is a result that was lost."""
    tools = toolset()

    @tools.tool
    async def withdraw() -> None:
        """Give up in words of its own."""
        raise ToolError("Cancelled.")

    sink.otherwise = answer(404)
    async with serving(tools) as server:
        await server.invoke(invocation(sink.url, "withdraw", id="c1"))
        assert (await sink.result("c1")).text == CANCELLED
        await server.quiet()

        assert [new_mail.kind for new_mail in await server.dead_letters()] == ["callback"]
        counted = (await server.get("/metrics")).body.decode()
        assert 'operation="withdraw",outcome="error",toolset="tools"} 1.0' in counted


async def test_a_plain_function_is_told_and_its_call_ends_at_once(
    tools: Toolset, events: list[str], sink: Sink
) -> None:
    """CAN-3"""
    async with serving(tools) as server:
        await server.invoke(invocation(sink.url, "block", id="c1"))
        await until(lambda: "block started" in events)
        await server.cancel("thread_1", "c1")

        assert (await sink.result("c1")).text == CANCELLED
        await until(lambda: "block stopped" in events)
        await server.quiet()
        assert len(sink.posts) == 1


async def test_cancelling_frees_the_handlers_places(tools: Toolset, events: list[str], sink: Sink) -> None:
    """CAN-3: with both workers taken by handlers that never end, the next call runs once they are cancelled."""
    async with serving(tools) as server:
        await server.invoke(invocation(sink.url, "wait", id="c1"))
        await server.invoke(invocation(sink.url, "block", id="c2"))
        await until(lambda: len(events) == 2)
        await server.invoke(invocation(sink.url, "quick", id="c3"))
        await server.invoke(invocation(sink.url, "quick", id="c4"))
        assert "quick" not in events

        await server.cancel("thread_1", "c1")
        await server.cancel("thread_1", "c2")

        assert (await sink.result("c3")).text == (await sink.result("c4")).text == "done"


async def test_a_call_cancelled_while_it_waits_for_a_worker_is_never_run(
    tools: Toolset, events: list[str], sink: Sink
) -> None:
    """CAN-3"""
    async with serving(tools) as server:
        for id in ("c1", "c2"):
            await server.invoke(invocation(sink.url, "wait", id=id))
        await until(lambda: len(events) == 2)
        await server.invoke(invocation(sink.url, "quick", id="c3"))
        await server.cancel("thread_1", "c3")
        await server.post("/close_thread", {"thread_id": "thread_1"})
        await server.quiet()

        assert "quick" not in events
        assert sorted(post.text for post in sink.posts) == [CANCELLED] * 3


async def test_a_call_cancelled_right_after_its_acknowledgement_does_not_go_on_unseen(
    tools: Toolset, events: list[str], sink: Sink
) -> None:
    """CAN-3: whether its handler was about to start or had started, its place is free again."""
    async with serving(tools) as server:
        for number in range(60):
            await server.invoke(invocation(sink.url, "wait", id=f"c{number}"))
            await server.cancel("thread_1", f"c{number}")
        await server.quiet()

        assert [post.text for post in sink.posts] == [CANCELLED] * 60
        await until(lambda: events.count("wait started") == events.count("wait stopped"))


async def test_cancel_and_claim_at_the_very_same_moment(tools: Toolset, events: list[str], sink: Sink) -> None:
    """CAN-3: the cancellation is written together with the claim, before the handler was called."""
    async with serving(tools) as server:
        for number in range(40):
            id = f"c{number}"
            await asyncio.gather(
                server.invoke(invocation(sink.url, "wait", id=id)),
                *(server.cancel("thread_1", id) for _ in range(3)),
            )
        await server.post("/close_thread", {"thread_id": "thread_1"})
        await server.quiet()

        assert sorted(post.message["id"] for post in sink.posts) == sorted(f"c{number}" for number in range(40))
        await until(lambda: events.count("wait started") == events.count("wait stopped"))


async def test_result_and_cancellation_race_for_one_result(toolset: Callable[..., Toolset], sink: Sink) -> None:
    """CB-5: many random interleavings."""
    tools = toolset()

    @tools.tool
    async def brief(seconds: float) -> str:
        """Take so long."""
        await asyncio.sleep(seconds)
        return "done"

    @tools.tool
    def brief_thread(seconds: float) -> str:
        """Take so long."""
        threading.Event().wait(seconds)
        return "done"

    dice = random.Random(7)
    async with serving(tools) as server:

        async def race(number: int) -> None:
            operation = dice.choice(["brief", "brief_thread"])
            seconds, delay = dice.uniform(0, 0.02), dice.uniform(0, 0.04)
            id = f"c{number}"
            if number == 0:  # one that is certainly cancelled, whatever the machine is busy with
                operation, seconds = "brief", 3600.0
            await server.invoke(invocation(sink.url, operation, id=id, arguments={"seconds": seconds}))
            await asyncio.sleep(delay)
            if number == 1:  # and one that certainly is not
                await sink.result(id)
            for _ in range(dice.choice([1, 1, 2])):
                assert (await server.cancel("thread_1", id)).status == 200

        for start in range(0, 300, 30):
            await asyncio.gather(*(race(number) for number in range(start, start + 30)))
        await server.quiet()

        results = {post.message["id"]: post.text for post in sink.posts}
        assert len(sink.posts) == len(results) == 300
        assert set(results.values()) == {"done", CANCELLED}


async def test_a_handler_that_ignores_its_cancellation_changes_nothing(
    toolset: Callable[..., Toolset], sink: Sink
) -> None:
    """CB-5"""
    tools = toolset()
    release = asyncio.Event()
    ended = asyncio.Event()

    @tools.tool
    async def stubborn() -> str:
        """Do not stop."""
        with contextlib.suppress(asyncio.CancelledError):
            await release.wait()
        ended.set()
        return "I went on"

    async with serving(tools) as server:
        await server.invoke(invocation(sink.url, "stubborn", id="c1"))
        await server.cancel("thread_1", "c1")
        assert (await sink.result("c1")).text == CANCELLED
        release.set()
        await server.quiet()

        assert len(sink.posts) == 1


async def test_a_cancellation_waits_for_a_call_that_has_not_come_yet(
    tools: Toolset, events: list[str], sink: Sink
) -> None:
    """CAN-2, CB-5, CLO-11: the notice overtook the invocation."""
    async with serving(tools) as server:
        assert (await server.cancel("thread_1", "c1")).status == 200
        message = invocation(sink.url, "quick", id="c1")
        assert (await server.invoke(message)).status == 200
        assert (await server.invoke(message)).status == 200
        post = await sink.result("c1")
        await server.quiet()

        assert post.text == CANCELLED
        assert len(sink.posts) == 1
        assert events == []


async def test_a_cancellation_waits_for_its_own_call_only_and_not_for_ever(
    toolset: Callable[..., Toolset], sink: Sink
) -> None:
    """CAN-2"""
    tools = toolset(durations=Durations(remember_cancels=0.05))
    tools.tool(name="quick")(lambda: "done")
    async with serving(tools) as server:
        await server.cancel("thread_1", "c1")
        for id, group in (("c2", "thread_1"), ("c1", "thread_2"), ("c1 ", "thread_1"), ("C1", "thread_1")):
            await server.invoke(invocation(sink.url, "quick", id=id, group_id=group))
        await server.quiet()
        assert [post.text for post in sink.posts] == ["done"] * 4

        await asyncio.sleep(0.1)  # the passing of time is what is tested
        await server.invoke(invocation(sink.url, "quick", id="c1"))
        await sink.received(5)

        assert sink.posts[-1].text == "done"


async def test_unknown_and_repeated_cancellations_are_acknowledged_and_harmless(
    tools: Toolset, events: list[str], sink: Sink
) -> None:
    """CAN-2"""
    async with serving(tools) as server:
        await server.invoke(invocation(sink.url, "quick", id="c1"))
        await sink.result("c1")
        for _ in range(3):
            for thread, call in (("thread_1", "c1"), ("no such thread", "c9"), ("../../etc", "'; --"), ("%", "*")):
                reply = await server.cancel(thread, call)
                assert (reply.status, reply.body) == (200, b"")
        await server.quiet()

        assert [post.text for post in sink.posts] == ["done"]


async def test_a_cancellation_after_the_result_leaves_the_result(tools: Toolset, sink: Sink) -> None:
    """CB-5: the handler has ended, its result is on its way."""
    async with serving(tools) as server:
        await sink.down()
        await server.invoke(invocation(sink.url, "quick", id="c1"))

        async def ended() -> None:
            while not await server.undelivered():
                await asyncio.sleep(0.01)

        await asyncio.wait_for(ended(), 60)
        await server.cancel("thread_1", "c1")
        await sink.up()
        await sink.result("c1")
        await server.quiet()

        assert [post.text for post in sink.posts] == ["done"]


async def test_closing_a_thread_stops_its_calls_only(tools: Toolset, events: list[str], sink: Sink) -> None:
    """CLO-4, CLO-5"""
    async with serving(tools) as server:
        for thread in ("t1", "t2"):
            await server.invoke(
                invocation(sink.url, "wait", id=f"of {thread}", group_id=thread, arguments={"name": thread})
            )
        await server.invoke(invocation(sink.url, "quick", id="waits", group_id="t1"))
        await until(lambda: len(events) == 2)

        reply = await server.post("/close_thread", {"thread_id": "t1"})
        assert (reply.status, reply.body) == (200, b"")
        await sink.received(2)

        assert {post.message["id"]: post.text for post in sink.posts} == {"of t1": CANCELLED, "waits": CANCELLED}
        assert "t1 stopped" in events
        assert "t2 stopped" not in events
        await server.post("/close_thread", {"thread_id": "t2"})
        assert (await sink.result("of t2")).text == CANCELLED
        await server.quiet()
        assert len(sink.posts) == 3


async def test_unknown_and_repeated_closures_are_acknowledged_and_harmless(
    tools: Toolset, events: list[str], sink: Sink
) -> None:
    """CLO-4, CLO-7, CLO-11"""
    async with serving(tools) as server:
        for thread in ("thread_1", "../..", "' OR 1=1 --", "%", "*", "thread_1"):
            reply = await server.post("/close_thread", {"thread_id": thread})
            assert (reply.status, reply.body) == (200, b"")

        await server.invoke(invocation(sink.url, "quick", id="c1"))
        assert (await sink.result("c1")).text == "done"


@pytest.mark.parametrize("thread", ["%", "*", "thread_", "THREAD_1", "' OR '1'='1"])
async def test_ids_are_compared_and_never_interpreted(
    tools: Toolset, events: list[str], sink: Sink, thread: str
) -> None:
    """CLO-7, CAN-2"""
    async with serving(tools) as server:
        await server.invoke(invocation(sink.url, "wait", id="c1"))
        await until(lambda: bool(events))
        await server.post("/close_thread", {"thread_id": thread})
        await server.cancel(thread, "c1")
        await server.cancel("thread_1", thread)

        assert await server.stored_calls() == 1
        assert events == ["wait started"]
        await server.cancel("thread_1", "c1")
        await server.quiet()


async def test_one_id_at_two_callback_urls_is_cancelled_at_both(tools: Toolset, events: list[str], sink: Sink) -> None:
    """CAN-2: the notice names thread and call alone."""
    async with serving(tools) as server:
        for path in ("/a", "/b"):
            await server.invoke(invocation(sink.url + path, "wait", id="c1"))
        await until(lambda: len(events) == 2)
        await server.cancel("thread_1", "c1")
        await server.quiet()

        assert sorted((post.target, post.text) for post in sink.posts) == [("/a", CANCELLED), ("/b", CANCELLED)]


async def test_a_malformed_or_unknown_call_can_be_cancelled_too(toolset: Callable[..., Toolset], sink: Sink) -> None:
    """CB-5"""
    tools = toolset(limits=Limits(concurrency=1))
    started = asyncio.Event()

    @tools.tool
    async def wait() -> None:
        """Wait."""
        started.set()
        await asyncio.Event().wait()

    async with serving(tools) as server:
        await server.invoke(invocation(sink.url, "wait", id="c0"))
        await started.wait()
        odd: dict[str, Any] = {"c1": {"operation": "no_such"}, "c2": {"arguments": 7}}
        for id, fields in odd.items():
            await server.invoke({**invocation(sink.url, id=id), **fields})
            await server.cancel("thread_1", id)
        await server.cancel("thread_1", "c0")
        await server.quiet()

        assert [post.text for post in sink.posts] == [CANCELLED] * 3


@pytest.mark.parametrize("moment", ["its state is loaded", "leftovers are looked for", "its answers are heard"])
async def test_a_call_cancelled_between_its_claim_and_its_handler_is_not_run(
    monkeypatch: pytest.MonkeyPatch, events: list[str], moment: str
) -> None:
    """CAN-3, CB-5: whatever the server is doing by then."""
    tools = Toolset("tools")
    first_time = moment == "its state is loaded"
    kind = {"its state is loaded": "state", "leftovers are looked for": "process", "its answers are heard": "question"}

    @tools.tool
    async def pay(ctx: Context) -> str:
        """Pay, and if not the first time, ask before that."""
        events.append("begun")
        if not first_time:
            await ctx.choose("Sure?", ["Yes", "No"])
        events.append("paid")
        return "paid"

    async with testing.serve(tools) as client:
        choice = None
        if not first_time:
            call = await client.start("pay")
            choice = await call.choice()
        reached, go_on = asyncio.Event(), asyncio.Event()

        async def hold_up(name: str, arguments: tuple[Any, ...]) -> None:
            if name == "records" and arguments[1] == kind[moment]:
                reached.set()
                await go_on.wait()

        meddle(monkeypatch, after=hold_up)
        if choice is None:
            call = await client.start("pay")
        else:
            await choice.select("Yes")
        await asyncio.wait_for(reached.wait(), 60)
        await call.cancel()
        go_on.set()

        assert (await call.result()).text == CANCELLED
        await client.settled()
        assert events == ([] if first_time else ["begun"])


async def test_of_many_calls_cancelled_at_once_none_goes_on(toolset: Callable[..., Toolset], sink: Sink) -> None:
    """CAN-3: with a context to be loaded, which takes its time."""
    tools = toolset()
    running: set[int] = set()

    @tools.tool
    async def pay(number: int, ctx: Context) -> None:
        """Take for ever."""
        running.add(number)
        try:
            await asyncio.Event().wait()
        finally:
            running.discard(number)

    async with serving(tools) as server:

        async def one(number: int) -> None:
            message = invocation(sink.url, "pay", id=f"c{number}", arguments={"number": number})
            assert (await server.invoke(message)).status == 200
            assert (await server.cancel("thread_1", f"c{number}")).status == 200

        for start in range(0, 100, 50):
            await asyncio.gather(*(one(number) for number in range(start, start + 50)))
        await server.quiet()

        assert [post.text for post in sink.posts] == [CANCELLED] * 100
        await until(lambda: not running)
