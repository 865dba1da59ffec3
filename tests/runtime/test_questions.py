"""What the model asks the user, and how long questions wait: of the model, of tools, and of tools that want to be authorised."""

import asyncio
import itertools
from dataclasses import replace
from typing import Any

import pytest

from rapkit import Context, OAuthProvider, Schedule, ThreadLimits, Toolset, testing
from rapkit.errors import ThreadError
from rapkit.kernel.completion import Question
from rapkit.kernel.conversation import Heard
from rapkit.kernel.entries import (
    Answered,
    AuthorizationExpired,
    ChoiceAsked,
    ChoiceMadeEntry,
    JournalEntry,
    UserSaid,
)
from rapkit.kernel.limits import Timeouts
from tests.call_ids import plain_entry
from tests.crash_sides import before_or_after_commit
from tests.runtime.agents import RunningAgent, call, calling, please
from tests.runtime.api.client import Client

RULES: list[dict[str, Any]] = [
    {"user": "which", "calls": [{"ask_user": {"question": "Which colour?", "choices": ["red", "green"]}}]},
    {"user": "name", "calls": [{"ask_user": {"question": "What is your name?"}}]},
    {"user": "two things", "calls": [{"ask_user": {"question": "A?"}}, {"ask_user": {"question": "B?"}}]},
    {"user": "both", "calls": [{"ask_user": {"question": "A?"}}, "work"]},
    {"user": "delegate", "calls": [{"spawn_thread": {"task": "find out the name"}}]},
    {"task": "name", "calls": [{"ask_user": {"question": "What is your name?"}}]},
    {"user": "work", "calls": ["work"]},
    {"user": "report", "calls": ["report"]},
    {"user": "hello", "say": "Hi."},
    {"user": "green", "say": "You wrote: {text}"},
    {"report": "", "say": "Reported: {text}"},
    {"answer": "ask_user", "say": "So: {answers}"},
    {"answer": "work", "say": "Worked: {answer}"},
    {"answer": "report", "say": "It is {answer}"},
    {"answer": "spawn_thread", "say": "Delegated."},
]


@pytest.fixture
def office() -> Toolset:
    tools = Toolset("office", oauth=[OAuthProvider.github("id", "a secret")])

    @tools.tool
    async def report(ctx: Context) -> str:
        """File a report."""
        return f"filed with {await ctx.oauth('github')}"

    return tools


# Answering


async def test_the_model_asks_and_the_user_chooses() -> None:
    async with testing.agent(model=RULES) as agent:
        thread = await agent.thread()
        await thread.send("which one?")
        question = await thread.choice()
        assert (question.prompt, question.choices, question.default) == ("Which colour?", ("red", "green"), None)
        look = await thread.look()
        assert (look.status, look.thread.pending[question.call_id].awaits) == ("waiting", "user")
        await agent.advance(days=5)  # however long that takes

        await question.select("green")

        assert await thread.answer() == "So: green"


async def test_the_user_may_answer_something_else() -> None:
    async with testing.agent(model=RULES) as agent:
        thread = await agent.thread()
        await thread.send("which one?")

        await (await thread.choice()).answer("neither: blue")

        assert await thread.answer() == "So: neither: blue"
        (made,) = await thread.entries(ChoiceMadeEntry)
        assert (made.text, made.selected, made.dismissed) == ("neither: blue", None, False)


async def test_a_question_without_choices_is_answered_in_words() -> None:
    async with testing.agent(model=RULES) as agent:
        thread = await agent.thread()
        await thread.send("ask my name")
        question = await thread.choice()
        assert question.choices == ()

        await question.answer("Ann")

        assert await thread.answer() == "So: Ann"


async def test_a_question_is_answered_by_the_next_message() -> None:
    """The message stands for itself, and the model sees that it is the answer."""
    async with testing.agent(model=RULES) as agent:
        thread = await agent.thread()
        await thread.send("which one?")
        question = await thread.choice()

        assert await thread.ask("green, of course") == "You wrote: green, of course"

        (answered,) = await thread.entries(Answered)
        assert answered.text == "The user answered with the message that follows."
        heard = agent.model.questions[-1].conversation[-1]
        assert isinstance(heard, Heard)
        assert heard.texts == ("green, of course",)
        assert (await thread.look()).thread.choices == {}
        with pytest.raises(ThreadError):
            await question.select("red")


