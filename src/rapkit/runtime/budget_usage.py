"""Track what an agent has spent, over all its threads and processes.

What was spent in a period stands in one record, its ledger: one sum for those who have ended, and one entry for each process that runs. It
is changed by compare-and-set only, so whatever happens to a process between two steps, an amount stands in the ledger once or not yet. A
process that ends moves its entry into the sum; those of processes that were lost follow when there are many. So a ledger stays small,
however many processes come and go in its period.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Final, get_args

from pydantic import TypeAdapter

from rapkit.errors import StoreError
from rapkit.kernel.completion import Usage
from rapkit.mailbox import Fact, NewBox, Store
from rapkit.runtime.budget import Budget, Exceeded, Per, is_price, judge, period_name

_BOX: Final = NewBox("rapkit/spending", "spending", idle=True)
_NANOS: Final = 10**9
_WRITE_EVERY: Final = 1.0
_LOOK_EVERY: Final = 2.0
_KEPT: Final = 2 * 86400.0
_MANY: Final = 50
_SILENT: Final = 3600.0
_TRIES: Final = 100

log = logging.getLogger("rapkit.spending")


@dataclass(frozen=True, slots=True)
class _Amount:
    """What completions took. Dollars are counted in whole billionths, so that sums and differences are exact."""

    requests: int = 0
    input: int = 0
    output: int = 0
    nanos: int = 0

    @property
    def tokens(self) -> int:
        return self.input + self.output

    def __add__(self, other: "_Amount") -> "_Amount":
        return _Amount(
            self.requests + other.requests,
            self.input + other.input,
            self.output + other.output,
            self.nanos + other.nanos,
        )

    def __sub__(self, other: "_Amount") -> "_Amount":
        return _Amount(
            self.requests - other.requests,
            self.input - other.input,
            self.output - other.output,
            self.nanos - other.nanos,
        )


_NOTHING: Final = _Amount()


@dataclass(frozen=True, slots=True)
class _Entry:
    """What one process has spent, and when it said so."""

    spent: _Amount
    at: float


@dataclass(frozen=True, slots=True)
class _Ledger:
    """What was spent in one period."""

    ended: _Amount = _NOTHING
    running: dict[str, _Entry] = field(default_factory=dict)

    def total(self) -> _Amount:
        return sum((entry.spent for entry in self.running.values()), self.ended)

    def entered(self, name: str, spent: _Amount, now: float) -> "_Ledger":
        """With this entry; if there are many, without those of processes that have long been silent, which are likely to be lost."""
        ledger = replace(self, running={**self.running, name: _Entry(spent, now)})
        if len(ledger.running) > _MANY:
            for silent in [name for name, entry in ledger.running.items() if entry.at < now - _SILENT]:
                ledger = ledger.moved(silent)
        return ledger

    def moved(self, name: str) -> "_Ledger":
        """With this entry in the sum of those who have ended."""
        running = dict(self.running)
        entry = running.pop(name, None)
        return self if entry is None else _Ledger(self.ended + entry.spent, running)


_LEDGER: Final = TypeAdapter(_Ledger)


@dataclass(slots=True)
class _Account:
    """What this process has spent in one period and not moved into the ledger's sum, and what it knows of the others."""

    name: str
    period: str
    ends_at: float | None
    own: _Amount = _NOTHING
    entered: _Amount = _NOTHING
    others: _Amount = _NOTHING
    seen_at: float | None = None

    def saw(self, ledger: _Ledger, now: float) -> None:
        """The ledger is like this now."""
        entry = ledger.running.get(self.name)
        if entry is None:
            # What we had entered is in the sum: we have ended, or were silent for so long that another process took this one for lost. A
            # write of which we do not know whether it happened cannot be in there, too: it would have made the entry a fresh one, that no
            # process moves.
            self.own -= self.entered
        self.entered = _NOTHING if entry is None else entry.spent
        self.others = ledger.total() - self.entered
        self.seen_at = now


