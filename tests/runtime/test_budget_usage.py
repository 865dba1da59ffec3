"""What an agent may spend: counted once, by all its processes together, whatever happens to them."""

import asyncio
import math
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from types import EllipsisType
from typing import Any

import pytest

from rapkit.errors import ConfigError, StoreError
from rapkit.kernel.completion import Usage
from rapkit.keyring import Keyring
from rapkit.mailbox import Fact, NewBox, Record
from rapkit.runtime.budget import Budget, Exceeded, Per
from rapkit.runtime.budget_usage import BudgetUsage
from rapkit.stores.sqlite import SqliteStore

HOUR = 3600.0
DAY = 24 * HOUR
PLENTY = 10**9


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


NOON = at("2026-11-16 12:00")


class HandClock:
    """Goes when it is told to."""

    def __init__(self) -> None:
        self.time = NOON

    def now(self) -> float:
        return self.time


class Killed(BaseException):
    """What a process meets that is killed: it ends here, and nothing of it goes on."""


class Fragile(SqliteStore):
    """A store at whose n-th operation something happens, just before it or just after it."""

    striking: tuple[int, bool, type[BaseException]] | None = None
    operations = 0
    reads = 0
    on_read: Callable[[], Awaitable[None]] | None = None

    def strike_at(self, number: int, after: bool, what: type[BaseException]) -> None:
        """The next operation is number 1."""
        self.operations = 0
        self.striking = (number, after, what)

    async def note(self, box: NewBox, fact: Fact, expect: bytes | EllipsisType | None = ...) -> bool:
        number = self._begin()
        written = await super().note(box, fact, expect)
        self._strike(number, after=True)
        return written

    async def records(self, box: str, kind: str) -> list[Record]:
        self.reads += 1
        number = self._begin()
        records = await super().records(box, kind)
        if self.on_read is not None:
            await self.on_read()
        self._strike(number, after=True)
        return records

    def _begin(self) -> int:
        self.operations += 1
        number = self.operations
        self._strike(number, after=False)
        return number

    def _strike(self, number: int, *, after: bool) -> None:
        if self.striking is not None and self.striking[:2] == (number, after):
            what, self.striking = self.striking[2], None
            raise what("The disk is gone.")


class Paused(Exception):
    """Everything is written for now."""


async def pause(_seconds: float) -> None:
    raise Paused


class BudgetScenario:
    """Stores on one database, and processes that spend."""

    def __init__(self, path: Path | None) -> None:
        self.clock = HandClock()
        self._path = path
        self._keys = Keyring(secrets.token_bytes(32))
        self._stores: list[Fragile] = []
        self.store = self.another_store()

    def another_store(self) -> Fragile:
        """For another process; a database in memory has but one."""
        if self._path is None and self._stores:
            return self._stores[0]
        store = Fragile(":memory:" if self._path is None else str(self._path), self._keys, clock=self.clock.now)
        self._stores.append(store)
        return store

    def budget_usage(self, worker: str, budget: Budget | None = None, store: Fragile | None = None) -> BudgetUsage:
        """What a process counts that writes when it is told to."""
        return BudgetUsage(store or self.store, worker, budget or Budget(slices=PLENTY), self.clock.now, sleep=pause)

    async def counted(self, per: Per = "day") -> int:
        """The completions that somebody finds who comes now."""
        return (await self.budget_usage("new", Budget(slices=PLENTY, per=per)).spent()).requests

    async def ledgers(self, per: Per = "day") -> list[Record]:
        return await self.store.records("rapkit/spending", f"spent/{per}")

    async def close(self) -> None:
        for store in self._stores:
            await store.close()


@pytest.fixture(params=["file", "memory"])
async def services(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BudgetScenario]:
    services = BudgetScenario(tmp_path / "agent.db" if request.param == "file" else None)
    yield services
    await services.close()


def slices(number: int) -> Usage:
    return Usage(requests=number)


async def written(budget_usage: BudgetUsage) -> None:
    """Let it write what there is."""
    with pytest.raises(Paused):
        async with asyncio.timeout(60):
            await budget_usage.run()


