"""A shift: work done under one worker's name, either until it is told to stop or until nothing is due."""

import asyncio
import contextlib
from dataclasses import dataclass

from rapkit.clock import Clock
from rapkit.delivery.http_client import Poster
from rapkit.delivery.outbox_sender import OutboxSender, SendLimits
from rapkit.ids import new_id
from rapkit.mailbox import OUTBOX, AcceptResult, NewMail, Outcome, Settlement, Store, TakenPost
from rapkit.runtime.broadcast import Broadcast
from rapkit.runtime.budget_release import BudgetRelease
from rapkit.runtime.budget_usage import BudgetUsage
from rapkit.runtime.config import AgentConfig
from rapkit.runtime.dispatch import Dispatch
from rapkit.runtime.due_timer import soonest
from rapkit.runtime.metrics import AgentMetrics
from rapkit.runtime.schedules import SCHEDULE, Schedules
from rapkit.runtime.services import AgentServices
from rapkit.runtime.thread_runner import ThreadRunner
from rapkit.runtime.toolsets import THREAD, Toolsets
from rapkit.tracing import Tracing
from rapkit.work import background
from rapkit.work.maintenance import Maintenance

_LOOK_AGAIN_AFTER = 0.25

TOPICS = (SCHEDULE, THREAD, OUTBOX)
"""All that can be due."""


@dataclass(frozen=True, slots=True)
class WorkerServices:
    """What all shifts of one running agent share."""

    plan: AgentConfig
    store: Store
    line: Poster
    clock: Clock
    toolsets: Toolsets
    dispatch: Dispatch
    hub: Broadcast
    metrics: AgentMetrics
    tracing: Tracing


