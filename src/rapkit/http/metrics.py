"""The endpoint that serves metrics to Prometheus."""

from collections.abc import Awaitable, Callable, Iterable

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector
from starlette.types import Receive, Scope, Send

from rapkit.errors import ConfigError
from rapkit.http.authentication import Callers
from rapkit.http.requests import Refusal, read_request, send_answer, send_problem

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


async def _nothing() -> None:
    """What has to be read before the page is made, if nothing has."""


class MetricsPage:
    """What Prometheus scrapes, for callers only. `render` gives the page, or raises `ConfigError` if there is nothing to count.

    `read` is awaited before: it gets what has to be fetched for the page, and handles its own failures.
    """

    def __init__(
        self,
        render: Callable[[], tuple[bytes, bytes]],
        callers: Callers,
        read: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        self._render = render
        self._callers = callers
        self._read = read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            await read_request(scope, receive, self._callers, 0)
            await self._read()
            body, content_type = self._render()
        except Refusal as refusal:
            await send_problem(send, refusal)
        except ConfigError as error:
            await send_problem(send, Refusal(503, str(error)))
        else:
            await send_answer(send, 200, body, ((b"content-type", content_type),))
