"""Agents in tests: asked, interrupted, told of events, made to ask their users."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai.models.test import TestModel

from rapkit import Budget, Context, Durations, Event, OAuthProvider, Schedule, ThreadLimits, Toolset, testing
from rapkit.errors import ConfigError, ThreadClosed, ThreadParked, UnknownThread
from rapkit.kernel.completion import Question, Reply, WantedCall
from rapkit.kernel.conversation import Heard
from rapkit.kernel.entries import Answered, Began, ChildMade, ChoiceMadeEntry, ClosedEntry, Happened, ModelSaid, WokenUp
from rapkit.models.scripted import Scripted

DAY = 24 * 3600.0

RULES: list[dict[str, Any]] = [
    {"user": "rain", "calls": [{"forecast": {"city": "Oslo"}}]},
    {"user": "both", "calls": [{"forecast": {"city": "Oslo"}}, {"forecast": {"city": "Rome"}}]},
    {"user": "count", "calls": [{"census": {"city": "Oslo"}}]},
    {"user": "watch", "calls": [{"storms": {"city": "Oslo"}}]},
    {"user": "hourly", "calls": ["hourly"]},
    {"user": "out", "calls": [{"evacuate": {"city": "Oslo"}}]},
    {"user": "report", "calls": ["report"]},
    {"user": "draw", "calls": ["draw"]},
    {"user": "stop", "calls": [{"cancel_subscription": {"tool_call_id": "{calls[hourly]}"}}]},
    {"event": "storms", "say": "Beware: {text}"},
    {"event": "hourly", "say": "It is {text}"},
    {"answer": "cancel_subscription", "say": "Stopped."},
    {"answer": "census", "text": "still running", "say": "It is being counted."},
    {"answer": "forecast", "say": "It will be {answers}"},
    {"answer": "census", "say": "Counted: {answer}"},
    {"answer": "storms", "say": "I watch."},
    {"answer": "hourly", "say": "I tell you."},
    {"answer": "evacuate", "say": "They say: {answer}"},
    {"answer": "report", "say": "It is {answer}"},
    {"answer": "draw", "say": "Look."},
    {"user": "hello", "say": "Hi."},
]


@pytest.fixture
def weather() -> Toolset:
    tools = Toolset("weather", oauth=[OAuthProvider.github("id", "a secret")], durations=Durations(grace=0))

    @tools.tool(read_only=True)
    async def forecast(city: str) -> str:
        """Forecast for a city."""
        return f"sunny in {city}"

    @tools.tool(read_only=True)
    async def census(city: str, ctx: Context) -> str:
        """Count everybody."""
        await ctx.sleep(3 * DAY)
        return f"7 in {city}"

    @tools.tool
    async def evacuate(city: str, ctx: Context) -> str:
        """Order everyone out."""
        return await ctx.choose(f"Really evacuate {city}?", ["Yes", "No"], default="No")

    @tools.tool
    async def report(ctx: Context) -> str:
        """File a report."""
        return f"filed with {await ctx.oauth('github')}"

    @tools.tool
    async def draw(ctx: Context) -> str:
        """Draw a map."""
        await ctx.view("map", {"zoom": 3})
        return "drawn"

    @tools.subscription(associative=False)
    async def storms(city: str, ctx: Context) -> AsyncIterator[Event]:
        """Storms, a thread for each."""
        for number in range(int(ctx.cursor or 0) + 1, 3):
            await ctx.sleep(DAY)
            yield Event(f"storm {number} over {city}", cursor=str(number))

    @tools.subscription(associative=True)
    async def hourly(ctx: Context) -> AsyncIterator[Event]:
        """Tell me every hour."""
        hour = int(ctx.cursor or 0)
        while True:
            await ctx.sleep(3600)
            hour += 1
            yield Event(f"{hour} o'clock", cursor=str(hour))

    return tools


async def test_an_agent_is_asked_and_asks_its_tools(weather: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[weather], instructions="Be brief.") as agent:
        thread = await agent.thread(user_id="u1")

        assert await thread.ask("Will it rain?") == "It will be sunny in Oslo"
        assert await thread.ask("hello") == "Hi."

        first, second, _third = agent.model.questions
        assert "Be brief." in first.instructions
        assert "forecast" in {tool.name for tool in first.tools}
        assert isinstance(second.conversation[-1], Heard)
        assert second.conversation[-1].answers[0].name == "forecast"
        assert await thread.said() == ["Will it rain?", "It will be sunny in Oslo", "hello", "Hi."]
        assert (await thread.conversation())[0] == Heard(texts=("Will it rain?",))
        assert (await thread.look()).status == "idle"


async def test_calls_made_at_once_are_answered_together(weather: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread()

        assert await thread.ask("both") == "It will be sunny in Oslo\nsunny in Rome"
        assert len(agent.model.questions) == 2


async def test_a_model_can_be_a_function_and_any_model() -> None:
    def parrot(question: Question) -> Reply | str:
        last = question.conversation[-1]
        assert isinstance(last, Heard)
        if last.texts == ("call it",):
            return Reply(calls=(WantedCall("p1", "nothing", {}),))
        return " ".join((*last.texts, *(str(answer.content) for answer in last.answers)))

    async with testing.agent(model=parrot) as agent:
        thread = await agent.thread()
        assert await thread.ask("echo") == "echo"
        assert "There is no tool 'nothing'" in await thread.ask("call it")
    async with testing.agent(model=Scripted(parrot, name="Polly")) as agent:
        assert await (await agent.thread()).ask("echo") == "echo"
        assert agent.model.name == "Polly"
        assert [reply.text for reply in agent.model.replies] == ["echo"]


async def test_test_models_of_pydantic_ai_will_do() -> None:
    async with testing.agent(model=TestModel(call_tools=["transfer"]), tools=["transfer"]) as agent:
        agent.tool("transfer").answer("Done.")

        assert "Done." in await (await agent.thread()).ask("pay")
        assert len(agent.tool("transfer").calls) == 1


async def test_an_answer_comes_after_three_days(weather: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread()
        began = agent.clock.now()
        await thread.send("count them")

        await agent.advance(days=2, hours=23)
        assert (await thread.look()).status == "waiting"
        assert await thread.said() == ["count them"]
        await agent.advance(minutes=60)

        assert await thread.answer() == "Counted: 7 in Oslo"
        assert agent.clock.now() == began + 3 * DAY


async def test_the_user_is_answered_while_a_call_goes_on(weather: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread()
        await thread.send("count them")
        await agent.settled()
        (running,) = (await thread.look()).thread.pending

        assert await thread.ask("hello") == "Hi."
        assert list((await thread.look()).thread.pending) == [running]
        await agent.advance(days=3)

        assert await thread.answer() == "Counted: 7 in Oslo"
        (answered,) = await thread.entries(Answered)
        assert answered.late


async def test_events_come_into_the_thread_or_into_threads_of_their_own(weather: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread()
        await thread.send("tell me hourly")
        await agent.advance(seconds=1)  # it is confirmed because it runs
        assert await thread.answer() == "I tell you."
        await thread.send("watch")
        await agent.advance(seconds=1)
        assert await thread.answer() == "I watch."

        await agent.advance(hours=2)
        assert [await thread.answer(), await thread.answer()] == ["It is 1 o'clock", "It is 2 o'clock"]
        assert await thread.ask("stop") == "Stopped."
        await agent.advance(days=3)

        assert [event.fate for event in await thread.entries(Happened)] == ["shown", "shown", *["threaded"] * 3]
        children = await thread.children()
        assert len(await thread.entries(ChildMade)) == len(children) == 3  # the third: that the subscription is over
        assert [(await child.entries(Began))[0].text for child in children][:2] == [
            "storm 1 over Oslo",
            "storm 2 over Oslo",
        ]
        assert "Beware: storm 1 over Oslo" in await children[0].said()
        assert (await children[0].look()).status == "closed"
        assert (await thread.look()).thread.subscriptions == {}
        assert len(await agent.threads()) == 4


async def test_users_choose(weather: Toolset) -> None:
    """CHO-1"""
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread()
        await thread.send("get them out")

        question = await thread.choice()
        assert (question.prompt, question.choices, question.default) == ("Really evacuate Oslo?", ("Yes", "No"), "No")
        with pytest.raises(AssertionError, match=r"cannot be answered with 'Perhaps', only with: \('Yes', 'No'\)"):
            await question.select("Perhaps")
        await question.select("Yes")
        assert await thread.answer() == "They say: Yes"

        await thread.send("out, all of them")
        await (await thread.choice()).dismiss()
        assert await thread.answer() == "They say: No"
        assert [made.dismissed for made in await thread.entries(ChoiceMadeEntry)] == [False, True]


async def test_users_authorise_tools(weather: Toolset) -> None:
    """OAU-1"""
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread(user_id="u1")
        await thread.send("report it")

        asked = await thread.authorization()
        assert asked.url.startswith("https://github.com/")
        assert (await thread.look()).authorizations == {asked.call_id: asked.url}
        await asked.approve("t0ken")

        assert await thread.answer() == "It is filed with t0ken"
        assert (await thread.look()).authorizations == {}

        other = await agent.thread(user_id="u2")
        await other.send("report it")
        await (await other.authorization()).deny()
        assert "Error" in await other.answer()


async def test_the_models_own_questions_are_answered_in_words() -> None:
    rules: list[dict[str, Any]] = [
        {"user": "name", "calls": [{"ask_user": {"question": "Who?"}}]},
        {"answer": "ask_user", "say": "{answer}!"},
    ]
    async with testing.agent(model=rules) as agent:
        thread = await agent.thread()
        await thread.send("ask my name")

        question = await thread.choice()
        assert (question.choices, question.default) == ((), None)
        await question.answer("Ann")

        assert await thread.answer() == "Ann!"


async def test_schedules_speak_when_the_clock_says_so() -> None:
    morning = Schedule("0 9 * * *", "good morning", zone="Europe/Berlin", name="morning")
    async with testing.agent(model=[{"user": "morning", "say": "Hi."}], schedules=[morning]) as agent:
        await agent.advance(hours=19)
        assert await agent.threads() == []
        await agent.advance(hours=1)
        await agent.restart()
        await agent.advance(days=2)

        (thread,) = await agent.threads()
        assert [woken.due for woken in await thread.entries(WokenUp)] == [
            f"2030-01-0{day} 09:00 Europe/Berlin" for day in (2, 3, 4)
        ]
        assert await thread.said() == ["Hi."] * 3


async def test_budgets_end_and_are_granted() -> None:
    async with testing.agent(model=[{"say": "Hi."}], limits=ThreadLimits(slices=1), budget=Budget(slices=2)) as agent:
        thread = await agent.thread()
        assert await thread.ask("hello") == "Hi."
        with pytest.raises(ThreadParked, match="The thread has used 1 slice"):
            await thread.ask("hello")

        await thread.grant(slices=5)
        assert await thread.answer() == "Hi."
        with pytest.raises(ThreadParked, match="The agent has run 2 of its 2 slices"):
            await thread.ask("hello")
        await agent.advance(days=1)

        assert await thread.answer() == "Hi."


async def test_views_are_shown(weather: Toolset) -> None:
    """VIE-1"""
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread()

        assert await thread.ask("draw it") == "Look."

        assert (await thread.look()).views == {"map": {"zoom": 3}}


async def test_calls_are_cancelled(weather: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread()
        await thread.send("count them")
        look = await thread.until(lambda look: look.thread.pending)

        await thread.cancel(next(iter(look.thread.pending)))

        assert "ancelled" in await thread.answer()
        await agent.advance(days=4)
        assert len(await thread.entries(Answered)) == 1


async def test_a_closed_thread_takes_nothing_more(weather: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread()
        await thread.send("count them")
        await agent.settled()

        await thread.close()

        with pytest.raises(ThreadClosed):
            await thread.answer()
        with pytest.raises(ThreadClosed):
            await thread.send("hello?")
        await agent.advance(days=4)
        assert isinstance((await thread.entries())[-1], ClosedEntry)


async def test_threads_are_found_again_and_kept_apart(weather: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        one, other = await agent.thread(), await agent.thread()
        await one.ask("hello")

        assert await (await agent.thread(one.id)).said() == ["hello", "Hi."]
        assert await other.said() == []
        with pytest.raises(UnknownThread):
            await agent.thread("thr_unknown")


async def test_a_restart_in_order_leaves_nothing_undone(weather: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread()
        await thread.send("count them")
        await agent.settled()

        await agent.restart()
        await agent.restart("weather")
        await agent.advance(days=3)

        assert await thread.answer() == "Counted: 7 in Oslo"
        assert agent.crashes == 0


async def test_toolsets_with_tokens_and_addresses_of_their_own_are_called_like_any(weather: Toolset) -> None:
    tools = Toolset("far", tokens={"agent": "t" * 20}, public_url="https://tools.example.com/far")

    @tools.tool
    async def forecast(city: str, ctx: Context) -> str:
        """Forecast for a city."""
        return await ctx.choose("How?", ["sunny", "rainy"])

    async with testing.agent(model=RULES, tools=[tools]) as agent:
        thread = await agent.thread()
        await thread.send("rain?")
        await (await thread.choice()).select("rainy")

        assert await thread.answer() == "It will be rainy"


async def test_the_agents_app_answers_requests(weather: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        assert (await agent.request("GET", "/healthz")).status == 200
        assert (await agent.request("POST", "/callback/guess", {"type": "tool_result"})).status in (400, 404)


async def test_everybody_in_a_test_has_a_name_of_their_own(weather: Toolset) -> None:
    with pytest.raises(ConfigError, match="Two in this test are called 'weather'"):
        async with testing.agent(model=RULES, tools=[weather, testing.FakeTools("weather", ["forecast"])]):
            pass
    async with testing.serve(weather):
        with pytest.raises(RuntimeError, match="is being served already"):
            async with testing.agent(model=RULES, tools=[weather]):
                pass
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        with pytest.raises(ValueError, match="There are: agent, weather"):
            await agent.crash("whether")
        with pytest.raises(ValueError, match="There is no fake tool 'forecast'"):
            agent.tool("forecast")


async def test_the_model_said_is_part_of_the_journal(weather: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread()
        await thread.ask("rain?")

        called, said = await thread.entries(ModelSaid)
        assert (called.calls[0].name, said.text) == ("forecast", "It will be sunny in Oslo")
