"""What everything in one running toolset shares."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from rapkit.clock import Clock
from rapkit.delivery.outbox_sender import Courier
from rapkit.errors import Fenced
from rapkit.mailbox import Claim, Commit, Record, Store
from rapkit.server.claimed_box import Hold
from rapkit.server.config import Plan
from rapkit.server.interaction.oauth import OAuth
from rapkit.server.metrics import Metrics
from rapkit.server.processes import Processes, kill_leftovers
from rapkit.server.thread_pool import Threads
from rapkit.signer import Signer
from rapkit.tracing import Tracing

log = logging.getLogger("rapkit.calls")

_PROCESS = "process"
"""Records of the programs a call runs, by their tokens."""


@dataclass(frozen=True, slots=True)
class Premises:
    """The store, the courier, the clock and the rest, under one worker's name."""

    plan: Plan
    worker: str
    store: Store
    courier: Courier
    clock: Clock
    signer: Signer
    oauth: OAuth
    threads: Threads
    metrics: Metrics
    tracing: Tracing
    origin_of: Callable[[str], str]

    def processes(self, hold: Hold) -> Processes:
        """The programs that are run under a hold, each known to the store before it is started."""

        async def record(token: str) -> None:
            if not await hold.insist(Commit(put=[Record(_PROCESS, token)], keep=True, charge=True)):
                raise Fenced("The call was cancelled, or taken over.")

        async def forget(token: str) -> None:
            await hold.insist(Commit(drop=[(_PROCESS, token)], keep=True, charge=True))

        return Processes(record, forget)

    async def kill_leftovers(self, box: str) -> None:
        """End what a lost server may have left running for a box."""
        if records := await self.store.records(box, _PROCESS):
            try:
                await kill_leftovers([record.key for record in records])
            except (OSError, RuntimeError) as error:
                # No file or no thread to be had. The call must be answered all the same.
                log.error("programs that a lost server ran may still run: %s", error)

    def hold(self, claim: Claim, callback_url: str) -> Hold:
        """Our hold on a claimed box that calls back there."""
        return Hold(self.store, self.courier, claim, callback_url, self.origin_of)
