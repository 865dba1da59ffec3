"""A worker of an agent: runs threads, schedules and deliveries, either until stopped or until nothing is due."""

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
from rapkit.runtime.due_timer import next_due_time
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
    """The services that all workers of one running agent share."""

    config: AgentConfig
    store: Store
    transport: Poster
    clock: Clock
    toolsets: Toolsets
    dispatch: Dispatch
    broadcast: Broadcast
    metrics: AgentMetrics
    tracing: Tracing


class Worker:
    """Runs a thread runner, an outbox sender, schedules and budgets. `threads` and `posts` count what was done."""

    def __init__(self, services: WorkerServices) -> None:
        self._services = services
        self._store = services.store
        self._grace = services.config.patience.grace
        self._name = name = new_id("worker")
        self._working: list[asyncio.Task[None]] = []
        self._delivering: list[asyncio.Task[None]] = []
        self._keeping: list[asyncio.Task[None]] = []
        self._budget_release: list[asyncio.Task[None]] = []
        self._finishing: asyncio.Task[None] | None = None
        self.maintenance = Maintenance(services.store, name, services.config.patience.dead_letters)
        budget = services.config.budget
        self._budget_usage = None if budget is None else BudgetUsage(services.store, name, budget, services.clock.now)
        self._revival = BudgetRelease(services.store, name, budget, services.config.limits, self._budget_usage)
        self._outbox_sender = OutboxSender(
            services.store,
            services.transport,
            name,
            policies=services.config.policies,
            send_limits=SendLimits(
                services.config.capacity.deliveries,
                services.config.capacity.deliveries_per_origin,
                bytes=8 * services.config.capacity.mail,
            ),
            prepare=services.dispatch.prepare,
            report=services.dispatch.report,
            on_attempt=self._attempted,
            tracing=services.tracing,
            clock=services.clock.now,
        )
        self._thread_runner = ThreadRunner(
            AgentServices(
                config=services.config,
                worker=name,
                store=services.store,
                outbox_sender=self._outbox_sender,
                clock=services.clock,
                toolsets=services.toolsets,
                dispatch=services.dispatch,
                broadcast=services.broadcast,
                metrics=services.metrics,
                tracing=services.tracing,
                budget_usage=self._budget_usage,
            ),
            self._began,
        )
        self._schedules = Schedules(services.store, name, services.config.schedules or (), services.clock.now)
        self._pollers = (self._schedules.poller, self._thread_runner.poller, self._outbox_sender.poller)
        self._ran: set[str] | None = None
        self.posts = 0

    @property
    def threads(self) -> int:
        """How many threads ran, for a worker that was to finish."""
        return len(self._ran or ())

    @property
    def running(self) -> int:
        """How many slices run now."""
        return self._thread_runner.running

    @property
    def silent_origins(self) -> int:
        """How many origins have left their last POST without an answer."""
        return self._outbox_sender.silent_origins

    @property
    def under_way(self) -> int:
        """How many POSTs are being made now."""
        return self._outbox_sender.under_way

    @property
    def healthy(self) -> bool:
        """Whether what is due can be fetched, and everything goes on that is to go on."""
        healthy = self._thread_runner.healthy and self._outbox_sender.healthy and self._schedules.healthy
        return healthy and not any(task.done() for task in self._tasks)

    async def accept(self, new_mail: NewMail) -> AcceptResult:
        """Put mail into a thread's box; the thread runs at once if there is room."""
        return await self._thread_runner.accept(new_mail)

    def interrupt(self, thread_id: str) -> None:
        """Interrupt the completion of this thread, if this worker runs one."""
        self._thread_runner.interrupt(thread_id)

    def _began(self, thread_id: str) -> None:
        if self._ran is not None:  # a worker that never ends would never forget
            self._ran.add(thread_id)

    def _attempted(self, taken: TakenPost, settlement: Settlement) -> None:
        self.posts += settlement.outcome is Outcome.DELIVERED
        self._services.metrics.attempt(taken, settlement)

    # Until it is told to stop

    async def start(self) -> None:
        """Begin to work."""
        await self._begin()
        self._delivering.append(background.start(self._outbox_sender.run, "delivering POSTs"))
        self._working += [
            background.start(self._thread_runner.run, "running threads"),
            background.start(self._schedules.run, "carrying out schedules"),
            background.start(self.maintenance.sweep, "sweeping"),
        ]
        self._budget_release.append(background.start(self._revival.run, "reviving threads"))

    async def _begin(self) -> None:
        await self._store.renew(self._name)
        if self._budget_usage is not None:
            await self._budget_usage.start()
            self._keeping.append(background.start(self._budget_usage.run, "writing down what is spent"))
        self._keeping.append(background.start(self.maintenance.renew, "renewing the lease"))

    async def stop(self) -> None:
        """End in order: no new slices, let running ones end, send what they said, leave the rest to the next worker."""
        try:
            await background.end(*self._working, *self._budget_release)
            await self._schedules.drain(self._grace)
            await self._thread_runner.drain(self._grace)
            if self._budget_usage is not None:
                await self._budget_usage.close()
            await self.maintenance.drain_outbox(self._grace)
            await background.end(*self._delivering)
            await self._outbox_sender.drain(self._grace)
        finally:
            await background.end(*self._budget_release, *self._delivering, *self._keeping)
            await self.maintenance.retire()

    async def abandon(self) -> None:
        """End as a process that is killed: nothing is finished, nothing given back. For tests, whose stores refuse us from then on."""
        await background.end(*self._tasks, *self._budget_release)
        await asyncio.gather(*(poller.drain(0) for poller in self._pollers))

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
                async with self._services.clock.timeout(at_most):
                    await asyncio.wait({self._finishing})
        finally:
            await background.end(self._finishing)
            # For what those say who are still at it. Where all is done, all this takes no time.
            self._delivering.append(background.start(self._outbox_sender.run, "delivering POSTs"))
            await self.stop()
        if not self._finishing.cancelled():
            self._finishing.result()
            await self.maintenance.sweep_once()

    def hurry(self) -> None:
        """Begin nothing more: `finish` ends as if its time were over."""
        if self._finishing is not None:
            self._finishing.cancel()

    async def _until_nothing_is_due(self) -> None:
        budget_release = asyncio.create_task(self._revival.run_if_changed())
        self._budget_release.append(budget_release)
        while True:
            if any([await poller.fill() for poller in self._pollers]):
                continue
            in_progress = {task for poller in self._pollers for task in poller.in_progress}
            if not budget_release.done():
                in_progress.add(budget_release)
            if not in_progress and await next_due_time(self._store, TOPICS) != 0:
                budget_release.result()
                return
            await self._something_happens(in_progress)

    async def _something_happens(self, in_progress: "set[asyncio.Task[None]]") -> None:
        """Return when something has ended, or may have become due; what other processes do is seen soon enough."""
        bells = {
            asyncio.create_task(self._store.wait(poller.topic, _LOOK_AGAIN_AFTER))
            for poller in self._pollers
            if poller.has_room  # else it would be notified again and again with no room to begin anything
        }
        try:
            await asyncio.wait(in_progress | bells, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await background.end(*bells)
