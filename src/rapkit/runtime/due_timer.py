"""For an agent without a worker: call the wake hook when something is due and no worker takes it.

Accepted mail calls the hook by itself. This timer is for what becomes due by time: timers, retries, schedules, the threads of a process
that was lost.
"""

import logging
from collections.abc import Sequence

from rapkit.clock import Clock
from rapkit.errors import StoreError
from rapkit.mailbox import Store
from rapkit.runtime.wake_hook import WakeHook

_LOOK_EVERY = 1.0
_PATIENCE = 5.0
_LONGEST_PATIENCE = 300.0

log = logging.getLogger("rapkit.doorbell")


async def next_due_time(store: Store, topics: Sequence[str]) -> float | None:
    """Seconds until something of these topics is due (0 if it is), or None."""
    times = [await store.next_due(topic) for topic in topics]
    return min((each for each in times if each is not None), default=None)


class DueTimer:
    """Finds out what is due when, and calls the wake hook at that time; then less and less often, as long as no worker takes it.

    It does not call for what a live worker has claimed, however long that takes.
    """

    def __init__(self, store: Store, topics: Sequence[str], clock: Clock, wake_hook: WakeHook) -> None:
        self._store = store
        self._topics = topics
        self._clock = clock
        self._wake_hook = wake_hook
        self._patience = _PATIENCE
        self._heard = wake_hook.rung
        self._ring_at: float | None = None
        self._in_vain = False

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            try:
                due = await next_due_time(self._store, self._topics)
            except StoreError as error:
                log.error("cannot see what is due: %s", error)
                due = None
            await self._clock.sleep(self._look(due))

    def _look(self, due: float | None) -> float:
        """Call the hook if it is time to; returns the seconds until the next look."""
        if due != 0:
            self._ring_at, self._in_vain, self._heard = None, False, self._wake_hook.rung
            if due is None or due > self._store.lease.seconds:
                # It was done. Before that, it may be claimed by a worker that is lost.
                self._patience = _PATIENCE
            return _LOOK_EVERY if due is None else min(due, _LOOK_EVERY)
        now = self._clock.now()
        if self._ring_at is None:
            # If the hook was called since nothing was due, it was for this: the worker is on its way.
            self._ring_at = now if self._wake_hook.rung == self._heard else now + self._patience
        if now >= self._ring_at:
            if self._in_vain:
                self._patience = min(2 * self._patience, _LONGEST_PATIENCE)
            self._wake_hook.trigger("")
            self._ring_at, self._in_vain = now + self._patience, True
        return _LOOK_EVERY
