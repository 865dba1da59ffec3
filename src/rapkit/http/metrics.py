"""A page of numbers for Prometheus."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector

_CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"  # the text format every Prometheus reads


def render(registry: CollectorRegistry) -> tuple[bytes, bytes]:
    """The page: its body and its content type."""
    return generate_latest(_Page(registry)), _CONTENT_TYPE


class _Page(Collector):
    """A registry without the times of creation, which in this format would be as many series again."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
