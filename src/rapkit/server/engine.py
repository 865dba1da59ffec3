"""A toolset at work: its store, its worker, its courier, and the doors through which requests come in."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from rapkit.delivery.client import HttpClient
from rapkit.delivery.courier import Courier
from rapkit.delivery.guard import Guard
from rapkit.errors import ConfigError, ForbiddenTarget, StoreError
from rapkit.ids import new_id
from rapkit.mailbox import OUTBOX, Lease, Store
from rapkit.protocol import Invocation
from rapkit.server.callers import Callers
from rapkit.server.invocation import Call, call_kind, thread_key
from rapkit.server.limits import Limits, RateLimit
from rapkit.server.tool import Tool
from rapkit.server.worker import Worker
from rapkit.stores import open_store

_COUNT_BACKLOG_EVERY = 1.0
_SWEEP_EVERY = 30.0
_SHORTEST_LEASE = 0.2
_UNKNOWN_ORIGIN = "unknown"

log = logging.getLogger("rapkit.server")


@dataclass(frozen=True, slots=True)
class Durations:
    """How long things are kept or waited for, in seconds.

    `remember_calls`: how long after its end a repeated invocation is recognised. `remember_cancels`: how long a cancellation waits for a
    call that has not come yet. `keep_dead_letters`: how long undeliverable callbacks can be looked at and sent again. `grace`: how long
    running handlers may go on when the server is stopped. `lease`: how long a server that is lost without a word keeps its calls from the
    next start, or from other servers on the same store; shorter is a faster recovery, and too short takes calls from a server that is
    merely slow.
    """

    remember_calls: float = 24 * 3600
    remember_cancels: float = 3600
    keep_dead_letters: float = 30 * 24 * 3600
    grace: float = 10
    lease: float = Lease().seconds

    def __post_init__(self) -> None:
        """Refuse what is no duration, and a lease that ends before it can be renewed."""
        for name in ("remember_calls", "remember_cancels", "keep_dead_letters", "grace"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"{name} is a number of seconds, not {getattr(self, name)}.")
        if not _SHORTEST_LEASE <= self.lease < float("inf"):
            raise ConfigError(f"lease is a number of seconds from {_SHORTEST_LEASE:g} on, not {self.lease}.")


@dataclass(frozen=True, slots=True)
class Plan:
    """What an engine is made from."""

    toolset: str
    tools: Mapping[str, Tool]
    version: str
    store: str
    callers: Callers
    allow_callbacks: Sequence[str] = ()
    loopback_callbacks: bool = False
    webhook_secrets: Sequence[str] = ()
    limits: Limits = field(default_factory=Limits)
    durations: Durations = field(default_factory=Durations)


class Admission(StrEnum):
    """What becomes of an invocation at the door."""

    ACCEPTED = "accepted"
    STALE = "stale"


@dataclass(frozen=True, slots=True)
class TooBusy(Exception):
    """Nothing was taken; come back in so many seconds."""

    retry_after: float


class Engine:
    """A running toolset. Made by `running`."""

    def __init__(self, plan: Plan, store: Store, client: HttpClient, guard: Guard) -> None:
        self._plan = plan
        self._store = store
        self._guard = guard
        self._name = new_id("worker")
        self._kind = call_kind(plan.toolset)
        self._rate = RateLimit(plan.limits.rate)
        self._backlog = 0
        self._background: list[asyncio.Task[None]] = []
        self._courier = Courier(store, client, self._name, secrets=plan.webhook_secrets)
        self._worker = Worker(
            store,
            self._courier,
            plan.toolset,
            plan.tools,
            self._name,
            concurrency=plan.limits.concurrency,
            remember_for=plan.durations.remember_calls,
            largest_result=plan.limits.result,
            origin_of=self._origin_of,
            on_finished=self._one_less,
        )

    @property
    def toolset(self) -> str:
        """The name of the toolset."""
        return self._plan.toolset

    async def admit(self, call: Call) -> Admission:
        """Make an invocation durable. `ForbiddenTarget` if its callback URL is none we would dial, `TooBusy` if there is too much to do."""
        self._guard.check_url(call.message.callback_url)
        if wait := self._rate.wait(call.caller):
            raise TooBusy(wait)
        message = call.message
        if isinstance(message, Invocation) and message.toolset_version not in (None, self._plan.version):
            # A repetition of what was accepted under the old version is still a repetition (DIS-9).
            return Admission.ACCEPTED if await self._store.known(call.box_id) else Admission.STALE
        if self._backlog >= self._plan.limits.backlog and not await self._store.known(call.box_id):
            raise TooBusy(_COUNT_BACKLOG_EVERY)
        self._backlog += 1  # before it is true, so that a crowd cannot get past the limit together
        made = False
        try:
            made = await self._worker.accept(call)
        finally:
            if not made:
                self._backlog -= 1
        return Admission.ACCEPTED

    async def cancel(self, caller: str, thread_id: str, call_id: str | None) -> None:
        """Stop a call, or all calls of a thread. Each ends in a result that says so; whatever its handler still does has no effect."""
        thread = thread_key(self._plan.toolset, caller, thread_id)
        stopped = await self._store.stop(self._kind, thread, call_id, self._plan.durations.remember_cancels)
        self._worker.cancel(stopped.boxes)
        await self._courier.abort(stopped.in_flight)

    async def ready(self) -> bool:
        """Whether invocations can be accepted and are worked on."""
        try:
            await self._store.next_due(self._kind)
        except StoreError:
            return False
        working = self._worker.healthy and self._courier.healthy
        return working and not any(task.done() for task in self._background)

    def _origin_of(self, url: str) -> str:
        try:
            return self._guard.check_url(url).origin
        except ForbiddenTarget:
            # Allowed when it was accepted, and no longer: the courier will give it up, and say why.
            return _UNKNOWN_ORIGIN

    def _one_less(self) -> None:
        self._backlog -= 1

    async def start(self) -> None:
        """Begin to work."""
        await self._store.renew(self._name)
        self._backlog = await self._store.backlog(self._kind)
        if self._backlog:
            log.info(
                "%d calls from before are taken up; those of a server that was lost, within %g s",
                self._backlog,
                self._store.lease.seconds,
            )
        self._background = [
            asyncio.create_task(_insist(work, what))
            for work, what in (
                (self._renew, "renewing the lease"),
                (self._worker.run, "running calls"),
                (self._courier.run, "delivering callbacks"),
                (self._count_backlog, "counting the backlog"),
                (self._sweep, "sweeping"),
            )
        ]

    async def stop(self) -> None:
        """End in order: no new work, let running handlers end, deliver what they said, leave the rest to the next start."""
        renewing, working, delivering, *others = self._background
        try:
            await _end(working, *others)
            await self._worker.drain(self._plan.durations.grace)
            await self._let_results_leave()
            await _end(delivering)
            await self._courier.drain(self._plan.durations.grace)
        finally:
            # Also if somebody could not wait: whoever starts next need not wait for the end of our lease.
            await _end(renewing, delivering)
            try:
                await self._store.retire(self._name)
            except StoreError as error:
                log.error("cannot end the lease, so the next start waits for its end: %s", error)

    async def _let_results_leave(self) -> None:
        try:
            async with asyncio.timeout(self._plan.durations.grace):
                while await self._store.next_due(OUTBOX) == 0:
                    await asyncio.sleep(0.02)
        except (TimeoutError, StoreError):
            pass  # what is left is delivered after the next start

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._store.lease.renew_every)
            try:
                await self._store.renew(self._name)
            except StoreError as error:
                log.error("cannot renew the lease: %s", error)

    async def _count_backlog(self) -> None:
        while True:
            await asyncio.sleep(_COUNT_BACKLOG_EVERY)
            with contextlib.suppress(StoreError):  # an estimate: the operations that matter report the failure
                self._backlog = await self._store.backlog(self._kind)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_EVERY)
            try:
                while await self._store.sweep(self._plan.durations.keep_dead_letters):
                    await asyncio.sleep(0.01)
            except StoreError as error:
                log.error("cannot sweep: %s", error)


@contextlib.asynccontextmanager
async def running(plan: Plan) -> AsyncIterator[Engine]:
    """Open the store, work as long as the context lasts, then end in order."""
    store = open_store(plan.store, lease=Lease(plan.durations.lease))
    try:
        guard = Guard(plan.allow_callbacks, plan.loopback_callbacks)
        async with HttpClient(guard) as client:
            engine = Engine(plan, store, client, guard)
            await engine.start()
            try:
                yield engine
            finally:
                await engine.stop()
    finally:
        await store.close()


async def _insist(work: Callable[[], Awaitable[None]], what: str) -> None:
    try:
        await work()
    except asyncio.CancelledError:
        raise
    except BaseException:  # only to say so: the task ends with it, and readiness is lost
        log.critical("%s has failed; restart the server", what, exc_info=True)
        raise


async def _end(*tasks: "asyncio.Task[None]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
