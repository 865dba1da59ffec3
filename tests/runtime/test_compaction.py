"""Threads that go on for ever: what was said long ago is summed up for the model, and stands in the journal as it was said."""

import asyncio
import itertools
from dataclasses import replace
from typing import Any

import pytest

from rapkit import Image, ThreadLimits, Toolset, testing
from rapkit.errors import ThreadParked
from rapkit.kernel.completion import Question, Reply, Usage
from rapkit.kernel.conversation import Heard, Said
from rapkit.kernel.entries import (
    Answered,
    Failed,
    Happened,
    ModelSaid,
    ParkedEntry,
    Summary,
    Unsubscribed,
    UserSaid,
)
from rapkit.models import ModelError
from tests.crash_sides import before_or_after_commit
from tests.kernel.strict_provider import accept_question
from tests.runtime.agents import Call, ScriptedReplies, call, calling, text_of, texts_of, working
from tests.runtime.api.client import Client, Sse
from tests.runtime.foreign_toolset import ForeignToolset

WINDOW = 2000
SMALL = ThreadLimits(context_window=WINDOW)
CHARS = WINDOW * 4
"""How many characters such a model bears, about."""


class Forgetful:
    """A model that counts its summaries, says what it heard last, and makes calls it is asked for. It refuses what a provider might.

    Of a call by the name that follows `cancel` it finds the id in what it is shown.
    """

    def __init__(self) -> None:
        self.questions: list[Question] = []

    def __call__(self, question: Question) -> Reply | str:
        accept_question(question.conversation)
        self.questions.append(question)
        usage = Usage(1, size_of(question) // 4, 10)
        if question.for_summary:
            assert question.tools == ()
            return Reply(f"summary {self.summaries}", usage=usage)
        heard = question.conversation[-1]
        assert isinstance(heard, Heard)
        reply = calling(*self._calls(question, heard)) if heard.texts else Reply()
        text = "" if reply.calls else f"heard: {texts_of(heard)[-1][:100]}"
        return Reply(text, reply.calls, usage=usage)

    def _calls(self, question: Question, heard: Heard) -> list[Call]:
        match heard.texts[-1].split():
            case ["call", name]:
                return [call(name)]
            case ["cancel", name]:
                return [call(self.tool_for(question, name), tool_call_id=self.id_of(question, name))]
            case ["spawn", *task]:
                return [call("spawn_thread", task=" ".join(task))]
        return []

    @staticmethod
    def id_of(question: Question, name: str) -> str:
        """The id of the first call of a tool that is shown."""
        said = (turn for turn in question.conversation if isinstance(turn, Said))
        return next(each.id for turn in said for each in turn.calls if each.name == name)

    @staticmethod
    def tool_for(question: Question, name: str) -> str:
        """What cancels a call: it depends on what its place says."""
        heard = (turn for turn in question.conversation if isinstance(turn, Heard))
        text = next(text_of(each) for turn in heard for each in turn.answers if each.name == name)
        return "cancel_tool_call" if "still running" in text else "cancel_subscription"

    @property
    def summaries(self) -> int:
        return sum(question.for_summary for question in self.questions)

    @property
    def last(self) -> Question:
        return self.questions[-1]


def size_of(question: Question) -> int:
    """What is shown of a conversation, in characters."""
    return sum(
        sum(map(len, turn.texts)) + sum(len(text_of(each)) for each in turn.answers)
        if isinstance(turn, Heard)
        else len(turn.text) + sum(len(str(each.arguments)) for each in turn.calls)
        for turn in question.conversation
    )


async def talk_on(thread: testing.StagedThread, turns: int, words: str = "and so on and so forth, as before") -> None:
    for number in range(turns):
        assert await thread.ask(f"{number}: {words}") == f"heard: {number}: {words}"


async def chatter(agent: testing.StagedAgent, thread: testing.StagedThread, turns: int) -> None:
    """The same without looking through the journal for each answer, which takes long when that is long."""
    for number in range(turns):
        await thread.send(f"{number}: and so on")
        await agent.settled()
        assert agent.model.replies[-1].text == f"heard: {number}: and so on"


# What the model is shown


async def test_what_was_said_long_ago_is_summed_up_and_what_was_said_last_is_not() -> None:
    model = Forgetful()
    async with testing.agent(model=model, limits=SMALL) as agent:
        thread = await agent.thread()
        await thread.ask("my name is Ann")
        await talk_on(thread, 60)

        assert model.summaries == len(await thread.entries(Summary)) > 0
        first, *recent = model.last.conversation
        assert isinstance(first, Heard)
        assert first.texts[0] == f"(This is a summary of what was said before:)\n\nsummary {model.summaries}"
        assert len(recent) > 4
        assert texts_of(recent[-1])[-1] == "59: and so on and so forth, as before"  # type: ignore[arg-type]
        asked = next(question for question in model.questions if question.for_summary)
        assert "my name is Ann" in str(asked.conversation)
        assert "Write down everything the assistant needs" in asked.instructions
        again = [question for question in model.questions if question.for_summary][1]
        assert "summary 1" in str(again.conversation[0])  # the next one is made of the one before


async def test_a_summary_is_made_when_three_quarters_of_the_window_are_full() -> None:
    """By what the provider counted, if that is more than we think it is."""

    def heavy(question: Question) -> Reply:
        return Reply("short", usage=Usage(1, tokens[0], 0))

    tokens = [1499]
    async with testing.agent(model=heavy, limits=SMALL) as agent:
        thread = await agent.thread()
        await thread.ask("one " * 200)
        await thread.ask("two " * 200)
        tokens[0] = 1500
        await thread.ask("three " * 200)
        assert not await thread.entries(Summary)
        tokens[0] = 10
        await thread.ask("four")

        assert len(await thread.entries(Summary)) == 1
        await thread.ask("five")
        assert len(await thread.entries(Summary)) == 1


async def test_without_compaction_what_is_too_long_ago_is_left_out() -> None:
    model = Forgetful()
    limits = ThreadLimits(context_window=WINDOW, window=20, compaction=False)
    async with testing.agent(model=model, limits=limits) as agent:
        thread = await agent.thread()
        await talk_on(thread, 40)

        assert model.summaries == 0
        assert len(model.last.conversation) <= 31


async def test_many_lines_are_a_reason_too() -> None:
    model = Forgetful()
    async with testing.agent(model=model, limits=ThreadLimits(window=40)) as agent:
        thread = await agent.thread()
        await talk_on(thread, 60, "x")

        assert model.summaries > 0
        assert max(len(question.conversation) for question in model.questions) <= 45


async def test_the_journal_is_only_ever_appended_to() -> None:
    """RUN-5"""
    model = Forgetful()
    async with testing.agent(model=model, limits=SMALL) as agent:
        thread = await agent.thread()
        seen: list[Any] = []
        for _ in range(6):
            await talk_on(thread, 10)
            page = (await agent.request("GET", f"/v1/threads/{thread.id}/history?limit=1000")).json()["entries"]
            assert page[: len(seen)] == seen
            seen = page
        assert len([each for each in seen if each["kind"] == "summary"]) == model.summaries > 1
        assert len([each for each in seen if each["kind"] == "user"]) == 60


@pytest.mark.parametrize("turns", [300, pytest.param(10_000, marks=pytest.mark.soak)])
async def test_a_thread_of_many_turns_stays_small_and_loses_nothing_that_goes_on(turns: int) -> None:
    """A subscription and a call from the beginning are named, under their ids, after thousands of turns (SUB-16)."""
    model = Forgetful()
    async with testing.agent(model=model, tools=["watch", "work"], limits=SMALL) as agent:
        thread = await agent.thread()
        await thread.send("call watch")
        watch = await agent.tool("watch").call()
        await watch.confirm("Subscribed.")
        await thread.answer()
        await thread.send("call work")
        work = await agent.tool("work").call()

        await chatter(agent, thread, turns)

        assert model.summaries > turns // 60
        assert max(map(size_of, model.questions)) <= CHARS
        assert len(agent.model.questions) == turns + 3 + model.summaries
        look = await thread.look()
        assert (list(look.thread.subscriptions), list(look.thread.pending)) == ([watch.id], [work.id])
        assert Forgetful.id_of(model.last, "watch") == watch.id
        assert Forgetful.id_of(model.last, "work") == work.id

        await watch.event("a storm", associative=True)
        await agent.settled()
        assert agent.model.replies[-1].text == "heard: a storm"
        assert f"interrupt:{watch.id} (subscription remains active)" in str(model.last.conversation)
        assert "is cancelled" in await thread.ask("cancel watch")
        assert "is cancelled" in await thread.ask("cancel work")
        look = await thread.look()
        assert (look.thread.subscriptions, look.thread.pending) == ({}, {})
        assert [each.call_id for each in await thread.entries(Unsubscribed)] == [watch.id]
        assert work.cancelled
        assert len(await thread.entries(Happened)) == 1
        assert len(await thread.entries(UserSaid)) == turns + 4
        model.questions.clear()
        await talk_on(thread, 60)
        assert model.summaries > 0
        assert "watch" not in str(model.last.conversation)  # it is over, and named no more


async def test_a_late_result_finds_its_call_behind_the_summary() -> None:
    model = Forgetful()
    async with testing.agent(model=model, tools=["work"], limits=SMALL) as agent:
        thread = await agent.thread()
        await thread.send("call work")
        work = await agent.tool("work").call()
        await talk_on(thread, 60)
        assert model.summaries > 0

        await work.result("done at last")

        assert await thread.answer() == "heard: done at last"
        assert f"result:{work.id} (the call is finished)" in str(model.last.conversation)
        assert (await thread.entries(Answered))[-1].late


async def test_large_answers_are_summed_up_too_and_never_cut_off_from_their_calls() -> None:
    model = Forgetful()
    async with testing.agent(model=model, tools=["work"], limits=SMALL) as agent:
        agent.tool("work").answer("a long answer " * 200)
        thread = await agent.thread()
        for _ in range(20):
            await thread.ask("call work")

        assert model.summaries > 0
        assert "result:call_" not in str([question.conversation for question in model.questions])
        assert max(map(size_of, model.questions)) <= CHARS


async def test_a_picture_is_not_as_long_as_it_is_large() -> None:
    """Or else a single one would be reason enough to sum up everything, and be forgotten by that."""
    tools = Toolset("camera")

    @tools.tool(read_only=True)
    def look() -> list[str | Image]:
        """Take a picture."""
        return ["A pixel:", Image(b"\x89PNG" + bytes(600_000), "image/png")]

    model = Forgetful()
    async with testing.agent(model=model, tools=[tools]) as agent:
        thread = await agent.thread()
        await thread.ask("call look")
        await talk_on(thread, 5)

        assert model.summaries == 0
        assert "image/png" in str(model.last.conversation[2])


# Children


async def test_what_a_child_inherits_is_not_changed_by_what_its_parent_sums_up_later() -> None:
    model = Forgetful()
    async with testing.agent(model=model, limits=SMALL) as agent:
        thread = await agent.thread()
        await talk_on(thread, 8)
        await thread.ask("spawn look at Oslo")
        await agent.settled()
        (child,) = await thread.children()
        before = await child.conversation()
        assert "'0: and so on" in str(before)

        await talk_on(thread, 60)

        assert model.summaries > 0
        assert await child.conversation() == before
        assert str(await child.conversation()) == str(before)
        await child.ask("hello")
        assert model.last.conversation[: len(before) - 1] == before[:-1]


async def test_a_child_inherits_a_summary_that_was_there_already() -> None:
    model = Forgetful()
    async with testing.agent(model=model, limits=SMALL) as agent:
        thread = await agent.thread()
        await talk_on(thread, 60)
        known = model.summaries
        assert known > 0

        await thread.ask("spawn look at Oslo")
        await agent.settled()

        (child,) = await thread.children()
        question = next(
            each
            for each in model.questions
            if "look at Oslo" in str(each.conversation[-1]) and "do not carry out" in str(each)
        )
        first = question.conversation[0]
        assert isinstance(first, Heard)
        assert f"summary {known}" in first.texts[0]
        assert "'0: and so on" not in str(question.conversation)
        assert not await child.entries(Summary)


async def test_a_child_sums_up_what_it_inherits_and_its_parent_does_not_notice() -> None:
    model = Forgetful()
    async with testing.agent(model=model, limits=SMALL) as agent:
        thread = await agent.thread()
        await talk_on(thread, 20)
        await thread.ask("spawn look at Oslo")
        await agent.settled()
        (child,) = await thread.children()
        parents = await thread.entries(Summary)
        before = await thread.conversation()

        await talk_on(child, 60)

        assert await child.entries(Summary)
        conversation = await child.conversation()
        assert "(This is a summary" in str(conversation[0])
        assert await thread.entries(Summary) == parents
        assert (await thread.conversation())[: len(before) - 1] == before[:-1]
        assert max(map(size_of, model.questions)) <= CHARS


# Trouble


@pytest.mark.parametrize("failure", ["error", "nothing", "calls"])
async def test_a_summary_that_fails_does_not_stop_the_thread(failure: str) -> None:
    """It is shown less, people are told, and it is tried again when more has been said."""
    model = Forgetful()
    tried: list[int] = []

    def fails(question: Question) -> Reply | str:
        if not question.for_summary:
            return model(question)
        tried.append(len(model.questions))
        match failure:
            case "error":
                raise ModelError("too long for me", retryable=False)
            case "calls":
                return calling(call("sleep", seconds=1))
        return Reply("  ")

    async with testing.agent(model=fails, limits=SMALL) as agent:
        thread = await agent.thread()
        await talk_on(thread, 120)

        assert not await thread.entries(Summary)
        failed = await thread.entries(Failed)
        assert len(failed) == len(tried) < 10
        assert failed[0].text.startswith("What was said so far could not be summarised: ")
        assert max(map(size_of, model.questions)) <= CHARS
        assert (await thread.look()).status == "idle"


async def test_a_summary_succeeds_after_it_has_failed() -> None:
    model = Forgetful()
    failures = iter([True])

    def fails_once(question: Question) -> Reply | str:
        if question.for_summary and next(failures, False):
            raise ModelError("overloaded", retryable=True)
        return model(question)

    async with testing.agent(model=fails_once, limits=SMALL) as agent:
        thread = await agent.thread()
        while not await thread.entries(Failed):
            await thread.send("and so on and so forth, as before")
            await agent.settled()
        said = len(await thread.entries(UserSaid))
        assert not await thread.entries(Summary)
        assert len(await thread.entries(ModelSaid)) == said - 1  # which waits for it

        await agent.advance(1)

        assert [each.text for each in await thread.entries(Failed)] == ["overloaded"]
        assert len(await thread.entries(Summary)) == 1
        assert len(await thread.entries(ModelSaid)) == said
        assert "(This is a summary" in str(model.last.conversation[0])
        assert max(map(size_of, model.questions)) <= CHARS


async def test_a_summary_that_fails_too_often_is_done_without() -> None:
    """So the thread is never parked for it; all that was asked is counted."""
    model = Forgetful()

    def fails(question: Question) -> Reply | str:
        if question.for_summary:
            raise ModelError("overloaded", retryable=True)
        return model(question)

    limits = replace(SMALL, attempts=3)
    async with testing.agent(model=fails, limits=limits) as agent:
        thread = await agent.thread()
        while not await thread.entries(Failed):
            await thread.send("and so on and so forth, as before")
            await agent.settled()

        await agent.advance(minutes=5)

        *retried, given_up = [each.text for each in await thread.entries(Failed)]
        assert retried == ["overloaded"] * 2
        assert given_up == "What was said so far could not be summarised: overloaded"
        assert (await thread.look()).status == "idle"
        assert (await thread.look()).thread.usage.requests == len(agent.model.questions)
        assert len(await thread.entries(ModelSaid)) == len(await thread.entries(UserSaid))
        await talk_on(thread, 5)


class Narrow(Forgetful):
    """A model that takes less than its provider says."""

    TAKES = 1500

    def __init__(self) -> None:
        super().__init__()
        self.refused = 0

    def __call__(self, question: Question) -> Reply | str:
        if size_of(question) > self.TAKES * 4:
            self.refused += 1
            raise ModelError("too many tokens", retryable=False, too_long=True)
        return super().__call__(question)


async def test_a_model_that_takes_less_than_is_known_of_it_is_asked_less_from_then_on() -> None:
    """Neither a question nor a summary it refuses stops the thread, and it is not found out again each time."""
    model = Narrow()
    async with testing.agent(model=model, limits=ThreadLimits(context_window=8000)) as agent:
        thread = await agent.thread()
        await thread.ask("my name is Ann")
        await talk_on(thread, 100)

        assert 0 < model.refused < 5
        assert "my name is Ann" in str(next(each for each in model.questions if each.for_summary).conversation)
        look = await thread.look()
        assert look.status == "idle"
        assert not await thread.entries(ParkedEntry)
        assert not await thread.entries(Failed)
        assert look.thread.usage.requests == len(agent.model.questions)
        known = model.refused
        await agent.restart()
        await talk_on(thread, 100)
        assert model.refused == known


@pytest.mark.parametrize(("takes", "made"), [(5000, True), (0, False)], ids=["less", "nothing"])
async def test_a_summary_the_model_finds_too_long_is_made_of_less_or_done_without(takes: int, made: bool) -> None:
    model = Forgetful()

    def narrow(question: Question) -> Reply | str:
        if question.for_summary and size_of(question) > takes:
            raise ModelError("too many tokens", retryable=False, too_long=True)
        return model(question)

    async with testing.agent(model=narrow, limits=ThreadLimits(context_window=3000)) as agent:
        thread = await agent.thread()
        await talk_on(thread, 100)

        assert (len(await thread.entries(Summary)) > 0) is made
        assert (len(await thread.entries(Failed)) > 0) is not made
        assert (await thread.look()).status == "idle"


async def test_a_single_message_that_is_more_than_the_model_takes_is_shown_in_part() -> None:
    model = Narrow()
    async with testing.agent(model=model, limits=ThreadLimits(context_window=100_000)) as agent:
        thread = await agent.thread()
        await thread.ask("hello")

        assert (await thread.ask("so much " * 10_000)).startswith("heard: so much")

        assert model.refused < 10


async def test_a_model_that_takes_nothing_parks_the_thread() -> None:
    def full(_question: Question) -> Reply:
        raise ModelError("too many tokens", retryable=False, too_long=True)

    async with testing.agent(model=full) as agent:
        thread = await agent.thread()

        with pytest.raises(ThreadParked, match="too many tokens"):
            await thread.ask("hello " * 10_000)

        assert len(agent.model.questions) < 20


async def test_an_agent_lost_in_the_middle_of_a_summary_makes_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """RUN-4, RUN-5: it is there once, and so is what was said meanwhile."""
    monkeypatch.setattr("rapkit.testing.activity._PATIENCE_WITH_THREADS", 0.01)
    model = Forgetful()
    gate = asyncio.Event()

    async def slow(question: Question) -> Reply | str:
        if question.for_summary:
            await gate.wait()
        return model(question)

    async with testing.agent(model=slow, limits=SMALL) as agent:
        thread = await agent.thread()
        while not any(question.for_summary for question in agent.model.questions):
            await thread.send("and so on and so forth, as before, for the whole day long")
            await agent.settled()
        said = len(await thread.entries(UserSaid))
        assert not await thread.entries(Summary)

        await agent.crash()
        await thread.send("in the middle of it")
        gate.set()
        await agent.settled()

        assert len([question for question in agent.model.questions if question.for_summary]) == 2
        assert len(await thread.entries(Summary)) == 1
        assert len(await thread.entries(UserSaid)) == said + 1
        assert (await thread.entries(ModelSaid))[-1].text == "heard: in the middle of it"


@before_or_after_commit
async def test_summaries_are_made_once_however_the_agent_is_lost(unheard: bool) -> None:
    """RUN-4, RUN-5"""
    limits = ThreadLimits(context_window=120)

    async def converse(agent: testing.StagedAgent) -> list[str]:
        thread = await agent.thread()
        for number in range(4):
            await thread.send(f"{number}: and so on and so forth, as before")
            await agent.advance(minutes=5)
        return [str(entry) for entry in await thread.entries() if not isinstance(entry, UserSaid)]

    def model(question: Question) -> Reply:
        accept_question(question.conversation)
        return Reply("short" if question.for_summary else "said", usage=Usage(1))

    async with testing.agent(model=model, limits=limits) as agent:
        undisturbed = await converse(agent)
    assert any(entry.startswith("Summary(") for entry in undisturbed)
    for steps in itertools.count():
        async with testing.agent(model=model, limits=limits) as agent:
            agent.crash_after(steps, unheard=unheard, restart=True)
            assert await converse(agent) == undisturbed, f"lost after {steps} steps"
            if not agent.crashes:
                break
    assert steps > 15


async def test_nobody_hears_a_summary_being_written(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """What clients are streamed is what is said to them. It is paid for all the same."""

    def summing(question: Question) -> Reply | str:
        return Reply("a summary", usage=Usage(1)) if question.for_summary else model(question)

    async with working(summing, [stranger.url], store, limits=ThreadLimits(context_window=1000)) as agent:
        client = Client(agent.port)
        thread = await client.begin("message 0")
        events: list[Sse] = []
        async with client.events(thread) as stream:
            for number in range(1, 12):
                events += await stream.until("entry", lambda entry: entry["kind"] == "assistant")
                await client.post(f"{thread}/messages", {"text": f"message {number} {'x' * 200}"})
            events += await stream.until("entry", lambda entry: entry["kind"] == "assistant")
        summaries = [entry for entry in await client.entries(thread) if entry["kind"] == "summary"]
        assert summaries
        assert all("a summary" not in event.data["text"] for event in events if event.name == "delta")
        assert any("message 11" in event.data["text"] for event in events if event.name == "delta")
        assert (await client.look(thread))["usage"]["requests"] == 12 + len(summaries)


async def test_all_that_came_while_the_model_was_down_is_summed_up_however_much_it_is() -> None:
    """What is neither shown nor summed up is lost, though the summary says that it goes beyond it."""
    asked: list[Question] = []
    down = True

    def model(question: Question) -> Reply:
        if down:
            raise ModelError("down", retryable=False)
        asked.append(question)
        return Reply("summary" if question.for_summary else "yes")

    async with testing.agent(model=model, limits=ThreadLimits(window=4)) as agent:
        thread = await agent.thread()
        for number in range(30):
            await thread.send(f"message {number}.")
            await agent.settled()
        down = False
        await thread.send("message 30.")
        await agent.settled()
        for number in range(4):
            await thread.send(f"more {number}.")
            await agent.settled()

        assert await thread.entries(Summary)
        shown = "".join(str(question.conversation) for question in asked)
        assert [number for number in range(31) if f"message {number}." not in shown] == []
