"""Of several answers to one question the first counts; whoever gave it hears so however often it asks, and the others hear no."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest

from rapkit.errors import ThreadError
from rapkit.kernel.entries import ChoiceAsked, ChoiceMadeEntry, Ignored
from rapkit.kernel.limits import ThreadLimits
from rapkit.mailbox import Store
from rapkit.runtime.broadcast import Broadcast
from rapkit.runtime.thread_commands import ThreadCommands
from rapkit.stores import open_store
from tests.runtime.agents import RunningAgent, ScriptedReplies, ThreadDriver, call, working
from tests.runtime.api.client import Client
from tests.runtime.clocks import ManualClock
from tests.runtime.foreign_toolset import ANSWER, ForeignToolset, Invocation
from tests.server.served_toolset import failing


class _Interrupted:
    """A store that lets something else happen before it does a thing, `box 2` being the second time that a box is read."""

    def __init__(self, store: Store, moment: str, meanwhile: Callable[[], Awaitable[None]]) -> None:
        self._store = store
        self._name, number = moment.split()
        self._left = int(number)
        self._meanwhile = meanwhile

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name != self._name:
            return method

        async def interrupted(*given: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                await self._meanwhile()
            return await method(*given, **named)

        return interrupted


@contextlib.asynccontextmanager
async def _another_process(
    store: str, moment: str, meanwhile: Callable[[], Awaitable[None]]
) -> AsyncIterator[ThreadCommands]:
    opened = open_store(store)
    try:
        yield ThreadCommands(cast("Store", _Interrupted(opened, moment, meanwhile)), Broadcast())
    finally:
        await opened.close()


async def _asked(agent: RunningAgent, stranger: ForeignToolset, *prompts: str) -> tuple[ThreadDriver, Invocation]:
    """A call that has asked these questions."""
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()
    for number, prompt in enumerate(prompts, 1):
        await invocation.choice(prompt, ["yes", "no"], 1, f"{stranger.url}{ANSWER}/{prompt}")
        await talk.until(ChoiceAsked, number)
    return talk, invocation


MOMENTS = pytest.mark.parametrize(
    "moment", ["records 1", "box 1", "note 1", "box 2", "records 3", "note 2", "accept 1"]
)


@MOMENTS
async def test_the_same_request_has_the_same_answer_whenever_the_other_one_comes(
    agent: RunningAgent, stranger: ForeignToolset, store: str, moment: str
) -> None:
    talk, invocation = await _asked(agent, stranger, "first", "second")

    async def the_same() -> None:
        await agent.engine.threads.choose(talk.id, invocation.id, 0, "k")
        await talk.until(ChoiceMadeEntry)

    async with _another_process(store, moment, the_same) as threads:
        for _ in range(2):
            await threads.choose(talk.id, invocation.id, 0, "k")

    await agent.quiet()
    assert len(stranger.to(f"{ANSWER}/first")) == 1
    assert stranger.to(f"{ANSWER}/second") == []


@MOMENTS
async def test_the_last_answer_of_a_call_is_repeated_although_no_question_is_left(
    agent: RunningAgent, stranger: ForeignToolset, store: str, moment: str
) -> None:
    talk, invocation = await _asked(agent, stranger, "only")

    async def the_same() -> None:
        await agent.engine.threads.choose(talk.id, invocation.id, 0, "k")
        await talk.until(ChoiceMadeEntry)
        await invocation.result("done")
        await talk.answered(invocation.id)

    async with _another_process(store, moment, the_same) as threads:
        for _ in range(2):
            await threads.choose(talk.id, invocation.id, 0, "k")


@pytest.mark.parametrize("moment", ["note 1", "box 2", "records 3", "note 2"])
async def test_who_lost_hears_so_every_time_and_does_not_answer_the_next_question(
    agent: RunningAgent, stranger: ForeignToolset, store: str, moment: str
) -> None:
    talk, invocation = await _asked(agent, stranger, "first", "second")

    async def another() -> None:
        await agent.engine.threads.choose(talk.id, invocation.id, 0, "k1")
        await talk.until(ChoiceMadeEntry)

    async with _another_process(store, moment, another) as threads:
        for _ in range(3):
            with pytest.raises(ThreadError, match="answered already"):
                await threads.choose(talk.id, invocation.id, 1, "k2")

    await agent.quiet()
    assert stranger.to(f"{ANSWER}/second") == []


async def test_who_comes_before_the_first_answer_is_sent_loses_all_the_same(
    agent: RunningAgent, stranger: ForeignToolset, store: str
) -> None:
    talk, invocation = await _asked(agent, stranger, "really")

    async def another() -> None:
        with pytest.raises(ThreadError, match="answered already"):
            await agent.engine.threads.choose(talk.id, invocation.id, 1)

    async with _another_process(store, "accept 1", another) as threads:
        await threads.choose(talk.id, invocation.id, 0)

    (answered,) = await stranger.received(f"{ANSWER}/really")
    assert answered.message["selected"] == 0


async def test_a_refused_answer_is_refused_again(agent: RunningAgent, stranger: ForeignToolset) -> None:
    client = Client(agent.port)
    talk, invocation = await _asked(agent, stranger, "first", "second")
    path = f"/v1/threads/{talk.id}/calls/{invocation.id}/choice"

    replies = await asyncio.gather(*(client.post(path, {"selected": n % 2}, key=f"k{n % 2}") for n in range(10)))
    again = [await client.post(path, {"selected": n % 2}, key=f"k{n % 2}") for n in range(10)]

    # Who comes only after the first question was answered may have answered the second: but it is always the same.
    for n in range(2):
        assert len({reply.status for reply in (*replies[n::2], *again[n::2])}) == 1


async def test_an_answer_whose_giver_was_lost_is_sent_by_the_next_one(
    agent: RunningAgent, stranger: ForeignToolset, store: str
) -> None:
    """It is put down which answer is the first, and then the store fails: the question must not stay open for ever."""
    talk, invocation = await _asked(agent, stranger, "really")
    client = Client(agent.port)
    path = f"/v1/threads/{talk.id}/calls/{invocation.id}/choice"
    with failing(store, "INSERT", "mail"):
        assert (await client.post(path, {"selected": 0})).status == 503

    assert (await client.post(path, {"selected": 1})).status == 409

    (answered,) = await stranger.received(f"{ANSWER}/really")
    assert answered.message["selected"] == 0


async def test_answers_are_repeated_even_when_the_thread_is_closed_by_now(
    agent: RunningAgent, stranger: ForeignToolset
) -> None:
    talk, invocation = await _asked(agent, stranger, "really")
    client = Client(agent.port)
    path = f"/v1/threads/{talk.id}/calls/{invocation.id}/choice"
    keys = ("first", "second")
    before = [(await client.post(path, {"selected": 0}, key=key)).status for key in keys]
    await client.post(f"/v1/threads/{talk.id}/close")
    async with client.events(f"/v1/threads/{talk.id}") as stream:
        await stream.rest()

    assert before == [202, 409]
    assert [(await client.post(path, {"selected": 0}, key=key)).status for key in keys] == before


# Answers that say which question they mean


async def test_an_answer_to_a_question_that_is_over_is_refused(agent: RunningAgent, stranger: ForeignToolset) -> None:
    """Such as that of somebody who looks at what was asked a minute ago."""
    client = Client(agent.port)
    talk, invocation = await _asked(agent, stranger, "first", "second")
    path = f"/v1/threads/{talk.id}/calls/{invocation.id}/choice"
    (seen,) = (await client.look(f"/v1/threads/{talk.id}"))["choices"]
    meant = {"selected": 0, "asked_at": seen["asked_at"]}
    assert (await client.post(path, meant, key="k")).status == 202
    await talk.until(ChoiceMadeEntry)

    again, other = await client.post(path, meant, key="k"), await client.post(path, meant)

    assert again.status == 202  # the same request as before, which was carried out
    assert other.status == 409
    assert "the question" in other.json["detail"].lower()
    assert "another one is open" in other.json["detail"]
    (now_open,) = (await client.look(f"/v1/threads/{talk.id}"))["choices"]
    assert now_open["prompt"] == "second"
    assert (await client.post(path, {"selected": 1, "asked_at": now_open["asked_at"]})).status == 202
    await agent.quiet()
    assert [len(stranger.to(f"{ANSWER}/{which}")) for which in ("first", "second")] == [1, 1]


@pytest.mark.parametrize("asked_at", ["now", True, "NaN", []], ids=["words", "a truth", "no number", "a list"])
async def test_when_a_question_was_asked_is_a_number(
    agent: RunningAgent, stranger: ForeignToolset, asked_at: object
) -> None:
    talk, invocation = await _asked(agent, stranger, "first")
    path = f"/v1/threads/{talk.id}/calls/{invocation.id}/choice"

    assert (await Client(agent.port).post(path, {"selected": 0, "asked_at": asked_at})).status == 400
    assert len((await talk.look()).choices) == 1


async def test_an_answer_in_words_says_which_question_it_means_too(agent: RunningAgent) -> None:
    client = Client(agent.port)
    talk = await agent.doing(call("ask_user", question="Which?"))
    await talk.until(ChoiceAsked)
    (seen,) = (await client.look(f"/v1/threads/{talk.id}"))["choices"]
    path = f"/v1/threads/{talk.id}/calls/{seen['call_id']}/answer"

    refused = await client.post(path, {"text": "blue", "asked_at": seen["asked_at"] - 1})
    taken = await client.post(path, {"text": "blue", "asked_at": seen["asked_at"]})

    assert (refused.status, taken.status) == (409, 202)
    await talk.hears("heard: blue")


async def test_an_answer_that_comes_just_when_its_question_is_over_is_none_to_the_next_one(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """CHO-1: it was open when the answer was given, and is over when the letter is in the mail. It stays dismissed."""
    clock = ManualClock()
    limits = ThreadLimits(question_timeout=60)
    async with working(model, [stranger.url], store, limits=limits, environment=clock.environment()) as agent:
        talk, invocation = await _asked(agent, stranger, "first", "second")

        async def it_is_over() -> None:
            clock.advance(61)
            await talk.until(ChoiceMadeEntry)

        async with _another_process(store, "accept 1", it_is_over) as threads:
            await threads.choose(talk.id, invocation.id, 0)

        await talk.until(Ignored, where=lambda each: "another question" in each.reason)
        await agent.quiet()
        (question,) = (await talk.look()).choices.values()
        assert question.prompt == "second"
        (answered,) = stranger.to(f"{ANSWER}/first")
        assert answered.message["selected"] == 1
        assert stranger.to(f"{ANSWER}/second") == []
