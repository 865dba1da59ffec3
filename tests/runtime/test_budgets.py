"""What threads may use, each by itself and all together, and how they go on when they have used it."""

import itertools
import re
from dataclasses import replace
from typing import Any

import pytest

from rapkit import Budget, Schedule, ThreadLimits, testing
from rapkit.errors import ThreadError, ThreadParked
from rapkit.kernel.completion import Question, Reply, Usage
from rapkit.kernel.entries import (
    ClosedEntry,
    Failed,
    GrantedEntry,
    JournalEntry,
    ModelSaid,
    ParentSaid,
    ParkedEntry,
    Reported,
    UserSaid,
    WokenUp,
)
from rapkit.models import ModelError
from rapkit.models.scripted import Scripted
from tests.call_ids import plain_entry
from tests.crash_sides import before_or_after_commit
from tests.runtime.agents import Call, ScriptedReplies, call, calling, last_heard, texts_of, working
from tests.runtime.api.client import Client
from tests.runtime.foreign_toolset import ForeignToolset

USAGE = {"input_tokens": 900, "output_tokens": 100, "cost": 0.25}
RULES: list[dict[str, Any]] = [
    {"user": "hello", "say": "Hi.", "usage": USAGE},
    {"user": "plan", "calls": [{"spawn_thread": {"task": "chatter"}}], "usage": USAGE},
    {"user": "work", "calls": ["work"], "usage": USAGE},
    {"user": "watch", "calls": ["watch"], "usage": USAGE},
    {"task": "chatter", "calls": [{"cancel_tool_call": {"tool_call_id": "none"}}], "usage": USAGE},
    {"answer": "cancel_tool_call", "calls": [{"cancel_tool_call": {"tool_call_id": "none"}}], "usage": USAGE},
    {"answer": "spawn_thread", "say": "Planned.", "usage": USAGE},
    {"answer": "work", "say": "Worked: {answer}", "usage": USAGE},
    {"answer": "watch", "say": "I watch.", "usage": USAGE},
    {"event": "watch", "say": "Seen: {text}", "usage": USAGE},
    {"report": "", "say": "Reported: {text}", "usage": USAGE},
]


def asking_for(*calls: Call) -> Reply:
    """A reply that makes calls, and costs something."""
    return replace(calling(*calls), usage=Usage(1, 0, 0, 1.0))


async def used(thread: testing.StagedThread, agent: testing.StagedAgent) -> Any:
    return (await agent.request("GET", f"/v1/threads/{thread.id}")).json()["budget"]


# One thread


@pytest.mark.parametrize(
    ("limits", "reason", "grant"),
    [
        (
            ThreadLimits(slices=2),
            "The thread has used 2 slices, its children included, and its budget is 2 slices. Grant it more to go on.",
            {"slices": 1},
        ),
        (
            ThreadLimits(tokens=1500),
            "The thread has used 2,000 tokens, its children included, and its budget is 1,500 tokens. Grant it more to go on.",
            {"tokens": 1000},
        ),
        (
            ThreadLimits(cost=0.5),
            "The thread has used $0.5, its children included, and its budget is $0.5. Grant it more to go on.",
            {"cost": 0.1},
        ),
    ],
    ids=["slices", "tokens", "cost"],
)
async def test_a_thread_that_has_used_its_budget_stops_and_goes_on_when_it_is_granted_more(
    limits: ThreadLimits, reason: str, grant: dict[str, Any]
) -> None:
    async with testing.agent(model=RULES, limits=limits) as agent:
        thread, other = await agent.thread(), await agent.thread()
        assert [await thread.ask("hello"), await thread.ask("hello")] == ["Hi.", "Hi."]

        with pytest.raises(ThreadParked, match="Grant it more"):
            await thread.ask("hello, once more")
        look = await thread.look()
        assert (look.status, look.reason) == ("parked", reason)
        shown = (await agent.request("GET", f"/v1/threads/{thread.id}")).json()
        assert (shown["status"], shown["reason"]) == ("parked", reason)
        await agent.advance(days=3)
        assert len(agent.model.questions) == 2
        assert await other.ask("hello") == "Hi."  # that has a budget of its own

        reply = await agent.request("POST", f"/v1/threads/{thread.id}/budget", grant)

        assert reply.status == 202
        assert await thread.answer() == "Hi."  # to what was said: nobody has to say it again
        (granted,) = await thread.entries(GrantedEntry)
        assert {name: getattr(granted, name) for name in grant} == grant
        with pytest.raises(ThreadParked):
            await thread.ask("hello, and again")