class Worker:
    """A worker, a courier, and whoever sees to schedules and budgets. `threads` and `posts` say what they have done."""

    def __init__(self, place: WorkerServices) -> None:
        self._place = place
        self._store = place.store
        self._grace = place.plan.patience.grace
        self._name = name = new_id("worker")
        self._working: list[asyncio.Task[None]] = []
        self._delivering: list[asyncio.Task[None]] = []
        self._keeping: list[asyncio.Task[None]] = []
        self._reviving: list[asyncio.Task[None]] = []
        self._finishing: asyncio.Task[None] | None = None
        self.upkeep = Maintenance(place.store, name, place.plan.patience.dead_letters)
        budget = place.plan.budget
        self._spending = None if budget is None else BudgetUsage(place.store, name, budget, place.clock.now)
        self._revival = BudgetRelease(place.store, name, budget, place.plan.limits, self._spending)
        self._courier = OutboxSender(
            place.store,
            place.line,
            name,
            policies=place.plan.policies,
            traffic=SendLimits(place.plan.capacity.deliveries, place.plan.capacity.deliveries_per_origin),
            prepare=place.dispatch.prepare,
            report=place.dispatch.report,
            on_attempt=self._attempted,
            tracing=place.tracing,
            clock=place.clock.now,
        )
        self._worker = ThreadRunner(
            AgentServices(
                plan=place.plan,
                worker=name,
                store=place.store,
                courier=self._courier,
                clock=place.clock,
                toolsets=place.toolsets,
                dispatch=place.dispatch,
                hub=place.hub,
                metrics=place.metrics,
                tracing=place.tracing,
                spending=self._spending,
            ),
            self._began,
        )
        self._schedules = Schedules(place.store, name, place.plan.schedules or (), place.clock.now)
        self._pumps = (self._schedules.pump, self._worker.pump, self._courier.pump)
        self._ran: set[str] | None = None
        self.posts = 0

    @property
    def threads(self) -> int:
        """How many threads ran, in a shift that was to finish."""
        return len(self._ran or ())

    @property
    def running(self) -> int:
        """How many slices run now."""
        return self._worker.running

    @property
    def silent_origins(self) -> int:
        """How many origins have left their last POST without an answer."""
        return self._courier.silent_origins

    @property
    def under_way(self) -> int:
        """How many POSTs are being made now."""
        return self._courier.under_way

    @property
    def healthy(self) -> bool:
        """Whether what is due can be fetched, and everything goes on that is to go on."""
        healthy = self._worker.healthy and self._courier.healthy and self._schedules.healthy
        return healthy and not any(task.done() for task in self._tasks)

    async def accept(self, letter: NewMail) -> AcceptResult:
        """Put a letter into a thread's mail; the thread runs at once if there is room."""
        return await self._worker.accept(letter)

    def interrupt(self, thread_id: str) -> None:
        """If the model is being asked for this thread in this shift, let it be."""
        self._worker.interrupt(thread_id)

    def _began(self, thread_id: str) -> None:
        if self._ran is not None:  # a shift that never ends would never forget
            self._ran.add(thread_id)

    def _attempted(self, taken: TakenPost, settlement: Settlement) -> None:
        self.posts += settlement.outcome is Outcome.DELIVERED
        self._place.metrics.attempt(taken, settlement)

    # Until it is told to stop

    async def start(self) -> None:
        """Begin to work."""
        await self._begin()
        self._delivering.append(background.start(self._courier.run, "delivering POSTs"))
        self._working += [
            background.start(self._worker.run, "running threads"),
            background.start(self._schedules.run, "carrying out schedules"),
            background.start(self.upkeep.sweep, "sweeping"),
        ]
        self._reviving.append(background.start(self._revival.run, "reviving threads"))

    async def _begin(self) -> None:
        await self._store.renew(self._name)
        if self._spending is not None:
            await self._spending.start()
            self._keeping.append(background.start(self._spending.run, "writing down what is spent"))
        self._keeping.append(background.start(self.upkeep.renew, "renewing the lease"))

    async def stop(self) -> None:
        """End in order: no new slices, let running ones end, send what they said, leave the rest to whoever comes next."""
        try:
            await background.end(*self._working, *self._reviving)
            await self._schedules.drain(self._grace)
            await self._worker.drain(self._grace)
            if self._spending is not None:
                await self._spending.close()
            await self.upkeep.let_outbox_leave(self._grace)
            await background.end(*self._delivering)
            await self._courier.drain(self._grace)
        finally:
            await background.end(*self._reviving, *self._delivering, *self._keeping)
            await self.upkeep.retire()

    async def abandon(self) -> None:
        """End as a process that is killed: nothing is finished, nothing given back. For tests, whose stores refuse us from then on."""
        await background.end(*self._tasks, *self._reviving)
        await asyncio.gather(*(pump.drain(0) for pump in self._pumps))

    @property
    def _tasks(self) -> "list[asyncio.Task[None]]":
        return [*self._working, *self._delivering, *self._keeping]

    # Until nothing is due

    async def finish(self, at_most: float | None = None) -> None:
        """Do what is due, and what becomes due of it, and end in order. After `at_most` seconds nothing more is begun.

        What others hold is theirs, and not waited for. Raises `StoreError` if it cannot be seen what is due.
        """
        self._ran = set()
        await self._begin()
        self._finishing = asyncio.create_task(self._until_nothing_is_due())
        try:
            with contextlib.suppress(TimeoutError):
                async with self._place.clock.timeout(at_most):
                    await asyncio.wait({self._finishing})
        finally:
            await background.end(self._finishing)
            # For what those say who are still at it. Where all is done, all this takes no time.
            self._delivering.append(background.start(self._courier.run, "delivering POSTs"))
            await self.stop()
        if not self._finishing.cancelled():
            self._finishing.result()
            await self.upkeep.sweep_once()

    def hurry(self) -> None:
        """Begin nothing more: `finish` ends as if its time were over."""
        if self._finishing is not None:
            self._finishing.cancel()

    async def _until_nothing_is_due(self) -> None:
        reviving = asyncio.create_task(self._revival.run_if_changed())
        self._reviving.append(reviving)
        while True:
            if any([await pump.fill() for pump in self._pumps]):
                continue
            in_hand = {task for pump in self._pumps for task in pump.in_hand}
            if not reviving.done():
                in_hand.add(reviving)
            if not in_hand and await soonest(self._store, TOPICS) != 0:
                reviving.result()
                return
            await self._something_happens(in_hand)

    async def _something_happens(self, in_hand: "set[asyncio.Task[None]]") -> None:
        """Return when something has ended, or may have become due; what other processes do is seen soon enough."""
        bells = {
            asyncio.create_task(self._store.wait(pump.topic, _LOOK_AGAIN_AFTER))
            for pump in self._pumps
            if pump.has_room  # else it rings and rings, and nothing can be begun
        }
        try:
            await asyncio.wait(in_hand | bells, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await background.end(*bells)
