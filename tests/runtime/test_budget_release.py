"""Threads that were parked because a budget was used up, when the agent is started with a larger one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rapkit import Agent, Budget, ThreadLimits
from rapkit.errors import StoreError
from rapkit.kernel.entries import GrantedEntry, ModelSaid, ParkedEntry
from rapkit.models.errors import ModelError
from rapkit.models.model import Model
from rapkit.models.scripted import Scripted
from rapkit.runtime import budget_release
from rapkit.runtime.agent import AgentThread
from rapkit.runtime.budget import Per
from rapkit.runtime.budget_release import BudgetRelease
from tests.runtime.agents import ScriptedReplies
from tests.runtime.agents import opened as handle_on
from tests.server.served_toolset import until

URL = "http://127.0.0.1:1"
PATIENCE = 30.0
NO_LIMITS = ThreadLimits()


@pytest.fixture
def scripted(model: ScriptedReplies) -> Model:
    return Scripted(model)


async def comes(condition: Callable[[], Awaitable[bool]]) -> None:
    """Return when it has come to this."""
    async with asyncio.timeout(PATIENCE):
        while not await condition():
            await asyncio.sleep(0.01)


async def is_parked(thread: AgentThread) -> bool:
    return (await thread.look()).status == "parked"


async def parked(agent: Agent) -> AgentThread:
    """A thread that was to answer, and is parked."""
    thread = await agent.thread()
    await thread.send("hello")
    await comes(lambda: is_parked(thread))
    return thread


async def kinds(thread: AgentThread) -> list[type]:
    return [type(line.entry) for line in await thread.history()]


async def is_answered(agent: Agent, before: AgentThread, times: int = 1) -> None:
    thread = await agent.thread(before.id)

    async def is_so() -> bool:
        return (await kinds(thread)).count(ModelSaid) == times

    await comes(is_so)
    assert GrantedEntry not in await kinds(thread)


async def all_are_looked_at(agent: Agent) -> None:
    shift = agent.engine._worker
    assert shift is not None
    (task,) = shift._budget_release
    await until(task.done)


class Counting:
    """A store that counts what it is asked for, and fails once if it is told to."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.asked: list[str] = []
        self.fails = False

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        if self.fails:
            self.fails = False
            raise StoreError("The disk is gone.")
        return getattr(self._store, name)


async def asked_to_revive(
    store: str, budget: Budget | None, limits: ThreadLimits = NO_LIMITS, budget_usage: Any = None
) -> list[str]:
    """What a store is asked for when nobody else is there."""
    async with handle_on(store) as handle:
        counting: Any = Counting(handle)
        await BudgetRelease(counting, "w1", budget, limits, budget_usage).run()
        return counting.asked  # type: ignore[no-any-return]


@pytest.mark.parametrize("per", ["day", "total"])
@pytest.mark.parametrize("slices", [100, None])
async def test_threads_go_on_by_themselves_when_there_is_a_larger_budget_or_none(
    scripted: Model, store: str, per: Per, slices: int | None
) -> None:
    small = Budget(slices=1, per=per)
    async with Agent(model=scripted, store=store, budget=small) as agent:
        assert await (await agent.thread()).ask("hello") == "heard: hello"
        threads = [await parked(agent), await parked(agent)]
    async with Agent(model=scripted, store=store, budget=small) as agent:
        await all_are_looked_at(agent)
        assert all([await is_parked(await agent.thread(thread.id)) for thread in threads])

    larger = None if slices is None else Budget(slices=slices, per=per)
    async with Agent(model=scripted, store=store, budget=larger) as agent:
        for thread in threads:
            await is_answered(agent, thread)


