"""Threads and time: sleeping, waiting for something to happen, and giving up calls that take too long. All of it outlives the process."""

import itertools
import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from rapkit import Context, ThreadLimits, Toolset, testing
from rapkit.kernel.conversation import Heard
from rapkit.kernel.entries import Answered, Ignored, JournalEntry, ModelSaid, UserSaid
from rapkit.kernel.limits import Timeouts
from rapkit.kernel.projection import STILL_RUNNING
from tests.call_ids import plain_entry
from tests.crash_sides import before_or_after_commit
from tests.runtime.agents import ScriptedReplies, call, working
from tests.runtime.clocks import ManualClock
from tests.runtime.foreign_toolset import ForeignToolset

DAY = 24 * 3600.0

RULES: list[dict[str, Any]] = [
    {"user": "nap", "calls": [{"sleep": {"seconds": 60}}]},
    {"user": "weeks", "calls": [{"sleep": {"seconds": 3 * 7 * DAY}}]},
    {"user": "Berlin", "calls": [{"sleep_until": {"time": "2030-01-02T09:00", "timezone": "Europe/Berlin"}}]},
    {"user": "long ago", "calls": [{"sleep_until": {"time": "2029-12-31T09:00"}}]},
    {"user": "Atlantis", "calls": [{"sleep_until": {"time": "2030-01-02T09:00", "timezone": "Atlantis"}}]},
    {"user": "tomorrow", "calls": [{"sleep_until": {"time": "tomorrow"}}]},
    {"user": "listen a while", "calls": [{"wait_for_event": {"at_most_seconds": 600}}]},
    {"user": "listen", "calls": ["wait_for_event"]},
    {"user": "watch and wait", "calls": ["watch", "wait_for_event"]},
    {"user": "watch", "calls": ["watch"]},
    {"user": "work and sleep", "calls": ["work", {"sleep": {"seconds": 3600}}]},
    {"user": "work", "calls": ["work"]},
    {"user": "dig", "calls": ["dig"]},
    {"user": "hello", "say": "Hi."},
    {"event": "watch", "say": "It happened: {text}"},
    {"answer": "sleep", "say": "Awake: {answer}"},
    {"answer": "sleep_until", "say": "Awake: {answer}"},
    {"answer": "wait_for_event", "say": "Waited: {answer}"},
    {"answer": "watch", "say": "I watch."},
    {"answer": "work", "say": "Worked: {answer}"},
    {"answer": "dig", "say": "Dug: {answer}"},
]


@pytest.fixture
def mine() -> Toolset:
    tools = Toolset("mine")

    @tools.tool(idempotent=True, long_running=True)
    async def dig(ctx: Context) -> str:
        """Dig for a while."""
        await ctx.sleep(3600)
        return "gold"

    return tools


# Sleeping


async def test_a_thread_sleeps_and_is_woken() -> None:
    async with testing.agent(model=RULES) as agent:
        thread = await agent.thread()
        await thread.send("take a nap")
        await agent.advance(59)
        look = await thread.look()
        assert (look.status, [call.awaits for call in look.thread.pending.values()]) == ("waiting", ["time"])
        assert len(agent.model.questions) == 1

        await agent.advance(1)

        assert await thread.answer() == "Awake: 60 seconds have passed. It is Tuesday 2030-01-01 12:01:00 UTC."
        assert (await thread.look()).thread.timers == {}


async def test_a_thread_that_sleeps_for_weeks_is_woken_by_another_process() -> None:
    """RUN-8: nothing of it is anywhere but in the store. What is due while nobody is there happens when somebody is."""
    async with testing.agent(model=RULES) as agent:
        thread = await agent.thread()
        await thread.send("sleep for weeks")
        await agent.advance(days=10)
        await agent.restart()
        await agent.advance(days=10)
        await agent.crash()
        assert len(agent.model.questions) == 1

        await agent.advance(days=1)

        assert await thread.answer() == "Awake: 1814400 seconds have passed. It is Tuesday 2030-01-22 12:00:00 UTC."
        assert len(await thread.entries(Answered)) == 1


