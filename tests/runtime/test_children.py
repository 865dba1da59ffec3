"""Child threads that a model makes: they know what was said, do one thing, and tell of it. Only direct relatives talk."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from rapkit import ThreadLimits, Toolset, testing
from rapkit.errors import ThreadClosed
from rapkit.kernel.completion import Question, Reply
from rapkit.kernel.conversation import Heard, Said
from rapkit.kernel.entries import (
    Answered,
    ChildEnded,
    ChildMade,
    ClosedEntry,
    JournalEntry,
    ModelSaid,
    ParentSaid,
    ParkedEntry,
    Reported,
    Tasked,
    UserSaid,
)
from tests.call_ids import plain
from tests.crash_sides import before_or_after_commit
from tests.runtime.agents import ScriptedReplies, call, calling, text_of, texts_of, working
from tests.runtime.api.client import Client
from tests.runtime.foreign_toolset import CLOSE, ForeignToolset

RULES: list[dict[str, Any]] = [
    {"user": "both", "calls": [{"spawn_thread": {"task": "look at Oslo"}}, {"spawn_thread": {"task": "look at Rome"}}]},
    {"user": "plan", "calls": [{"spawn_thread": {"task": "look at Oslo"}}]},
    {"user": "deep", "calls": [{"spawn_thread": {"task": "delegate Oslo"}}]},
    {"user": {"regex": "tell (\\S+) (.+)"}, "calls": [{"send_message_to_child": {"thread_id": "{match[1]}", "text": "{match[2]}"}}]},
    {"user": {"regex": "close (\\S+)"}, "calls": [{"close_thread": {"thread_id": "{match[1]}"}}]},
    {"user": "wait for it", "calls": [{"spawn_thread": {"task": "look at Oslo"}}, "wait_for_event"]},
    {"user": "work beside it", "calls": [{"spawn_thread": {"task": "look at Oslo"}}, "work"]},
    {"user": "do the work", "calls": ["work"]},
    {"user": "hello", "say": "Hi."},
    {"task": {"regex": "look at (\\w+)"}, "calls": [{"forecast": {"city": "{match[1]}"}}]},
    {"task": {"is": "delegate Oslo"}, "calls": [{"spawn_thread": {"task": "finish Oslo"}}]},
    {"task": {"is": "finish Oslo"}, "calls": [{"report_to_parent": {"text": "Oslo is done", "done": True}}]},
    {"parent": "finish", "calls": [{"report_to_parent": {"text": "I am done", "done": True}}]},
    {"parent": "leave", "calls": ["close_thread"]},
    {"parent": "again", "calls": [{"spawn_thread": {"task": "look at Oslo"}}]},
    {"parent": "how", "say": "It goes well."},
    {"report": "", "say": "A child says: {text}"},
    {"answer": "forecast", "say": "It is {answer}"},
    {"answer": "spawn_thread", "text": "Error", "say": "Refused: {answer}"},
    {"answer": "spawn_thread", "say": "They are at it."},
    {"answer": "send_message_to_child", "say": "Told: {answer}"},
    {"answer": "close_thread", "say": "Closing: {answer}"},
    {"answer": "report_to_parent", "say": "Reported."},
]  # fmt: skip


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

    return tools


async def only_child(thread: testing.StagedThread) -> testing.StagedThread:
    (child,) = await thread.children()
    return child


def shown_to(questions: list[Question], task: str) -> Question:
    """The first question in which a thread was given a task."""
    return next(each for each in questions if task in str(each.conversation[-1]))


# From the task to the report


async def test_a_child_works_by_itself_and_its_last_words_are_its_report(weather: Toolset) -> None:
    """The parent's turn ends at once; it is asked again when the child has something to say."""
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread(user_id="u1")

        assert await thread.ask("plan it") == "They are at it."
        assert await thread.answer() == "A child says: It is sunny in Oslo"

        child = await only_child(thread)
        (made,) = await thread.entries(ChildMade)
        (reported,) = await thread.entries(Reported)
        assert (made.thread_id, made.task, made.event) == (child.id, "look at Oslo", None)
        assert (reported.thread_id, reported.task, reported.closed) == (child.id, "look at Oslo", False)
        look = await child.look()
        assert (look.status, look.thread.user_id, look.thread.parent) == ("idle", "u1", thread.id)
        assert list((await thread.look()).thread.spawned) == [child.id]  # it is still there to be talked to