async def test_clients_see_what_a_thread_has_used_and_may_use() -> None:
    async with testing.agent(model=RULES, limits=ThreadLimits(slices=10, cost=1.0)) as agent:
        thread = await agent.thread()
        await thread.ask("hello")
        await thread.grant(slices=5, tokens=100)
        await agent.settled()

        assert await used(thread, agent) == {
            "slices": {"used": 1, "limit": 15},
            "tokens": {"used": 1000, "limit": None},
            "cost": {"used": 0.25, "limit": 1.0},
        }


async def test_a_result_that_comes_when_nothing_is_left_is_kept_for_when_there_is() -> None:
    async with testing.agent(model=RULES, tools=["work"], limits=ThreadLimits(slices=1)) as agent:
        thread = await agent.thread()
        await thread.send("work")

        await (await agent.tool("work").call()).result("done")

        with pytest.raises(ThreadParked, match="has used 1 slice"):
            await thread.answer()
        await thread.grant(slices=1)
        assert await thread.answer() == "Worked: done"


async def test_a_grant_that_is_not_enough_changes_nothing() -> None:
    async with testing.agent(model=RULES, limits=ThreadLimits(slices=1, tokens=1000)) as agent:
        thread = await agent.thread()
        await thread.ask("hello")
        with pytest.raises(ThreadParked):
            await thread.ask("hello")

        await thread.grant(slices=1)
        await agent.settled()
        assert (await thread.look()).status == "parked"
        assert "1,000 tokens" in str((await thread.look()).reason)
        await thread.grant(tokens=1)

        await agent.settled()
        assert await thread.said() == ["hello", "Hi.", "hello", "Hi."]


async def test_what_is_granted_before_it_is_needed_counts() -> None:
    async with testing.agent(model=RULES, limits=ThreadLimits(slices=1)) as agent:
        thread = await agent.thread()
        await thread.grant(slices=1)

        assert [await thread.ask("hello"), await thread.ask("hello")] == ["Hi.", "Hi."]
        assert not await thread.entries(ParkedEntry)


async def test_a_grant_is_made_once_however_often_it_is_asked_for() -> None:
    async with testing.agent(model=RULES, limits=ThreadLimits(slices=1)) as agent:
        thread = await agent.thread()
        path = f"/v1/threads/{thread.id}/budget"

        replies = [await agent.request("POST", path, {"slices": 1}, headers={"idempotency-key": "k"}) for _ in range(3)]
        await agent.settled()

        assert [reply.status for reply in replies] == [202] * 3
        assert len(await thread.entries(GrantedEntry)) == 1
        other = await agent.request("POST", path, {"slices": 2}, headers={"idempotency-key": "k"})
        assert other.status == 422
        await thread.close()
        await agent.settled()
        with pytest.raises(ThreadError, match="is closed"):
            await thread.grant(slices=1)


async def test_a_message_to_a_thread_without_budget_costs_nothing_and_waits_with_the_others() -> None:
    async with testing.agent(model=RULES, limits=ThreadLimits(slices=1)) as agent:
        thread = await agent.thread()
        await thread.ask("hello")
        for _ in range(3):
            await thread.send("hello?")
            await agent.settled()
        assert len(agent.model.questions) == 1

        await thread.grant(slices=1)
        await agent.settled()

        assert len(agent.model.questions) == 2
        assert (await thread.entries(ModelSaid))[-1].text == "Hi."


@pytest.mark.parametrize("budget", ["the thread's", "the agent's"])
async def test_a_thread_that_is_woken_in_vain_says_once_that_it_has_stopped(budget: str) -> None:
    limits = ThreadLimits(slices=2) if budget == "the thread's" else ThreadLimits()
    budget_usage = None if budget == "the thread's" else Budget(slices=2)
    async with testing.agent(model=RULES, tools=["watch"], limits=limits, budget=budget_usage) as agent:
        thread = await agent.thread()
        await thread.send("watch")
        watch = await agent.tool("watch").call()
        await watch.confirm()
        await thread.answer()

        for number in range(20):
            await watch.event(f"storm {number}", associative=True)
            await agent.settled()

        assert len(await thread.entries(ParkedEntry)) == 1
        assert (await thread.look()).status == "parked"
        assert len(agent.model.questions) == 2
        await thread.send("hello?")  # to somebody who writes it is said again
        await agent.settled()
        assert len(await thread.entries(ParkedEntry)) == 2
        if budget == "the thread's":
            await thread.grant(slices=1)
        else:
            await agent.advance(days=1)
        await agent.settled()
        assert (await thread.entries(ModelSaid))[-1].text == "Hi."
        assert (await thread.look()).status == "waiting"


