"""Agents and tools that are lost at any moment, and their successors."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import Any

import pytest

from rapkit import Context, Event, Toolset, testing
from rapkit.kernel.completion import Question
from rapkit.kernel.entries import (
    Answered,
    ChoiceAsked,
    ChoiceMadeEntry,
    Happened,
    JournalEntry,
    ModelSaid,
    Unsubscribed,
    UserSaid,
)
from tests.call_ids import plain_entry
from tests.crash_sides import before_or_after_commit

RULES: list[dict[str, Any]] = [
    {"user": "rain", "calls": [{"forecast": {"city": "Oslo"}}]},
    {"user": "watch", "calls": ["hourly"]},
    {"user": "out", "calls": [{"evacuate": {"city": "Oslo"}}]},
    {"event": "hourly", "say": "It is {text}"},
    {"answer": "forecast", "say": "It will be {answer}"},
    {"answer": "hourly", "say": "I tell you."},
    {"answer": "evacuate", "say": "They say: {answer}"},
]


@pytest.fixture
def executed() -> list[str]:
    return []


@pytest.fixture
def weather(executed: list[str]) -> Toolset:
    tools = Toolset("weather")

    @tools.tool(idempotent=True)
    async def forecast(city: str) -> str:
        """Forecast for a city."""
        executed.append(city)
        return f"sunny in {city}"

    @tools.tool(idempotent=True)
    async def evacuate(city: str, ctx: Context) -> str:
        """Order everyone out."""
        chosen = await ctx.choose(f"Really evacuate {city}?", ["Yes", "No"], default="No")
        executed.append(chosen)
        return chosen

    @tools.subscription(associative=True)
    async def hourly(ctx: Context) -> AsyncIterator[Event]:
        """Tell me when an hour is over; after another one I know by myself."""
        await ctx.sleep(3600)
        if ctx.cursor is None:
            yield Event("1 o'clock", cursor="1")
            await ctx.sleep(3600)

    return tools


async def converse(agent: testing.StagedAgent) -> list[JournalEntry]:
    """A whole conversation, with time for everything that is sent again; returns its journal."""
    thread = await agent.thread(user_id="u1")
    await thread.send("Will it rain?")
    await agent.advance(minutes=5)
    await thread.send("watch")
    await agent.advance(hours=6)
    await thread.send("get them out")
    await agent.advance(minutes=5)
    await (await thread.choice()).select("Yes")
    await agent.advance(minutes=5)
    await thread.answer()
    return [_without_id(entry) for entry in await thread.entries()]


def _without_id(entry: JournalEntry) -> JournalEntry:
    return replace(entry, id="") if isinstance(entry, UserSaid) else plain_entry(entry)


@pytest.fixture
async def undisturbed(weather: Toolset, executed: list[str]) -> list[JournalEntry]:
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        journal = await converse(agent)
    assert [type(entry) for entry in journal] == [
        UserSaid, ModelSaid, Answered, ModelSaid,
        UserSaid, ModelSaid, Answered, ModelSaid,
        Happened, ModelSaid, Happened, Unsubscribed, ModelSaid,
        UserSaid, ModelSaid, ChoiceAsked, ChoiceMadeEntry, Answered, ModelSaid,
    ]  # fmt: skip
    assert executed == ["Oslo", "Yes"]
    executed.clear()
    return journal


@before_or_after_commit
async def test_an_agent_lost_at_any_step_goes_on_as_if_nothing_had_happened(
    weather: Toolset, executed: list[str], undisturbed: list[JournalEntry], unheard: bool
) -> None:
    """RUN-4, RUN-5, CB-14: what was acknowledged is there once, and every call was made once."""
    for steps in itertools.count():
        executed.clear()
        async with testing.agent(model=RULES, tools=[weather]) as agent:
            agent.crash_after(steps, unheard=unheard, restart=True)

            assert await converse(agent) == undisturbed, f"lost after {steps} steps"
            assert executed == ["Oslo", "Yes"], f"lost after {steps} steps"
            if not agent.crashes:
                break
    assert steps > 50


async def _lose_toolset(
    weather: Toolset, executed: list[str], undisturbed: list[JournalEntry], every: Iterable[int], unheard: bool
) -> None:
    for steps in every:
        executed.clear()
        async with testing.agent(model=RULES, tools=[weather]) as agent:
            agent.crash_after(steps, "weather", unheard=unheard, restart=True)

            assert await converse(agent) == undisturbed, f"lost after {steps} steps"
            assert set(executed) == {"Oslo", "Yes"}, f"lost after {steps} steps"
            if not agent.crashes:
                return


async def test_a_toolset_that_is_lost_changes_nothing_in_the_conversation(
    weather: Toolset, executed: list[str], undisturbed: list[JournalEntry]
) -> None:
    """INV-13: what can be done twice is done again."""
    await _lose_toolset(weather, executed, undisturbed, itertools.count(3, 11), unheard=False)
    await _lose_toolset(weather, executed, undisturbed, itertools.count(2, 7), unheard=True)


@pytest.mark.soak
@before_or_after_commit
async def test_a_toolset_lost_at_any_step_changes_nothing_in_the_conversation(
    weather: Toolset, executed: list[str], undisturbed: list[JournalEntry], unheard: bool
) -> None:
    await _lose_toolset(weather, executed, undisturbed, itertools.count(), unheard)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 120, 10))
async def test_both_can_be_lost_at_any_two_steps(weather: Toolset, undisturbed: list[JournalEntry], first: int) -> None:
    for second in range(0, 160, 10):
        async with testing.agent(model=RULES, tools=[weather]) as agent:
            agent.crash_after(first, restart=True)
            agent.crash_after(second, "weather", restart=True)

            assert await converse(agent) == undisturbed, f"lost after {first} and {second} steps"


async def test_both_can_be_lost(weather: Toolset, undisturbed: list[JournalEntry]) -> None:
    for steps in range(10, 100, 17):
        async with testing.agent(model=RULES, tools=[weather]) as agent:
            agent.crash_after(steps, restart=True)
            agent.crash_after(steps, "weather", restart=True)

            assert await converse(agent) == undisturbed, f"lost after {steps} steps"
            assert agent.crashes == 2


async def test_a_lost_agent_is_replaced_when_the_test_says_so(weather: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[weather], patience=2) as agent:
        thread = await agent.thread()
        agent.crash_after(0)

        with pytest.raises(AssertionError, match=r"The agent is lost: `await agent.crash\(\)` starts the next one."):
            await thread.send("Will it rain?")
        assert agent.lost
        with pytest.raises(AssertionError, match=r"(?s)No answer came.*is idle.*nothing.*`await agent.crash\(\)`"):
            await thread.answer()
        await agent.crash()

        assert await thread.ask("Will it rain?") == "It will be sunny in Oslo"
        assert agent.crashes == 1


async def test_an_agent_that_was_replaced_by_itself_need_not_be_the_next_time(weather: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread()
        agent.crash_after(0, restart=True)
        assert await thread.ask("Will it rain?") == "It will be sunny in Oslo"
        agent.crash_after(0)

        with pytest.raises(AssertionError, match="The agent is lost"):
            await thread.send("Will it rain?")
        assert agent.crashes == 2


async def test_a_crash_at_a_moment_of_the_tests_choice(weather: Toolset, executed: list[str]) -> None:
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread()
        await thread.send("get them out")
        question = await thread.choice()

        await agent.crash()
        await agent.crash("weather")
        await question.select("Yes")

        assert await thread.answer() == "They say: Yes"
        assert executed == ["Yes"]
        assert agent.crashes == 2


async def test_the_dead_ask_nobody_and_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rapkit.testing.activity._PATIENCE_WITH_THREADS", 0.01)
    gate = asyncio.Event()

    async def slow(question: Question) -> str:
        await gate.wait()
        return f"said to question {len(agent.model.questions)}"

    async with testing.agent(model=slow) as agent:
        thread = await agent.thread()
        await thread.send("hello")
        await thread.until(lambda _: agent.model.questions)

        await agent.crash()
        gate.set()

        assert await thread.answer() == "said to question 2"
        await agent.settled()
        assert len(await thread.entries()) == 2