# Budgets


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({}, id="no limit"),
        pytest.param({"per": "month"}, id="a period and no limit"),
        pytest.param({"slices": 0}, id="no slices"),
        pytest.param({"slices": -1}, id="fewer than no slices"),
        pytest.param({"slices": True}, id="a truth of slices"),
        pytest.param({"slices": 1.5}, id="half a slice"),
        pytest.param({"tokens": 0}, id="no tokens"),
        pytest.param({"tokens": -5}, id="fewer than no tokens"),
        pytest.param({"cost": 0.0}, id="for free"),
        pytest.param({"cost": -0.01}, id="with a gain"),
        pytest.param({"cost": math.nan}, id="a cost that is no number"),
        pytest.param({"cost": math.inf}, id="a cost without end"),
        pytest.param({"cost": "50"}, id="a cost in words"),
        pytest.param({"cost": 50, "tokens": 0}, id="one wrong of two"),
        pytest.param({"cost": 50, "per": "week"}, id="a period there is not"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="budget"):
        Budget(**wrong)


def test_what_is_wrong_with_a_budget_is_said() -> None:
    with pytest.raises(ConfigError) as refused:
        Budget(tokens=-5)
    assert str(refused.value) == "`tokens` of a budget is -5. Make it a whole number above 0, or leave it out."


@pytest.mark.parametrize(
    ("per", "now", "period", "end"),
    [
        ("hour", "2026-11-16 12:34:56", "2026-11-16 12:00", "2026-11-16 13:00"),
        ("hour", "2026-12-31 23:59:59", "2026-12-31 23:00", "2027-01-01 00:00"),
        ("day", "2026-11-16 00:00:00", "2026-11-16", "2026-11-17 00:00"),
        ("day", "2028-02-28 23:59:59", "2028-02-28", "2028-02-29 00:00"),
        ("month", "2026-01-31 12:00:00", "2026-01", "2026-02-01 00:00"),
        ("month", "2026-02-01 00:00:00", "2026-02", "2026-03-01 00:00"),
        ("month", "2026-12-31 23:59:59", "2026-12", "2027-01-01 00:00"),
    ],
)
def test_periods_are_those_of_the_calendar(per: Per, now: str, period: str, end: str) -> None:
    budget = Budget(slices=1, per=per)
    ends_at = budget.ends_at(at(now))

    assert budget.period_of(at(now)) == period
    assert ends_at == at(end)
    assert budget.period_of(ends_at) > period
    assert budget.period_of(ends_at - 1) == period


def test_a_total_never_ends() -> None:
    budget = Budget(slices=1, per="total")
    assert budget.period_of(NOON) == budget.period_of(NOON + 1000 * DAY)
    assert budget.ends_at(NOON) is None


# What is said


async def told(services: BudgetScenario, budget: Budget, usage: Usage) -> Exceeded:
    budget_usage = services.budget_usage("w1", budget)
    budget_usage.add(usage)
    exceeded = await budget_usage.exceeded()
    assert exceeded is not None
    return exceeded


async def test_a_person_is_told_what_was_spent_and_what_to_do(services: BudgetScenario) -> None:
    exceeded = await told(services, Budget(cost=50), Usage(1, cost=50.12))
    assert exceeded == Exceeded(
        "The agent has spent $50.12 of its $50.00 for 2026-11-16 (UTC). It goes on at 2026-11-17 00:00 UTC; to go on earlier, "
        "raise `cost` in [agent.budget] (or Agent(budget=...)) and restart.",
        at("2026-11-17 00:00"),
    )


async def test_tokens_are_those_read_and_those_written(services: BudgetScenario) -> None:
    exceeded = await told(services, Budget(tokens=1_000_000, per="month"), Usage(1, 600_000, 400_500))
    assert exceeded == Exceeded(
        "The agent has used 1,000,500 of its 1,000,000 tokens for 2026-11 (UTC). It goes on at 2026-12-01 00:00 UTC; to go on earlier, "
        "raise `tokens` in [agent.budget] (or Agent(budget=...)) and restart.",
        at("2026-12-01 00:00"),
    )


