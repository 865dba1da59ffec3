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


class Premises:
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

    def spending(self, worker: str, budget: Budget | None = None, store: Fragile | None = None) -> BudgetUsage:
        """What a process counts that writes when it is told to."""
        return BudgetUsage(store or self.store, worker, budget or Budget(slices=PLENTY), self.clock.now, sleep=pause)

    async def counted(self, per: Per = "day") -> int:
        """The completions that somebody finds who comes now."""
        return (await self.spending("new", Budget(slices=PLENTY, per=per)).spent()).requests

    async def ledgers(self, per: Per = "day") -> list[Record]:
        return await self.store.records("rapkit/spending", f"spent/{per}")

    async def close(self) -> None:
        for store in self._stores:
            await store.close()


@pytest.fixture(params=["file", "memory"])
async def premises(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Premises]:
    premises = Premises(tmp_path / "agent.db" if request.param == "file" else None)
    yield premises
    await premises.close()


def slices(number: int) -> Usage:
    return Usage(requests=number)


async def written(spending: BudgetUsage) -> None:
    """Let it write what there is."""
    with pytest.raises(Paused):
        async with asyncio.timeout(60):
            await spending.run()


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


async def told(premises: Premises, budget: Budget, usage: Usage) -> Exceeded:
    spending = premises.spending("w1", budget)
    spending.add(usage)
    exceeded = await spending.exceeded()
    assert exceeded is not None
    return exceeded


async def test_a_person_is_told_what_was_spent_and_what_to_do(premises: Premises) -> None:
    exceeded = await told(premises, Budget(cost=50), Usage(1, cost=50.12))
    assert exceeded == Exceeded(
        "The agent has spent $50.12 of its $50.00 for 2026-11-16 (UTC). It goes on at 2026-11-17 00:00 UTC; to go on earlier, "
        "raise `cost` in [agent.budget] (or Agent(budget=...)) and restart.",
        at("2026-11-17 00:00"),
    )


async def test_tokens_are_those_read_and_those_written(premises: Premises) -> None:
    exceeded = await told(premises, Budget(tokens=1_000_000, per="month"), Usage(1, 600_000, 400_500))
    assert exceeded == Exceeded(
        "The agent has used 1,000,500 of its 1,000,000 tokens for 2026-11 (UTC). It goes on at 2026-12-01 00:00 UTC; to go on earlier, "
        "raise `tokens` in [agent.budget] (or Agent(budget=...)) and restart.",
        at("2026-12-01 00:00"),
    )


async def test_slices_are_completions(premises: Premises) -> None:
    exceeded = await told(premises, Budget(slices=20, per="hour"), slices(20))
    assert exceeded == Exceeded(
        "The agent has run 20 of its 20 slices for the hour from 2026-11-16 12:00 (UTC). It goes on at 2026-11-16 13:00 UTC; to go on "
        "earlier, raise `slices` in [agent.budget] (or Agent(budget=...)) and restart.",
        at("2026-11-16 13:00"),
    )


async def test_a_total_does_not_go_on_by_itself(premises: Premises) -> None:
    exceeded = await told(premises, Budget(cost=0.05, per="total"), Usage(1, cost=0.0712))
    assert exceeded == Exceeded(
        "The agent has spent $0.071 of its $0.050 in total. It does not go on by itself: "
        "raise `cost` in [agent.budget] (or Agent(budget=...)) and restart.",
        None,
    )


async def test_all_limits_that_are_reached_are_named(premises: Premises) -> None:
    exceeded = await told(premises, Budget(slices=2, tokens=10, cost=1.0), Usage(2, 6, 5, 1.5))
    assert exceeded.reason.startswith(
        "The agent has spent $1.50 of its $1.00, used 11 of its 10 tokens and run 2 of its 2 slices for 2026-11-16 (UTC)."
    )
    assert "raise `cost`, `tokens` and `slices` in [agent.budget]" in exceeded.reason


# Counting


async def test_nothing_is_exceeded_below_the_limits(premises: Premises) -> None:
    spending = premises.spending("w1", Budget(slices=2, tokens=10, cost=1.0))
    assert await spending.exceeded() is None
    spending.add(Usage(1, 5, 4, 0.99))
    assert await spending.exceeded() is None
    assert await spending.spent() == Usage(1, 5, 4, 0.99)


