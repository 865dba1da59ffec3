"""An agent at work: its store, its worker, its courier."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from rapkit import background
from rapkit.clock import Clock, SystemClock
from rapkit.delivery.client import HttpClient
from rapkit.delivery.courier import Courier
from rapkit.delivery.guard import Guard
from rapkit.errors import StoreError
from rapkit.ids import new_id
from rapkit.mailbox import Lease, Store
from rapkit.models.model import kept_open
from rapkit.runtime.addresses import Addresses
from rapkit.runtime.callbacks import Callbacks
from rapkit.runtime.discovery import Discovery, InThread
from rapkit.runtime.dispatch import Dispatch
from rapkit.runtime.hub import Hub
from rapkit.runtime.in_process import Exchange, Line
from rapkit.runtime.metrics import Metrics
from rapkit.runtime.plan import Plan
from rapkit.runtime.premises import Premises
from rapkit.runtime.threads import Threads
from rapkit.runtime.toolsets import Toolsets
from rapkit.runtime.worker import Worker
from rapkit.signer import Signer
from rapkit.stores import open_store

_PATIENCE_WITH_STORE = 2.0

log = logging.getLogger("rapkit.agent")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an agent at work finds outside of itself. Tests bring their own.

    `is_lost` is asked when the work ends: whether it is to end as in a process that was killed, with nothing brought to an end.
    """

    clock: Clock = field(default_factory=SystemClock)
    open_store: Callable[[Plan], Store] = lambda plan: open_store(plan.store, lease=Lease(plan.patience.lease))
    open_line: Callable[[Guard], contextlib.AbstractAsyncContextManager[Line]] = HttpClient
    in_thread: InThread = asyncio.to_thread
    is_lost: Callable[[], bool] = lambda: False


class Engine:
    """A running agent. Made by `running`."""

    def __init__(self, plan: Plan, store: Store, line: Line, outside: Surroundings) -> None:
        self._plan = plan
        self._store = store
        self._name = new_id("worker")
        self._background: list[asyncio.Task[None]] = []
        self._upkeep = background.Upkeep(store, self._name, plan.patience.dead_letters)
        self.metrics = Metrics()
        self.hub = Hub()
        addresses = Addresses(plan.public_url, Signer(store.derive("rapkit callbacks")))
        dispatch = Dispatch(plan.servers, addresses, Guard(_origins(plan), loopback=True))
        self.toolsets = Toolsets(
            store, Discovery(line, outside.in_thread), plan.servers, outside.clock, plan.patience.rediscover
        )
        self._courier = Courier(
            store,
            line,
            self._name,
            policies=plan.policies,
            prepare=dispatch.prepare,
            report=dispatch.report,
            on_attempt=self.metrics.attempt,
            clock=outside.clock.now,
        )
        self._worker = Worker(
            Premises(
                plan=plan,
                worker=self._name,
                store=store,
                courier=self._courier,
                clock=outside.clock,
                toolsets=self.toolsets,
                dispatch=dispatch,
                hub=self.hub,
                metrics=self.metrics,
            )
        )
        self._addresses = addresses
        self.threads = Threads(store, self.hub, outside.clock.now, self._worker.interrupt)
        self.callbacks = Callbacks(self._worker.accept, addresses)
        self.metrics.gauge("rapkit_slices_running", "Slices that run now.", lambda: self._worker.running)
        self.metrics.gauge("rapkit_posts_under_way", "POSTs being made now.", lambda: self._courier.under_way)

    @property
    def plan(self) -> Plan:
        """What the agent is."""
        return self._plan

    def callback_url(self, thread_id: str, call_id: str) -> str:
        """Where a call is answered: whoever has it can speak into the conversation."""
        return self._addresses.callback_url(thread_id, call_id)

    async def ready(self) -> bool:
        """Whether messages can be accepted and are worked on."""
        try:
            async with asyncio.timeout(_PATIENCE_WITH_STORE):
                await self._store.renew(self._name)  # something that is written, and harmless
        except (StoreError, TimeoutError):
            return False
        healthy = self._worker.healthy and self._courier.healthy
        return healthy and not any(task.done() for task in self._background)

    async def start(self) -> None:
        """Begin to work."""
        await self._store.renew(self._name)
        self._background = [
            background.start(work, what)
            for work, what in (
                (self._upkeep.renew, "renewing the lease"),
                (self._courier.run, "delivering POSTs"),
                (self._worker.run, "running threads"),
                (self._upkeep.sweep, "sweeping"),
            )
        ]

    async def stop(self) -> None:
        """End in order: no new slices, let running ones end, send what they said, leave the rest to the next start."""
        renewing, delivering, *others = self._background
        grace = self._plan.patience.grace
        try:
            await background.end(*others)
            await self._worker.drain(grace)
            await self.toolsets.close()
            await self._upkeep.let_outbox_leave(grace)
            await background.end(delivering)
            await self._courier.drain(grace)
        finally:
            await background.end(renewing, delivering)
            await self._upkeep.retire()

    async def abandon(self) -> None:
        """End as a process that is killed: nothing is finished, nothing given back. For tests, whose stores refuse us from then on."""
        await background.end(*self._background)
        await asyncio.gather(self._worker.drain(0), self._courier.drain(0), self.toolsets.close())


@contextlib.asynccontextmanager
async def running(plan: Plan, surroundings: Surroundings | None = None) -> AsyncIterator[Engine]:
    """Open the store, work as long as the context lasts, then end in order."""
    outside = surroundings or Surroundings()
    store = outside.open_store(plan)
    try:
        async with (
            outside.open_line(Guard(_origins(plan))) as far,
            outside.open_line(Guard(loopback=True)) as near,
            kept_open(plan.model),
        ):
            engine = Engine(plan, store, Exchange(far, near, plan.toolsets), outside)
            await engine.start()
            try:
                yield engine
            finally:
                await (engine.abandon() if outside.is_lost() else engine.stop())
    finally:
        await store.close()


def _origins(plan: Plan) -> list[str]:
    """Configured servers are dialled wherever they are; those on this machine have a line of their own."""
    return [server.origin for server in plan.servers if not server.is_local]