async def test_slices_are_completions(services: BudgetScenario) -> None:
    exceeded = await told(services, Budget(slices=20, per="hour"), slices(20))
    assert exceeded == Exceeded(
        "The agent has run 20 of its 20 slices for the hour from 2026-11-16 12:00 (UTC). It goes on at 2026-11-16 13:00 UTC; to go on "
        "earlier, raise `slices` in [agent.budget] (or Agent(budget=...)) and restart.",
        at("2026-11-16 13:00"),
    )


async def test_a_total_does_not_go_on_by_itself(services: BudgetScenario) -> None:
    exceeded = await told(services, Budget(cost=0.05, per="total"), Usage(1, cost=0.0712))
    assert exceeded == Exceeded(
        "The agent has spent $0.071 of its $0.050 in total. It does not go on by itself: "
        "raise `cost` in [agent.budget] (or Agent(budget=...)) and restart.",
        None,
    )


async def test_all_limits_that_are_reached_are_named(services: BudgetScenario) -> None:
    exceeded = await told(services, Budget(slices=2, tokens=10, cost=1.0), Usage(2, 6, 5, 1.5))
    assert exceeded.reason.startswith(
        "The agent has spent $1.50 of its $1.00, used 11 of its 10 tokens and run 2 of its 2 slices for 2026-11-16 (UTC)."
    )
    assert "raise `cost`, `tokens` and `slices` in [agent.budget]" in exceeded.reason


# Counting


async def test_nothing_is_exceeded_below_the_limits(services: BudgetScenario) -> None:
    budget_usage = services.budget_usage("w1", Budget(slices=2, tokens=10, cost=1.0))
    assert await budget_usage.exceeded() is None
    budget_usage.add(Usage(1, 5, 4, 0.99))
    assert await budget_usage.exceeded() is None
    assert await budget_usage.spent() == Usage(1, 5, 4, 0.99)


async def test_cents_add_up_to_a_dollar(services: BudgetScenario) -> None:
    """Ten times 0.1 are less than 1.0 for a computer that counts in fractions of two."""
    budget_usage = services.budget_usage("w1", Budget(cost=1.0))
    for _ in range(9):
        budget_usage.add(Usage(1, cost=0.1))
    assert await budget_usage.exceeded() is None
    budget_usage.add(Usage(1, cost=0.1))
    assert await budget_usage.exceeded() is not None


@pytest.mark.parametrize("cost", [math.nan, math.inf, -3.0])
async def test_a_model_that_does_not_know_its_price_costs_nothing(services: BudgetScenario, cost: float) -> None:
    budget_usage = services.budget_usage("w1", Budget(cost=1.0))
    budget_usage.add(Usage(1, 2, 3, cost))
    assert await budget_usage.spent() == Usage(1, 2, 3, 0.0)


async def test_own_completions_count_before_they_are_written(services: BudgetScenario) -> None:
    budget_usage = services.budget_usage("w1", Budget(slices=2))
    assert await budget_usage.exceeded() is None
    budget_usage.add(slices(2))
    assert await budget_usage.exceeded() is not None
    assert await services.counted() == 0


async def test_two_processes_spend_one_budget(services: BudgetScenario) -> None:
    budget = Budget(slices=10)
    one = services.budget_usage("w1", budget)
    two = services.budget_usage("w2", budget, services.another_store())
    one.add(slices(6))
    await written(one)
    two.add(slices(3))
    assert await two.exceeded() is None

    two.add(slices(1))
    exceeded = await two.exceeded()
    await written(two)
    services.clock.time += 2

    assert exceeded is not None
    assert "10 of its 10" in exceeded.reason
    assert await one.exceeded() == exceeded


async def test_what_others_spent_is_looked_up_every_few_seconds_only(services: BudgetScenario) -> None:
    budget_usage = services.budget_usage("w1")
    await asyncio.gather(*(budget_usage.exceeded() for _ in range(20)))
    for _ in range(20):
        budget_usage.add(slices(1))
        await budget_usage.exceeded()
    assert services.store.reads == 1

    services.clock.time += 2
    await asyncio.gather(*(budget_usage.exceeded() for _ in range(20)))
    assert services.store.reads == 2


