"""Prometheus metrics of an agent."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from rapkit.errors import StoreError
from rapkit.http.metrics import render
from rapkit.kernel.completion import Reply
from rapkit.mailbox import Claim, Load, Settlement, TakenPost

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_UP_TO_A_DAY = (*_SECONDS, 900.0, 3600.0, 4 * 3600.0, 86400.0)  # mail waits for as long as no process runs
_PATIENCE_WITH_STORE = 1.0

log = logging.getLogger("rapkit.metrics")

ReadLoad = Callable[[], Awaitable[Load]]
"""Asks the store how much waits in it."""


class CompletionOutcome:
    """How a completion ended; failed, unless it is said otherwise."""

    def __init__(self) -> None:
        self.reply: Reply | None = None

    def said(self, reply: Reply) -> None:
        """It was made."""
        self.reply = reply


class BacklogCollector(Collector):
    """Collects the backlog of the store as last read; reports nothing while the store cannot be read."""

    def __init__(self, read_load: ReadLoad) -> None:
        self._read_load = read_load
        self._load: Load | None = None

    async def read(self) -> None:
        """Ask the store, for a second at most: a page without these numbers says more than none."""
        try:
            async with asyncio.timeout(_PATIENCE_WITH_STORE):
                self._load = await self._read_load()
        except (StoreError, TimeoutError) as error:
            log.warning("what waits in the store cannot be read: %r", error)
            self._load = None

    def collect(self) -> Iterable[Metric]:
        """The numbers, for the page."""
        load = self._load
        yield _gauge("store_readable", "Whether the store could be read for this page.", load is not None)
        if load is None:
            return
        yield _gauge("letters_unread", "Letters accepted and not yet consumed, up to 10000.", load.unread)
        yield _gauge("oldest_unread_seconds", "Age of the oldest of them.", load.oldest_unread)
        yield _gauge("threads_due", "Threads that wait for a worker, up to 10000.", load.due)
        yield _gauge("outbox_waiting", "POSTs neither delivered nor given up, up to 10000.", load.outgoing)
        yield _gauge("outbox_oldest_seconds", "Age of the oldest of them.", load.oldest_outgoing)
        yield _gauge("outbox_dead", "POSTs given up and kept, up to 10000.", load.dead)


def _gauge(name: str, says: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"rapkit_{name}", says, value=value)


class AgentMetrics:
    """The metrics of one agent, and of the store it shares with others."""

    def __init__(self, read_load: ReadLoad) -> None:
        self._registry = CollectorRegistry()
        self._waiting = BacklogCollector(read_load)
        self._registry.register(self._waiting)
        self._slices = Histogram(
            "rapkit_slice_duration_seconds", "Slices of threads.", registry=self._registry, buckets=_SECONDS
        )
        self._wakes = Histogram(
            "rapkit_wake_latency_seconds",
            "From the acceptance of a letter to the slice that is handed it.",
            registry=self._registry,
            buckets=_UP_TO_A_DAY,
        )
        completions = Histogram(
            "rapkit_completion_duration_seconds",
            "Completions of the model, by outcome.",
            ("outcome",),
            registry=self._registry,
            buckets=_SECONDS,
        )
        self._made, self._failed = completions.labels("ok"), completions.labels("failed")
        tokens = self._counter("tokens", "Tokens of completions, by direction.", "direction")
        self._input, self._output = tokens.labels("input"), tokens.labels("output")
        self._cost = self._counter("cost_dollars", "What completions cost, as far as prices are known.")
        self._callbacks = self._counter("callbacks", "Callbacks of tools, by answer.", "status")
        self._attempts = self._counter("post_attempts", "POSTs made, by kind and outcome.", "kind", "outcome")

    def _counter(self, name: str, says: str, *labels: str) -> Counter:
        return Counter(f"rapkit_{name}_total", says, labels, registry=self._registry)

    @contextlib.contextmanager
    def slice(self, claim: Claim) -> Iterator[None]:
        """The slice of a claim lasts as long as the context."""
        self._woken(claim)
        begun = time.perf_counter()
        try:
            yield
        finally:
            self._slices.observe(time.perf_counter() - begun)

    def _woken(self, claim: Claim) -> None:
        """How long the oldest mail that is handed out for the first time has waited, by the store's clock."""
        for mail in claim.mail:
            if mail.attempts == 1:
                self._wakes.observe(max(0.0, claim.now - mail.accepted_at))
                return

    @contextlib.contextmanager
    def completion(self) -> Iterator[CompletionOutcome]:
        """A completion lasts as long as the context."""
        begun = time.perf_counter()
        outcome = CompletionOutcome()
        try:
            yield outcome
        finally:
            reply = outcome.reply
            (self._failed if reply is None else self._made).observe(time.perf_counter() - begun)
            if reply is not None:
                self._input.inc(reply.usage.input_tokens)
                self._output.inc(reply.usage.output_tokens)
                self._cost.inc(reply.usage.cost)

    def callback(self, status: int) -> None:
        """A callback was answered."""
        self._callbacks.labels(str(status)).inc()

    def attempt(self, taken: TakenPost, settlement: Settlement) -> None:
        """Count an attempted POST: the `on_attempt` of an outbox sender."""
        self._attempts.labels(taken.outgoing.kind, settlement.outcome).inc()

    def gauge(self, name: str, says: str, function: Callable[[], float]) -> None:
        """Show what `function` returns whenever the page is made."""
        Gauge(name, says, registry=self._registry).set_function(function)

    async def read(self) -> None:
        """Get what is to be got from the store before the page is made."""
        await self._waiting.read()

    def render(self) -> tuple[bytes, bytes]:
        """The page for Prometheus: its body and its content type."""
        return render(self._registry)