async def test_a_child_knows_what_was_said_and_holds_none_of_it(weather: Toolset) -> None:
    """History is inherited by reference, up to where it was made, without the call that made it."""
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread()
        await thread.ask("hello")
        await thread.ask("plan it")
        await agent.settled()
        child = await only_child(thread)

        first = (await child.entries())[0]
        assert isinstance(first, Tasked)
        assert (first.parent, first.text) == (thread.id, "look at Oslo")
        assert not await child.entries(UserSaid)
        inherits = (await child.look()).thread.inherits
        assert inherits is not None
        assert (inherits.thread_id, inherits.upto) == (thread.id, 3)
        conversation = await child.conversation()
        assert conversation[:2] == (Heard(texts=("hello",)), Said("Hi."))
        assert conversation[2] == Heard(texts=("plan it",))
        assert "They are at it." not in str(conversation)


async def test_what_is_said_to_the_parent_later_is_not_seen_by_the_child(weather: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread()
        await thread.ask("plan it")
        await agent.settled()
        child = await only_child(thread)
        before = await child.conversation()

        await thread.ask("hello, a secret between us")

        assert await child.conversation() == before
        assert await child.ask("hello") == "Hi."
        assert "secret" not in str(agent.model.questions[-1].conversation)


async def test_a_child_that_inherits_a_plan_does_not_carry_it_out_again(weather: Toolset, executed: list[str]) -> None:
    """Each child is shown the plan's beginning, its own task and nobody else's, and is told that the rest is not for it."""
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread()

        await thread.ask("both, please")
        await agent.settled()

        assert len(await agent.threads()) == 3
        assert sorted(executed) == ["Oslo", "Rome"]
        for mine, others in (("look at Oslo", "look at Rome"), ("look at Rome", "look at Oslo")):
            question = shown_to(agent.model.questions, mine)
            assert others not in str(question.conversation)
            said = [turn for turn in question.conversation if isinstance(turn, Said)]
            assert [call.arguments["kind"].split(":")[0] for turn in said for call in turn.calls] == ["task"]
            assert "child thread" in question.instructions
            assert "do not carry out what was asked or planned there" in question.instructions
        assert "child thread" not in agent.model.questions[0].instructions
        assert [entry.text for entry in await thread.entries(Reported)] == [
            f"It is sunny in {city}" for city in executed
        ]


async def test_a_child_cannot_give_its_own_task_to_another(weather: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread()
        await thread.ask("plan it")
        await agent.settled()
        child = await only_child(thread)

        await thread.ask(f"tell {child.id} do it again")
        await agent.settled()

        assert await child.children() == []
        assert (await child.entries(Answered))[-1].text == ("Error: That is what this thread was made for. Do it here.")


# Talking


async def test_a_parent_talks_to_its_child_and_hears_of_it(weather: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread()
        await thread.ask("plan it")
        assert await thread.answer() == "A child says: It is sunny in Oslo"
        child = await only_child(thread)

        assert (
            await thread.ask(f"tell {child.id} how is it going?") == f"Told: The child thread {child.id} will see it."
        )
        assert await thread.answer() == "A child says: It goes well."

        (said,) = await child.entries(ParentSaid)
        assert (said.parent, said.text) == (thread.id, "how is it going?")
        assert len(await thread.entries(Reported)) == 2


async def test_a_child_that_is_done_closes_itself_with_its_last_words(weather: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread()
        await thread.ask("plan it")
        assert await thread.answer() == "A child says: It is sunny in Oslo"
        child = await only_child(thread)

        await thread.ask(f"tell {child.id} finish")
        assert await thread.answer() == "A child says: I am done"

        assert (await child.look()).status == "closed"
        (ended,) = await thread.entries(ChildEnded)
        assert (ended.thread_id, ended.by) == (child.id, "the thread itself, which is done")
        assert (await thread.entries(Reported))[-1].closed
        look = await thread.look()
        assert (look.status, look.thread.spawned) == ("idle", {})
        assert await thread.ask(f"tell {child.id} hello?") == (
            f"Told: Error: '{child.id}' is no open child of this thread. Open: none."
        )


async def test_a_parent_that_closes_its_child_is_not_told_so_again(weather: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread()
        await thread.ask("plan it")
        await thread.answer()
        child = await only_child(thread)

        assert await thread.ask(f"close {child.id}") == f"Closing: The child thread {child.id} is being closed."
        await agent.settled()

        (closed,) = await child.entries(ClosedEntry)
        assert closed.by == "its parent thread"
        assert [each.thread_id for each in await thread.entries(ChildEnded)] == [child.id]
        assert len(await thread.entries(Reported)) == 1
        assert (await thread.entries(ModelSaid))[-1].text.startswith("Closing: ")
        assert (await thread.look()).status == "idle"


async def test_a_parent_hears_of_a_child_that_somebody_else_closes(weather: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread()
        await thread.ask("plan it")
        await thread.answer()
        child = await only_child(thread)

        await child.close()

        assert await thread.answer() == "A child says: It was closed by the user."
        with pytest.raises(ThreadClosed):
            await child.send("hello")


async def test_a_user_can_talk_to_a_child_which_owes_nothing_for_that(weather: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread()
        await thread.ask("plan it")
        await thread.answer()
        child = await only_child(thread)

        assert await child.ask("hello") == "Hi."
        await agent.settled()

        assert len(await thread.entries(Reported)) == 1


async def test_a_child_that_cannot_go_on_says_so(weather: Toolset) -> None:
    """A parent that waits for a report must not wait for ever."""
    rules = [{"task": "look", "fail": "out of order", "retryable": False}, *RULES]
    async with testing.agent(model=rules, tools=[weather]) as agent:
        thread = await agent.thread()
        await thread.ask("plan it")

        said = await thread.answer()

        assert said.startswith("A child says: It has stopped: The model failed: out of order")
        child = await only_child(thread)
        assert len(await child.entries(ParkedEntry)) == 1
        assert (await child.look()).status == "parked"
        assert await child.ask("hello") == "Hi."  # a person has helped it: now it reports
        assert await thread.answer() == "A child says: Hi."


# Beside other calls


async def test_a_parent_that_waits_for_something_to_happen_is_woken_by_the_report(weather: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread()

        assert await thread.ask("wait for it") == "A child says: It is sunny in Oslo"

        by_name = {each.name: each.text or "" for each in await thread.entries(Answered)}
        assert by_name["wait_for_event"].startswith("Interrupted by what follows.")
        assert (await thread.look()).thread.pending == {}


async def test_a_report_is_shown_after_the_result_of_a_call_that_is_waited_for() -> None:
    """It is in the journal at once. The model is asked when the call is answered, and hears of both."""
    async with testing.agent(model=RULES, tools=["forecast", "work"]) as agent:
        thread = await agent.thread()
        await thread.send("work beside it")
        work = await agent.tool("work").call()
        await (await agent.tool("forecast").call()).result("foggy")
        await agent.settled()
        assert len(await thread.entries(Reported)) == 1
        asked = len(agent.model.questions)
        assert [each.name for each in await thread.entries(Answered)] == ["spawn_thread"]

        await work.result("done")
        await agent.settled()

        assert len(agent.model.questions) == asked + 1
        *_, called, answered, reported, report = agent.model.questions[-1].conversation
        assert isinstance(called, Said)
        assert isinstance(answered, Heard)
        assert isinstance(reported, Said)
        assert isinstance(report, Heard)
        assert [text_of(each) for each in answered.answers][1] == "done"
        assert "kind" in reported.calls[0].arguments
        assert [text_of(each) for each in report.answers] == ["It is foggy"]


async def test_a_child_does_not_see_what_its_parent_waits_for() -> None:
    """Nor what becomes of it: those calls are the parent's."""
    async with testing.agent(model=RULES, tools=["forecast", "work"]) as agent:
        thread = await agent.thread()
        await thread.send("do the work")
        work = await agent.tool("work").call()
        await thread.ask("plan it")
        forecast = await agent.tool("forecast").call()

        await work.result("done")
        await forecast.result("foggy")
        await agent.settled()

        child = await only_child(thread)
        conversation = str(await child.conversation())
        assert "do the work" in conversation
        assert "still running" not in conversation
        assert "'work'" not in conversation
        assert forecast.thread_id == child.id
        assert forecast.id != work.id  # so that a model that is shown both can tell them apart


# Families


async def test_children_have_children_and_only_direct_relatives_talk(weather: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread()
        await thread.ask("deep thoughts")
        await agent.settled()
        child = await only_child(thread)
        grandchild = await only_child(child)

        assert (await grandchild.look()).thread.ancestors == (thread.id, child.id)
        assert [each.text for each in await child.entries(Reported)] == ["Oslo is done"]
        assert [each.text for each in await thread.entries(Reported)] == ["A child says: Oslo is done"]
        refused = await thread.ask(f"tell {grandchild.id} how are you?")
        assert refused == f"Told: Error: '{grandchild.id}' is no open child of this thread. Open: {child.id}."
        assert not await grandchild.entries(ParentSaid)
        conversation = str(await grandchild.conversation())
        assert "deep thoughts" in conversation
        assert "delegate Oslo" in conversation


async def test_a_child_reports_though_its_own_child_is_still_there(weather: Toolset) -> None:
    rules = [{"task": {"is": "delegate Oslo"}, "calls": [{"spawn_thread": {"task": "look at Oslo"}}]}, *RULES]
    async with testing.agent(model=rules, tools=[weather]) as agent:
        thread = await agent.thread()
        await thread.ask("deep thoughts")
        await agent.settled()

        (report,) = await thread.entries(Reported)
        assert report.text == "A child says: It is sunny in Oslo"
        child = await only_child(thread)
        assert [(await each.look()).status for each in (thread, child, await only_child(child))] == ["idle"] * 3


async def test_a_thread_for_an_event_closes_though_a_child_it_has_made_is_still_there(weather: Toolset) -> None:
    """Or else it would stand in the way of later events for ever."""
    rules: list[dict[str, Any]] = [
        {"user": "watch", "calls": ["watch"]},
        {"event": "watch", "calls": [{"spawn_thread": {"task": "look at Oslo"}}]},
        {"answer": "watch", "say": "I watch."},
        *RULES,
    ]
    fakes = testing.FakeTools("fakes", ["watch"])
    async with testing.agent(model=rules, tools=[weather, fakes], limits=ThreadLimits(children=1)) as agent:
        thread = await agent.thread()
        await thread.send("watch")
        watch = await agent.tool("watch").call()
        await watch.confirm()
        await thread.answer()

        for number in range(3):
            await watch.event(f"storm {number}")
            await agent.settled()

        look = await thread.look()
        assert (look.thread.children, look.thread.waiting_events) == ((), ())
        assert len(await thread.entries(ChildEnded)) == 3


async def test_a_thread_has_no_more_children_than_it_may(weather: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[weather], limits=ThreadLimits(children=1)) as agent:
        thread = await agent.thread()
        await thread.ask("both")
        await agent.settled()

        assert len(await thread.children()) == 1
        made, refused = [each for each in await thread.entries(Answered) if each.name == "spawn_thread"]
        assert "works on it" in (made.text or "")
        assert refused.text == (
            "Error: This thread has 1 open child threads, and may not have more. "
            "Close one with close_thread, or wait for one to end."
        )
        await (await only_child(thread)).close()
        await thread.answer()
        assert await thread.ask("plan it") == "They are at it."


async def test_children_of_children_end_somewhere(weather: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[weather], limits=ThreadLimits(depth=1)) as agent:
        thread = await agent.thread()
        await thread.ask("deep thoughts")
        await agent.settled()
        child = await only_child(thread)

        assert await child.children() == []
        assert (await child.entries(Answered))[-1].text == "Error: This thread may have no child threads. Do it here."
        parents, childs = agent.model.questions[0], shown_to(agent.model.questions, "delegate")
        names = [{tool.name for tool in question.tools} for question in (parents, childs)]
        assert names[0] >= {"spawn_thread", "send_message_to_child", "close_thread"}
        assert "report_to_parent" not in names[0]
        assert names[1] >= {"report_to_parent", "close_thread"}
        assert not names[1] & {"spawn_thread", "send_message_to_child"}


async def test_a_parent_that_is_closed_leaves_its_children_alone() -> None:
    """Closing is explicit and does not cascade. What the child has to say then has no effect."""
    async with testing.agent(model=RULES, tools=["forecast"]) as agent:
        thread = await agent.thread()
        await thread.ask("plan it")
        work = await agent.tool("forecast").call()
        child = await only_child(thread)

        await thread.close()
        await agent.settled()
        await work.result("foggy")
        await agent.settled()

        assert (await child.entries(ModelSaid))[-1].text == "It is foggy"
        assert (await child.look()).status == "idle"
        assert isinstance((await thread.entries())[-1], ClosedEntry)
        assert len(agent.model.questions) == 4


async def test_what_a_parent_says_to_a_child_that_closes_just_then_has_no_effect(weather: Toolset) -> None:
    """Both are on their way at once: neither waits for the other, and the parent hears that the child is closed."""
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread()
        await thread.ask("plan it")
        await thread.answer()
        child = await only_child(thread)

        await child.close()
        await thread.send(f"tell {child.id} how is it going?")
        await agent.settled()

        assert not await child.entries(ParentSaid)
        assert (await child.look()).status == "closed"
        assert (await thread.entries(Reported))[-1].text == "It was closed by the user."
        look = await thread.look()
        assert (look.status, look.thread.spawned) == ("idle", {})


# What clients see


async def test_clients_see_the_family(weather: Toolset) -> None:
    async with testing.agent(model=RULES, tools=[weather, "other"]) as agent:
        thread = await agent.thread(user_id="u1")
        await thread.ask("deep thoughts")
        await thread.ask("plan it")
        await agent.settled()
        first, second = await thread.children()
        grandchild = await only_child(first)
        await second.close()
        await agent.settled()

        family = (await agent.request("GET", f"/v1/threads/{thread.id}/family")).json()
        assert (family["thread_id"], family["task"], family["parent_id"]) == (thread.id, None, None)
        latest, earliest = family["children"]
        assert (latest["thread_id"], latest["task"], latest["status"]) == (second.id, "look at Oslo", "closed")
        assert (earliest["thread_id"], earliest["task"], earliest["status"]) == (first.id, "delegate Oslo", "idle")
        assert [each["thread_id"] for each in earliest["children"]] == [grandchild.id]
        assert (earliest["children"][0]["status"], earliest["children"][0]["children"]) == ("closed", [])
        assert not family["more_children"]
        assert earliest["usage"]["requests"] == 3

        listed = (await agent.request("GET", f"/v1/threads?parent={thread.id}")).json()["threads"]
        assert [each["thread_id"] for each in listed] == [second.id, first.id]
        shown = (await agent.request("GET", f"/v1/threads/{thread.id}")).json()
        assert shown["children"] == [first.id]
        assert (await agent.request("GET", "/v1/threads/thr_unknown/family")).status == 404


async def test_a_large_family_is_shown_in_part(weather: Toolset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rapkit.runtime.thread_queries._MOST_RELATIVES", 2)
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        thread = await agent.thread()
        await thread.ask("both")
        await thread.ask("plan another one")
        await agent.settled()

        family = (await agent.request("GET", f"/v1/threads/{thread.id}/family")).json()

        assert len(family["children"]) == 2
        assert family["more_children"]


async def test_children_on_real_sockets_are_threads_of_their_own_to_servers(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """Its calls are called back under its own id, and it is closed under it (CLO-1)."""

    def obedient(question: Question) -> Reply | str:
        return (
            calling(call("work", city="Oslo"))
            if "do not carry out" in str(question.conversation[-1])
            else model(question)
        )

    async with working(obedient, [stranger.url], store) as agent:
        talk = await agent.doing(call("spawn_thread", task="look at Oslo"))
        child = agent.thread(await talk.until_child())
        invocation = await stranger.invoked_with(city="Oslo")
        assert invocation.group_id == child.id

        await invocation.result("sunny")

        assert (await talk.until(Reported)).text == "heard: sunny"
        await talk.hears("heard: heard: sunny")
        await agent.threads.close(child.id)
        (notice,) = await stranger.received(CLOSE)
        assert notice.message == {"thread_id": child.id}
        client = Client(agent.port)
        async with client.events(f"/v1/threads/{talk.id}") as stream:
            (*_, report) = await stream.until("entry", lambda data: data["kind"] == "report" and data["closed"])
        assert (report.data["thread_id"], report.data["text"]) == (child.id, "It was closed by the user.")
        await agent.quiet()
        assert texts_of(model.last.conversation[-1])[0] == "It was closed by the user."  # type: ignore[arg-type]


# Crashes


def _without_id(entry: JournalEntry) -> JournalEntry:
    return replace(entry, id="") if isinstance(entry, UserSaid) else entry


Journals = list[list[JournalEntry]]


async def _converse(agent: testing.StagedAgent) -> tuple[str, Journals]:
    """A family with everything families do, with time for what is sent again; the parent's id, and all journals."""
    thread = await agent.thread()
    await thread.send("plan it")
    await agent.advance(minutes=5)
    child = await only_child(thread)
    await thread.send(f"tell {child.id} finish")
    await agent.advance(minutes=5)
    members = [thread, *await thread.children()]
    return thread.id, [[_without_id(entry) for entry in await member.entries()] for member in members]


def _told(thread_id: str, journals: Journals) -> str:
    return plain(journals).replace(thread_id, "PARENT")


@before_or_after_commit
async def test_a_family_whose_agent_is_lost_at_any_step_goes_on_as_if_nothing_had_happened(
    weather: Toolset, executed: list[str], unheard: bool
) -> None:
    """RUN-4, RUN-5: one child, one report each time, and all of it once."""
    async with testing.agent(model=RULES, tools=[weather]) as agent:
        undisturbed = _told(*await _converse(agent))
    assert undisturbed.count("Reported(") == 2
    for steps in itertools.count():
        executed.clear()
        async with testing.agent(model=RULES, tools=[weather]) as agent:
            agent.crash_after(steps, unheard=unheard, restart=True)

            assert _told(*await _converse(agent)) == undisturbed, f"lost after {steps} steps"
            assert executed == ["Oslo"], f"lost after {steps} steps"
            if not agent.crashes:
                break
    assert steps > 25