async def test_a_thread_whose_time_came_while_no_agent_was_there_is_woken_at_the_start(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    clock = ManualClock()
    async with working(model, [stranger.url], store, environment=clock.environment()) as agent:
        talk = await agent.doing(call("sleep", seconds=3 * DAY))
        thread_id = (await talk.becomes("waiting")).thread.id
    clock.advance(5 * DAY)

    async with working(model, [stranger.url], store, environment=clock.environment()) as agent:
        await agent.thread(thread_id).hears("heard: 432000 seconds have passed.")


async def test_a_thread_sleeps_until_a_time_in_a_zone() -> None:
    async with testing.agent(model=RULES) as agent:
        thread = await agent.thread()
        await thread.send("wake me in Berlin")

        await agent.advance(days=1)

        assert await thread.answer() == "Awake: 72000 seconds have passed. It is Wednesday 2030-01-02 08:00:00 UTC."


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("long ago", "That is over: it is Tuesday 2030-01-01 12:00:00 UTC."),
        ("Atlantis", "'Atlantis' is no IANA time zone. Write one like Europe/Berlin."),
        ("tomorrow", "'tomorrow' is no date and time. Write it like 2030-01-31T09:00."),
    ],
    ids=["over", "zone", "time"],
)
async def test_a_time_that_makes_no_sense_is_refused_with_what_time_it_is(said: str, told: str) -> None:
    async with testing.agent(model=RULES) as agent:
        thread = await agent.thread()

        answer = await thread.ask(said)

        assert answer.startswith(f"Awake: Error: {told}")
        assert "2030-01-01 12:00:00 UTC" in answer


async def test_a_sleeping_thread_is_woken_by_the_user() -> None:
    """Sleeps are interrupted by anything: the model is told how long it has slept, and then what woke it."""
    async with testing.agent(model=RULES) as agent:
        thread = await agent.thread()
        await thread.send("take a nap")
        await agent.advance(20)

        assert await thread.ask("hello") == "Hi."

        (slept,) = await thread.entries(Answered)
        assert (
            slept.text == "Interrupted by what follows. 20 seconds have passed. It is Tuesday 2030-01-01 12:00:20 UTC."
        )
        await agent.advance(minutes=10)
        assert len(await thread.entries(Answered)) == 1
        assert (await thread.look()).status == "idle"


async def test_what_is_waited_for_is_an_event() -> None:
    """An associative event comes in its place, and only after the wait has its answer (SUB-20)."""
    async with testing.agent(model=RULES, tools=["watch"]) as agent:
        thread = await agent.thread()
        await thread.send("watch")
        watching = await agent.tool("watch").call()
        await watching.confirm()
        assert await thread.answer() == "I watch."
        await thread.send("listen")
        await agent.advance(days=30)
        assert [call.until for call in (await thread.look()).thread.pending.values()] == [None]

        await watching.event("a storm", associative=True)

        assert await thread.answer() == "It happened: a storm"
        waited = (await thread.entries(Answered))[-1]
        assert (waited.text or "").startswith("Interrupted by what follows. 2592000 seconds have passed.")
        (*_, heard) = agent.model.questions[-1].conversation
        assert isinstance(heard, Heard)
        assert [each.name for each in heard.answers] == ["watch"]
        assert (await thread.look()).status == "waiting"  # for the next event


async def test_a_wait_has_an_end_if_it_was_given_one() -> None:
    async with testing.agent(model=RULES) as agent:
        thread = await agent.thread()
        await thread.send("listen a while")

        await agent.advance(600)

        assert (await thread.answer()).startswith("Waited: 600 seconds have passed.")


async def test_a_sleep_beside_a_call_ends_with_the_calls_answer() -> None:
    async with testing.agent(model=RULES, tools=["work"]) as agent:
        thread = await agent.thread()
        await thread.send("work and sleep")
        work = await agent.tool("work").call()

        await work.result("done")
        await agent.settled()

        by_name = {each.name: each.text or "" for each in await thread.entries(Answered)}
        assert by_name["work"] == "done"
        assert by_name["sleep"].startswith("Interrupted by what follows.")
        assert len(agent.model.questions) == 2