async def test_a_clock_that_was_put_back_does_not_keep_it_from_looking(services: BudgetScenario) -> None:
    budget_usage = services.budget_usage("w1")
    await budget_usage.exceeded()
    services.clock.time -= HOUR
    other = services.budget_usage("w2")
    other.add(slices(5))
    await written(other)
    assert (await budget_usage.spent()).requests == 5


async def test_it_is_not_written_again_what_has_not_changed(services: BudgetScenario) -> None:
    budget_usage = services.budget_usage("w1")
    budget_usage.add(slices(1))
    await written(budget_usage)
    before = await services.ledgers()
    services.clock.time += 1
    budget_usage.add(Usage())
    await written(budget_usage)
    assert await services.ledgers() == before


async def test_a_new_process_goes_on_where_the_last_was_killed(services: BudgetScenario) -> None:
    killed = services.budget_usage("w1")
    killed.add(Usage(2, 30, 4, 0.25))
    await written(killed)
    killed.add(slices(1))  # not written

    budget_usage = services.budget_usage("w2")
    await budget_usage.start()
    assert await budget_usage.spent() == Usage(2, 30, 4, 0.25)


async def test_a_process_that_ended_in_order_loses_nothing(services: BudgetScenario) -> None:
    budget_usage = services.budget_usage("w1")
    budget_usage.add(slices(2))
    await written(budget_usage)
    budget_usage.add(slices(3))
    await budget_usage.close()
    await budget_usage.close()
    assert await services.counted() == 5
    assert (await budget_usage.spent()).requests == 5


async def test_a_process_that_spent_nothing_leaves_nothing(services: BudgetScenario) -> None:
    budget_usage = services.budget_usage("w1")
    await budget_usage.start()
    await budget_usage.exceeded()
    await budget_usage.close()
    assert await services.ledgers() == []
    assert await services.store.box("rapkit/spending") is None


# Writing


async def test_it_is_written_at_once_and_then_once_a_second(services: BudgetScenario) -> None:
    paused: asyncio.Queue[float] = asyncio.Queue()
    go_on = asyncio.Semaphore(0)

    async def wait(seconds: float) -> None:
        paused.put_nowait(seconds)
        await go_on.acquire()

    budget_usage = BudgetUsage(services.store, "w1", Budget(slices=PLENTY), services.clock.now, sleep=wait)
    running = asyncio.create_task(budget_usage.run())
    try:
        budget_usage.add(slices(1))
        assert await paused.get() == 1
        assert await services.counted() == 1
        budget_usage.add(slices(1))
        budget_usage.add(slices(1))
        assert await services.counted() == 1

        go_on.release()
        assert await paused.get() == 1
        assert await services.counted() == 3
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_what_could_not_be_written_is_written_later(
    services: BudgetScenario, caplog: pytest.LogCaptureFixture
) -> None:
    budget_usage = services.budget_usage("w1")
    services.store.strike_at(1, False, StoreError)
    budget_usage.add(slices(3))
    await written(budget_usage)
    assert "cannot write down what was spent, and will try again: The disk is gone." in caplog.text
    assert await services.counted() == 0

    await written(budget_usage)  # though nothing was added
    assert await services.counted() == 3


async def test_whoever_asks_is_told_that_the_store_fails(services: BudgetScenario) -> None:
    budget_usage = services.budget_usage("w1")
    services.store.strike_at(1, False, StoreError)
    with pytest.raises(StoreError):
        await budget_usage.exceeded()
    assert await budget_usage.exceeded() is None


async def test_a_ledger_that_cannot_be_read_is_an_error(services: BudgetScenario) -> None:
    box = NewBox("rapkit/spending", "spending", idle=True)
    await services.store.note(box, Fact(box.id, "spent/day", "2026-11-16", b"?"))
    with pytest.raises(StoreError, match="2026-11-16 cannot be read"):
        await services.budget_usage("w1").exceeded()


async def test_what_is_read_while_one_writes_does_not_hide_what_is_written(services: BudgetScenario) -> None:
    has_read, go_on = asyncio.Event(), asyncio.Event()

    async def dawdle() -> None:
        services.store.on_read = None
        has_read.set()
        await go_on.wait()

    services.store.on_read = dawdle
    budget_usage = services.budget_usage("w1")
    looking = asyncio.create_task(budget_usage.exceeded())
    await has_read.wait()
    budget_usage.add(slices(3))
    writing = asyncio.create_task(written(budget_usage))
    await asyncio.wait({writing}, timeout=0.1)  # it may, or wait for the other
    go_on.set()
    await asyncio.gather(looking, writing)
    assert (await budget_usage.spent()).requests == 3
    assert await services.counted() == 3


