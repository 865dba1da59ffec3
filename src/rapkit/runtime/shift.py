"""A shift: work done under one worker's name, either until it is told to stop or until nothing is due."""

import asyncio
import contextlib
from dataclasses import dataclass

from rapkit import background
from rapkit.clock import Clock
from rapkit.delivery.client import Poster
from rapkit.delivery.courier import Courier
from rapkit.ids import new_id
from rapkit.mailbox import OUTBOX, Letter, Outcome, Reception, Settlement, Store, Taken
from rapkit.runtime.alarm import soonest
from rapkit.runtime.dispatch import Dispatch
from rapkit.runtime.hub import Hub
from rapkit.runtime.metrics import Metrics
from rapkit.runtime.plan import Plan
from rapkit.runtime.premises import Premises
from rapkit.runtime.toolsets import THREAD, Toolsets
from rapkit.runtime.worker import Worker

_LOOK_AGAIN_AFTER = 0.25

TOPICS = (THREAD, OUTBOX)
"""All that can be due."""


@dataclass(frozen=True, slots=True)
class Workplace:
    """What all shifts of one running agent share."""

    plan: Plan
    store: Store
    line: Poster
    clock: Clock
    toolsets: Toolsets
    dispatch: Dispatch
    hub: Hub
    metrics: Metrics


class Shift:
    """A worker, a courier and what they need to be at work. `threads` and `posts` say what they have done."""

    def __init__(self, place: Workplace) -> None:
        self._place = place
        self._store = place.store
        self._grace = place.plan.patience.grace
        self._name = name = new_id("worker")
        self._background: list[asyncio.Task[None]] = []
        self._finishing: asyncio.Task[None] | None = None
        self._upkeep = background.Upkeep(place.store, name, place.plan.patience.dead_letters)
        self._courier = Courier(
            place.store,
            place.line,
            name,
            policies=place.plan.policies,
            prepare=place.dispatch.prepare,
            report=place.dispatch.report,
            on_attempt=self._attempted,
            clock=place.clock.now,
        )
        self._worker = Worker(
            Premises(
                plan=place.plan,
                worker=name,
                store=place.store,
                courier=self._courier,
                clock=place.clock,
                toolsets=place.toolsets,
                dispatch=place.dispatch,
                hub=place.hub,
                metrics=place.metrics,
            ),
            self._began,
        )
        self._pumps = (self._worker.pump, self._courier.pump)
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
    def under_way(self) -> int:
        """How many POSTs are being made now."""
        return self._courier.under_way

    @property
    def healthy(self) -> bool:
        """Whether what is due can be fetched, and everything goes on that is to go on."""
        healthy = self._worker.healthy and self._courier.healthy
        return healthy and not any(task.done() for task in self._background)

    async def accept(self, letter: Letter) -> Reception:
        """Put a letter into a thread's mail; the thread runs at once if there is room."""
        return await self._worker.accept(letter)

    def interrupt(self, thread_id: str) -> None:
        """If the model is being asked for this thread in this shift, let it be."""
        self._worker.interrupt(thread_id)

    def _began(self, thread_id: str) -> None:
        if self._ran is not None:  # a shift that never ends would never forget
            self._ran.add(thread_id)

    def _attempted(self, taken: Taken, settlement: Settlement) -> None:
        self.posts += settlement.outcome is Outcome.DELIVERED
        self._place.metrics.attempt(taken, settlement)

    # Until it is told to stop

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
        """End in order: no new slices, let running ones end, send what they said, leave the rest to whoever comes next."""
        renewing, delivering, *others = self._background
        try:
            await background.end(*others)
            await self._worker.drain(self._grace)
            await self._upkeep.let_outbox_leave(self._grace)
            await background.end(delivering)
            await self._courier.drain(self._grace)
        finally:
            await background.end(renewing, delivering)
            await self._upkeep.retire()

    async def abandon(self) -> None:
        """End as a process that is killed: nothing is finished, nothing given back. For tests, whose stores refuse us from then on."""
        await background.end(*self._background)
        await asyncio.gather(self._worker.drain(0), self._courier.drain(0))

    # Until nothing is due

    async def finish(self, at_most: float | None = None) -> None:
        """Do what is due, and what becomes due of it, and end in order. After `at_most` seconds nothing more is begun.

        What others hold is theirs, and not waited for. Raises `StoreError` if it cannot be seen what is due.
        """
        self._ran = set()
        await self._store.renew(self._name)
        renewing = background.start(self._upkeep.renew, "renewing the lease")
        self._finishing = asyncio.create_task(self._until_nothing_is_due())
        try:
            with contextlib.suppress(TimeoutError):
                async with self._place.clock.timeout(at_most):
                    await asyncio.wait({self._finishing})
        finally:
            await background.end(self._finishing)
            # Whatever is in hand is brought to its end now; where there is nothing, nothing is waited for.
            self._background = [renewing, background.start(self._courier.run, "delivering POSTs")]
            await self.stop()
        if not self._finishing.cancelled():
            self._finishing.result()
            await self._upkeep.sweep_once()

    def hurry(self) -> None:
        """Begin nothing more: `finish` ends as if its time were over."""
        if self._finishing is not None:
            self._finishing.cancel()

    async def _until_nothing_is_due(self) -> None:
        while True:
            if any([await pump.fill() for pump in self._pumps]):
                continue
            in_hand = {task for pump in self._pumps for task in pump.in_hand}
            if not in_hand and await soonest(self._store, TOPICS) != 0:
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