async def test_the_user_ends_a_sleep_by_cancelling_it() -> None:
    async with testing.agent(model=RULES) as agent:
        thread = await agent.thread()
        await thread.send("sleep for weeks")
        await agent.settled()

        (call_id,) = (await thread.look()).thread.pending
        reply = await agent.request("POST", f"/v1/threads/{thread.id}/calls/{call_id}/cancel")

        assert reply.status == 202
        assert await thread.answer() == "Awake: Error: Cancelled. The user cancelled this call."
        await agent.advance(days=30)
        assert len(await thread.entries(Answered)) == 1


async def test_a_thread_that_is_closed_in_its_sleep_is_not_woken() -> None:
    async with testing.agent(model=RULES) as agent:
        thread = await agent.thread()
        await thread.send("take a nap")
        await agent.settled()

        await thread.close()
        await agent.advance(minutes=10)

        assert len(agent.model.questions) == 1
        assert (await thread.look()).status == "closed"


async def test_clients_see_until_when_a_call_waits() -> None:
    async with testing.agent(model=RULES) as agent:
        thread = await agent.thread()
        await thread.send("wake me in Berlin")
        await agent.settled()

        (pending,) = (await agent.request("GET", f"/v1/threads/{thread.id}")).json()["pending_calls"]

        assert (pending["name"], pending["awaits"]) == ("sleep_until", "time")
        assert pending["until"] == datetime(2030, 1, 2, 8, tzinfo=UTC).timestamp()


# Timeouts


async def test_calls_have_all_the_time_there_is_unless_somebody_says_otherwise() -> None:
    """RUN-7: off by default."""
    async with testing.agent(model=RULES, tools=["work"]) as agent:
        thread = await agent.thread()
        await thread.send("work")
        work = await agent.tool("work").call()

        await agent.advance(days=30)
        await work.result("done at last")

        assert await thread.answer() == "Worked: done at last"


async def test_a_call_that_takes_too_long_is_given_up_and_its_late_result_is_shown() -> None:
    """RUN-7: the thread goes on. One late result is taken, as something of its own."""
    limits = ThreadLimits(timeouts=Timeouts(call=60))
    async with testing.agent(model=RULES, tools=["work"], limits=limits) as agent:
        thread = await agent.thread()
        await thread.send("work")
        work = await agent.tool("work").call()
        await agent.advance(59)
        assert len(agent.model.questions) == 1

        await agent.advance(1)
        assert (await thread.answer()).startswith("Worked: Error: The call of 'work' timed out after 60 s.")
        assert (await thread.look()).thread.pending == {}
        assert not work.cancelled
        await agent.advance(days=1)
        await work.result("done at last")

        assert await thread.answer() == "Worked: done at last"
        first, late = await thread.entries(Answered)
        assert (first.by, first.late, late.by, late.late) == ("runtime", False, "tool", True)
        assert f"result:{work.id} (the call is finished)" in str(agent.model.questions[-1].conversation)
        assert await work.again() == 200  # it has not heard that it was taken
        await agent.settled()
        assert len(await thread.entries(Answered)) == 2


async def test_a_result_that_comes_too_late_even_for_that_is_refused() -> None:
    limits = ThreadLimits(timeouts=Timeouts(call=60), remember_expired=DAY)
    async with testing.agent(model=RULES, tools=["work"], limits=limits) as agent:
        thread = await agent.thread()
        await thread.send("work")
        work = await agent.tool("work").call()

        await agent.advance(days=2)

        assert await work.send(work.as_result("much too late")) == 410
        assert len(await thread.entries(Answered)) == 1
        assert (await thread.look()).thread.expired == {}


async def test_a_call_the_user_did_not_wait_for_times_out_all_the_same() -> None:
    limits = ThreadLimits(timeouts=Timeouts(call=60))
    async with testing.agent(model=RULES, tools=["work"], limits=limits) as agent:
        thread = await agent.thread()
        await thread.send("work")
        await agent.tool("work").call()
        await agent.advance(30)
        assert await thread.ask("hello") == "Hi."
        assert STILL_RUNNING in str(agent.model.questions[-1].conversation)

        await agent.advance(30)

        assert (await thread.answer()).startswith("Worked: Error: The call of 'work' timed out after 60 s.")


