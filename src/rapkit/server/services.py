"""The services that all components of a running toolset share."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from rapkit.clock import Clock
from rapkit.delivery.outbox_sender import OutboxSender
from rapkit.errors import Fenced
from rapkit.mailbox import Claim, Commit, Record, Store
from rapkit.server.claimed_box import ClaimedBox
from rapkit.server.config import ToolsetConfig
from rapkit.server.interaction.oauth import OAuth
from rapkit.server.metrics import ToolsetMetrics
from rapkit.server.processes import Processes, kill_leftovers
from rapkit.server.thread_pool import ThreadPool
from rapkit.signer import Signer
from rapkit.tracing import Tracing

log = logging.getLogger("rapkit.calls")

_PROCESS = "process"
"""Records of the programs a call runs, by their tokens."""


@dataclass(frozen=True, slots=True)
class ToolsetServices:
    """The store, the outbox sender, the clock and the rest, for one worker."""

    config: ToolsetConfig
    worker: str
    store: Store
    outbox_sender: OutboxSender
    clock: Clock
    signer: Signer
    oauth: OAuth
    thread_pool: ThreadPool
    metrics: ToolsetMetrics
    tracing: Tracing
    origin_of: Callable[[str], str]

    def processes(self, claimed_box: ClaimedBox) -> Processes:
        """The subprocesses run under a claim, each recorded in the store before it is started."""

        async def record(token: str) -> None:
            if not await claimed_box.commit_with_retry(Commit(put=[Record(_PROCESS, token)], keep=True, charge=True)):
                raise Fenced("The call was cancelled, or taken over.")

        async def forget(token: str) -> None:
            await claimed_box.commit_with_retry(Commit(drop=[(_PROCESS, token)], keep=True, charge=True))

        return Processes(record, forget)

    async def kill_leftovers(self, box: str) -> None:
        """End what a lost server may have left running for a box."""
        if records := await self.store.records(box, _PROCESS):
            try:
                await kill_leftovers([record.key for record in records])
            except (OSError, RuntimeError) as error:
                # No file or no thread to be had. The call must be answered all the same.
                log.error("programs that a lost server ran may still run: %s", error)

    def claimed_box(self, claim: Claim, callback_url: str) -> ClaimedBox:
        """A claimed box that calls back to this URL."""
        return ClaimedBox(self.store, self.outbox_sender, claim, callback_url, self.origin_of)