async def test_a_question_can_be_dismissed() -> None:
    async with testing.agent(model=RULES) as agent:
        thread = await agent.thread()
        await thread.send("which one?")

        await (await thread.choice()).dismiss()

        assert await thread.answer() == "So: The user dismissed the question and gave no answer."


async def test_several_questions_are_answered_in_any_order() -> None:
    async with testing.agent(model=RULES) as agent:
        thread = await agent.thread()
        await thread.send("two things")
        first, second = await thread.choice(), await thread.choice()

        await second.answer("b")
        await agent.settled()
        assert len(agent.model.questions) == 1
        await first.answer("a")

        assert await thread.answer() == "So: a\nb"


async def test_a_question_beside_a_call_keeps_the_model_waiting_for_both() -> None:
    async with testing.agent(model=RULES, tools=["work"]) as agent:
        thread = await agent.thread()
        await thread.send("both")
        await (await agent.tool("work").call()).result("done")
        await agent.settled()
        assert len(agent.model.questions) == 1

        await (await thread.choice()).answer("yes")
        await agent.settled()

        assert [each.text for each in await thread.entries(Answered)] == ["done", "yes"]
        assert len(agent.model.questions) == 2


async def test_a_child_asks_the_user_too() -> None:
    async with testing.agent(model=RULES) as agent:
        thread = await agent.thread()
        await thread.ask("delegate it")
        await agent.settled()
        (child,) = await thread.children()

        await (await child.choice()).answer("Ann")

        assert await thread.answer() == "Reported: So: Ann"


async def test_a_schedule_speaks_and_the_question_stays_open() -> None:
    """It speaks for the user, who is not there: nothing is answered by it."""
    rules: list[dict[str, Any]] = [
        {"user": "morning", "once": True, "calls": [{"ask_user": {"question": "How are you?"}}]},
        {"user": "morning", "say": "I am still waiting."},
        {"answer": "ask_user", "say": "So: {answer}"},
    ]
    async with testing.agent(model=rules, schedules=[Schedule("0 9 * * *", "good morning", name="m")]) as agent:
        await agent.advance(days=1)
        (thread,) = await agent.threads()
        question = await thread.choice()

        await agent.advance(days=1)
        assert await thread.answer() == "I am still waiting."
        assert list((await thread.look()).choices) == [question.call_id]
        await question.answer("fine")

        assert await thread.answer() == "So: fine"
        (answered,) = await thread.entries(Answered)
        assert answered.late


async def test_a_question_that_is_cancelled_is_asked_no_more() -> None:
    async with testing.agent(model=RULES) as agent:
        thread = await agent.thread()
        await thread.send("ask my name")
        question = await thread.choice()

        await thread.cancel(question.call_id)

        assert await thread.answer() == "So: Error: Cancelled. The user cancelled this call."
        with pytest.raises(ThreadError, match="is no pending call"):
            await question.answer("Ann")


async def test_an_empty_question_is_none() -> None:
    def model(question: Question) -> Any:
        last = question.conversation[-1]
        assert isinstance(last, Heard)
        if not last.answers:
            return calling(call("ask_user", question=""))
        return str(last.answers[0].content)

    async with testing.agent(model=model) as agent:
        thread = await agent.thread()

        assert "The arguments do not fit" in await thread.ask("go")
        assert not await thread.entries(ChoiceAsked)


# Time


async def test_a_question_has_an_end_if_the_agents_owner_says_so() -> None:
    async with testing.agent(model=RULES, limits=ThreadLimits(question_timeout=3600)) as agent:
        thread = await agent.thread()
        await thread.send("which one?")
        await thread.choice()
        (pending,) = (await agent.request("GET", f"/v1/threads/{thread.id}")).json()["pending_calls"]
        assert (pending["awaits"], pending["until"]) == ("user", agent.clock.now() + 3600)

        await agent.advance(hours=1)

        assert await thread.answer() == "So: The user did not answer in time."
        (made,) = await thread.entries(ChoiceMadeEntry)
        assert (made.expired, made.dismissed) == (True, True)


