"""What an agent counts, for Prometheus."""

import contextlib
import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from rapkit.http.metrics import render
from rapkit.kernel.completion import Reply
from rapkit.mailbox import Settlement, Taken

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class Outcome:
    """How a completion ended; failed, unless it is said otherwise."""

    def __init__(self) -> None:
        self.reply: Reply | None = None

    def said(self, reply: Reply) -> None:
        """It was made."""
        self.reply = reply


class Metrics:
    """The numbers of one agent."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._slices = Histogram(
            "rapkit_slice_duration_seconds", "Slices of threads.", registry=self._registry, buckets=_SECONDS
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
    def slice(self) -> Iterator[None]:
        """A slice lasts as long as the context."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self._slices.observe(time.perf_counter() - begun)

    @contextlib.contextmanager
    def completion(self) -> Iterator[Outcome]:
        """A completion lasts as long as the context."""
        begun = time.perf_counter()
        outcome = Outcome()
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

    def attempt(self, taken: Taken, settlement: Settlement) -> None:
        """A POST was attempted: what a courier tells its `on_attempt`."""
        self._attempts.labels(taken.outgoing.kind, settlement.outcome).inc()

    def gauge(self, name: str, says: str, function: Callable[[], float]) -> None:
        """Show what `function` returns whenever the page is made."""
        Gauge(name, says, registry=self._registry).set_function(function)

    def render(self) -> tuple[bytes, bytes]:
        """The page for Prometheus: its body and its content type."""
        return render(self._registry)
