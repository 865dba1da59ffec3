"""The services that all components of a running agent share."""

from dataclasses import dataclass

from rapkit.clock import Clock
from rapkit.delivery.outbox_sender import OutboxSender
from rapkit.mailbox import Store
from rapkit.runtime.broadcast import Broadcast
from rapkit.runtime.budget_usage import BudgetUsage
from rapkit.runtime.config import AgentConfig
from rapkit.runtime.dispatch import Dispatch
from rapkit.runtime.metrics import AgentMetrics
from rapkit.runtime.toolsets import Toolsets
from rapkit.tracing import Tracing


@dataclass(frozen=True, slots=True)
class AgentServices:
    """The store, the outbox sender, the clock and the rest, for one worker."""

    config: AgentConfig
    worker: str
    store: Store
    outbox_sender: OutboxSender
    clock: Clock
    toolsets: Toolsets
    dispatch: Dispatch
    broadcast: Broadcast
    metrics: AgentMetrics
    tracing: Tracing
    budget_usage: BudgetUsage | None = None
