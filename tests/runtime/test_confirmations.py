"""Calls a person is asked about first: of tools that destroy something, and of others the agent's owner names (DIS-11)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rapkit import ThreadLimits, Toolset, testing
from rapkit.errors import ThreadError
from rapkit.kernel.entries import Answered, ChoiceAsked, ChoiceMadeEntry, UserSaid
from rapkit.kernel.limits import Confirmations, Timeouts
from rapkit.models.scripted import Scripted
from rapkit.runtime.config import AgentConfig
from rapkit.runtime.engine import run_engine
from rapkit.runtime.server import Server
from tests.call_ids import plain
from tests.crash_sides import before_or_after_commit
from tests.runtime.agents import RunningAgent, ScriptedReplies, ThreadDriver, call, please, working
from tests.runtime.api.client import Client
from tests.runtime.clocks import ManualClock
from tests.runtime.foreign_toolset import CANCEL, INVOKE, ForeignToolset, tool
from tests.server.sink import answer

URL = "http://127.0.0.1:1"

ALWAYS = "Yes, and do not ask again in this conversation"
DECLINED = "Error: The user was asked whether this call may be made, and declined. Do not try again unless the user asks for it."

RULES: list[dict[str, Any]] = [
    {"user": "both", "calls": [{"demolish": {"house": "A"}}, {"demolish": {"house": "B"}}]},
    {"user": "demolish", "calls": [{"demolish": {"house": "A"}}]},
    {"user": "paint", "calls": [{"paint": {"house": "A"}}]},
    {"user": "delegate", "calls": [{"spawn_thread": {"task": "make room"}}]},
    {"task": "room", "calls": [{"demolish": {"house": "A"}}]},
    {"user": "hello", "say": "Hi."},
    {"answer": "demolish", "say": "Then: {answers}"},
    {"answer": "paint", "say": "Then: {answer}"},
    {"answer": "spawn_thread", "say": "Delegated."},
    {"report": "", "say": "Reported: {text}"},
]


@pytest.fixture
def executed() -> list[str]:
    return []


@pytest.fixture
def houses(executed: list[str]) -> Toolset:
    tools = Toolset("houses")

    @tools.tool(destructive=True)
    async def demolish(house: str) -> str:
        """Tear a house down."""
        executed.append(house)
        return f"{house} is gone"

    @tools.tool
    async def paint(house: str) -> str:
        """Paint a house."""
        executed.append(house)
        return f"{house} is green"

    return tools


def asking(destructive: Any = "always", **tools: Any) -> ThreadLimits:
    return ThreadLimits(confirmations=Confirmations(destructive, tools))


# One person


async def test_a_destructive_tool_is_not_called_before_a_person_says_yes(houses: Toolset, executed: list[str]) -> None:
    """DIS-11"""
    async with testing.agent(model=RULES, tools=[houses]) as agent:
        thread = await agent.thread()
        await thread.send("demolish it")
        question = await thread.choice()
        assert question.prompt == 'May the agent call demolish with {"house": "A"}?'
        assert (question.choices, question.default) == (("Yes", "No"), "No")
        await agent.advance(days=3)
        assert executed == []
        assert [call.awaits for call in (await thread.look()).thread.pending.values()] == ["permission"]

        await question.select("Yes")

        assert await thread.answer() == "Then: A is gone"
        assert executed == ["A"]
        await thread.send("demolish it again")
        assert (await thread.choice()).prompt == question.prompt  # each time


async def test_a_call_the_user_declines_is_never_made(houses: Toolset, executed: list[str]) -> None:
    """DIS-11: the model is told, so that it does not try again."""
    async with testing.agent(model=RULES, tools=[houses]) as agent:
        thread = await agent.thread()
        await thread.send("demolish it")

        await (await thread.choice()).select("No")

        assert await thread.answer() == f"Then: {DECLINED}"
        assert executed == []
        assert (await thread.look()).status == "idle"


async def test_a_question_that_is_dismissed_is_a_no(houses: Toolset, executed: list[str]) -> None:
    """DIS-11"""
    async with testing.agent(model=RULES, tools=[houses]) as agent:
        thread = await agent.thread()
        await thread.send("demolish it")

        await (await thread.choice()).dismiss()

        assert await thread.answer() == f"Then: {DECLINED}"
        (made,) = await thread.entries(ChoiceMadeEntry)
        assert (made.selected, made.dismissed, made.expired) == (1, True, False)
        assert executed == []


async def test_a_question_nobody_answers_in_time_is_a_no(houses: Toolset, executed: list[str]) -> None:
    """DIS-11"""
    async with testing.agent(model=RULES, tools=[houses], limits=ThreadLimits(question_timeout=3600)) as agent:
        thread = await agent.thread()
        await thread.send("demolish it")
        question = await thread.choice()

        await agent.advance(hours=1)

        assert await thread.answer() == (
            "Then: Error: The user was asked whether this call may be made, and did not answer in time. It was not made."
        )
        (made,) = await thread.entries(ChoiceMadeEntry)
        assert made.expired
        with pytest.raises(Exception, match="is no pending call"):
            await question.select("Yes")
        assert executed == []


async def test_calls_made_at_once_are_asked_about_one_by_one(houses: Toolset, executed: list[str]) -> None:
    async with testing.agent(model=RULES, tools=[houses]) as agent:
        thread = await agent.thread()
        await thread.send("both of them")
        first, second = await thread.choice(), await thread.choice()

        await second.select("Yes")
        await agent.settled()
        assert executed == ["B"]
        assert len(agent.model.questions) == 1  # the model waits for both
        await first.select("No")

        assert await thread.answer() == f"Then: {DECLINED}\nB is gone"


async def test_a_timeout_begins_when_the_call_is_made(executed: list[str]) -> None:
    """RUN-7"""
    fakes = testing.FakeTools("fakes", ["demolish"])
    limits = ThreadLimits(confirmations=Confirmations(tools={"demolish": "always"}), timeouts=Timeouts(call=60))
    async with testing.agent(model=RULES, tools=[fakes], limits=limits) as agent:
        thread = await agent.thread()
        await thread.send("demolish it")
        await agent.advance(days=1)
        assert not await thread.entries(Answered)

        await (await thread.choice()).select("Yes")
        await fakes.tool("demolish").call()
        await agent.advance(60)

        assert "timed out after 60 s" in await thread.answer()


async def test_a_user_who_writes_something_else_is_answered_and_the_question_stays_open(
    houses: Toolset, executed: list[str]
) -> None:
    """RUN-6: a message is no permission."""
    async with testing.agent(model=RULES, tools=[houses]) as agent:
        thread = await agent.thread()
        await thread.send("demolish it")
        question = await thread.choice()

        assert await thread.ask("hello") == "Hi."
        assert executed == []
        await question.select("Yes")

        assert await thread.answer() == "Then: A is gone"
        assert (await thread.entries(Answered))[-1].late


async def test_a_call_that_waits_for_permission_can_be_cancelled(houses: Toolset, executed: list[str]) -> None:
    """CAN-1: no server has heard of it, so none is told."""
    fakes = testing.FakeTools("fakes", ["other"])
    async with testing.agent(model=RULES, tools=[houses, fakes]) as agent:
        thread = await agent.thread()
        await thread.send("demolish it")
        question = await thread.choice()

        reply = await agent.request("POST", f"/v1/threads/{thread.id}/calls/{question.call_id}/cancel")

        assert reply.status == 202
        assert await thread.answer() == "Then: Error: Cancelled. The user cancelled this call."
        look = await thread.look()
        assert (look.thread.choices, look.thread.pending) == ({}, {})
        assert (executed, fakes.cancelled) == ([], [])


async def test_a_thread_that_is_closed_asks_no_more(houses: Toolset, executed: list[str]) -> None:
    async with testing.agent(model=RULES, tools=[houses]) as agent:
        thread = await agent.thread()
        await thread.send("demolish it")
        question = await thread.choice()

        await thread.close()
        await agent.settled()

        assert (await thread.look()).thread.choices == {}
        with pytest.raises(Exception, match="is closed"):
            await question.select("Yes")
        assert executed == []


# What the agent's owner says


async def test_an_owner_who_trusts_the_model_is_not_asked(houses: Toolset, executed: list[str]) -> None:
    """DIS-11"""
    async with testing.agent(model=RULES, tools=[houses], limits=asking("never")) as agent:
        thread = await agent.thread()

        assert await thread.ask("demolish it") == "Then: A is gone"
        assert not await thread.entries(ChoiceAsked)


async def test_tools_can_be_named_that_are_asked_about_or_not(houses: Toolset, executed: list[str]) -> None:
    """DIS-11: what is said of one tool wins over what it says of itself."""
    async with testing.agent(model=RULES, tools=[houses], limits=asking(demolish="never", paint="always")) as agent:
        thread = await agent.thread()

        assert await thread.ask("demolish it") == "Then: A is gone"
        await thread.send("paint it")
        question = await thread.choice()
        assert question.prompt.startswith("May the agent call paint with")
        assert executed == ["A"]
        await question.select("Yes")
        assert await thread.answer() == "Then: A is green"


async def test_a_yes_is_remembered_if_the_user_says_so(houses: Toolset, executed: list[str]) -> None:
    """DIS-11: in this conversation, over restarts, and in the threads that come of it."""
    async with testing.agent(model=RULES, tools=[houses], limits=asking("remembered")) as agent:
        thread = await agent.thread()
        await thread.send("demolish it")
        first = await thread.choice()
        assert first.choices == ("Yes", ALWAYS, "No")
        await first.select("Yes")
        assert await thread.answer() == "Then: A is gone"
        await thread.send("demolish it")
        await (await thread.choice()).select(ALWAYS)
        assert await thread.answer() == "Then: A is gone"

        await agent.restart()
        assert await thread.ask("demolish it") == "Then: A is gone"
        await agent.crash()
        assert await thread.ask("demolish it") == "Then: A is gone"
        assert len(await thread.entries(ChoiceAsked)) == 2
        assert await thread.ask("delegate it") == "Delegated."
        assert await thread.answer() == "Reported: Then: A is gone"

        other = await agent.thread()
        await other.send("demolish it")
        assert (await other.choice()).choices == first.choices  # that was another conversation
        assert executed == ["A"] * 5


async def test_the_question_of_a_child_is_seen_from_its_family(houses: Toolset, executed: list[str]) -> None:
    async with testing.agent(model=RULES, tools=[houses]) as agent:
        thread = await agent.thread()
        await thread.ask("delegate it")
        await agent.settled()

        family = (await agent.request("GET", f"/v1/threads/{thread.id}/family")).json()
        (child,) = family["children"]
        assert (family["asks_user"], child["asks_user"]) == (False, True)
        listed = (await agent.request("GET", "/v1/threads")).json()["threads"]
        assert [each["thread_id"] for each in listed if each["asks_user"]] == [child["thread_id"]]
        assert (await agent.request("GET", f"/v1/threads/{child['thread_id']}")).json()["asks_user"]
        asked = await (await agent.thread(child["thread_id"])).choice()
        await asked.select("Yes")

        assert await thread.answer() == "Reported: Then: A is gone"
        listed = (await agent.request("GET", "/v1/threads")).json()["threads"]
        assert not any(each["asks_user"] for each in listed)


# Restarts


@pytest.mark.parametrize("lost", ["restart", "crash"])
async def test_a_question_outlives_the_process(houses: Toolset, executed: list[str], lost: str) -> None:
    async with testing.agent(model=RULES, tools=[houses]) as agent:
        thread = await agent.thread()
        await thread.send("demolish it")
        question = await thread.choice()

        await (agent.restart() if lost == "restart" else agent.crash())
        await agent.settled()
        assert executed == []
        await question.select("Yes")

        assert await thread.answer() == "Then: A is gone"
        assert executed == ["A"]


@before_or_after_commit
async def test_a_permitted_call_is_made_once_however_the_agent_is_lost(
    houses: Toolset, executed: list[str], unheard: bool
) -> None:
    """RUN-4, RUN-5, INV-7"""

    async def converse(agent: testing.StagedAgent) -> list[str]:
        thread = await agent.thread()
        await thread.send("demolish it")
        await agent.advance(minutes=5)
        await (await thread.choice()).select("Yes")
        await agent.advance(minutes=5)
        return [plain(entry) for entry in await thread.entries() if not isinstance(entry, UserSaid)]

    async with testing.agent(model=RULES, tools=[houses]) as agent:
        undisturbed = await converse(agent)
    steps = 0
    while True:
        executed.clear()
        async with testing.agent(model=RULES, tools=[houses]) as agent:
            agent.crash_after(steps, unheard=unheard, restart=True)
            assert await converse(agent) == undisturbed, f"lost after {steps} steps"
            assert executed == ["A"], f"lost after {steps} steps"
            if not agent.crashes:
                break
        steps += 1
    assert steps > 10


# Several clients, on real sockets


@pytest.fixture
async def agent(model: ScriptedReplies, stranger: ForeignToolset, store: str) -> AsyncIterator[RunningAgent]:
    stranger.tools = [tool("work", annotations={"destructive": True})]
    async with working(model, [stranger.url], store) as agent:
        yield agent


async def test_all_clients_see_the_question_and_the_first_answer_counts(
    agent: RunningAgent, stranger: ForeignToolset
) -> None:
    """DIS-11, CHO-1: both streams carry the question and what became of it."""
    one, other = Client(agent.port), Client(agent.port)
    thread = await one.begin('[["work", {"n": 1}]]')
    async with one.events(thread) as first, other.events(thread) as second:
        asked = [(await stream.until("choice"))[-1].data for stream in (first, second)]
        assert asked[0] == asked[1]
        assert asked[0]["prompt"] == 'May the agent call work with {"n": 1}?'
        assert (asked[0]["choices"], asked[0]["default"], asked[0]["in_words"]) == (["Yes", "No"], 1, False)
        assert stranger.to(INVOKE) == []

        path = f"{thread}/calls/{asked[0]['call_id']}/choice"
        replies = await asyncio.gather(one.post(path, {"selected": 0}), other.post(path, {"selected": 1}))

        (winner,) = [number for number, reply in enumerate(replies) if reply.status == 202]
        assert replies[1 - winner].status in (404, 409)  # 404 if nothing is left of a call that was declined
        for stream in (first, second):
            (*_, chosen) = await stream.until("entry", lambda entry: entry["kind"] == "chosen")
            assert chosen.data["selected"] == winner
    if winner == 0:
        await (await stranger.invoked()).result("done")
    await agent.quiet()
    assert len(stranger.to(INVOKE)) == 1 - winner
    assert (await one.look(thread))["choices"] == []


async def test_who_comes_later_is_shown_the_question_too(agent: RunningAgent, stranger: ForeignToolset) -> None:
    client = Client(agent.port)
    thread = await client.begin('[["work", {}]]')
    async with client.events(thread) as stream:
        await stream.until("choice")

    async with Client(agent.port).events(thread) as late:
        asked = (await late.until("choice"))[-1].data
    (shown,) = (await client.look(thread))["choices"]
    (pending,) = (await client.look(thread))["pending_calls"]
    assert shown == asked
    assert (pending["awaits"], pending["until"]) == ("permission", None)

    assert (await client.post(f"{thread}/calls/{asked['call_id']}/choice", {"selected": 0})).status == 202
    invocation = await stranger.invoked()
    assert invocation.id == asked["call_id"]
    await invocation.result("done")
    async with client.events(thread) as stream:
        await stream.until("entry", lambda entry: entry["kind"] == "assistant" and "heard: done" in entry["text"])


async def test_permission_and_cancel_at_once_come_to_one_end(agent: RunningAgent, stranger: ForeignToolset) -> None:
    """CAN-1, semantics of cancelling: made and then cancelled, or never made; never made after it was cancelled."""
    client = Client(agent.port)
    for number in range(1, 6):
        thread = await client.begin(please(call("work", n=number)))
        async with client.events(thread) as stream:
            asked = (await stream.until("choice"))[-1].data
            call_path = f"{thread}/calls/{asked['call_id']}"
            await asyncio.gather(
                client.post(f"{call_path}/choice", {"selected": 0}), client.post(f"{call_path}/cancel")
            )
            said = await stream.until("entry", lambda entry: entry["kind"] == "result")
        assert said[-1].data["text"].startswith("Error: Cancelled.")
    await agent.quiet()
    cancelled = [post.message for post in stranger.to(CANCEL)]
    for sent in stranger.to(INVOKE):
        assert {"thread_id": sent.message["group_id"], "tool_call_id": sent.message["id"]} in cancelled


async def test_a_permission_counts_that_came_in_time_whenever_the_agent_is_woken(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """DIS-11: one that hibernates finds both in its mail, the answer and that the time for it is over."""
    stranger.tools = [tool("work", annotations={"destructive": True})]
    clock = ManualClock()
    limits = ThreadLimits(question_timeout=60, timeouts=Timeouts(call=7200))  # which begins when the call is made
    config = AgentConfig(Scripted(model), (Server(stranger.url),), store, URL, limits=limits)
    async with run_engine(config, clock.environment(), worker=False) as engine:
        talk = ThreadDriver(engine.threads, await engine.threads.create(text=please(call("work"))))
        await engine.wake()
        (call_id,) = (await talk.look()).choices
        clock.advance(59)
        await engine.threads.choose(talk.id, call_id, 0)
        clock.advance(3600)

        await engine.wake()

        (sent,) = stranger.to(INVOKE)
        assert sent.message["id"] == call_id
        (made,) = await talk.all(ChoiceMadeEntry)
        assert (made.selected, made.expired) == (0, False)
        assert (await talk.look()).thread.pending[call_id].awaits == "tool"


async def test_a_permission_that_comes_too_late_counts_for_nothing(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """DIS-11: the time is over when somebody has said so, which is when the agent is woken."""
    stranger.tools = [tool("work", annotations={"destructive": True})]
    clock = ManualClock()
    config = AgentConfig(Scripted(model), (Server(stranger.url),), store, URL, limits=ThreadLimits(question_timeout=60))
    async with run_engine(config, clock.environment(), worker=False) as engine:
        talk = ThreadDriver(engine.threads, await engine.threads.create(text=please(call("work"))))
        await engine.wake()
        (call_id,) = (await talk.look()).choices
        clock.advance(61)
        await engine.wake()

        with pytest.raises(ThreadError, match="is no pending call"):
            await engine.threads.choose(talk.id, call_id, 0)
        assert stranger.to(INVOKE) == []


@pytest.mark.parametrize("change", ["gone", "other arguments", "its server is not configured any more"])
async def test_a_call_that_is_permitted_when_its_toolset_has_changed_is_not_made(
    model: ScriptedReplies, stranger: ForeignToolset, store: str, change: str
) -> None:
    """INV-2, INV-3: what was fit to be made when the user was asked need not be so weeks later."""
    needs_more = {"type": "object", "required": ["floor"], "properties": {"floor": {"type": "integer"}}}
    stranger.tools = [tool("work", annotations={"destructive": True}), tool("other_work")]
    async with working(model, [stranger.url], store) as agent:
        talk = await agent.doing(call("work", n=1))
        await talk.until(ChoiceAsked)
        (call_id,) = (await talk.look()).choices
        if change != "its server is not configured any more":
            stranger.version = "2"
            works = [tool("work", needs_more, annotations={"destructive": True})] if change == "other arguments" else []
            stranger.tools = [*works, tool("other_work")]
            stranger.script[INVOKE].append(answer(409, body=b'{"error": "toolset_changed"}'))
            await talk.do(call("other_work"))  # by which it is found out (DIS-10)
            await (await stranger.invoked(2)).result("done")
            await talk.until(Answered)
    sent = len(stranger.to(INVOKE))

    async with working(model, [] if "server" in change else [stranger.url], store) as agent:
        talk = agent.thread(talk.id)
        await agent.threads.choose(talk.id, call_id, 0)

        text = str((await talk.answered(call_id)).text)
        assert text.startswith("Error: The user permitted this call, but it cannot be made any more: ")
        assert ("do not fit any more" if change == "other arguments" else "It is not offered any more.") in text
        await talk.hears("The user permitted this call")
        await agent.quiet()
        assert len(stranger.to(INVOKE)) == sent
        assert (await talk.look()).thread.pending == {}


async def test_a_model_that_asks_for_the_same_again_asks_the_user_again(
    agent: RunningAgent, stranger: ForeignToolset
) -> None:
    talk = await agent.doing(call("work", n=1), call("work", n=1))
    await talk.until(ChoiceAsked, 2)
    first, second = (await talk.look()).choices
    await agent.threads.choose(talk.id, first, 1)
    await agent.threads.choose(talk.id, second, 0)

    await (await stranger.invoked()).result("once")

    await talk.hears("once")
    assert len(stranger.to(INVOKE)) == 1
