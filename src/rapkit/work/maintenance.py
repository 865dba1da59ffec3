"""Maintenance that every process does for its store: renew the lease, sweep what has expired."""

import asyncio
import logging
import math
from time import monotonic

from rapkit.errors import StoreBusy, StoreError, StoreFull, StoreLost
from rapkit.mailbox import OUTBOX, Store

_SWEEP_EVERY = 30.0
_PATIENCE_WITH_STORE = 2.0

log = logging.getLogger("rapkit.background")


class Maintenance:
    """Renews the lease of a process, checks its store, and sweeps what has expired."""

    def __init__(self, store: Store, worker: str, dead_letters_kept_for: float) -> None:
        self._store = store
        self._worker = worker
        self._dead_letters = dead_letters_kept_for
        self._failure: StoreError | None = None
        self._renewed_at = -math.inf
        self._renewing_since: float | None = None

    async def renew(self) -> None:
        """Prolong our lease, for ever."""
        while True:
            await asyncio.sleep(self._store.lease.renew_every)
            await self.renew_once()

    async def renew_once(self) -> None:
        """Prolong our lease now, and note for `store_problem` whether the store took it and has room for more."""
        self._renewing_since = monotonic()
        try:
            await self._store.renew(self._worker)
            await self._store.check()
        except StoreError as error:
            if str(error) != str(self._failure):  # once, not every second
                log.error("cannot renew the lease, or not accept more: %s", error)
            self._failure = error
        else:
            if self._failure is not None:
                log.warning("the store can be written again")
            self._failure = None
        finally:
            self._renewing_since = None
            self._renewed_at = monotonic()

    async def check_store(self) -> None:
        """For processes that do not `renew`: renew once, unless that was done a moment ago."""
        if self._renewing_since is None and monotonic() - self._renewed_at >= self._store.lease.renew_every:
            try:
                async with asyncio.timeout(_PATIENCE_WITH_STORE):
                    await self.renew_once()
            except TimeoutError:
                self._failure = StoreBusy("The store did not answer in time.")

    @property
    def store_problem(self) -> str | None:
        """Why messages cannot be accepted now, as the last renewal of the lease has found; None if they can.

        It is shown to unauthenticated clients, so it names no file. The log does.
        """
        since = self._renewing_since
        if since is not None and monotonic() - since > _PATIENCE_WITH_STORE:
            return "The store does not answer."
        match self._failure:
            case None:
                return None
            case StoreLost():
                return "The files of the store were deleted or replaced. Restart the process; the log says more."
            case StoreFull():
                return "The disk of the store is full."
        return "The store cannot be written. The log says why."

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

    async def drain_outbox(self, patience: float) -> None:
        """Wait until nothing in the outbox is due, for so long at most; what is left is delivered after the next start."""
        try:
            async with asyncio.timeout(patience):
                while await self._store.next_due(OUTBOX) == 0:
                    await asyncio.sleep(0.02)
        except (TimeoutError, StoreError):
            pass

    async def retire(self) -> None:
        """End the lease, so that the next process need not wait for its end."""
        try:
            await self._store.retire(self._worker)
        except StoreError as error:
            log.error("cannot end the lease, so the next start waits for its end: %s", error)