async def test_a_tools_question_that_nobody_answers_in_time_is_answered_with_its_default() -> None:
    """CHO-1"""
    limits = ThreadLimits(question_timeout=3600)
    async with testing.agent(model=RULES, tools=["work"], limits=limits) as agent:
        thread = await agent.thread()
        await thread.send("work")
        work = await agent.tool("work").call()
        await work.choose("Really?", ["yes", "no", "perhaps"], default=2)
        await work.choose("And now?", ["yes", "no"], default=1)

        await agent.advance(minutes=90)
        assert await work.chosen() == 2
        assert (
            len(await thread.entries(ChoiceMadeEntry)) == 1
        )  # the next one has its own time, from when it is the user's turn
        await agent.advance(minutes=30)

        assert await work.chosen() == 1
        assert [made.expired for made in await thread.entries(ChoiceMadeEntry)] == [True, True]
        await work.result("done")
        assert await thread.answer() == "Worked: done"


async def test_an_authorization_nobody_gives_in_time_is_shown_no_more_and_counts_all_the_same(office: Toolset) -> None:
    """OAU-1: nobody tells us whether it was given, so the call goes on."""
    async with testing.agent(model=RULES, tools=[office], limits=ThreadLimits(question_timeout=600)) as agent:
        thread = await agent.thread(user_id="u1")
        await thread.send("report it")
        asked = await thread.authorization()

        await agent.advance(600)

        assert [each.call_id for each in await thread.entries(AuthorizationExpired)] == [asked.call_id]
        look = await thread.look()
        assert (look.status, look.authorizations, list(look.thread.pending)) == ("waiting", {}, [asked.call_id])
        assert "github.com" not in await thread.told()  # where to authorise is never put down (OAU-1)
        await agent.advance(600)
        assert not await thread.entries(Answered)
        await asked.approve("t0ken")  # on a page that was open all the time
        assert await thread.answer() == "It is filed with t0ken"


async def test_a_call_has_all_its_time_when_it_asks_to_be_authorised_and_again_when_that_is_over() -> None:
    """RUN-7, OAU-1"""
    limits = ThreadLimits(question_timeout=3600, timeouts=Timeouts(call=600))
    async with testing.agent(model=RULES, tools=["work"], limits=limits) as agent:
        thread = await agent.thread()
        await thread.send("work")
        work = await agent.tool("work").call()
        await agent.advance(500)
        await work.oauth("https://provider.example/authorize")

        await agent.advance(3600 + 599)
        assert await thread.entries(AuthorizationExpired)
        assert not await thread.entries(Answered)
        await agent.advance(1)

        assert "timed out after 600 s" in await thread.answer()


async def test_a_call_that_nobody_authorises_is_given_up_though_questions_wait_for_ever() -> None:
    """RUN-7, OAU-1: that somebody has authorised it nobody tells us, so it cannot be that we wait for that."""
    async with testing.agent(model=RULES, tools=["work"], limits=ThreadLimits(timeouts=Timeouts(call=600))) as agent:
        thread = await agent.thread()
        await thread.send("work")
        work = await agent.tool("work").call()
        await agent.advance(500)
        await work.oauth("https://provider.example/authorize")
        await agent.advance(599)
        assert not await thread.entries(Answered)

        await agent.advance(hours=1)

        assert "timed out after 600 s" in await thread.answer()
        assert (await thread.look()).authorizations == {}


async def test_a_subscription_that_is_not_authorised_in_time_goes_on() -> None:
    """OAU-1"""
    limits = ThreadLimits(question_timeout=3600)
    async with testing.agent(model=RULES, tools=["work"], limits=limits) as agent:
        thread = await agent.thread()
        await thread.send("work")
        work = await agent.tool("work").call()
        await work.confirm("I watch")
        await thread.answer()
        await work.oauth("https://provider.example/authorize")
        await thread.authorization()

        await agent.advance(hours=1)

        look = await thread.look()
        assert (look.authorizations, list(look.thread.subscriptions)) == ({}, [work.id])
        assert len(agent.model.questions) == 2


