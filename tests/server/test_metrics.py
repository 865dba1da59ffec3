import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from rapkit.mailbox import Outcome, Outgoing, Settlement, TakenPost
from rapkit.server.metrics import ToolsetMetrics

Page = dict[tuple[str, ...], float]


def page(metrics: ToolsetMetrics) -> Page:
    """What Prometheus reads: the values by name and label values (sorted by label), without the name of the toolset."""
    body, content_type = metrics.render()
    assert content_type == b"text/plain; version=0.0.4; charset=utf-8"
    read: Page = {}
    for family in text_string_to_metric_families(body.decode()):
        assert family.documentation
        for sample in family.samples:
            assert sample.labels.pop("toolset") == "weather"
            key = (sample.name, *sample.labels.values())
            assert key not in read
            read[key] = sample.value
    return read


@pytest.fixture
def metrics() -> ToolsetMetrics:
    return ToolsetMetrics("weather", {"forecast": object(), "storm_alerts": object()})


def taken(kind: str = "callback") -> TakenPost:
    return TakenPost(
        Outgoing("m1", "lane", kind, "https://runtime.example", "https://runtime.example/s3cret", b""), 1, 1, 1, 0
    )


def test_before_anything_happens_the_invocations_are_there_with_zero(metrics: ToolsetMetrics) -> None:
    assert page(metrics) == {
        ("rapkit_invocations_total", outcome): 0 for outcome in ("accepted", "repeated", "stale", "refused", "busy")
    }


def test_invocations_are_counted_by_what_became_of_them(metrics: ToolsetMetrics) -> None:
    for _ in range(3):
        metrics.invocation("accepted")
    metrics.invocation("busy")

    assert page(metrics)["rapkit_invocations_total", "accepted"] == 3
    assert page(metrics)["rapkit_invocations_total", "busy"] == 1
    assert page(metrics)["rapkit_invocations_total", "stale"] == 0


def test_calls_are_counted_and_their_durations_kept(metrics: ToolsetMetrics) -> None:
    metrics.call("forecast", "ok", 0.0004)
    metrics.call("forecast", "ok", 2.0)
    metrics.call("forecast", "error", 2 * 86400.0)
    metrics.call("forecast", "suspended", 5.0)
    metrics.call("storm_alerts", "cancelled", 1.0)
    read = page(metrics)

    assert read["rapkit_calls_total", "forecast", "ok"] == 2
    assert read["rapkit_calls_total", "forecast", "error"] == 1
    assert read["rapkit_calls_total", "forecast", "suspended"] == 1  # no duration: it has not ended
    assert read["rapkit_calls_total", "storm_alerts", "cancelled"] == 1
    assert read["rapkit_call_duration_seconds_count", "forecast"] == 3
    assert read["rapkit_call_duration_seconds_sum", "forecast"] == pytest.approx(2.0004 + 2 * 86400)
    buckets = [("0.001", 1), ("1.0", 1), ("2.5", 2), ("86400.0", 2), ("259200.0", 3), ("+Inf", 3)]
    assert [read["rapkit_call_duration_seconds_bucket", most, "forecast"] for most, _ in buckets] == [
        count for _, count in buckets
    ]


def test_what_strangers_call_does_not_make_new_series(metrics: ToolsetMetrics) -> None:
    metrics.call(None, "error", 1.0)
    before = len(page(metrics))
    for number in range(1000):
        metrics.call(f"no_such_{number}", "error", 1.0)
        metrics.event(f"no_such_{number}")

    read = page(metrics)
    assert read["rapkit_calls_total", "unknown", "error"] == 1001
    assert read["rapkit_call_duration_seconds_count", "unknown"] == 1001
    assert read["rapkit_events_total", "unknown"] == 1000
    assert len(read) == before + 1


def test_a_tool_that_is_added_later_is_known_from_then_on() -> None:
    tools: dict[str, object] = {}
    metrics = ToolsetMetrics("weather", tools)
    metrics.call("forecast", "ok", 1.0)
    tools["forecast"] = object()
    metrics.call("forecast", "ok", 1.0)

    assert page(metrics)["rapkit_calls_total", "unknown", "ok"] == 1
    assert page(metrics)["rapkit_calls_total", "forecast", "ok"] == 1


def test_events_and_callbacks_are_counted(metrics: ToolsetMetrics) -> None:
    metrics.event("storm_alerts")
    metrics.event("storm_alerts")
    for outcome in (Outcome.RETRY, Outcome.RETRY, Outcome.DELIVERED, Outcome.DEAD):
        metrics.callback(taken(), Settlement(outcome))
    metrics.callback(taken("answer"), Settlement(Outcome.DELIVERED))
    read = page(metrics)

    assert read["rapkit_events_total", "storm_alerts"] == 2
    assert read["rapkit_callback_attempts_total", "callback", "retry"] == 2
    assert read["rapkit_callback_attempts_total", "callback", "delivered"] == 1
    assert read["rapkit_callback_attempts_total", "callback", "dead"] == 1
    assert read["rapkit_callback_attempts_total", "answer", "delivered"] == 1
    assert b"s3cret" not in metrics.render()[0]


def test_a_gauge_shows_what_is_so_when_the_page_is_made(metrics: ToolsetMetrics) -> None:
    running: list[str] = []
    metrics.gauge("rapkit_running_handlers", "Handlers that run now.", lambda: len(running))
    assert page(metrics)["rapkit_running_handlers",] == 0

    running.extend(["one", "two"])
    assert page(metrics)["rapkit_running_handlers",] == 2


def test_toolsets_in_one_process_do_not_share_numbers() -> None:
    """Each has its name on its series, so that they stay apart even if one Prometheus reads them at one address."""
    one, two = ToolsetMetrics("one", {"echo"}), ToolsetMetrics("two", {"echo"})
    for metrics in (one, two):
        metrics.gauge("rapkit_running_handlers", "Handlers that run now.", lambda: 0)
    one.call("echo", "ok", 1.0)
    one.invocation("accepted")

    assert b'rapkit_calls_total{operation="echo",outcome="ok",toolset="one"} 1.0' in one.render()[0]
    assert b"echo" not in two.render()[0]
    assert b'rapkit_invocations_total{outcome="accepted",toolset="two"} 0.0' in two.render()[0]
    assert not [metric.name for metric in REGISTRY.collect() if metric.name.startswith("rapkit")]


def test_names_and_units_are_as_prometheus_wants_them(metrics: ToolsetMetrics) -> None:
    metrics.gauge("rapkit_backlog", "Calls that have not ended.", lambda: 1)
    metrics.call("forecast", "ok", 1.0)
    types = {family.name: family.type for family in text_string_to_metric_families(metrics.render()[0].decode())}

    assert types == {
        "rapkit_invocations": "counter",
        "rapkit_calls": "counter",
        "rapkit_events": "counter",
        "rapkit_callback_attempts": "counter",
        "rapkit_call_duration_seconds": "histogram",
        "rapkit_backlog": "gauge",
    }
    assert b"_created" not in metrics.render()[0]
