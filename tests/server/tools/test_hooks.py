"""Hooks around calls: for timing, auditing, policy."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import BaseModel

from rapkit import Context, Event, HookedCall, ToolError, Toolset, testing
from rapkit.server.tools.hooks import Proceed


class Place(BaseModel):
    city: str


@pytest.fixture
def events() -> list[str]:
    return []


@pytest.fixture
def tools(events: list[str]) -> Toolset:
    tools = Toolset("tools", tokens={"alice": "alice-has-a-long-token", "bob": "bob-has-a-long-token"})

    @tools.tool
    async def visit(place: Place, ctx: Context, days: int = 3) -> str:
        """Go somewhere."""
        events.append(f"visiting {place.city}")
        await ctx.sleep(days)
        return f"seen {place.city}"

    @tools.tool
    def plain(word: str = "word") -> str:
        """Say something, in a thread."""
        events.append(f"saying {word}")
        return word

    @tools.tool
    async def fail() -> str:
        """Fail."""
        raise ToolError("it did not work.")

    @tools.tool
    async def ask(ctx: Context) -> str:
        """Ask."""
        return await ctx.choose("Well?", ["Yes", "No"])

    @tools.subscription
    async def count() -> AsyncIterator[Event]:
        """Count to two."""
        events.append("counting")
        yield Event("one")
        yield Event("two", final=True)

    return tools


async def test_a_hook_measures_how_long_calls_take(tools: Toolset) -> None:
    times: dict[str, float] = {}

    @tools.around
    async def measure(call: HookedCall, proceed: Proceed) -> Any:
        began = client.clock.now()
        try:
            return await proceed()
        finally:
            times[call.operation] = client.clock.now() - began

    async with testing.serve(tools) as client:
        visit = await client.start("visit", place={"city": "Oslo"}, days=5)
        await client.advance(60)

        assert (await visit.result()).text == "seen Oslo"
        assert (await client.call("plain")).text == "word"
        assert (await client.call("fail")).text == "Error: it did not work."
        assert times == {"visit": 5, "plain": 0, "fail": 0}


async def test_a_hook_knows_what_is_called_by_whom_with_what(tools: Toolset) -> None:
    calls: list[HookedCall] = []

    @tools.around
    async def audit(call: HookedCall, proceed: Proceed) -> Any:
        calls.append(call)
        return await proceed()

    async with testing.serve(tools, caller="bob") as client:
        call = await client.as_(user_id="user_2", thread_id="t2").start("visit", place={"city": "Oslo"}, days=0)
        await call.result()

        (seen,) = calls
        assert (seen.operation, seen.caller) == ("visit", "bob")
        assert seen.arguments == {"place": Place(city="Oslo"), "days": 0}
        assert (seen.context.user_id, seen.context.thread_id, seen.context.call_id) == ("user_2", "t2", call.id)


async def test_a_policy_refuses_a_call_in_its_own_words(tools: Toolset, events: list[str]) -> None:
    @tools.around
    async def police(call: HookedCall, proceed: Proceed) -> Any:
        if call.caller == "bob" and call.operation == "visit":
            raise ToolError(f"bob may not go to {call.arguments['place'].city}.")
        return await proceed()

    async with testing.serve(tools) as alice:
        bob = alice.as_(caller="bob")

        assert (await bob.call("visit", place={"city": "Oslo"}, days=0)).text == "Error: bob may not go to Oslo."
        assert events == []
        assert (await bob.call("plain")).text == "word"
        assert (await alice.call("visit", place={"city": "Oslo"}, days=0)).text == "seen Oslo"


async def test_the_first_hook_is_the_outermost(tools: Toolset, events: list[str]) -> None:
    for name in ("first", "second", "third"):

        @tools.around
        async def hook(_call: HookedCall, proceed: Proceed, name: str = name) -> Any:
            events.append(f"{name} begins")
            result = await proceed()
            events.append(f"{name} ends")
            return f"{name}({result})"

    async with testing.serve(tools) as client:
        assert (await client.call("plain", word="x")).text == "first(second(third(x)))"
        assert events == [
            "first begins",
            "second begins",
            "third begins",
            "saying x",
            "third ends",
            "second ends",
            "first ends",
        ]


async def test_a_hook_can_answer_itself(tools: Toolset, events: list[str]) -> None:
    kept: dict[str, Any] = {}

    @tools.around
    async def cache(call: HookedCall, proceed: Proceed) -> Any:
        key = f"{call.operation}{call.arguments}"
        if key not in kept:
            kept[key] = await proceed()
        return kept[key]

    async with testing.serve(tools) as client:
        assert [(await client.call("plain", word="x")).text for _ in range(3)] == ["x"] * 3
        assert events == ["saying x"]


async def test_a_hook_sees_how_a_call_fails_and_may_try_again(tools: Toolset, events: list[str]) -> None:
    @tools.tool
    async def flaky() -> str:
        """Fail the first time."""
        events.append("tried")
        if len(events) == 1:
            raise ConnectionError("try again")
        return "worked"

    @tools.around
    async def retry(_call: HookedCall, proceed: Proceed) -> Any:
        try:
            return await proceed()
        except ConnectionError:
            return await proceed()

    async with testing.serve(tools) as client:
        assert (await client.call("flaky")).text == "worked"
        assert events == ["tried", "tried"]


async def test_a_hook_that_fails_is_masked_like_a_handler(tools: Toolset, caplog: pytest.LogCaptureFixture) -> None:
    """INV-16"""

    @tools.around
    async def broken(_call: HookedCall, _proceed: Proceed) -> Any:
        raise RuntimeError("the password is hunter2")

    async with testing.serve(tools) as client:
        result = await client.call("plain")

        assert "failed unexpectedly" in result.text
        assert "hunter2" not in result.text
        assert "hunter2" in caplog.text


async def test_hooks_are_around_calls_that_can_be_made_at_all(tools: Toolset, events: list[str]) -> None:
    @tools.around
    async def note(call: HookedCall, proceed: Proceed) -> Any:
        events.append(call.operation)
        return await proceed()

    async with testing.serve(tools) as client:
        assert (await client.call("nothing")).is_error
        assert (await client.call("visit", place="nowhere")).is_error
        assert events == []


async def test_a_hook_is_part_of_the_call_for_its_timeout_and_its_cancellation(events: list[str]) -> None:
    tools = Toolset("tools")

    @tools.tool(timeout=10)
    async def quick() -> str:
        """Take no time."""
        return "quick"

    @tools.around
    async def slow(call: HookedCall, proceed: Proceed) -> Any:
        try:
            await call.context.sleep(20)
        except asyncio.CancelledError:
            events.append("interrupted")
            raise
        return await proceed()

    async with testing.serve(tools) as client:
        late = await client.start("quick")
        await client.advance(10)
        assert "10" in (await late.result()).text

        cancelled = await client.start("quick")
        await client.settled()
        await cancelled.cancel()
        assert (await cancelled.result()).text == "Error: Cancelled."
        assert events == ["interrupted"] * 2


async def test_a_hook_around_a_handler_that_waits_runs_again_with_it(tools: Toolset, events: list[str]) -> None:
    @tools.around
    async def note(call: HookedCall, proceed: Proceed) -> Any:
        events.append("begins")
        try:
            result = await proceed()
        except BaseException as error:
            events.append(type(error).__name__)
            raise
        events.append("ends")
        return result

    async with testing.serve(tools) as client:
        call = await client.start("ask")
        await (await call.choice()).select("Yes")

        assert (await call.result()).text == "Yes"
        assert events == ["begins", "CancelledError", "begins", "ends"]


async def test_a_hook_can_ask_the_user_itself(tools: Toolset, events: list[str]) -> None:
    @tools.around
    async def confirm(call: HookedCall, proceed: Proceed) -> Any:
        if await call.context.choose(f"Really {call.operation}?", ["Yes", "No"], remember="thread") == "No":
            raise ToolError("The user declined.")
        return await proceed()

    async with testing.serve(tools) as client:
        declined = await client.start("plain")
        await (await declined.choice()).select("No")
        assert (await declined.result()).text == "Error: The user declined."
        assert (await client.call("plain")).text == "Error: The user declined."  # as it was remembered
        assert events == []

        asked = await client.start("ask")
        for prompt in ("Really ask?", "Well?"):
            choice = await asked.choice()
            assert choice.prompt == prompt
            await choice.select("Yes")
        assert (await asked.result()).text == "Yes"


async def test_around_a_subscription_a_hook_is_around_its_confirmation(tools: Toolset, events: list[str]) -> None:
    @tools.around
    async def note(call: HookedCall, proceed: Proceed) -> Any:
        events.append("asked for")
        result = await proceed()
        events.append("confirmed")
        return f"{result} Have fun."

    async with testing.serve(tools) as client:
        watch = await client.subscribe("count")

        assert [event.text async for event in watch] == ["one", "two"]
        assert watch.confirmation.text.endswith(f"{watch.id}. Have fun.")
        assert events == ["asked for", "confirmed", "counting"]


async def test_a_subscription_that_is_refused_never_begins(tools: Toolset, events: list[str]) -> None:
    """SUB-2: an error confirms nothing, whenever the hook raises it."""
    refuse_early = True

    @tools.around
    async def police(_call: HookedCall, proceed: Proceed) -> Any:
        if refuse_early:
            raise ToolError("No subscriptions today.")
        await proceed()
        raise ToolError("No subscriptions today, after all.")

    async with testing.serve(tools) as client:
        early = await client.start("count")
        assert (await early.result()).text == "Error: No subscriptions today."
        refuse_early = False
        late = await client.start("count")
        assert (await late.result()).text == "Error: No subscriptions today, after all."

        await client.advance(60)
        assert events == []
        assert len(client.messages) == 2