async def test_many_processes_that_write_at_once_lose_nothing(services: BudgetScenario) -> None:
    async def live(worker: str) -> None:
        budget_usage = services.budget_usage(worker, store=store)
        for _ in range(5):
            budget_usage.add(slices(1))
            await written(budget_usage)
            await budget_usage.exceeded()
        budget_usage.add(slices(1))
        await budget_usage.close()

    lives = []
    for number in range(6):
        store = services.another_store()
        lives.append(live(f"w{number}"))
    await asyncio.gather(*lives)
    assert await services.counted() == 36


# Whatever happens to a process

OPERATIONS = 15
STRIKES = [
    pytest.param(number, after, id=f"{'after' if after else 'before'} operation {number}")
    for number in range(1, OPERATIONS + 1)
    for after in (False, True)
]


class Life:
    """A process that spends, writes, spends again, writes and ends; and what it has spent and knows to be written."""

    def __init__(self, services: BudgetScenario, store: Fragile, worker: str = "w1") -> None:
        self.budget_usage = services.budget_usage(worker, store=store)
        self._clock = services.clock
        self.added = 0
        self.sure = 0

    async def live(self) -> None:
        await self.budget_usage.start()
        for number in (3, 4):
            self._add(number)
            await written(self.budget_usage)
            self.sure = self.added
            self._clock.time += 2
            await self.budget_usage.exceeded()
        self._add(5)
        await self.budget_usage.close()
        self.sure = self.added

    async def live_with_patience(self) -> None:
        """With a store that fails once, wherever that is."""
        await again(self.budget_usage.start)
        for number in (3, 4):
            self._add(number)
            await written(self.budget_usage)
            self._clock.time += 2
            await again(self.budget_usage.exceeded)
            assert (await self.budget_usage.spent()).requests == BEFORE + self.added
        self._add(5)
        await self.budget_usage.close()
        await self.budget_usage.close()

    def _add(self, number: int) -> None:
        self.budget_usage.add(slices(number))
        self.added += number


async def again(ask: Callable[[], Awaitable[object]]) -> None:
    try:
        await ask()
    except StoreError:
        await ask()


async def others_live(services: BudgetScenario) -> None:
    """Somebody has ended and somebody was killed: they have spent what was `BEFORE`. And there is an old ledger."""
    services.clock.time -= 10 * DAY
    await a_killed_process(services, "long ago", 500)
    services.clock.time = NOON
    ended = services.budget_usage("ended")
    ended.add(slices(100))
    await ended.close()
    await a_killed_process(services, "killed", 10)


async def a_killed_process(services: BudgetScenario, worker: str, number: int) -> None:
    killed = services.budget_usage(worker)
    killed.add(slices(number))
    await written(killed)


BEFORE = 110


async def test_the_strikes_below_hit_every_operation(services: BudgetScenario) -> None:
    await others_live(services)
    store = services.another_store()
    store.operations = 0
    await Life(services, store).live()
    assert store.operations == OPERATIONS


@pytest.mark.parametrize(("number", "after"), STRIKES)
async def test_a_process_that_is_killed_loses_only_what_it_had_not_written(
    services: BudgetScenario, number: int, after: bool
) -> None:
    await others_live(services)
    store = services.another_store()
    life = Life(services, store)
    store.strike_at(number, after, Killed)
    with pytest.raises(Killed):
        await life.live()

    counted = await services.counted() - BEFORE
    assert counted in (0, 3, 7, 12)
    assert life.sure <= counted <= life.added
    await Life(services, services.another_store(), "w2").live()
    assert await services.counted() == BEFORE + counted + 12


