"""Subscriptions that fail: the thread is told once per outage, and nothing vanishes (SUB-21)."""

from collections.abc import AsyncIterator, Callable

import pytest

from rapkit import Context, Durations, Event, Toolset, testing
from tests.server.feeds import texts

Make = Callable[..., Toolset]
DAY = 24 * 3600.0


class Shaky:
    """A generator that fails as long as it is broken."""

    def __init__(self, tools: Toolset) -> None:
        self.broken = True
        self.events = 0

        @tools.subscription
        async def shaky(ctx: Context) -> AsyncIterator[Event]:
            """Fail."""
            if ctx.cursor is None:
                await ctx.checkpoint("0")
            if self.broken:
                raise RuntimeError("the password is hunter2")
            self.events += 1
            yield Event(f"event {self.events}", cursor=str(self.events))
            while not self.broken:
                await ctx.sleep(1)
            raise RuntimeError("again")


async def test_the_thread_is_told_once_per_outage(toolset: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Item 5, semantics 25, INV-16: through crashes of the server too."""
    tools = toolset()
    shaky = Shaky(tools)
    async with testing.serve(tools) as client:
        subscription = await client.subscribe("shaky")
        await client.advance(1000)
        await client.crash()
        await client.advance(1000)
        (told,) = subscription.events
        assert told.text.startswith("Error: the subscription shaky failed unexpectedly (reference ")
        assert "hunter2" not in told.text
        assert (told.associative, told.final) == (True, False)
        reference = told.text.split("(reference ")[1][:8]
        assert reference in caplog.text

        shaky.broken = False
        await client.advance(400)
        assert texts(subscription)[1:] == ["event 1"]
        shaky.broken = True
        await client.advance(1000)
        assert len(texts(subscription)) == 3
        assert texts(subscription)[2].startswith("Error: the subscription shaky failed unexpectedly")
        assert not subscription.ended


async def test_a_minute_without_a_failure_ends_an_outage(toolset: Make) -> None:
    """Item 5, semantics 25"""
    tools = toolset()
    runs = 0

    @tools.subscription
    async def shaky(ctx: Context) -> AsyncIterator[str]:
        """Fail."""
        nonlocal runs
        runs += 1
        await ctx.sleep(61 if runs == 3 else 2)
        if runs:
            raise RuntimeError
        yield "never"

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("shaky")
        await client.advance(60)
        assert len(subscription.events) == 1
        await client.advance(60)
        assert len(subscription.events) == 2


@pytest.mark.parametrize("longest", [None, 3600.0])
async def test_a_subscription_that_fails_for_too_long_ends_with_an_error(toolset: Make, longest: float | None) -> None:
    """Item 5, semantics 25"""
    tools = toolset()
    if longest is not None:
        tools.durations = Durations(subscription_outage=longest)
    Shaky(tools)
    async with testing.serve(tools) as client:
        subscription = await client.subscribe("shaky")
        await client.advance((longest or 3 * DAY) - 400)
        assert not subscription.ended
        await client.advance(800)
        assert len(subscription.events) == 2
        last = subscription.events[-1]
        assert (last.associative, last.final) == (True, True)
        kept = "3 days" if longest is None else "60 minutes"
        assert last.text.startswith(f"Error: the subscription shaky kept failing for {kept} (reference ")


async def test_a_checkpoint_of_the_same_place_is_no_progress(toolset: Make) -> None:
    """Item 5: else a generator that stores where it is at every start would be told of for ever."""
    tools = toolset()

    @tools.subscription
    async def stuck(ctx: Context) -> AsyncIterator[str]:
        """Fail."""
        await ctx.checkpoint(ctx.cursor or "here")
        if ctx.cursor:
            raise RuntimeError
        yield "never"

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("stuck")
        await client.advance(2000)
        assert len(subscription.events) == 1


async def test_an_error_takes_the_place_of_an_event_that_cannot_be_handled(toolset: Make) -> None:
    """Item 5, semantics 25: in its place, and what follows is handled."""
    tools = toolset()

    @tools.subscription(topic="news")
    async def news(payload: str) -> str:
        """Tell me."""
        if payload == "bad":
            raise RuntimeError("the password is hunter2")
        return payload

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("news")
        for payload in ("a", "bad", "b"):
            await tools.emit("news", payload)
        await client.advance(600)

        first, error, last = subscription.events
        assert (first.text, last.text) == ("a", "b")
        assert error.text.startswith("Error: the subscription news could not handle an event (reference ")
        assert (error.associative, error.final) == (True, False)
        assert "hunter2" not in error.text


async def test_an_error_takes_the_place_of_an_event_that_takes_the_server_down(toolset: Make) -> None:
    """Item 5, semantics 25"""
    tools = toolset()
    handled: list[str] = []

    @tools.subscription(topic="news")
    async def news(payload: str, ctx: Context) -> str:
        """Tell me."""
        handled.append(payload)
        if payload == "deadly":
            await ctx.sleep(10_000)
        return payload

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("news")
        await tools.emit("news", "deadly")
        for _ in range(3):
            await client.settled()
            await client.crash()
        await tools.emit("news", "b")
        await client.advance(600)

        error, last = subscription.events
        assert error.text.startswith("Error: the subscription news could not handle an event")
        assert last.text == "b"
        assert handled.count("deadly") == 3