async def test_what_is_authorised_in_time_does_not_expire(office: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[office], limits=ThreadLimits(question_timeout=3600)) as agent:
        thread = await agent.thread(user_id="u1")
        await thread.send("report it")
        await agent.advance(minutes=59)

        await (await thread.authorization()).approve("t0ken")

        assert await thread.answer() == "It is filed with t0ken"
        await agent.advance(hours=2)
        assert not await thread.entries(AuthorizationExpired)
        assert (await thread.look()).thread.timers == {}


# Clients, on real sockets


async def test_a_client_answers_in_words_and_repeats_itself(agent: RunningAgent) -> None:
    """The same request with the same key has the same answer, and no effect."""
    client = Client(agent.port)
    thread = await client.begin(please(call("ask_user", question="Which?", choices=["red", "green"])))
    async with client.events(thread) as stream:
        asked = (await stream.until("choice"))[-1].data
        assert (asked["prompt"], asked["default"], asked["in_words"]) == ("Which?", None, True)
        path = f"{thread}/calls/{asked['call_id']}/answer"

        replies = await asyncio.gather(*(client.post(path, {"text": "blue"}, key="k") for _ in range(5)))

        assert [reply.status for reply in replies] == [202] * 5
        events = await stream.until("entry", lambda entry: entry["kind"] == "assistant" and "heard" in entry["text"])
    assert events[-1].data["text"] == "heard: blue"
    (chosen,) = [event.data for event in events if event.name == "entry" and event.data["kind"] == "chosen"]
    assert chosen["text"] == "blue"
    assert (await client.post(path, {"text": "blue"}, key="k")).status == 202
    assert (await client.post(path, {"text": "red"}, key="k")).status == 422
    assert (await client.post(path, {"text": "red"}, key="other")).status in (404, 409)
    await agent.quiet()
    assert len([each for each in await client.entries(thread) if each["kind"] == "chosen"]) == 1


async def test_of_an_answer_in_words_and_a_choice_the_first_counts(agent: RunningAgent) -> None:
    client = Client(agent.port)
    thread = await client.begin(please(call("ask_user", question="Which?", choices=["red", "green"])))
    async with client.events(thread) as stream:
        asked = (await stream.until("choice"))[-1].data
        path = f"{thread}/calls/{asked['call_id']}"

        replies = await asyncio.gather(
            client.post(f"{path}/answer", {"text": "blue"}), client.post(f"{path}/choice", {"selected": 1})
        )

        (winner,) = [number for number, reply in enumerate(replies) if reply.status == 202]
        events = await stream.until("entry", lambda entry: entry["kind"] == "result")
    assert events[-1].data["text"] == ("blue", "green")[winner]


# Crashes


def _without_id(entry: JournalEntry) -> JournalEntry:
    return replace(entry, id="") if isinstance(entry, UserSaid) else plain_entry(entry)


@before_or_after_commit
async def test_a_question_is_asked_and_answered_once_however_the_agent_is_lost(unheard: bool) -> None:
    """RUN-4, RUN-5"""
    limits = ThreadLimits(question_timeout=24 * 3600)

    async def converse(agent: testing.StagedAgent) -> list[JournalEntry]:
        thread = await agent.thread()
        await thread.send("ask my name")
        await agent.advance(minutes=5)
        await (await thread.choice()).answer("Ann")
        await agent.advance(minutes=5)
        await thread.send("which one?")
        await agent.advance(days=2)
        return [_without_id(entry) for entry in await thread.entries()]

    async with testing.agent(model=RULES, limits=limits) as agent:
        undisturbed = await converse(agent)
    assert [entry.text for entry in undisturbed if isinstance(entry, Answered)] == [
        "Ann",
        "The user did not answer in time.",
    ]
    for steps in itertools.count():
        async with testing.agent(model=RULES, limits=limits) as agent:
            agent.crash_after(steps, unheard=unheard, restart=True)
            assert await converse(agent) == undisturbed, f"lost after {steps} steps"
            if not agent.crashes:
                break
    assert steps > 10