@pytest.mark.parametrize(("number", "after"), STRIKES)
async def test_a_store_that_fails_once_makes_nobody_count_twice(
    services: BudgetScenario, number: int, after: bool
) -> None:
    """It is open whether the operation that failed happened."""
    await others_live(services)
    store = services.another_store()
    life = Life(services, store)
    store.strike_at(number, after, StoreError)
    await life.live_with_patience()
    assert await services.counted() == BEFORE + 12
    assert (await life.budget_usage.spent()).requests == BEFORE + 12


async def test_a_process_that_cannot_write_at_its_end_says_so(
    services: BudgetScenario, caplog: pytest.LogCaptureFixture
) -> None:
    budget_usage = services.budget_usage("w1")
    budget_usage.add(slices(1))
    services.store.strike_at(1, False, StoreError)
    await budget_usage.close()
    assert "cannot write down what was spent at last: The disk is gone." in caplog.text


async def test_it_can_be_cancelled_while_it_writes(services: BudgetScenario) -> None:
    """What was asked of the store may have happened all the same."""
    budget_usage = services.budget_usage("w1")
    for moment in range(20):
        budget_usage.add(slices(1))
        running = asyncio.create_task(budget_usage.run())
        for _ in range(moment):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await budget_usage.close()
    assert await services.counted() == 20


# Many processes


async def test_short_lived_processes_leave_one_small_record(services: BudgetScenario) -> None:
    for number in range(200):
        budget_usage = services.budget_usage(f"w{number}")
        await budget_usage.start()
        budget_usage.add(Usage(1, 10, 1, 0.001))
        assert await budget_usage.exceeded() is None
        await budget_usage.close()
    (ledger,) = await services.ledgers()
    assert len(ledger.body) < 200
    assert await services.budget_usage("new").spent() == Usage(200, 2000, 200, 0.2)


async def test_processes_that_were_killed_are_put_together_when_there_are_many(services: BudgetScenario) -> None:
    for number in range(60):
        await a_killed_process(services, f"w{number}", 1)
    (full,) = await services.ledgers()
    services.clock.time += HOUR + 1
    await a_killed_process(services, "another", 1)
    (ledger,) = await services.ledgers()
    assert len(ledger.body) < len(full.body) / 10
    assert await services.counted() == 61


async def test_processes_that_may_still_run_are_not_put_together(services: BudgetScenario) -> None:
    for number in range(60):
        await a_killed_process(services, f"w{number}", 1)
        services.clock.time += 10
    (ledger,) = await services.ledgers()
    assert all(f"w{number}/" in ledger.body.decode() for number in range(60))


@pytest.mark.parametrize("asks_first", [True, False])
async def test_a_process_that_was_taken_for_lost_goes_on(services: BudgetScenario, asks_first: bool) -> None:
    silent = services.budget_usage("silent")
    silent.add(slices(7))
    await written(silent)
    for number in range(60):
        await a_killed_process(services, f"w{number}", 1)
    services.clock.time += HOUR + 1
    await a_killed_process(services, "another", 1)

    if asks_first:
        assert (await silent.spent()).requests == 68
    silent.add(slices(5))
    assert not asks_first or (await silent.spent()).requests == 73
    await written(silent)
    assert (await silent.spent()).requests == 73
    assert await services.counted() == 73
    await silent.close()
    assert await services.counted() == 73


