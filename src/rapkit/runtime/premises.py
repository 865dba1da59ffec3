"""What everything in one running agent shares."""

from dataclasses import dataclass

from rapkit.clock import Clock
from rapkit.delivery.courier import Courier
from rapkit.mailbox import Store
from rapkit.runtime.dispatch import Dispatch
from rapkit.runtime.hub import Hub
from rapkit.runtime.metrics import Metrics
from rapkit.runtime.plan import Plan
from rapkit.runtime.spending import Spending
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
