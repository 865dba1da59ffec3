"""An agent that hibernates: it receives without working, rings, and is woken.

That everything else an agent can do is done this way too is shown by the other tests here, which are lived both ways; see `lives`.
"""

import asyncio
import contextlib
import gc
import importlib
import logging
import sqlite3
import threading
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from rapkit import Agent, Budget, Schedule, Toolset
from rapkit.clock import SystemClock
from rapkit.errors import ConfigError, StoreError
from rapkit.kernel.completion import Question
from rapkit.kernel.entries import Answered, ModelSaid, UserSaid
from rapkit.kernel.thread import Thread
from rapkit.keyring import Keyring
from rapkit.mailbox import Lease, NewBox, Store
from rapkit.models.errors import ModelError
from rapkit.models.model import Model
from rapkit.models.scripted import Scripted
from rapkit.runtime import due_timer
from rapkit.runtime.config import AgentConfig, Patience
from rapkit.runtime.due_timer import DueTimer
from rapkit.runtime.engine import AgentEngine, AgentEnvironment, open_engine, run_engine
from rapkit.runtime.schedules import SCHEDULE
from rapkit.runtime.toolsets import THREAD
from rapkit.runtime.wake_hook import WakeHook
from rapkit.stores import open_store
from rapkit.stores.sqlite import SqliteStore
from tests.log_records import ours
from tests.runtime.agent_runs import ONLY_WORKING, SCENARIOS, AgentRun, lived
from tests.runtime.agents import ScriptedReplies, ThreadDriver, call, please, working
from tests.runtime.agents import opened as handle_on
from tests.runtime.clocks import ManualClock
from tests.runtime.foreign_toolset import INVOKE, ForeignToolset
from tests.server.served_toolset import until
from tests.server.sink import answer

MEMORY = "sqlite:///:memory:"
URL = "http://127.0.0.1:1"


@pytest.fixture
def scripted(model: ScriptedReplies) -> Model:
    return Scripted(model)


@pytest.fixture
async def receiver(scripted: Model, stranger: ForeignToolset, store: str) -> AsyncIterator[Agent]:
    """An agent without a worker, listening on a port of its own."""
    async with Agent(model=scripted, servers=[stranger.url], store=store, worker=False) as agent:
        yield agent


@pytest.fixture
def waker(scripted: Model, stranger: ForeignToolset, store: str, receiver: Agent) -> Agent:
    """A second one on the same store, that does not run."""
    return Agent(
        model=scripted, servers=[stranger.url], store=store, public_url=receiver.engine.config.public_url, worker=False
    )