@pytest.mark.parametrize("happened", [True, False])
async def test_a_write_that_seemed_to_fail_counts_once_when_one_is_taken_for_lost(
    services: BudgetScenario, happened: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store = services.another_store()
    silent = services.budget_usage("silent", store=store)
    silent.add(slices(7))
    await written(silent)
    for number in range(60):
        await a_killed_process(services, f"w{number}", 1)
    services.clock.time += HOUR + 1
    silent.add(slices(5))
    store.strike_at(2, happened, StoreError)
    await written(silent)
    assert "will try again" in caplog.text
    await a_killed_process(services, "another", 1)
    await written(silent)
    assert (await silent.spent()).requests == 73
    assert await services.counted() == 73


# Periods


async def test_a_new_period_begins_with_nothing_spent(services: BudgetScenario) -> None:
    one, two = services.budget_usage("w1", Budget(slices=5)), services.budget_usage("w2", Budget(slices=5))
    one.add(slices(3))
    two.add(slices(3))
    await written(one)
    await written(two)
    services.clock.time += 2
    exceeded = await one.exceeded()
    assert exceeded is not None
    assert exceeded.until is not None

    services.clock.time = exceeded.until - 1
    assert await one.exceeded() is not None
    services.clock.time = exceeded.until
    assert await one.exceeded() is None
    assert await two.exceeded() is None
    two.add(slices(2))
    await written(two)
    assert (await one.spent()).requests == 0  # seen a moment ago
    services.clock.time += 2
    assert (await one.spent()).requests == 2
    assert await services.counted() == 2


async def test_a_period_that_ends_while_somebody_asks_does_not_count_for_the_next(services: BudgetScenario) -> None:
    budget_usage = services.budget_usage("w1", Budget(slices=5))
    await a_killed_process(services, "w2", 5)
    midnight = at("2026-11-17 00:00")

    async def strike_twelve() -> None:
        services.clock.time = midnight

    services.store.on_read = strike_twelve
    first = await budget_usage.exceeded()
    assert first is not None
    assert first.until == midnight  # which is now
    assert await budget_usage.exceeded() is None


async def test_a_clock_that_goes_back_into_the_last_period_loses_nothing(services: BudgetScenario) -> None:
    services.clock.time = at("2026-11-16 23:59:59")
    budget_usage = services.budget_usage("w1")
    budget_usage.add(slices(3))
    await written(budget_usage)
    services.clock.time += 1
    budget_usage.add(slices(4))
    await written(budget_usage)
    assert await services.counted() == 4

    services.clock.time -= 1
    budget_usage.add(slices(5))
    await written(budget_usage)
    assert (await budget_usage.spent()).requests == 8
    assert await services.counted() == 8


@pytest.mark.parametrize(("per", "kept"), [("hour", 48 + 1), ("day", 2 + 1), ("month", 1 + 1), ("total", 1)])
async def test_ledgers_of_past_periods_go(services: BudgetScenario, per: Per, kept: int) -> None:
    """At a start, and in a process that lives for long."""
    budget = Budget(slices=PLENTY, per=per)
    budget_usage = services.budget_usage("w1", budget)
    for _ in range(60):
        budget_usage.add(slices(1))
        await written(budget_usage)
        services.clock.time = budget.ends_at(services.clock.time) or services.clock.time + DAY
        await services.budget_usage("new", budget).start()
        assert len(await services.ledgers(per)) <= kept
    assert await services.counted(per) == (60 if per == "total" else 0)


async def test_a_process_that_lives_for_long_drops_old_ledgers_itself(services: BudgetScenario) -> None:
    went_by = 0

    async def next_day(_seconds: float) -> None:
        nonlocal went_by
        went_by += 1
        services.clock.time += DAY
        if went_by == 10:
            raise Paused
        budget_usage.add(slices(1))

    budget_usage = BudgetUsage(services.store, "w1", Budget(slices=PLENTY), services.clock.now, sleep=next_day)
    budget_usage.add(slices(1))
    await written(budget_usage)
    assert len(await services.ledgers()) <= 3


async def test_a_budget_for_another_period_counts_anew_and_leaves_the_other_alone(services: BudgetScenario) -> None:
    await a_killed_process(services, "w1", 3)
    budget_usage = services.budget_usage("w2", Budget(slices=PLENTY, per="month"))
    await budget_usage.start()
    budget_usage.add(slices(1))
    await written(budget_usage)
    assert await services.counted("month") == 1
    assert await services.counted("day") == 3

    services.clock.time += 10 * DAY
    await budget_usage.start()
    assert await services.ledgers("day") == []
    assert await services.counted("month") == 1


async def test_a_higher_limit_goes_on_with_what_was_spent(services: BudgetScenario) -> None:
    before = services.budget_usage("w1", Budget(slices=5))
    before.add(slices(5))
    assert await before.exceeded() is not None
    await before.close()

    budget_usage = services.budget_usage("w2", Budget(slices=7))
    assert await budget_usage.exceeded() is None
    budget_usage.add(slices(2))
    exceeded = await budget_usage.exceeded()
    assert exceeded is not None
    assert "7 of its 7" in exceeded.reason
