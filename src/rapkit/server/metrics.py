"""Prometheus metrics of a toolset.

Every toolset has a registry of its own, and its name on every series, so that several in one process can be told apart. Labels have few
values, whatever clients send: an operation that is none of ours is "unknown".
"""

from collections.abc import Callable, Container
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from rapkit.http.metrics import render
from rapkit.mailbox import Settlement, TakenPost

Ended = Literal["ok", "error", "cancelled", "suspended"]

_ADMITTED = ("accepted", "repeated", "stale", "refused", "busy")
_UNKNOWN = "unknown"
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
    *(_MINUTE, 5 * _MINUTE, 15 * _MINUTE, _HOUR, 4 * _HOUR, 12 * _HOUR, _DAY, 3 * _DAY, 7 * _DAY),
)


class ToolsetMetrics:
    """The metrics of one toolset. `operations` are the names of its tools, as they are when something is counted."""

    def __init__(self, toolset: str, operations: Container[str]) -> None:
        self._toolset = toolset
        self._operations = operations
        self._registry = CollectorRegistry()
        self._invocations = self._counts("invocations", "Invocations that came in, by what became of them.", "outcome")
        self._calls = self._counts("calls", "Runs of calls, by operation and outcome.", "operation", "outcome")
        self._events = self._counts("events", "Events of subscriptions, by operation.", "operation")
        self._attempts = self._counts("callback_attempts", "POSTs made, by kind and outcome.", "kind", "outcome")
        self._durations = Histogram(
            "rapkit_call_duration_seconds",
            "How long runs of calls took that ended in a result, by operation.",
            ("toolset", "operation"),
            registry=self._registry,
            buckets=_SECONDS,
        )
        self._observe: dict[str, Callable[[float], None]] = {}
        for outcome in _ADMITTED:
            self._invocations.series(outcome)  # from 0 on: a series that begins with its first count has no rate of it

    def invocation(self, outcome: str) -> None:
        """Count a received invocation: accepted, repeated, stale, refused or busy."""
        self._invocations.add(outcome)

    def call(self, operation: str | None, outcome: Ended, seconds: float) -> None:
        """A run of a call has ended. `operation` is what the invocation said, if it said any."""
        name = self._known(operation)
        self._calls.add(name, outcome)
        if outcome == "suspended":
            return  # it waits for a person, and there will be another run
        observe = self._observe.get(name)
        if observe is None:
            observe = self._observe[name] = self._durations.labels(self._toolset, name).observe
        observe(seconds)

    def event(self, operation: str) -> None:
        """A subscription has an event."""
        self._events.add(self._known(operation))

    def callback(self, taken: TakenPost, settlement: Settlement) -> None:
        """Count an attempted POST: the `on_attempt` of an outbox sender."""
        self._attempts.add(taken.outgoing.kind, settlement.outcome)

    def gauge(self, name: str, says: str, function: Callable[[], float]) -> None:
        """Show what `function` returns whenever the page is made."""
        gauge = Gauge(name, says, ("toolset",), registry=self._registry)
        gauge.labels(self._toolset).set_function(function)

    def render(self) -> tuple[bytes, bytes]:
        """The page for Prometheus: its body and its content type."""
        return render(self._registry)

    def _counts(self, name: str, says: str, *labels: str) -> "_Counts":
        counter = Counter(f"rapkit_{name}_total", says, ("toolset", *labels), registry=self._registry)
        return _Counts(counter, self._toolset)

    def _known(self, operation: str | None) -> str:
        return operation if operation is not None and operation in self._operations else _UNKNOWN


class _Counts:
    """A counter that looks up each of its series once: that takes longer than to count."""

    def __init__(self, counter: Counter, toolset: str) -> None:
        self._counter = counter
        self._toolset = toolset
        self._series: dict[tuple[str, ...], Callable[[], None]] = {}

    def add(self, *labels: str) -> None:
        increment = self._series.get(labels)
        if increment is None:
            increment = self.series(*labels)
        increment()

    def series(self, *labels: str) -> Callable[[], None]:
        increment = self._series[labels] = self._counter.labels(self._toolset, *labels).inc
        return increment
