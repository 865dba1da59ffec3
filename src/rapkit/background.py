"""Work that goes on in the background of a process as long as it runs."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from rapkit.errors import StoreError
from rapkit.mailbox import OUTBOX, Store

_SWEEP_EVERY = 30.0

log = logging.getLogger("rapkit.background")


def start(work: Callable[[], Awaitable[None]], what: str) -> "asyncio.Task[None]":
    """Begin to work. It is meant to go on until it is ended; should it fail, that is said."""
    return asyncio.create_task(_run(work, what))


async def _run(work: Callable[[], Awaitable[None]], what: str) -> None:
    try:
        await work()
    except asyncio.CancelledError:
        raise
    except BaseException:  # only to say so: the task ends with it, and readiness is lost
        log.critical("%s has failed; restart the process", what, exc_info=True)
        raise


async def end(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel, and wait until it has ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Upkeep:
    """What every process owes its store: that it is alive, and that what has expired goes."""

    def __init__(self, store: Store, worker: str, dead_letters_kept_for: float) -> None:
        self._store = store
        self._worker = worker
        self._dead_letters = dead_letters_kept_for

    async def renew(self) -> None:
        """Prolong our lease, for ever."""
        while True:
            await asyncio.sleep(self._store.lease.renew_every)
            try:
                await self._store.renew(self._worker)
            except StoreError as error:
                log.error("cannot renew the lease: %s", error)

    async def sweep(self) -> None:
        """Remove what has expired, for ever."""
        while True:
            await asyncio.sleep(_SWEEP_EVERY)
            await self.sweep_once()

    async def sweep_once(self) -> None:
        """Remove what has expired by now."""
        try:
            while await self._store.sweep(self._dead_letters):
                await asyncio.sleep(0.01)
        except StoreError as error:
            log.error("cannot sweep: %s", error)

    async def let_outbox_leave(self, patience: float) -> None:
        """Wait until nothing in the outbox is due, for so long at most; what is left is delivered after the next start."""
        try:
            async with asyncio.timeout(patience):
                while await self._store.next_due(OUTBOX) == 0:
                    await asyncio.sleep(0.02)
        except (TimeoutError, StoreError):
            pass

    async def retire(self) -> None:
        """Whoever starts next need not wait for the end of our lease."""
        try:
            await self._store.retire(self._worker)
        except StoreError as error:
            log.error("cannot end the lease, so the next start waits for its end: %s", error)
