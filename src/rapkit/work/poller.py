"""Poll a store for due work: fetch, start, wait for a notification, fetch again."""

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

from rapkit.errors import StoreError
from rapkit.mailbox import Store

T = TypeVar("T")

_LONGEST_WAIT = 5.0
_WAIT_WHILE_WORKING = 0.25
_PAUSE_AFTER_FAILURE = 0.5
_PATIENCE_WITH_CANCELLED = 5.0
_BATCH = 64

log = logging.getLogger("rapkit.pump")


class Poller(Generic[T]):
    """Works on up to `limit` items of one topic at once.

    `fetch(n)` claims up to n of them in the store; `work` does one, and handles its own failures. What is due later, or was made due by
    another process, is found too: the wait between two fetches has an end.
    """

    def __init__(
        self,
        store: Store,
        topic: str,
        limit: int,
        fetch: Callable[[int], Awaitable[list[T]]],
        work: Callable[[T], Coroutine[Any, Any, None]],
    ) -> None:
        self._store = store
        self.topic = topic
        self._limit = limit
        self._fetch = fetch
        self._work = work
        self._tasks: set[asyncio.Task[None]] = set()
        self._apart: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()
        self._running = False
        self._healthy = True
        self._reserved = 0
        self._context = contextvars.copy_context()

    @property
    def healthy(self) -> bool:
        """Whether the last fetch went well."""
        return self._healthy

    @property
    def in_progress(self) -> "set[asyncio.Task[None]]":
        """The tasks in progress."""
        return set(self._tasks)

    @property
    def has_room(self) -> bool:
        """Whether more could be begun now."""
        return self.free > 0

    async def fill(self) -> int:
        """Begin what is due, as far as there is room; how much there was. For callers that do not want to `run` for ever."""
        wanted = min(_BATCH, self.free)
        if wanted <= 0:
            return 0
        fetched = await self._fetch(wanted)
        for thing in fetched:
            self.submit(thing)
        return len(fetched)

    def reserve(self, count: int = 1) -> bool:
        """Reserve capacity for work about to be submitted, if there is enough. The caller must `release` it."""
        if not self._running or self.free < count:
            return False
        self._reserved += count
        return True

    def release(self, count: int = 1) -> None:
        """Give reserved capacity back, also after it was used: submitted work counts by itself."""
        self._reserved -= count
        self._room.set()

    @property
    def free(self) -> int:
        """How many more could be begun now."""
        return self._limit - (len(self._tasks) - len(self._apart)) - self._reserved

    def exclude_from_limit(self, task: "asyncio.Task[None]") -> None:
        """Do not count something in hand against the limit any more."""
        if task in self._tasks:
            self._apart.add(task)
            self._room.set()

    def submit(self, thing: T) -> None:
        """Start work on an item that the caller has claimed."""
        # In the poller's context, not the caller's: what a request has set must not leak into the work.
        task = asyncio.create_task(self._work(thing), context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    async def run(self) -> None:
        """Go on until cancelled. What was started goes on after that; see `drain`."""
        self._running = True
        try:
            while True:
                await self._try_round()
        finally:
            self._running = False

    async def _try_round(self) -> None:
        try:
            await self._round()
            self._healthy = True
        except StoreError as error:
            self._healthy = False
            # Nothing is lost: what was not claimed stays due. A person should know, and the disk may recover.
            log.error("cannot fetch from %s: %s", self.topic, error)
            await asyncio.sleep(_PAUSE_AFTER_FAILURE)
        except Exception as error:
            self._healthy = False
            log.critical("fetching from %s failed", self.topic, exc_info=error)
            await asyncio.sleep(_PAUSE_AFTER_FAILURE)

    async def _round(self) -> None:
        wanted = min(_BATCH, self.free)
        if wanted <= 0:
            self._room.clear()
            await self._room.wait()
            return
        fetched = await self.fill()
        if fetched >= wanted:
            return
        if fetched:
            await self._store.wait(self.topic, _WAIT_WHILE_WORKING)
            return
        due = await self._store.next_due(self.topic)
        if due == 0:
            await self._wait_for_work_or_room()
        else:
            await self._store.wait(self.topic, _LONGEST_WAIT if due is None else min(due, _LONGEST_WAIT))

    async def _wait_for_work_or_room(self) -> None:
        """Something is due that we may not have now: another worker holds it, or its origin has enough of ours in hand."""
        self._room.clear()
        waits = [
            asyncio.create_task(self._store.wait(self.topic, _WAIT_WHILE_WORKING)),
            asyncio.create_task(self._room.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._apart.discard(task)
        self._room.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("work on %s failed", self.topic, exc_info=error)

    async def drain(self, patience: float) -> None:
        """Wait for what was started; cancel what has not ended in time, or when we are cancelled ourselves, and let it end."""
        try:
            if self._tasks:
                await asyncio.wait(set(self._tasks), timeout=patience)
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                # With an end, because work that does not let itself be cancelled must not keep the process alive.
                await asyncio.wait(set(self._tasks), timeout=_PATIENCE_WITH_CANCELLED)