@pytest.mark.parametrize("per", ["day", "total"])
async def test_a_wake_lets_them_go_on_too(
    scripted: Model, store: str, per: Per, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not end before all were looked at."""
    monkeypatch.setattr(budget_release, "_PAGE", 1)

    def hibernating(slices: int) -> Agent:
        return Agent(model=scripted, store=store, public_url=URL, budget=Budget(slices=slices, per=per), worker=False)

    async with hibernating(1) as agent:
        threads = [await agent.thread() for _ in range(4)]
        for thread in threads:
            await thread.send("hello")
            await agent.wake()
        assert [await is_parked(thread) for thread in threads] == [False, True, True, True]
        await agent.wake()
        assert [await is_parked(thread) for thread in threads] == [False, True, True, True]

    await hibernating(100).wake()

    async with hibernating(100) as agent:
        for thread in threads:
            assert (await kinds(await agent.thread(thread.id))).count(ModelSaid) == 1


async def test_there_may_be_more_than_are_looked_at_at_once(
    scripted: Model, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget_release, "_PAGE", 2)
    monkeypatch.setattr(budget_release, "_PAUSE", 0.0)
    async with Agent(model=scripted, store=store, budget=Budget(slices=1)) as agent:
        assert await (await agent.thread()).ask("hello") == "heard: hello"
        threads = [await parked(agent) for _ in range(6)]

    async with Agent(model=scripted, store=store) as agent:
        for thread in threads:
            await is_answered(agent, thread)


async def test_one_that_has_used_up_its_own_budget_waits_until_that_is_larger(scripted: Model, store: str) -> None:
    async with Agent(model=scripted, store=store, limits=ThreadLimits(slices=1)) as agent:
        thread = await agent.thread()
        assert await thread.ask("hello") == "heard: hello"
        await thread.send("again")
        await comes(lambda: is_parked(thread))
    assert await asked_to_revive(store, Budget(slices=9), ThreadLimits(slices=1)) == ["boxes", "note"]

    async with Agent(model=scripted, store=store, limits=ThreadLimits(slices=2)) as agent:
        await is_answered(agent, thread, times=2)


async def test_one_that_is_parked_for_another_reason_stays_so(store: str) -> None:
    def fails(_question: object) -> str:
        raise ModelError("No.", retryable=False)

    async with Agent(model=Scripted(fails), store=store, budget=Budget(slices=5)) as agent:
        before = await parked(agent)

    assert await asked_to_revive(store, None) == ["boxes", "note"]
    async with Agent(model=Scripted(fails), store=store) as agent:
        await all_are_looked_at(agent)
        thread = await agent.thread(before.id)
        assert await is_parked(thread)
        assert (await kinds(thread)).count(ParkedEntry) == 1


async def test_nobody_is_looked_at_while_the_budget_is_used_up(scripted: Model, store: str) -> None:
    """Nor is it written down that all were, so that a wake goes on where this one ended."""

    class UsedUp:
        async def exceeded(self) -> object:
            return self

    async with Agent(model=scripted, store=store, budget=Budget(slices=1)) as agent:
        assert await (await agent.thread()).ask("hello") == "heard: hello"
        await parked(agent)

    assert await asked_to_revive(store, Budget(slices=2), budget_usage=UsedUp()) == []
    assert await asked_to_revive(store, Budget(slices=3)) == ["boxes", "accept", "note"]


async def test_where_nothing_changed_it_costs_one_look(store: str) -> None:
    async with handle_on(store) as handle:
        counting: Any = Counting(handle)

        async def cost(budget: Budget | None, limits: ThreadLimits = NO_LIMITS) -> list[str]:
            counting.asked.clear()
            await BudgetRelease(counting, "w1", budget, limits, None).run_if_changed()
            return list(counting.asked)

        assert await cost(None) == ["records"]
        for limited in ((Budget(slices=1), NO_LIMITS), (Budget(slices=2), NO_LIMITS), (None, ThreadLimits(cost=1.0))):
            assert await cost(*limited) == ["records", "boxes", "note"]
            assert await cost(*limited) == ["records"]
        assert await cost(None) == ["records", "boxes", "note"]
        assert await cost(None) == ["records"]


async def test_a_store_that_fails_is_asked_again(
    store: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with handle_on(store) as handle:
        counting: Any = Counting(handle)
        counting.fails = True

        monkeypatch.setattr(budget_release, "_AGAIN_AFTER", 0.0)
        await BudgetRelease(counting, "w1", Budget(slices=1), NO_LIMITS, None).run()

        assert counting.asked == ["boxes", "boxes", "note"]
        assert "will try again: The disk is gone." in caplog.text