async def test_cents_add_up_to_a_dollar(premises: Premises) -> None:
    """Ten times 0.1 are less than 1.0 for a computer that counts in fractions of two."""
    spending = premises.spending("w1", Budget(cost=1.0))
    for _ in range(9):
        spending.add(Usage(1, cost=0.1))
    assert await spending.exceeded() is None
    spending.add(Usage(1, cost=0.1))
    assert await spending.exceeded() is not None


@pytest.mark.parametrize("cost", [math.nan, math.inf, -3.0])
async def test_a_model_that_does_not_know_its_price_costs_nothing(premises: Premises, cost: float) -> None:
    spending = premises.spending("w1", Budget(cost=1.0))
    spending.add(Usage(1, 2, 3, cost))
    assert await spending.spent() == Usage(1, 2, 3, 0.0)


async def test_own_completions_count_before_they_are_written(premises: Premises) -> None:
    spending = premises.spending("w1", Budget(slices=2))
    assert await spending.exceeded() is None
    spending.add(slices(2))
    assert await spending.exceeded() is not None
    assert await premises.counted() == 0


async def test_two_processes_spend_one_budget(premises: Premises) -> None:
    budget = Budget(slices=10)
    one = premises.spending("w1", budget)
    two = premises.spending("w2", budget, premises.another_store())
    one.add(slices(6))
    await written(one)
    two.add(slices(3))
    assert await two.exceeded() is None

    two.add(slices(1))
    exceeded = await two.exceeded()
    await written(two)
    premises.clock.time += 2

    assert exceeded is not None
    assert "10 of its 10" in exceeded.reason
    assert await one.exceeded() == exceeded


async def test_what_others_spent_is_looked_up_every_few_seconds_only(premises: Premises) -> None:
    spending = premises.spending("w1")
    await asyncio.gather(*(spending.exceeded() for _ in range(20)))
    for _ in range(20):
        spending.add(slices(1))
        await spending.exceeded()
    assert premises.store.reads == 1

    premises.clock.time += 2
    await asyncio.gather(*(spending.exceeded() for _ in range(20)))
    assert premises.store.reads == 2


async def test_a_clock_that_was_put_back_does_not_keep_it_from_looking(premises: Premises) -> None:
    spending = premises.spending("w1")
    await spending.exceeded()
    premises.clock.time -= HOUR
    other = premises.spending("w2")
    other.add(slices(5))
    await written(other)
    assert (await spending.spent()).requests == 5


async def test_it_is_not_written_again_what_has_not_changed(premises: Premises) -> None:
    spending = premises.spending("w1")
    spending.add(slices(1))
    await written(spending)
    before = await premises.ledgers()
    premises.clock.time += 1
    spending.add(Usage())
    await written(spending)
    assert await premises.ledgers() == before


async def test_a_new_process_goes_on_where_the_last_was_killed(premises: Premises) -> None:
    killed = premises.spending("w1")
    killed.add(Usage(2, 30, 4, 0.25))
    await written(killed)
    killed.add(slices(1))  # not written

    spending = premises.spending("w2")
    await spending.start()
    assert await spending.spent() == Usage(2, 30, 4, 0.25)


async def test_a_process_that_ended_in_order_loses_nothing(premises: Premises) -> None:
    spending = premises.spending("w1")
    spending.add(slices(2))
    await written(spending)
    spending.add(slices(3))
    await spending.close()
    await spending.close()
    assert await premises.counted() == 5
    assert (await spending.spent()).requests == 5


async def test_a_process_that_spent_nothing_leaves_nothing(premises: Premises) -> None:
    spending = premises.spending("w1")
    await spending.start()
    await spending.exceeded()
    await spending.close()
    assert await premises.ledgers() == []
    assert await premises.store.box("rapkit/spending") is None


# Writing


async def test_it_is_written_at_once_and_then_once_a_second(premises: Premises) -> None:
    paused: asyncio.Queue[float] = asyncio.Queue()
    go_on = asyncio.Semaphore(0)

    async def wait(seconds: float) -> None:
        paused.put_nowait(seconds)
        await go_on.acquire()

    spending = BudgetUsage(premises.store, "w1", Budget(slices=PLENTY), premises.clock.now, sleep=wait)
    running = asyncio.create_task(spending.run())
    try:
        spending.add(slices(1))
        assert await paused.get() == 1
        assert await premises.counted() == 1
        spending.add(slices(1))
        spending.add(slices(1))
        assert await premises.counted() == 1

        go_on.release()
        assert await paused.get() == 1
        assert await premises.counted() == 3
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_what_could_not_be_written_is_written_later(premises: Premises, caplog: pytest.LogCaptureFixture) -> None:
    spending = premises.spending("w1")
    premises.store.strike_at(1, False, StoreError)
    spending.add(slices(3))
    await written(spending)
    assert "cannot write down what was spent, and will try again: The disk is gone." in caplog.text
    assert await premises.counted() == 0

    await written(spending)  # though nothing was added
    assert await premises.counted() == 3