async def test_a_thread_that_goes_on_after_its_budget_was_used_bears_failures_like_any_other() -> None:
    """That nothing was left was no failure of the model's."""
    failures = iter([False, True, True, False])

    def model(_question: Question) -> str:
        if next(failures):
            raise ModelError("overloaded", retryable=True)
        return "Hi."

    async with testing.agent(model=model, tools=["work"], limits=ThreadLimits(slices=1)) as agent:
        thread = await agent.thread()
        await thread.ask("hello")
        with pytest.raises(ThreadParked):
            await thread.ask("hello again")

        await thread.grant(slices=3)
        await agent.advance(minutes=5)

        assert await thread.answer() == "Hi."
        assert len(await thread.entries(ParkedEntry)) == 1
        assert len(await thread.entries(Failed)) == 2
        assert (await used(thread, agent))["slices"] == {"used": 4, "limit": 4}  # those that failed count


# A thread and its children


async def test_a_thread_that_was_made_for_an_event_and_has_no_budget_left_is_closed() -> None:
    """Nobody looks at it who could grant it more, and it would stand in the way of the next one."""
    rules = [{"event": "watch", "calls": [{"cancel_tool_call": {"tool_call_id": "none"}}]}, *RULES]
    async with testing.agent(model=rules, tools=["watch"], limits=ThreadLimits(slices=4)) as agent:
        thread = await agent.thread()
        await thread.send("watch")
        watch = await agent.tool("watch").call()
        await watch.confirm()
        await thread.answer()

        await watch.event("a storm")
        await agent.settled()

        (child,) = await thread.children()
        (closed,) = await child.entries(ClosedEntry)
        assert closed.by.startswith("the thread itself, which was made for one event. The thread has used 2 slices")
        assert len(await child.entries(ModelSaid)) == 2  # it had what its parent had left
        assert (await thread.look()).thread.children == ()
        assert (await used(thread, agent))["slices"] == {"used": 4, "limit": 4}


async def test_a_parent_hears_that_its_child_has_used_its_budget() -> None:
    async with testing.agent(model=RULES, limits=ThreadLimits(slices=5)) as agent:
        thread = await agent.thread()
        await thread.ask("plan it")
        await agent.settled()

        (child,) = await thread.children()
        assert (await child.look()).status == "parked"
        (report,) = await thread.entries(Reported)
        assert not report.closed
        # When it was made one slice was used, and the parent has used one since.
        assert report.text == (
            "It has stopped: The thread has used 4 slices, its children included, and its budget is 4 slices. "
            "Grant it more to go on."
        )
        with pytest.raises(ThreadParked):
            await thread.answer()  # for which nothing is left
        await thread.grant(slices=2)
        assert (await thread.answer()).startswith("Reported: It has stopped")
        assert await used(child, agent) == {
            "slices": {"used": 4, "limit": 4},
            "tokens": {"used": 4000, "limit": None},
            "cost": {"used": 1.0, "limit": None},
        }


async def test_a_family_has_one_budget() -> None:
    """Of children that have children that have children; what one of them may still take, others may take meanwhile, but not again."""

    def model(question: Question) -> Reply:
        number = next(numbers)
        assert number < 200, "there is no end to it"
        return asking_for(*(call("spawn_thread", task=f"job {number}{new_mail}") for new_mail in "ab"))

    numbers = itertools.count(1)
    async with testing.agent(model=model, limits=ThreadLimits(cost=4.0)) as agent:
        thread = await agent.thread()
        await thread.send("go")
        await agent.settled()

        looks = [await each.look() for each in await agent.threads()]
        assert {look.status for look in looks} == {"parked"}
        asked = len(agent.model.questions)
        for each in await agent.threads():
            if each.id != thread.id:
                await each.send("go on")
        await agent.settled()
        await agent.advance(days=1)

        assert len(agent.model.questions) == asked


async def test_what_children_took_is_their_parents_too() -> None:
    """When they report, and when they are closed: it counts once."""
    rules: list[dict[str, Any]] = [
        {"user": "delegate", "calls": [{"spawn_thread": {"task": "say hello"}}]},
        {"task": "hello", "say": "Hello."},
        {"answer": "spawn_thread", "say": "Delegated."},
        {"report": "", "say": "Reported: {text}"},
    ]
    async with testing.agent(model=rules) as agent:
        thread = await agent.thread()
        await thread.ask("delegate it")
        await agent.settled()
        (child,) = await thread.children()
        own = len(await thread.entries(ModelSaid))
        reported = (await used(thread, agent))["slices"]["used"]
        assert reported == own + 1
        assert (await used(child, agent))["slices"]["used"] == 1

        await child.close()
        await agent.settled()

        assert (await used(thread, agent))["slices"]["used"] == own + 1 + 1  # it was told of that
        shown = (await agent.request("GET", f"/v1/threads/{thread.id}")).json()
        assert shown["usage"]["requests"] == own + 1  # which is its own alone


