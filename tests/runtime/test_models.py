"""A model that fails: what came is kept, the error is shown, it is asked again, and then a person has to see to it."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from rapkit import Budget
from rapkit.clock import SystemClock
from rapkit.kernel.completion import Question, Reply
from rapkit.kernel.entries import Answered, ClosedEntry, Failed, ModelSaid, ParkedEntry, UserSaid
from rapkit.kernel.limits import ThreadLimits
from rapkit.models.errors import ModelError
from rapkit.models.scripted import Scripted
from rapkit.runtime.config import AgentConfig, Patience
from rapkit.runtime.engine import AgentEnvironment, open_engine
from rapkit.runtime.event_feed import EventName
from tests.runtime.agents import RunningAgent, ScriptedReplies, ThreadDriver, call, working
from tests.runtime.clocks import ManualClock
from tests.runtime.foreign_toolset import TOOLSET, ForeignToolset
from tests.server.served_toolset import until
from tests.server.sink import PATIENCE, after, answer


class Moody(ScriptedReplies):
    """Fails as often as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[Exception] = []
        self.asked = 0

    def __call__(self, question: Question) -> Reply | str:
        self.asked += 1
        if self.failures:
            raise self.failures.pop(0)
        return super().__call__(question)


def trouble(times: int, *, retryable: bool = True, retry_after: float | None = None) -> list[Exception]:
    return [ModelError("The provider is on fire.", retryable=retryable, retry_after=retry_after) for _ in range(times)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def moody() -> Moody:
    return Moody()


@pytest.fixture
async def agent(moody: Moody, stranger: ForeignToolset, store: str, clock: ManualClock) -> AsyncIterator[RunningAgent]:
    async with working(
        moody, [stranger.url], store, limits=ThreadLimits(attempts=4), environment=clock.environment()
    ) as agent:
        yield agent


async def test_what_came_is_kept_and_the_error_is_shown(agent: RunningAgent, moody: Moody, clock: ManualClock) -> None:
    """RUN-4: the incoming message first."""
    moody.failures = trouble(1)
    talk = await agent.talk("hello")

    failed = await talk.until(Failed)

    assert failed.text == "The provider is on fire."
    assert [type(each) for each in await talk.entries()] == [UserSaid, Failed]
    clock.advance(1.5)
    await talk.hears("heard: hello")
    assert [each.text for each in await talk.all(UserSaid)] == ["hello"]


async def test_it_is_asked_again_after_pauses_that_grow_and_then_the_thread_is_parked(
    agent: RunningAgent, moody: Moody, clock: ManualClock
) -> None:
    """RUN-4"""
    moody.failures = trouble(100)
    talk = await agent.talk("hello")

    for number, pause in enumerate((1, 2, 4), 1):
        await talk.until(Failed, number)
        assert (await talk.look()).thread.retry_at == clock.now() + pause
        assert moody.asked == number
        clock.advance(pause)

    parked = await talk.until(ParkedEntry)
    assert parked.reason == "The model failed: The provider is on fire. Write to the thread to try again."
    shown = await talk.event(EventName.STATUS)
    assert shown.data == {"status": "parked", "reason": parked.reason}
    clock.advance(10_000)
    assert moody.asked == 4


async def test_a_parked_thread_is_revived_by_a_message_and_has_lost_nothing(
    agent: RunningAgent, moody: Moody, clock: ManualClock
) -> None:
    """RUN-4"""
    moody.failures = trouble(1, retryable=False)
    talk = await agent.talk("first")
    await talk.becomes("parked")

    await talk.say("second")

    await talk.hears("heard: first | second")
    assert (await talk.becomes("idle")).thread.parked is None


async def test_a_result_that_comes_to_a_parked_thread_is_kept_and_heard(
    agent: RunningAgent, stranger: ForeignToolset, moody: Moody
) -> None:
    """RUN-4, CB-10"""
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()
    moody.failures = trouble(1, retryable=False)
    await talk.say("and?")
    await talk.becomes("parked")

    assert (await invocation.result("while you were away")).status == 200

    await talk.hears("while you were away")
    assert [each.text for each in await talk.all(Answered)] == ["while you were away"]


async def test_the_provider_may_ask_for_a_longer_pause(agent: RunningAgent, moody: Moody, clock: ManualClock) -> None:
    """RUN-4"""
    moody.failures = trouble(1, retry_after=30)
    talk = await agent.talk("hello")

    await talk.until(Failed)

    assert (await talk.look()).thread.retry_at == clock.now() + 30
    clock.advance(30)
    await talk.hears("heard: hello")


async def test_a_message_does_not_wait_for_the_pause(agent: RunningAgent, moody: Moody) -> None:
    """RUN-4: a person is there."""
    moody.failures = trouble(1, retry_after=60)
    talk = await agent.talk("hello")
    await talk.until(Failed)

    await talk.say("still there?")

    await talk.hears("heard: hello | still there?")


async def test_no_tool_is_called_twice_because_the_model_failed(
    agent: RunningAgent, stranger: ForeignToolset, moody: Moody, clock: ManualClock
) -> None:
    """RUN-4"""
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()
    moody.failures = trouble(1)
    await invocation.result("once")
    await talk.until(Failed)
    clock.advance(2)

    await talk.hears("heard: once")

    assert len(stranger.to("/invoke")) == 1
    assert len(await talk.all(ModelSaid)) == 2


async def test_one_thread_in_trouble_does_not_hold_up_another(
    agent: RunningAgent, moody: Moody, clock: ManualClock
) -> None:
    """RUN-2, RUN-4"""
    moody.failures = trouble(1, retry_after=60)
    stuck = await agent.talk("stuck")
    await stuck.until(Failed)

    await (await agent.talk("fine")).hears("heard: fine")

    assert len(await stuck.all(ModelSaid)) == 0


@pytest.mark.parametrize("mistake", [lambda: ValueError("a bug"), lambda: KeyError("x")])
async def test_a_model_with_a_bug_ends_nothing(
    agent: RunningAgent,
    moody: Moody,
    clock: ManualClock,
    mistake: Callable[[], Exception],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """RUN-4: the message stays, and so does everything else."""
    moody.failures = [mistake()]
    talk = await agent.talk("hello")
    await (await agent.talk("other")).hears("heard: other")

    while "cannot go on" not in caplog.text:
        await talk.look()
    clock.advance(6)

    await talk.hears("heard: hello")


class Slow:
    """Says nothing the first `times`, for ever; then what it heard."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.asked = 0
        self.given_up = 0
        self.obedient = ScriptedReplies()

    async def __call__(self, question: Question) -> Reply | str:
        self.asked += 1
        if self.asked <= self.times:
            try:
                await asyncio.Event().wait()
            finally:
                self.given_up += 1
        return self.obedient(question)


async def test_a_completion_that_never_ends_is_given_up_and_asked_for_again(store: str, clock: ManualClock) -> None:
    """RUN-4"""
    slow = Slow(1)
    patience = Patience(grace=1.0, completion=0.05)
    async with working(slow, [], store, patience=patience, environment=clock.environment()) as agent:
        talk = await agent.talk("hello")

        failed = await talk.until(Failed)

        assert failed.text == "The model did not answer within 0.05 s."
        assert slow.given_up == 1
        clock.advance(1.5)
        await talk.hears("heard: hello")
        assert slow.asked == 2


async def test_a_thread_is_closed_without_waiting_for_the_model(store: str) -> None:
    """CLO-1: whatever it says now is of no use to anybody."""
    slow = Slow(1)
    async with working(slow, [], store) as agent:
        talk = await agent.talk("hello")
        await until(lambda: slow.asked == 1)

        await agent.threads.close(talk.id)

        await talk.becomes("closed")
        assert slow.asked == slow.given_up == 1
        assert [type(each) for each in await talk.entries()] == [UserSaid, ClosedEntry]


async def test_nor_for_one_that_was_about_to_be_asked(stranger: ForeignToolset, store: str) -> None:
    """CLO-1: the close came while it was found out what the model is to be offered."""
    slow = Slow(1)
    found = asyncio.Event()
    stranger.script[TOOLSET] = [after(found, answer(200, body=stranger.toolset()))]
    async with working(slow, [stranger.url], store) as agent:
        talk = await agent.talk("hello")
        await stranger.received(TOOLSET)

        await agent.threads.close(talk.id)
        found.set()

        await talk.becomes("closed")
        assert await talk.all(ModelSaid) == []


async def test_a_completion_that_is_interrupted_is_not_charged_to_the_thread(store: str) -> None:
    """RUN-4: however often that is; it was not lost, but let be."""
    slow = Slow(12)
    async with working(slow, [], store) as agent:
        talk = await agent.talk("hello")
        for number in range(1, 13):
            await until(lambda number=number: slow.asked == number)  # type: ignore[misc]
            agent.engine._interrupt(talk.id)
            await until(lambda number=number: slow.given_up == number)  # type: ignore[misc]

        await talk.hears("heard: hello")

        assert [type(each) for each in await talk.entries()] == [UserSaid, ModelSaid]


class Stopwatch(SystemClock):
    """A clock by which the time for a wake is over when a test says so."""

    AT_MOST = 1234.5

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        if seconds != self.AT_MOST:
            return super().timeout(seconds)
        self._running = super().timeout(seconds)
        return self._running

    def time_is_over(self) -> None:
        self._running.reschedule(asyncio.get_running_loop().time())


@pytest.mark.parametrize(
    ("budget", "asked", "reason"),
    [
        (None, 4, "Asking the model failed 4 times"),
        (Budget(slices=2), 2, "The agent has run 2 of its 2 slices"),
    ],
    ids=["after some times", "within the budget"],
)
async def test_a_completion_that_takes_longer_than_a_wake_is_not_begun_for_ever(
    store: str, budget: Budget | None, asked: int, reason: str
) -> None:
    """RUN-4: each one is paid for, though none is heard to its end."""
    begun: asyncio.Queue[None] = asyncio.Queue()
    clock = Stopwatch()

    async def endless(_question: Question) -> str:
        begun.put_nowait(None)
        await asyncio.Event().wait()
        return ""

    config = AgentConfig(
        Scripted(endless), (), store, "http://127.0.0.1:1", patience=Patience(grace=0.01), budget=budget
    )
    async with open_engine(config, AgentEnvironment(clock=clock)) as engine:
        talk = ThreadDriver(engine.threads, await engine.threads.create(text="hello"))
        for _ in range(asked):
            waking = asyncio.create_task(engine.wake(clock.AT_MOST))
            async with asyncio.timeout(PATIENCE):
                await begun.get()
            clock.time_is_over()
            woken = await waking
            assert (woken.threads, (await talk.look()).reason) == (1, None)

        async with asyncio.timeout(PATIENCE):
            await engine.wake()

        assert begun.empty()
        look = await talk.look()
        assert look.status == "parked"
        assert str(look.reason).startswith(reason)