async def test_whoever_asks_is_told_that_the_store_fails(premises: Premises) -> None:
    spending = premises.spending("w1")
    premises.store.strike_at(1, False, StoreError)
    with pytest.raises(StoreError):
        await spending.exceeded()
    assert await spending.exceeded() is None


async def test_a_ledger_that_cannot_be_read_is_an_error(premises: Premises) -> None:
    box = NewBox("rapkit/spending", "spending", idle=True)
    await premises.store.note(box, Fact(box.id, "spent/day", "2026-11-16", b"?"))
    with pytest.raises(StoreError, match="2026-11-16 cannot be read"):
        await premises.spending("w1").exceeded()


async def test_what_is_read_while_one_writes_does_not_hide_what_is_written(premises: Premises) -> None:
    has_read, go_on = asyncio.Event(), asyncio.Event()

    async def dawdle() -> None:
        premises.store.on_read = None
        has_read.set()
        await go_on.wait()

    premises.store.on_read = dawdle
    spending = premises.spending("w1")
    looking = asyncio.create_task(spending.exceeded())
    await has_read.wait()
    spending.add(slices(3))
    writing = asyncio.create_task(written(spending))
    await asyncio.wait({writing}, timeout=0.1)  # it may, or wait for the other
    go_on.set()
    await asyncio.gather(looking, writing)
    assert (await spending.spent()).requests == 3
    assert await premises.counted() == 3


async def test_many_processes_that_write_at_once_lose_nothing(premises: Premises) -> None:
    async def live(worker: str) -> None:
        spending = premises.spending(worker, store=store)
        for _ in range(5):
            spending.add(slices(1))
            await written(spending)
            await spending.exceeded()
        spending.add(slices(1))
        await spending.close()

    lives = []
    for number in range(6):
        store = premises.another_store()
        lives.append(live(f"w{number}"))
    await asyncio.gather(*lives)
    assert await premises.counted() == 36


# Whatever happens to a process

OPERATIONS = 15
STRIKES = [
    pytest.param(number, after, id=f"{'after' if after else 'before'} operation {number}")
    for number in range(1, OPERATIONS + 1)
    for after in (False, True)
]


class Life:
    """A process that spends, writes, spends again, writes and ends; and what it has spent and knows to be written."""

    def __init__(self, premises: Premises, store: Fragile, worker: str = "w1") -> None:
        self.spending = premises.spending(worker, store=store)
        self._clock = premises.clock
        self.added = 0
        self.sure = 0

    async def live(self) -> None:
        await self.spending.start()
        for number in (3, 4):
            self._add(number)
            await written(self.spending)
            self.sure = self.added
            self._clock.time += 2
            await self.spending.exceeded()
        self._add(5)
        await self.spending.close()
        self.sure = self.added

    async def live_with_patience(self) -> None:
        """With a store that fails once, wherever that is."""
        await again(self.spending.start)
        for number in (3, 4):
            self._add(number)
            await written(self.spending)
            self._clock.time += 2
            await again(self.spending.exceeded)
            assert (await self.spending.spent()).requests == BEFORE + self.added
        self._add(5)
        await self.spending.close()
        await self.spending.close()

    def _add(self, number: int) -> None:
        self.spending.add(slices(number))
        self.added += number


async def again(ask: Callable[[], Awaitable[object]]) -> None:
    try:
        await ask()
    except StoreError:
        await ask()


async def others_live(premises: Premises) -> None:
    """Somebody has ended and somebody was killed: they have spent what was `BEFORE`. And there is an old ledger."""
    premises.clock.time -= 10 * DAY
    await a_killed_process(premises, "long ago", 500)
    premises.clock.time = NOON
    ended = premises.spending("ended")
    ended.add(slices(100))
    await ended.close()
    await a_killed_process(premises, "killed", 10)


async def a_killed_process(premises: Premises, worker: str, number: int) -> None:
    killed = premises.spending(worker)
    killed.add(slices(number))
    await written(killed)


BEFORE = 110