async def test_a_parent_that_says_go_on_to_a_child_without_budget_comes_to_an_end() -> None:
    """It is told each time that the child cannot, and pays for that."""

    def model(question: Question) -> Reply | str:
        assert next(numbers) < 200, "there is no end to it"
        if any(tool.name == "report_to_parent" for tool in question.tools):
            return asking_for(call("cancel_tool_call", tool_call_id="none"))
        heard = texts_of(last_heard(question))[-1]
        if heard == "go":
            return asking_for(call("spawn_thread", task="chatter"))
        if not heard.startswith("It has stopped"):
            return "We shall see."
        (child, *_) = re.findall(r"thr_\w+-\d+", str(question.conversation))
        return asking_for(call("send_message_to_child", thread_id=child, text="Go on!"))

    numbers = itertools.count(1)
    # It gets nothing right, but that is not what ends it.
    async with testing.agent(model=model, limits=ThreadLimits(slices=20, mistakes=1000)) as agent:
        thread = await agent.thread()
        await thread.send("go")
        await agent.settled()
        (child,) = await thread.children()
        await thread.grant(slices=10)  # so that the parent goes on, and says so

        await agent.settled()
        await agent.advance(days=1)

        assert await child.entries(ParentSaid)
        assert len(await child.entries(ModelSaid)) == 19
        assert len(agent.model.questions) <= 20 + 1 + 10
        assert (await child.look()).status == "parked"
        assert (await used(thread, agent))["slices"]["used"] == len(agent.model.questions)


async def test_a_child_that_is_granted_more_goes_on_and_its_parent_hears_the_end() -> None:
    rules: list[dict[str, Any]] = [
        {"user": "delegate", "calls": [{"spawn_thread": {"task": "work hard"}}]},
        {"task": "work", "calls": ["work"]},
        {"answer": "work", "say": "Worked: {answer}"},
        {"answer": "spawn_thread", "say": "Delegated."},
        {"report": "", "say": "Reported: {text}"},
    ]
    async with testing.agent(model=rules, tools=["work"], limits=ThreadLimits(slices=2)) as agent:
        thread = await agent.thread()
        await thread.ask("delegate it")
        await (await agent.tool("work").call()).result("done")
        await agent.settled()
        (child,) = await thread.children()
        assert [(await each.look()).status for each in (thread, child)] == ["parked", "parked"]

        await child.grant(slices=1)
        await agent.settled()
        await thread.grant(slices=3)

        await agent.settled()
        assert [each.text.partition(":")[0] for each in await thread.entries(Reported)] == ["It has stopped", "Worked"]
        assert (await thread.entries(ModelSaid))[-1].text.endswith("Worked: done")


def _without_id(entry: JournalEntry) -> JournalEntry:
    return replace(entry, id="") if isinstance(entry, UserSaid) else plain_entry(entry)


@before_or_after_commit
async def test_a_budget_is_kept_however_the_agent_is_lost(unheard: bool) -> None:
    """RUN-4, RUN-5: a grant counts once."""

    async def converse(agent: testing.StagedAgent) -> list[JournalEntry]:
        thread = await agent.thread()
        for text in ("hello", "hello again"):
            await thread.send(text)
            await agent.advance(minutes=5)
        await thread.grant(slices=1)
        await agent.advance(minutes=5)
        return [_without_id(entry) for entry in await thread.entries()]

    limits = ThreadLimits(slices=1)
    async with testing.agent(model=RULES, limits=limits) as agent:
        undisturbed = await converse(agent)
    assert [entry.kind for entry in undisturbed] == ["user", "assistant", "user", "parked", "granted", "assistant"]
    for steps in itertools.count():
        async with testing.agent(model=RULES, limits=limits) as agent:
            agent.crash_after(steps, unheard=unheard, restart=True)
            assert await converse(agent) == undisturbed, f"lost after {steps} steps"
            if not agent.crashes:
                break
    assert steps > 10