class Watched:
    """A store that counts what it is asked for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_"):
            self.asked[name] += 1
        return getattr(self._store, name)


def in_memory(thread_id: str) -> int:
    """How often a thread is in this process."""
    gc.collect()
    return sum(isinstance(each, Thread) and each.id == thread_id for each in gc.get_objects())


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


# Receiving


async def test_without_a_wake_nothing_happens_and_nothing_of_a_thread_is_in_the_process(
    model: ScriptedReplies, scripted: Model, stranger: ForeignToolset, store: str
) -> None:
    """RUN-8: what comes is written, and that is all."""
    watched: list[Watched] = []

    def open_watched(config: AgentConfig) -> Store:
        watched.append(Watched(open_store(config.store)))
        return cast("Store", watched[0])

    config = AgentConfig(scripted, (), store, URL)
    async with run_engine(config, AgentEnvironment(open_store=open_watched), worker=False) as engine:
        asked = watched[0].asked
        talk = ThreadDriver(engine.threads, await engine.threads.create(text="hello"))
        await talk.say("are you there?")
        assert await engine.problem() is None

        look = await talk.look()
        assert look.status == "running"  # it would be, at once
        assert in_memory(talk.id) == 1
        del look
        assert in_memory(talk.id) == 0
        assert model.questions == []
    assert asked.keys().isdisjoint({"claim", "take", "commit", "settle", "accept_claimed", "create_claimed", "sweep"})
    assert asked["create"] == asked["accept"] == 1
    async with handle_on(store) as handle:
        assert await handle.backlog(THREAD) == 1


async def test_a_store_that_cannot_be_written_is_no_place_to_receive(scripted: Model, store: str) -> None:
    class Full(Watched):
        async def renew(self, _worker: str) -> None:
            raise StoreError("The disk is full.")

    environment = AgentEnvironment(open_store=lambda config: cast("Store", Full(open_store(config.store))))
    async with run_engine(AgentConfig(scripted, (), store, URL), environment, worker=False) as engine:
        assert await engine.problem() is not None


# Waking


async def test_each_wake_does_what_is_due_and_what_comes_between_two_is_kept(
    receiver: Agent, waker: Agent, stranger: ForeignToolset
) -> None:
    """CB-10: the result of a call comes while nobody works, is acknowledged, and heard at the next wake."""
    talk = ThreadDriver(receiver.engine.threads, (await receiver.thread()).id)
    await talk.do(call("work"))

    assert await waker.wake() is None
    invocation = await stranger.invoked()
    assert (await invocation.result("42")).status == 200
    assert await talk.all(Answered) == []

    assert await waker.wake() is None
    assert (await talk.all(ModelSaid))[-1].text == "heard: 42"
    assert len(stranger.to(INVOKE)) == 1
    assert await waker.wake() is None


async def test_an_agent_that_runs_without_a_worker_can_be_woken_itself(
    receiver: Agent, stranger: ForeignToolset
) -> None:
    talk = ThreadDriver(receiver.engine.threads, (await receiver.thread()).id)
    await talk.do(call("work"))

    assert await receiver.wake() is None
    await (await stranger.invoked()).result("42")
    assert await talk.all(Answered) == []
    assert await receiver.wake() is None
    assert (await talk.all(ModelSaid))[-1].text == "heard: 42"


async def test_its_toolsets_work_while_it_is_not_awake(model: ScriptedReplies, scripted: Model, store: str) -> None:
    tools = Toolset("slow", store=MEMORY)
    go, rung = asyncio.Event(), asyncio.Event()

    @tools.tool(read_only=True)
    async def work() -> str:
        """Work."""
        await go.wait()
        return "done"

    async def trigger(_thread_id: str) -> None:
        rung.set()

    agent = Agent(model=scripted, servers=[tools], store=store, worker=False, on_accept=trigger)
    async with agent:
        thread = await agent.thread()
        await thread.send(please(call("work")))
        assert await agent.wake() is None
        await until(rung.is_set)
        rung.clear()
        go.set()

        await until(rung.is_set)  # the result is in the mail
        assert await agent.wake() is None
        assert getattr((await thread.history())[-1].entry, "text", None) == "heard: done"

    with pytest.raises(
        ConfigError, match=r"The toolset 'slow' is served in the agent's own process, and would end with"
    ):
        await agent.wake()


async def test_one_that_does_not_run_finds_out_where_it_is_reached(
    scripted: Model, stranger: ForeignToolset, store: str, receiver: Agent
) -> None:
    """CB-11"""
    await (await receiver.thread()).send(please(call("work")))

    await Agent(model=scripted, servers=[stranger.url], store=store).wake()

    invocation = await stranger.invoked()
    assert invocation.message["callback_url"].startswith(receiver.engine.config.public_url)


async def test_agents_that_cannot_be_woken(scripted: Model, store: str) -> None:
    with pytest.raises(ConfigError, match=r"does not know where tools reach it\. Give it a public_url"):
        await Agent(model=scripted, store=store).wake()
    with pytest.raises(ConfigError, match="A store in memory is one process's alone"):
        await Agent(model=scripted, store=MEMORY, public_url=URL).wake()
    async with Agent(model=scripted, store=store) as agent:
        with pytest.raises(ConfigError, match=r"runs with a worker, which does what is due by itself"):
            await agent.wake()


async def test_the_lifespan_can_say_otherwise_than_the_agent(scripted: Model, store: str) -> None:
    agent = Agent(model=scripted, store=store, public_url=URL)
    async with agent.lifespan(worker=False):
        await (await agent.thread()).send("hello")
        assert await agent.wake() is None
    async with agent.lifespan():
        assert await (await agent.thread()).ask("hello") == "heard: hello"


async def test_no_lease_is_left_behind(receiver: Agent, waker: Agent, model: ScriptedReplies, store: str) -> None:
    """So that whoever comes next need not wait for anybody."""
    await (await receiver.thread()).send("hello")
    await waker.wake()

    assert len(model.questions) == 1
    with contextlib.closing(sqlite3.connect(store.removeprefix("sqlite:///"))) as file:
        assert file.execute("SELECT count(*) FROM workers").fetchone() == (0,)


async def test_what_another_holds_is_not_waited_for_and_due_when_that_one_is_lost(
    receiver: Agent, waker: Agent, model: ScriptedReplies, store: str
) -> None:
    """RUN-3: it was killed in the middle, say. When that is known is when to wake the agent next."""
    thread = await receiver.thread()
    await thread.send("hello")
    lease = 30.0
    lost = open_store(store, lease=Lease(lease))
    await lost.renew("lost")
    (claim,) = await lost.claim("lost", THREAD, 10)
    assert claim.box.id == thread.id
    before = datetime.now(UTC)

    again = await waker.wake()

    assert model.questions == []
    assert again is not None
    assert before < again <= datetime.now(UTC) + timedelta(seconds=lease)
    await lost.retire("lost")
    await lost.close()
    assert await waker.wake() is None
    assert len(model.questions) == 1


async def test_several_may_wake_at_once(stranger: ForeignToolset, store: str, receiver: Agent) -> None:
    """RUN-1, RUN-2: each thread runs once, and whoever finds nothing left goes."""
    asked: Counter[str] = Counter()

    async def model(question: Question) -> str:
        asked[cast("Any", question.conversation[0]).texts[0]] += 1
        await asyncio.sleep(0.01)
        return "Hello."

    config = AgentConfig(Scripted(model), (), store, URL)
    threads = receiver.engine.threads
    for number in range(20):
        await threads.create(text=f"I am {number}.")

    async def wake() -> int:
        async with open_engine(config) as engine:
            return (await engine.wake()).threads

    ran = await asyncio.gather(*(wake() for _ in range(4)))

    assert sum(ran) == 20
    assert set(asked.values()) == {1}
    assert len(asked) == 20


async def test_after_at_most_so_long_nothing_more_is_begun(store: str) -> None:
    """What was begun has its grace to end, and is given back then, at no charge."""
    asked = asyncio.Event()
    gate = asyncio.Event()

    async def slow(_question: Question) -> str:
        asked.set()
        await gate.wait()
        return "At last."

    clock = Stopwatch()
    config = AgentConfig(Scripted(slow), (), store, URL, patience=Patience(grace=0.05))
    async with open_engine(config, AgentEnvironment(clock=clock)) as engine:
        talk = ThreadDriver(engine.threads, await engine.threads.create(text="hello"))
        waking = asyncio.create_task(engine.wake(clock.AT_MOST))
        await asked.wait()
        clock.time_is_over()

        woken = await waking
        assert (woken.threads, woken.posts) == (1, 0)
        assert woken.next is not None
        assert woken.next <= datetime.now(UTC)
        assert [type(each) for each in await talk.entries()] == [UserSaid]

        gate.set()
        assert (await engine.wake(clock.AT_MOST)).next is None
        assert [each.text for each in await talk.all(ModelSaid)] == ["At last."]


async def test_what_is_due_later_is_told(stranger: ForeignToolset, store: str) -> None:
    """A pause of a thread, the next attempt at a POST, a schedule: whichever comes first."""

    def failing(_question: Question) -> str:
        raise ModelError("It is busy.", retryable=True, retry_after=100)

    async with open_engine(AgentConfig(Scripted(failing), (), store, URL)) as engine:
        await engine.threads.create(text="hello")
        in_pause = (await engine.wake()).next
        assert in_pause is not None
        assert timedelta(seconds=50) < in_pause - datetime.now(UTC) <= timedelta(seconds=101)

    stranger.script[INVOKE] = [answer(503)]
    agent = Agent(model=Scripted(ScriptedReplies()), servers=[stranger.url], store=store, public_url=URL)
    async with agent.lifespan(worker=False):
        await (await agent.thread()).send(please(call("work")))
        attempt = await agent.wake()
        assert attempt is not None
        assert attempt < in_pause


async def test_schedules_are_carried_out_by_whoever_wakes(
    model: ScriptedReplies, scripted: Model, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path}/scheduled.db"
    daily = Schedule("0 9 * * *", "Good morning.", name="morning")
    often = Schedule("* * * * *", "Another minute.", name="often")
    agent = Agent(model=scripted, store=store, public_url=URL, schedules=[daily, often], budget=Budget(slices=10))

    soon = await agent.wake()
    assert soon is not None
    assert timedelta(0) < soon - datetime.now(UTC) <= timedelta(minutes=1)
    assert model.questions == []

    clock = ManualClock()
    clock.time = soon.timestamp()
    async with open_engine(agent._config(URL), clock.environment()) as engine:
        woken = await engine.wake()
    assert woken.threads >= 1  # two, if it is nine o'clock
    assert woken.next is not None
    assert woken.next - soon == pytest.approx(timedelta(minutes=1), abs=timedelta(seconds=1))
    assert "Another minute." in str(model.questions)


async def test_an_agent_that_stops_lets_those_end_who_woke_it(store: str) -> None:
    asked = asyncio.Event()

    async def slow(_question: Question) -> str:
        asked.set()
        await asyncio.Event().wait()
        return "Never."

    agent = Agent(
        model=Scripted(slow), store=store, public_url=URL, worker=False, patience=Patience(grace=0.05, lease=30)
    )
    async with agent.lifespan():
        await (await agent.thread()).send("hello")
        waking = asyncio.create_task(agent.wake())
        await asked.wait()
    again = await waking
    assert again is not None
    assert again <= datetime.now(UTC)


async def test_a_store_that_fails_is_told_to_whoever_wakes(scripted: Model, store: str) -> None:
    class Broken(Watched):
        async def claim(self, *_: object) -> list[object]:
            raise StoreError("The disk is gone.")

    environment = AgentEnvironment(open_store=lambda config: cast("Store", Broken(open_store(config.store))))
    async with open_engine(AgentConfig(scripted, (), store, URL), environment) as engine:
        with pytest.raises(StoreError, match="The disk is gone"):
            await engine.wake()


# The doorbell


async def test_the_bell_rings_when_what_came_is_in_the_store(
    scripted: Model, stranger: ForeignToolset, store: str
) -> None:
    """RUN-5: creating, saying, calling back, cancelling, closing: each time it can be read already."""
    seen: list[tuple[str, int]] = []

    async def look(thread_id: str) -> None:
        if not thread_id:
            return  # the alarm, on a slow machine
        async with handle_on(store) as handle:
            seen.append((thread_id, await handle.backlog(THREAD)))

    agent = Agent(model=scripted, servers=[stranger.url], store=store, worker=False, on_accept=look)
    async with agent:
        threads = agent.engine.threads

        async def rings(times: int) -> None:
            await until(lambda: len(seen) == times)
            assert seen[-1] == (thread_id, 1)
            await agent.wake()

        await threads.create()  # an empty thread has nothing to do
        thread_id = await threads.create(text=please(call("work", n=1), call("work", n=2)))
        await rings(1)
        one, two = await stranger.invoked_with(n=1), await stranger.invoked_with(n=2)
        assert (await one.result("42")).status == 200
        await rings(2)
        await threads.cancel(thread_id, two.id)
        await rings(3)
        assert (await two.result("too late")).status == 410
        await threads.send(thread_id, "well?")
        await rings(4)
        await threads.close(thread_id)
        await rings(5)
    assert len(seen) == 5


async def test_a_bell_that_fails_or_takes_its_time_changes_nothing(
    scripted: Model, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    gate = asyncio.Event()
    rung: list[str] = []

    async def trigger(thread_id: str) -> None:
        if not thread_id:
            return  # the alarm, on a slow machine
        rung.append(thread_id)
        await gate.wait()
        raise RuntimeError("Nobody is at home.")

    async with Agent(model=scripted, store=store, worker=False, on_accept=trigger) as agent:
        thread = await agent.thread()
        for number in range(5):
            await thread.send(f"message {number}")  # acknowledged, although the bell still rings
        assert rung == [thread.id]
        gate.set()
        await until(lambda: len(rung) == 2)  # once more for all that came meanwhile

        assert await agent.wake() is None
        said = [line.entry.text for line in await thread.history() if isinstance(line.entry, UserSaid)]
        assert said == [f"message {number}" for number in range(5)]
    assert rung == [thread.id] * 2
    failures = [record for record in ours(caplog) if record.levelno >= logging.ERROR]
    assert [record.getMessage() for record in failures] == ["on_accept failed: RuntimeError('Nobody is at home.')"] * 2


async def test_with_a_worker_it_rings_too(scripted: Model, store: str) -> None:
    rung = asyncio.Event()

    async def trigger(_thread_id: str) -> None:
        rung.set()

    async with Agent(model=scripted, store=store, on_accept=trigger) as agent:
        assert await (await agent.thread()).ask("hello") == "heard: hello"
        await until(rung.is_set)


async def test_a_plain_function_may_block(scripted: Model, store: str) -> None:
    """It is called elsewhere, so that nobody waits for it."""
    called: list[tuple[str, bool]] = []
    here = threading.get_ident()

    def trigger(thread_id: str) -> None:
        called.append((thread_id, threading.get_ident() == here))

    async with Agent(model=scripted, store=store, worker=False, on_accept=trigger) as agent:
        thread = await agent.thread()
        await thread.send("hello")
        await until(lambda: bool(called))
    assert called[0] == (thread.id, False)


class Scene:
    """An alarm, what it sees, and a clock that goes on when somebody sleeps."""

    lease = Lease()

    def __init__(self) -> None:
        self.time = 1000.0
        self.due_at: float | None = None
        self.rung: list[float] = []
        self.bell = WakeHook(None)
        self.bell.trigger = self._ring  # type: ignore[method-assign]
        self.alarm = DueTimer(cast("Store", self), (THREAD, SCHEDULE), self, self.bell)

    def now(self) -> float:
        return self.time

    async def next_due(self, topic: str) -> float | None:
        if topic == SCHEDULE or self.due_at is None:
            return None
        return max(0.0, self.due_at - self.time)

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        if self.time >= self.ends:
            raise asyncio.CancelledError

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        return asyncio.timeout(seconds)

    def _ring(self, thread_id: str) -> None:
        assert thread_id == ""
        self.rung.append(self.time)
        self.bell.rung += 1

    async def pass_time(self, seconds: float) -> list[float]:
        """When it rang in this time, seen from its beginning."""
        begin, self.ends, self.rung = self.time, self.time + seconds, []
        with pytest.raises(asyncio.CancelledError):
            await self.alarm.run()
        return [at - begin for at in self.rung]


async def test_the_alarm_rings_at_the_time_and_then_less_and_less_often() -> None:
    scene = Scene()
    assert await scene.pass_time(60) == []
    scene.due_at = scene.time + 10.5

    assert await scene.pass_time(100) == pytest.approx([10.5, 15.5, 25.5, 45.5, 85.5])
    scene.due_at = scene.time + 10  # somebody came, and there is something else
    assert await scene.pass_time(16) == pytest.approx([10, 15])
    scene.due_at = None
    assert await scene.pass_time(3600) == []
    scene.due_at = 0.0
    assert len(await scene.pass_time(24 * 3600)) < 24 * 3600 / due_timer._LONGEST_PATIENCE + 10


async def test_who_takes_it_and_is_lost_has_done_nothing() -> None:
    """The end of its lease is rung for at once, and then as seldom as before it came."""
    scene = Scene()
    scene.due_at = scene.time
    assert await scene.pass_time(100) == pytest.approx([0, 5, 15, 35, 75])
    scene.due_at = scene.time + scene.lease.seconds

    assert await scene.pass_time(100) == pytest.approx([6, 86])
    scene.due_at = scene.time + scene.lease.seconds + 1  # so that it is nobody's lease
    assert await scene.pass_time(30) == pytest.approx([7, 12, 22])


async def test_what_somebody_is_at_is_not_rung_for() -> None:
    """However long it takes: a lease that is renewed does not end. Once it ends, the alarm rings."""

    class Busy(Scene):
        renews = True

        async def sleep(self, seconds: float) -> None:
            await super().sleep(seconds)
            if self.renews:
                await store.renew("worker")

    scene = Busy()
    store = SqliteStore(":memory:", Keyring.random(), clock=scene.now)
    scene.alarm = DueTimer(store, (THREAD, SCHEDULE), scene, scene.bell)
    try:
        await store.renew("worker")
        assert await store.create_claimed(NewBox("t1", THREAD), "worker") is not None

        assert await scene.pass_time(600) == []
        scene.renews = False
        (rung, *_) = await scene.pass_time(10)
        assert rung <= store.lease.seconds + 1
    finally:
        await store.close()


async def test_what_has_just_been_accepted_rings_once() -> None:
    """Whoever accepted it has rung; only if nobody comes, the alarm does too."""
    scene = Scene()
    assert await scene.pass_time(10) == []
    scene.due_at = scene.time
    scene.bell.rung += 1

    assert await scene.pass_time(6) == pytest.approx([5])


async def test_what_became_due_while_nobody_was_there_rings_at_the_start(scripted: Model, store: str) -> None:
    rung = asyncio.Event()

    async def trigger(thread_id: str) -> None:
        if not thread_id:
            rung.set()

    async with open_engine(AgentConfig(scripted, (), store, URL)) as engine:
        await engine.threads.create(text="hello")
    async with run_engine(AgentConfig(scripted, (), store, URL, on_accept=trigger), worker=False):
        await until(rung.is_set)


# The other tests


def test_tests_that_are_lived_one_way_are_there() -> None:
    modules = [importlib.import_module(name) for name in sorted(SCENARIOS)]

    missing = [name for name in ONLY_WORKING if not any(hasattr(module, name) for module in modules)]

    assert missing == []


async def test_an_agent_that_hibernates_in_tests_has_no_worker(model: ScriptedReplies, store: str) -> None:
    """What the others rely on: whoever is talked to has claimed nothing, and the second one has gone."""
    with lived(AgentRun.HIBERNATING):
        async with working(model, [], store) as agent:
            engine: AgentEngine = agent.engine
            talk = await agent.talk("hello")
            await talk.hears("heard: hello")
            assert engine._workers == []
            async with Agent(model=Scripted(model), store=MEMORY) as own:
                assert not own.worker
                assert await (await own.thread()).ask("hello") == "heard: hello"
                assert own.engine._worker is None