async def test_the_strikes_below_hit_every_operation(premises: Premises) -> None:
    await others_live(premises)
    store = premises.another_store()
    store.operations = 0
    await Life(premises, store).live()
    assert store.operations == OPERATIONS


@pytest.mark.parametrize(("number", "after"), STRIKES)
async def test_a_process_that_is_killed_loses_only_what_it_had_not_written(
    premises: Premises, number: int, after: bool
) -> None:
    await others_live(premises)
    store = premises.another_store()
    life = Life(premises, store)
    store.strike_at(number, after, Killed)
    with pytest.raises(Killed):
        await life.live()

    counted = await premises.counted() - BEFORE
    assert counted in (0, 3, 7, 12)
    assert life.sure <= counted <= life.added
    await Life(premises, premises.another_store(), "w2").live()
    assert await premises.counted() == BEFORE + counted + 12


@pytest.mark.parametrize(("number", "after"), STRIKES)
async def test_a_store_that_fails_once_makes_nobody_count_twice(premises: Premises, number: int, after: bool) -> None:
    """It is open whether the operation that failed happened."""
    await others_live(premises)
    store = premises.another_store()
    life = Life(premises, store)
    store.strike_at(number, after, StoreError)
    await life.live_with_patience()
    assert await premises.counted() == BEFORE + 12
    assert (await life.spending.spent()).requests == BEFORE + 12


async def test_a_process_that_cannot_write_at_its_end_says_so(
    premises: Premises, caplog: pytest.LogCaptureFixture
) -> None:
    spending = premises.spending("w1")
    spending.add(slices(1))
    premises.store.strike_at(1, False, StoreError)
    await spending.close()
    assert "cannot write down what was spent at last: The disk is gone." in caplog.text


async def test_it_can_be_cancelled_while_it_writes(premises: Premises) -> None:
    """What was asked of the store may have happened all the same."""
    spending = premises.spending("w1")
    for moment in range(20):
        spending.add(slices(1))
        running = asyncio.create_task(spending.run())
        for _ in range(moment):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await spending.close()
    assert await premises.counted() == 20


# Many processes


async def test_short_lived_processes_leave_one_small_record(premises: Premises) -> None:
    for number in range(200):
        spending = premises.spending(f"w{number}")
        await spending.start()
        spending.add(Usage(1, 10, 1, 0.001))
        assert await spending.exceeded() is None
        await spending.close()
    (ledger,) = await premises.ledgers()
    assert len(ledger.body) < 200
    assert await premises.spending("new").spent() == Usage(200, 2000, 200, 0.2)


async def test_processes_that_were_killed_are_put_together_when_there_are_many(premises: Premises) -> None:
    for number in range(60):
        await a_killed_process(premises, f"w{number}", 1)
    (full,) = await premises.ledgers()
    premises.clock.time += HOUR + 1
    await a_killed_process(premises, "another", 1)
    (ledger,) = await premises.ledgers()
    assert len(ledger.body) < len(full.body) / 10
    assert await premises.counted() == 61


async def test_processes_that_may_still_run_are_not_put_together(premises: Premises) -> None:
    for number in range(60):
        await a_killed_process(premises, f"w{number}", 1)
        premises.clock.time += 10
    (ledger,) = await premises.ledgers()
    assert all(f"w{number}/" in ledger.body.decode() for number in range(60))


@pytest.mark.parametrize("asks_first", [True, False])
async def test_a_process_that_was_taken_for_lost_goes_on(premises: Premises, asks_first: bool) -> None:
    silent = premises.spending("silent")
    silent.add(slices(7))
    await written(silent)
    for number in range(60):
        await a_killed_process(premises, f"w{number}", 1)
    premises.clock.time += HOUR + 1
    await a_killed_process(premises, "another", 1)

    if asks_first:
        assert (await silent.spent()).requests == 68
    silent.add(slices(5))
    assert not asks_first or (await silent.spent()).requests == 73
    await written(silent)
    assert (await silent.spent()).requests == 73
    assert await premises.counted() == 73
    await silent.close()
    assert await premises.counted() == 73