@pytest.mark.parametrize(
    ("timeouts", "seconds"),
    [
        (Timeouts(call=60), 600),
        (Timeouts(call=60, long_running=900), 900),
        (Timeouts(call=60, long_running=math.inf), None),
        (Timeouts(call=60, long_running=900, tools={"dig": 30}), 30),
        (Timeouts(long_running=900, tools={"dig": None}), None),
    ],
    ids=["ten-times", "long-running", "for-ever", "tool", "tool-without-end"],
)
async def test_tools_that_take_long_have_a_time_of_their_own(
    mine: Toolset, timeouts: Timeouts, seconds: float | None
) -> None:
    """RUN-7: per agent, for `longRunning`, and per tool, which wins."""
    async with testing.agent(model=RULES, tools=[mine], limits=ThreadLimits(timeouts=timeouts)) as agent:
        thread = await agent.thread()
        await thread.send("dig")

        await agent.advance(hours=2)

        expected = "Dug: gold" if seconds is None else f"Dug: Error: The call of 'dig' timed out after {seconds:g} s."
        assert (await thread.answer()).startswith(expected)


async def test_the_time_in_which_a_person_decides_is_not_the_tools() -> None:
    """RUN-7: a call that waits for a person does not run out of time; its own time begins anew when it goes on."""
    limits = ThreadLimits(timeouts=Timeouts(call=60))
    async with testing.agent(model=RULES, tools=["work"], limits=limits) as agent:
        thread = await agent.thread()
        await thread.send("work")
        work = await agent.tool("work").call()
        await work.choose("Really?", ["yes", "no"])
        await agent.advance(days=3)
        assert (await thread.entries(ModelSaid))[-1].text == ""

        await (await thread.choice()).select("yes")
        assert await work.chosen() == 0
        await agent.advance(59)
        assert not await thread.entries(Answered)
        await agent.advance(1)

        assert (await thread.answer()).startswith("Worked: Error: The call of 'work' timed out")


async def test_a_cancelled_call_does_not_time_out() -> None:
    limits = ThreadLimits(timeouts=Timeouts(call=60))
    async with testing.agent(model=RULES, tools=["work"], limits=limits) as agent:
        thread = await agent.thread()
        await thread.send("work")
        work = await agent.tool("work").call()
        await thread.cancel(work.id)
        await thread.answer()

        await agent.advance(minutes=10)

        assert len(await thread.entries(Answered)) == 1
        assert not await thread.entries(Ignored)


# Crashes


def _without_id(entry: JournalEntry) -> JournalEntry:
    return replace(entry, id="") if isinstance(entry, UserSaid) else plain_entry(entry)


def _untimed(entry: JournalEntry) -> JournalEntry:
    """How long it took depends on when the next process is there."""
    if isinstance(entry, Answered) and entry.name == "sleep":
        return replace(entry, text="slept")
    return replace(entry, text="Awake") if isinstance(entry, ModelSaid) and "Awake" in entry.text else entry


async def _converse(agent: testing.StagedAgent) -> list[JournalEntry]:
    thread = await agent.thread()
    await thread.send("take a nap")
    await agent.advance(minutes=10)
    await thread.send("dig")
    await agent.advance(hours=3)
    return [_untimed(_without_id(entry)) for entry in await thread.entries()]


@before_or_after_commit
async def test_timers_are_kept_however_the_agent_is_lost(mine: Toolset, unheard: bool) -> None:
    """RUN-4, RUN-5: a sleep ends once, a timeout comes once, and so does the late result."""
    limits = ThreadLimits(timeouts=Timeouts(long_running=600))
    async with testing.agent(model=RULES, tools=[mine], limits=limits) as agent:
        undisturbed = await _converse(agent)
    assert [type(entry).__name__ for entry in undisturbed] == [
        *("UserSaid", "ModelSaid", "Answered", "ModelSaid"),
        *("UserSaid", "ModelSaid", "Answered", "ModelSaid", "Answered", "ModelSaid"),
    ]
    for steps in itertools.count():
        async with testing.agent(model=RULES, tools=[mine], limits=limits) as agent:
            agent.crash_after(steps, unheard=unheard, restart=True)

            assert await _converse(agent) == undisturbed, f"lost after {steps} steps"
            if not agent.crashes:
                break
    assert steps > 20