class BudgetUsage:
    """Tracks what the agent, in all processes on one store, has spent in the current period.

    Completions are counted at once in this process, and written down within a second: one that is killed loses what it spent in its last
    second, or since the store began to fail. Others see what was written two seconds later at most. So together, processes may spend what
    they can in three seconds, and the completions under way, above the budget. `worker` is a name that no other process has or ever had.
    """

    def __init__(
        self,
        store: Store,
        worker: str,
        budget: Budget,
        now: Callable[[], float],
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._worker = worker
        self._budget = budget
        self._now = now
        self._sleep = sleep
        self._kind = _kind(budget.per)
        self._changed = asyncio.Event()
        # What is read must not be older than what was written in the meantime, or our entry would seem to be gone.
        self._one_at_a_time = asyncio.Lock()
        self._opened = 0
        self._account = self._open()

    def add(self, usage: Usage) -> None:
        """Count a completion."""
        account = self._current()
        account.own += _amount(usage)
        self._changed.set()

    async def exceeded(self) -> Exceeded | None:
        """Whether the budget is used up, asked before each completion. Raises `StoreError` if what others spent cannot be read."""
        account = await self._known()
        return judge(self._budget, _usage(account), account.period, account.ends_at)

    async def spent(self) -> Usage:
        """What was spent in this period. Raises `StoreError` if what others spent cannot be read."""
        return _usage(await self._known())

    async def start(self) -> None:
        """Drop the ledgers of periods that have been over for days."""
        for per in get_args(Per):  # also of the length that the budget had before it was changed
            # Not as soon as they are over: clocks differ, and another process may still be writing.
            oldest = period_name(per, self._now() - _KEPT)
            for record in await self._store.records(_BOX.id, _kind(per)):
                if record.key < oldest:
                    await self._store.note(_BOX, Fact(_BOX.id, record.kind, record.key, None))

    async def run(self) -> None:
        """Write down what changes, at most once a second, until cancelled."""
        period = self._account.period
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._enter(self._current())
                if period != self._account.period:
                    await self.start()
                    period = self._account.period
            except StoreError as error:
                self._changed.set()
                log.error("cannot write down what was spent, and will try again: %s", error)
            await self._sleep(_WRITE_EVERY)

    async def close(self) -> None:
        """Write down the rest and leave the ledger; for after the last completion.

        Should the store fail, that is logged: what was not written is lost, and the entry stays as that of a process that was killed.
        """
        account = self._current()
        try:
            # In two steps: once the entry says all, a move of which we do not know whether it happened can be tried again.
            await self._enter(account)
            await self._change(account, lambda ledger: ledger.moved(account.name))
        except StoreError as error:
            log.error("cannot write down what was spent at last: %s", error)

    def _open(self) -> _Account:
        now = self._now()
        self._opened += 1
        # Another name each time: should the clock go back into a period, what we spent there before stays as it is.
        return _Account(f"{self._worker}/{self._opened}", self._budget.period_of(now), self._budget.ends_at(now))

    def _current(self) -> _Account:
        if self._account.period != self._budget.period_of(self._now()):
            # What was not written yet of the period before is not missed: no budget depends on it any more.
            self._account = self._open()
        return self._account

    async def _known(self) -> _Account:
        account = self._current()
        if self._is_old(account):
            async with self._one_at_a_time:
                if self._is_old(account):  # several ask at once, and one of them looks
                    ledger, _ = await self._read(account)
                    account.saw(ledger, self._now())
        return account

    def _is_old(self, account: _Account) -> bool:
        return account.seen_at is None or abs(self._now() - account.seen_at) >= _LOOK_EVERY

    async def _enter(self, account: _Account) -> None:
        def entered(ledger: _Ledger) -> _Ledger:
            if account.own == account.entered:
                return ledger
            return ledger.entered(account.name, account.own, self._now())

        await self._change(account, entered)

    async def _change(self, account: _Account, change: Callable[[_Ledger], _Ledger]) -> None:
        async with self._one_at_a_time:
            for _ in range(_TRIES):
                ledger, stands = await self._read(account)
                account.saw(ledger, self._now())
                changed = change(ledger)
                if changed == ledger:
                    return
                fact = Fact(_BOX.id, self._kind, account.period, _LEDGER.dump_json(changed))
                if await self._store.note(_BOX, fact, stands):
                    account.saw(changed, self._now())
                    return
        raise StoreError("What the agent has spent could not be written down: each time somebody else was faster.")

    async def _read(self, account: _Account) -> tuple[_Ledger, bytes | None]:
        for record in await self._store.records(_BOX.id, self._kind):
            if record.key == account.period:
                try:
                    return _LEDGER.validate_json(record.body), record.body
                except ValueError:
                    raise StoreError(f"What the agent has spent in {account.period} cannot be read.") from None
        return _Ledger(), None


def _usage(account: _Account) -> Usage:
    amount = account.own + account.others
    return Usage(amount.requests, amount.input, amount.output, amount.nanos / _NANOS)


def _amount(usage: Usage) -> _Amount:
    # A model may be third-party code: one that reports a nonsensical price must not stop the agent.
    nanos = round(usage.cost * _NANOS) if is_price(usage.cost) else 0
    return _Amount(usage.requests, usage.input_tokens, usage.output_tokens, nanos)


def _kind(per: Per) -> str:
    return f"spent/{per}"