@pytest.mark.parametrize("happened", [True, False])
async def test_a_write_that_seemed_to_fail_counts_once_when_one_is_taken_for_lost(
    premises: Premises, happened: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store = premises.another_store()
    silent = premises.spending("silent", store=store)
    silent.add(slices(7))
    await written(silent)
    for number in range(60):
        await a_killed_process(premises, f"w{number}", 1)
    premises.clock.time += HOUR + 1
    silent.add(slices(5))
    store.strike_at(2, happened, StoreError)
    await written(silent)
    assert "will try again" in caplog.text
    await a_killed_process(premises, "another", 1)
    await written(silent)
    assert (await silent.spent()).requests == 73
    assert await premises.counted() == 73


# Periods


async def test_a_new_period_begins_with_nothing_spent(premises: Premises) -> None:
    one, two = premises.spending("w1", Budget(slices=5)), premises.spending("w2", Budget(slices=5))
    one.add(slices(3))
    two.add(slices(3))
    await written(one)
    await written(two)
    premises.clock.time += 2
    exceeded = await one.exceeded()
    assert exceeded is not None
    assert exceeded.until is not None

    premises.clock.time = exceeded.until - 1
    assert await one.exceeded() is not None
    premises.clock.time = exceeded.until
    assert await one.exceeded() is None
    assert await two.exceeded() is None
    two.add(slices(2))
    await written(two)
    assert (await one.spent()).requests == 0  # seen a moment ago
    premises.clock.time += 2
    assert (await one.spent()).requests == 2
    assert await premises.counted() == 2


async def test_a_period_that_ends_while_somebody_asks_does_not_count_for_the_next(premises: Premises) -> None:
    spending = premises.spending("w1", Budget(slices=5))
    await a_killed_process(premises, "w2", 5)
    midnight = at("2026-11-17 00:00")

    async def strike_twelve() -> None:
        premises.clock.time = midnight

    premises.store.on_read = strike_twelve
    first = await spending.exceeded()
    assert first is not None
    assert first.until == midnight  # which is now
    assert await spending.exceeded() is None


async def test_a_clock_that_goes_back_into_the_last_period_loses_nothing(premises: Premises) -> None:
    premises.clock.time = at("2026-11-16 23:59:59")
    spending = premises.spending("w1")
    spending.add(slices(3))
    await written(spending)
    premises.clock.time += 1
    spending.add(slices(4))
    await written(spending)
    assert await premises.counted() == 4

    premises.clock.time -= 1
    spending.add(slices(5))
    await written(spending)
    assert (await spending.spent()).requests == 8
    assert await premises.counted() == 8


@pytest.mark.parametrize(("per", "kept"), [("hour", 48 + 1), ("day", 2 + 1), ("month", 1 + 1), ("total", 1)])
async def test_ledgers_of_past_periods_go(premises: Premises, per: Per, kept: int) -> None:
    """At a start, and in a process that lives for long."""
    budget = Budget(slices=PLENTY, per=per)
    spending = premises.spending("w1", budget)
    for _ in range(60):
        spending.add(slices(1))
        await written(spending)
        premises.clock.time = budget.ends_at(premises.clock.time) or premises.clock.time + DAY
        await premises.spending("new", budget).start()
        assert len(await premises.ledgers(per)) <= kept
    assert await premises.counted(per) == (60 if per == "total" else 0)


async def test_a_process_that_lives_for_long_drops_old_ledgers_itself(premises: Premises) -> None:
    went_by = 0

    async def next_day(_seconds: float) -> None:
        nonlocal went_by
        went_by += 1
        premises.clock.time += DAY
        if went_by == 10:
            raise Paused
        spending.add(slices(1))

    spending = BudgetUsage(premises.store, "w1", Budget(slices=PLENTY), premises.clock.now, sleep=next_day)
    spending.add(slices(1))
    await written(spending)
    assert len(await premises.ledgers()) <= 3


async def test_a_budget_for_another_period_counts_anew_and_leaves_the_other_alone(premises: Premises) -> None:
    await a_killed_process(premises, "w1", 3)
    spending = premises.spending("w2", Budget(slices=PLENTY, per="month"))
    await spending.start()
    spending.add(slices(1))
    await written(spending)
    assert await premises.counted("month") == 1
    assert await premises.counted("day") == 3

    premises.clock.time += 10 * DAY
    await spending.start()
    assert await premises.ledgers("day") == []
    assert await premises.counted("month") == 1


async def test_a_higher_limit_goes_on_with_what_was_spent(premises: Premises) -> None:
    before = premises.spending("w1", Budget(slices=5))
    before.add(slices(5))
    assert await before.exceeded() is not None
    await before.close()

    spending = premises.spending("w2", Budget(slices=7))
    assert await spending.exceeded() is None
    spending.add(slices(2))
    exceeded = await spending.exceeded()
    assert exceeded is not None
    assert "7 of its 7" in exceeded.reason
