"""What goes wrong around an agent in a test, and what the test is told."""

from typing import Any

import pytest

from rapkit import Toolset, testing
from rapkit.errors import ThreadParked
from rapkit.kernel.completion import Question
from rapkit.kernel.entries import Answered, Failed
from rapkit.kernel.limits import ThreadLimits

RULES: list[dict[str, Any]] = [
    {"user": "rain", "calls": [{"forecast": {"city": "Oslo"}}]},
    {"answer": "forecast", "say": "It will be {answer}"},
    {"user": "hello", "say": "Hi."},
]


@pytest.fixture
def weather() -> Toolset:
    tools = Toolset("weather")

    @tools.tool(read_only=True)
    async def forecast(city: str) -> str:
        """Forecast for a city."""
        return f"sunny in {city}"

    return tools


async def test_a_failing_model_is_asked_again_by_the_clock() -> None:
    """RUN-4"""
    rules = [{"user": "hello", "fail": "It is overloaded.", "times": 3, "say": "Hi."}]
    async with testing.agent(model=rules) as agent:
        thread = await agent.thread()
        began = agent.clock.now()
        await thread.send("hello")
        await agent.settled()
        assert [failed.text for failed in await thread.entries(Failed)] == ["It is overloaded."]

        await agent.advance(0.9)
        assert len(agent.model.questions) == 1
        await agent.advance(0.1)
        assert len(agent.model.questions) == 2
        await agent.advance(minutes=1)

        assert await thread.answer() == "Hi."
        assert len(agent.model.questions) == 4
        assert agent.clock.now() == began + 61


async def test_a_thread_whose_model_keeps_failing_is_parked_and_a_message_revives_it() -> None:
    """RUN-4"""
    rules: list[dict[str, Any]] = [
        {"user": "hello", "fail": "It is overloaded.", "times": 2},
        {"user": "hello", "say": "Hi."},
        {"user": "again", "say": "Here I am."},
    ]
    async with testing.agent(model=rules, limits=ThreadLimits(attempts=2)) as agent:
        thread = await agent.thread()
        await thread.send("hello")
        await agent.advance(minutes=10)

        with pytest.raises(ThreadParked, match=r"It is overloaded\. Write to the thread to try again"):
            await thread.answer()
        assert (await thread.look()).status == "parked"
        assert await thread.ask("again") == "Here I am."
        assert (await thread.look()).status == "idle"


async def test_asking_a_thread_that_parks_says_so() -> None:
    async with testing.agent(model=[{"fail": "No money.", "retryable": False}]) as agent:
        thread = await agent.thread()

        with pytest.raises(ThreadParked, match="No money"):
            await thread.ask("hello")


async def test_what_is_wrong_in_the_tests_own_model_fails_the_test() -> None:
    def strict(question: Question) -> str:
        assert question.instructions == "Be kind.", "nobody told me to be kind"
        return "fine"

    async with testing.agent(model=strict) as agent:
        thread = await agent.thread()
        with pytest.raises(AssertionError, match="nobody told me to be kind"):
            await thread.ask("hello")


async def test_a_toolset_that_was_down_is_called_when_it_is_up(weather: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread()
        await thread.ask("hello")
        agent.network.down("weather")
        await thread.send("rain?")
        await agent.advance(minutes=1)
        assert (await thread.look()).status == "waiting"

        agent.network.up("weather")
        await agent.advance(minutes=1)

        assert await thread.answer() == "It will be sunny in Oslo"


async def test_a_toolset_that_stays_down_is_given_up(weather: Toolset) -> None:
    """INV-6"""
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread()
        await thread.ask("hello")
        agent.network.down("weather")
        await thread.send("rain?")
        await agent.advance(hours=1)

        assert "Error" in await thread.answer()
        (answered,) = await thread.entries(Answered)
        assert answered.by == "runtime"


async def test_results_wait_for_an_agent_that_cannot_be_reached(weather: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread()
        agent.network.down("agent")
        await thread.send("rain?")
        await agent.advance(hours=5)
        assert (await thread.look()).status == "waiting"

        agent.network.up("agent")
        await agent.advance(days=1)

        assert await thread.answer() == "It will be sunny in Oslo"
        with pytest.raises(ValueError, match=r"There is no 'whether' in this test\. There are: weather, agent"):
            agent.network.down("whether")


async def test_what_does_not_come_is_told_with_the_journal_and_a_hint(weather: Toolset) -> None:
    rules = [{"user": "hello", "fail": "It is overloaded.", "say": "Hi."}]
    async with testing.agent(model=rules, patience=0.5) as agent:
        thread = await agent.thread()

        with pytest.raises(AssertionError) as told:
            await thread.ask("hello")

        assert str(told.value).startswith("No answer came within 0.5 s. Thread thr_")
        assert "1 UserSaid(text='hello'" in str(told.value)
        assert "2 Failed(text='It is overloaded.'" in str(told.value)
        assert "By the clock something is due in 1 s: `await agent.advance(1)` lets it happen." in str(told.value)
        with pytest.raises(AssertionError, match=r"The user was asked nothing within"):
            await thread.choice()
        await agent.advance(hours=1)
        with pytest.raises(AssertionError, match=r"(?s)it is not closed within.*Nothing is due later"):
            await thread.until(lambda look: look.status == "closed", "it is not closed")


async def test_a_lost_toolset_is_named(weather: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[weather], patience=1) as agent:
        thread = await agent.thread()
        await thread.ask("hello")
        agent.crash_after(0, "weather")

        with pytest.raises(AssertionError, match=r"'weather' is lost: `await agent.crash\('weather'\)` starts"):
            await thread.ask("rain?")
        await agent.crash("weather")
        await agent.advance(minutes=1)

        assert await thread.answer() == "It will be sunny in Oslo"
