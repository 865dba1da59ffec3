"""Advance time in a test: everything that processes wait for happens in order, at its time."""

import asyncio
import math
from collections.abc import Sequence

from rapkit.testing.activity import Activity
from rapkit.testing.clock import ManualClock
from rapkit.testing.crashable_process import CrashableProcess


class TimeAdvance:
    """The clock of some processes, and what is due by it."""

    def __init__(self, clock: ManualClock, activity: Activity, processes: Sequence[CrashableProcess]) -> None:
        self._clock = clock
        self._activity = activity
        self._processes = processes

    async def advance(self, seconds: float) -> None:
        """Set the clock forward, from one moment at which something is due to the next, and let everything happen that follows."""
        until = self._clock.now() + seconds
        while self._clock.now() < until:
            at = await self._next_due_at_rest()
            self._clock.move(until if at is None else min(at, until))
            for process in self._processes:
                process.store.notify()
        await self._activity.settle()

    async def _next_due_at_rest(self) -> float | None:
        """When the next thing is due, once nothing happens any more that could bring about something earlier."""
        while True:
            await self._activity.settle()
            seen = self._activity.count
            at = await self.next_due()
            if self._activity.resting(seen):
                return at

    async def next_due(self) -> float | None:
        """When the next thing is due."""
        now = self._clock.now()
        # What is due already and not begun waits for something else than the clock.
        waits = await asyncio.gather(
            *(process.store.next_due(topic) for process in self._processes for topic in process.crashable_run.topics)
        )
        times = [self._clock.next_alarm(), *(now + wait for wait in waits if wait)]
        return min((at for at in times if at is not None), default=None)

    async def hint(self, advance: str) -> str:
        """What a test could try that waits in vain; `advance` is what it would call."""
        if (at := await self.next_due()) is None:
            return "Nothing is due later."
        wait = math.ceil((at - self._clock.now()) * 1000) / 1000
        return f"By the clock something is due in {wait:g} s: `await {advance}({wait:g})` lets it happen."