async def test_a_budget_on_real_sockets(model: ScriptedReplies, stranger: ForeignToolset, store: str) -> None:
    async with working(model, [stranger.url], store, limits=ThreadLimits(slices=1)) as agent:
        client = Client(agent.port)
        thread = await client.begin("first")
        async with client.events(thread) as stream:
            await stream.until("entry", lambda entry: entry["kind"] == "assistant")
            await client.post(f"{thread}/messages", {"text": "second"})
            (*_, parked) = await stream.until("status", lambda data: data["status"] == "parked")
            assert parked.data["reason"].startswith("The thread has used 1 slice")
            listed = (await client.get("/v1/threads?status=parked")).json["threads"]
            assert [each["reason"] for each in listed] == [parked.data["reason"]]

            assert (await client.post(f"{thread}/budget", {"slices": 1})).status == 202

            (*_, said) = await stream.until("entry", lambda entry: entry["kind"] == "assistant")
            assert said.data["text"] == "heard: second"
    async with working(model, [stranger.url], store, limits=ThreadLimits(slices=1)) as agent:
        look = await Client(agent.port).look(thread)
        assert look["budget"]["slices"] == {"used": 2, "limit": 2}  # what was granted outlives the process


# All threads together


async def test_an_agent_that_has_spent_its_budget_stops_until_the_next_period() -> None:
    """All its threads do, and by themselves go on: nobody has to write to them again."""
    async with testing.agent(model=RULES, budget=Budget(slices=2, per="day")) as agent:
        one, other = await agent.thread(), await agent.thread()
        assert [await one.ask("hello"), await other.ask("hello")] == ["Hi.", "Hi."]

        for thread in (one, other):
            with pytest.raises(ThreadParked, match="budget"):
                await thread.ask("hello again")
        assert len(agent.model.questions) == 2
        reason = "The agent has run 2 of its 2 slices for 2030-01-01 (UTC). It goes on at 2030-01-02 00:00 UTC"
        assert [str((await each.look()).reason)[: len(reason)] for each in (one, other)] == [reason] * 2
        await agent.advance(hours=11)
        assert len(agent.model.questions) == 2

        await agent.advance(hours=2)  # past midnight

        assert [await one.answer(), await other.answer()] == ["Hi.", "Hi."]
        assert [(await thread.look()).status for thread in (one, other)] == ["idle", "idle"]


async def test_an_agents_budget_is_kept_over_restarts() -> None:
    async with testing.agent(model=RULES, budget=Budget(cost=0.5, per="total")) as agent:
        thread = await agent.thread()
        await thread.ask("hello")
        await agent.restart()
        await thread.ask("hello")
        await agent.restart()

        with pytest.raises(ThreadParked):
            await thread.ask("hello")
        await agent.advance(days=40)
        assert len(agent.model.questions) == 2


async def test_a_schedule_that_speaks_when_nothing_is_left_is_heard_in_the_next_period() -> None:
    schedule = Schedule("0 9,21 * * *", "good morning", name="greeting")
    async with testing.agent(
        model=[{"user": "good", "say": "Hi."}], schedules=[schedule], budget=Budget(slices=1)
    ) as agent:
        await agent.advance(days=1, hours=10)  # until ten in the evening of the second day
        (thread,) = await agent.threads()
        assert (await thread.look()).status == "parked"
        assert [entry.due for entry in await thread.entries(WokenUp)] == [
            "2030-01-01 21:00 UTC",
            "2030-01-02 09:00 UTC",
            "2030-01-02 21:00 UTC",
        ]
        assert len(agent.model.questions) == 2

        await agent.advance(hours=3)

        assert len(agent.model.questions) == 3
        assert (await thread.look()).status == "idle"


@pytest.mark.parametrize("bound", ["the thread", "the agent", "nobody"])
async def test_a_budget_of_costs_that_bounds_nothing_is_told_of_once(
    caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest, bound: str
) -> None:
    """If the price of the model is not known, all it takes costs nothing."""
    model = Scripted(lambda _: Reply("Hi.", usage=Usage(1, 100, 10)), name=f"no-price-{request.node.name}")
    limits = ThreadLimits(cost=1.0) if bound == "the thread" else ThreadLimits()
    budget = Budget(cost=1.0) if bound == "the agent" else None
    async with testing.agent(model=model, limits=limits, budget=budget) as agent:
        for _ in range(2):
            thread = await agent.thread()
            await thread.ask("hello")
            await thread.ask("hello")

    told = [record.getMessage() for record in caplog.records if "price" in record.getMessage()]
    assert told == [
        f"the price of {model.name} is not known: a budget of costs does not bound it. Limit tokens or slices."
    ] * (bound != "nobody")
