"""What everything in one running agent shares."""

from dataclasses import dataclass

from rapkit.clock import Clock
from rapkit.delivery.outbox_sender import Courier
from rapkit.mailbox import Store
from rapkit.runtime.broadcast import Hub
from rapkit.runtime.budget_usage import Spending
from rapkit.runtime.config import Plan
from rapkit.runtime.dispatch import Dispatch
from rapkit.runtime.metrics import Metrics
from rapkit.runtime.toolsets import Toolsets
from rapkit.tracing import Tracing


@dataclass(frozen=True, slots=True)
class Premises:
    """The store, the courier, the clock and the rest, under one worker's name."""

    plan: Plan
    worker: str
    store: Store
    courier: Courier
    clock: Clock
    toolsets: Toolsets
    dispatch: Dispatch
    hub: Hub
    metrics: Metrics
    tracing: Tracing
    spending: Spending | None = None
