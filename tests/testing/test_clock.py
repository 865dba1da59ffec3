"""The clock of a test: it stands still until it is advanced, and then everything happens in its time."""

import asyncio
import gc
import itertools
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from rapkit import Context, Durations, Toolset, testing
from rapkit.testing import ManualClock


async def test_the_clock_stands_still_until_it_is_moved() -> None:
    clock = ManualClock()

    assert datetime.fromtimestamp(clock.now(), UTC).hour == 12
    await clock.sleep(0)
    clock.move(clock.now() + 5)
    assert clock.now() == ManualClock().now() + 5
    with pytest.raises(ValueError, match="cannot be set back"):
        clock.move(clock.now() - 1)


async def test_sleepers_are_woken_in_order() -> None:
    clock = ManualClock(0)
    woken: list[float] = []

    async def sleep(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    sleepers = [asyncio.create_task(sleep(seconds)) for seconds in (3, 1, 2, 9)]
    await asyncio.sleep(0)
    assert clock.next_alarm() == 1

    clock.move(3)
    await asyncio.gather(*sleepers[:3])

    assert woken == [1, 2, 3]
    assert clock.next_alarm() == 9
    sleepers[3].cancel()
    await asyncio.wait(sleepers)
    assert clock.next_alarm() is None


async def test_a_timeout_strikes_when_the_clock_is_moved_past_it() -> None:
    clock = ManualClock(0)

    async def limited() -> str:
        try:
            async with clock.timeout(5) as limit:
                await asyncio.Event().wait()
        except TimeoutError:
            return f"too late: {limit.expired()}"
        return "in time"

    task = asyncio.create_task(limited())
    await asyncio.sleep(0)
    clock.move(4.9)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()

    clock.move(5)
    assert await task == "too late: True"


async def test_a_timeout_that_was_left_in_time_is_forgotten() -> None:
    clock = ManualClock(0)

    async with clock.timeout(5):
        clock.move(3)
    limit = clock.timeout(1)
    clock.move(10)  # neither entered nor left with an error
    async with clock.timeout(None), limit:
        clock.move(100)
    del limit
    gc.collect()

    assert clock.next_alarm() is None


@pytest.fixture
def times() -> list[float]:
    return []


@pytest.fixture
def tools(times: list[float]) -> Toolset:
    tools = Toolset("tools", durations=Durations(answer=100))

    @tools.tool
    async def nap(seconds: float, ctx: Context) -> str:
        """Sleep."""
        await ctx.sleep(seconds)
        return f"slept {seconds:g}"

    @tools.tool(timeout=30)
    async def hurry(ctx: Context) -> None:
        """Take too long."""
        await ctx.sleep(60)

    @tools.tool
    async def ask(ctx: Context) -> str:
        """Ask."""
        return await ctx.choose("Well?", ["Yes", "No"])

    @tools.tool
    def compute() -> str:
        """Take a moment, in a thread."""
        threading.Event().wait(0.02)
        return "computed"

    @tools.tool
    def block(ctx: Context) -> None:
        """Take for ever, in a thread."""
        while not ctx.cancelled:
            threading.Event().wait(0.01)

    @tools.subscription(rate=1)
    async def flood() -> AsyncIterator[str]:
        """Many events at once."""
        for number in range(10):
            yield str(number)

    return tools


async def test_handlers_sleep_until_the_clock_is_advanced(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        calls = [await client.start("nap", seconds=seconds) for seconds in (90, 30, 60)]

        await client.advance(59)
        assert [message.text for message in client.messages if message.type == "tool_result"] == ["slept 30"]
        await client.advance(1000)

        assert [(await call.result()).text for call in calls] == ["slept 90", "slept 30", "slept 60"]
        assert [message.text for message in client.messages if message.type == "tool_result"] == [
            "slept 30",
            "slept 60",
            "slept 90",
        ]


async def test_handlers_run_out_of_time_by_the_clock(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("hurry")

        await client.advance(30)

        assert "30" in (await call.result()).text
        assert (await call.result()).is_error


async def test_questions_expire_by_the_clock(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("ask")
        await call.choice()

        await client.advance(99)
        assert len(call.messages) == 1
        await client.advance(1)
        assert (await call.result()).text.startswith("Error: 'Well?': nobody answered in time.")


async def test_events_that_are_delayed_leave_by_the_clock(tools: Toolset) -> None:
    """SUB-8"""
    async with testing.serve(tools) as client:
        watch = await client.subscribe("flood")
        await client.settled()
        counts = [len(watch.events)]
        for _ in range(4):
            await client.advance(1)
            counts.append(len(watch.events))

        assert counts[0] < 4
        assert [after - before for before, after in itertools.pairwise(counts)] == [1] * 4
        await client.advance(60)
        assert [event.text for event in watch.events][:-1] == [str(number) for number in range(10)]


async def test_what_happens_at_each_moment_sees_the_time_of_that_moment(tools: Toolset, times: list[float]) -> None:
    @tools.tool
    async def tick(ctx: Context) -> None:
        """Note the time, again and again."""
        for _ in range(5):
            await ctx.sleep(10)
            times.append(client.clock.now() - began)

    async with testing.serve(tools) as client:
        began = client.clock.now()
        await client.start("tick")

        await client.advance(1000)

        assert times == [10, 20, 30, 40, 50]
        assert client.clock.now() == began + 1000


async def test_what_runs_in_threads_is_waited_for(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("compute")

        await client.settled()

        assert [message.type for message in call.messages] == ["tool_result"]


async def test_what_runs_in_threads_for_ever_is_not(tools: Toolset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rapkit.testing.activity._PATIENCE_WITH_THREADS", 0.01)
    async with testing.serve(tools) as client:
        call = await client.start("block")
        await client.settled()
        await client.advance(10)

        await call.cancel()
        assert (await call.result()).text == "Error: Cancelled."
