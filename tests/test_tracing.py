import asyncio
import contextlib
import logging
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, Sampler
from opentelemetry.trace import NoOpTracerProvider, SpanKind, StatusCode

from rapkit import __version__
from rapkit.errors import ConfigError
from rapkit.mailbox import Box, Claim, Mail
from rapkit.tracing import Span, Tracing, current_traceparent, read_traceparent, request_span
from tests.log_records import ours

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{CALLER}-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Recorder:
    """A tracing whose spans can be looked at once they have ended."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = Tracing(self.provider)

    def call(self, traceparent: str = TRACEPARENT, operation: str = "forecast") -> Span:
        return self.tracing.call(operation, traceparent, toolset="weather", thread_id="t1", call_id="c1")

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    @property
    def span(self) -> ReadableSpan:
        (span,) = self.spans
        return span


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def traceparent_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-{span.context.trace_flags:02x}"


def outcome_of(span: ReadableSpan) -> object:
    assert span.attributes is not None
    return span.attributes.get("rap.outcome")


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (TRACEPARENT, TRACEPARENT),
        (f"00-{TRACE}-{CALLER}-00", f"00-{TRACE}-{CALLER}-00"),
        (f" \t{TRACEPARENT}\t ", TRACEPARENT),
        (f"00-{TRACE}-{CALLER}-ff", f"00-{TRACE}-{CALLER}-03"),  # flags nobody has defined yet are not passed on
        (f"cc-{TRACE}-{CALLER}-01", TRACEPARENT),  # a later version is read as far as we know it
        (f"cc-{TRACE}-{CALLER}-01-what-the-future-brings", TRACEPARENT),
    ],
)
def test_a_traceparent_is_read_as_the_version_we_speak(value: str, read: str) -> None:
    assert read_traceparent([(b"host", b"x"), (b"traceparent", value.encode())]) == read


@pytest.mark.parametrize(
    "value",
    [
        "",
        "00",
        "nonsense",
        f"00-{TRACE}-{CALLER}",
        f"00-{TRACE}-{CALLER}-1",
        f"00-{TRACE}-{CALLER}-011",
        f"00-{TRACE}-{CALLER}-01-more",
        f"00-{TRACE}-{CALLER}-01\n",
        f"00-{TRACE}-{CALLER}-01\r\nx: y",
        f"cc-{TRACE}-{CALLER}-01-\r\nx: y",
        f"cc-{TRACE}-{CALLER}-01-\x00",
        f"cc-{TRACE}-{CALLER}-01more",
        f"ff-{TRACE}-{CALLER}-01",
        f"0x-{TRACE}-{CALLER}-01",
        f"00-{TRACE.upper()}-{CALLER}-01",
        f"00-{TRACE[1:]}-{CALLER}-01",
        f"00-{'0' * 32}-{CALLER}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{CALLER}-01,{TRACEPARENT}",
        f"cc-{TRACE}-{CALLER}-01-{'a' * 1000}",
        "\xe9" * 55,
    ],
)
def test_a_traceparent_that_is_none_counts_for_nothing(value: str) -> None:
    assert read_traceparent([(b"traceparent", value.encode("latin-1"))]) == ""


def test_there_is_no_trace_without_a_traceparent_or_with_two() -> None:
    header = (b"traceparent", TRACEPARENT.encode())

    assert read_traceparent([(b"host", b"x"), (b"x-traceparent", TRACEPARENT.encode())]) == ""
    assert read_traceparent([header, header]) == ""


def test_a_call_continues_the_trace_of_whoever_invoked_it(recorder: Recorder) -> None:
    with recorder.call() as span:
        assert recorder.spans == ()

    made = recorder.span
    assert (made.name, made.kind) == ("rap.call forecast", SpanKind.CONSUMER)
    assert made.parent is not None
    assert (f"{made.parent.trace_id:032x}", f"{made.parent.span_id:016x}", made.parent.is_remote) == (
        TRACE,
        CALLER,
        True,
    )
    assert made.attributes == {
        "rap.toolset": "weather",
        "rap.operation": "forecast",
        "rap.thread_id": "t1",
        "rap.call_id": "c1",
        "rap.outcome": "ok",
    }
    assert span.traceparent == traceparent_of(made)
    assert span.traceparent.startswith(f"00-{TRACE}-")
    assert made.instrumentation_scope is not None
    assert (made.instrumentation_scope.name, made.instrumentation_scope.version) == ("rapkit", __version__)


def test_a_call_without_a_trace_begins_one_whatever_is_going_on_around_it(recorder: Recorder) -> None:
    with recorder.provider.get_tracer("server").start_as_current_span("POST /invoke"), recorder.call("") as span:
        pass

    call, _ = recorder.spans
    assert call.parent is None
    assert span.traceparent == traceparent_of(call)


def test_what_follows_from_a_call_continues_its_trace_also_much_later(recorder: Recorder) -> None:
    with recorder.call() as call:
        pass
    stored = call.traceparent
    restarted = Tracing(recorder.provider)
    with restarted.post(
        stored, kind="callback", message_id="m1", origin="https://runtime.example:443", attempt=3
    ) as callback:
        callback.answered(503)
        callback.ended("retry")

    first, second = recorder.spans
    assert (second.name, second.kind) == ("rap.callback", SpanKind.CLIENT)
    assert second.parent is not None
    assert first.context is not None
    assert (second.parent.trace_id, second.parent.span_id) == (first.context.trace_id, first.context.span_id)
    assert second.attributes == {
        "rap.message_id": "m1",
        "rap.origin": "https://runtime.example:443",
        "rap.attempt": 3,
        "http.request.method": "POST",
        "http.response.status_code": 503,
        "rap.outcome": "retry",
    }
    assert second.status.status_code is StatusCode.ERROR
    assert callback.traceparent == traceparent_of(second)


def test_a_callback_that_belongs_to_no_trace_starts_none(recorder: Recorder) -> None:
    with recorder.tracing.post("", kind="callback", message_id="m1", origin="o", attempt=1) as span:
        span.answered(200)
        span.ended("delivered")

    assert recorder.spans == ()
    assert span.traceparent == ""


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("invocation", "rap.invocation"),
        ("callback", "rap.callback"),
        ("final", "rap.callback"),
        ("answer", "rap.answer"),
        ("notice", "rap.notice"),
    ],
)
def test_a_post_is_named_after_its_kind(recorder: Recorder, kind: str, name: str) -> None:
    with recorder.tracing.post(TRACEPARENT, kind=kind, message_id="m1", origin="o", attempt=1):
        pass

    assert recorder.span.name == name


def claim_with(*traceparents: str, last: str = "") -> Claim:
    """A claim of a thread whose letters have these traces; `last` is what the thread was at before."""
    box = Box("t1", "thread", "open", None, None, None, b"", False, 0.0, 0, True, last)
    mail = [Mail(number, "user", b"secret", 0.0, 1, each) for number, each in enumerate(traceparents)]
    return Claim(box, "w", 1, 2, tuple(mail), ("alarm",), 0.0)


def test_a_slice_continues_the_trace_of_the_first_letter_that_has_one_and_is_linked_to_the_others(
    recorder: Recorder,
) -> None:
    with recorder.tracing.slice(claim_with("", TRACEPARENT, OTHER, TRACEPARENT, OTHER)) as span:
        assert current_traceparent() == span.traceparent

    made = recorder.span
    assert (made.name, made.kind) == ("rap.slice", SpanKind.CONSUMER)
    assert made.parent is not None
    assert f"{made.parent.trace_id:032x}-{made.parent.span_id:016x}" == f"{TRACE}-{CALLER}"
    assert [f"{link.context.trace_id:032x}" for link in made.links] == [OTHER.split("-")[1]]
    assert made.attributes == {
        "rap.thread_id": "t1",
        "rap.attempt": 2,
        "rap.letters": 5,
        "rap.timers": 1,
        "rap.outcome": "ok",
    }


def test_a_slice_without_letters_goes_on_with_what_the_thread_was_at(recorder: Recorder) -> None:
    """A timer, a completion that is tried again, a worker that was lost after it had consumed the mail."""
    with recorder.tracing.slice(claim_with(last=TRACEPARENT)) as span:
        assert span.traceparent.startswith(f"00-{TRACE}-")
    with Tracing().slice(claim_with(last=TRACEPARENT)) as span:
        assert span.traceparent == current_traceparent() == TRACEPARENT


def test_a_letter_without_a_trace_begins_one_whatever_the_thread_was_at(recorder: Recorder) -> None:
    with recorder.tracing.slice(claim_with("", last=TRACEPARENT)) as span:
        pass

    assert recorder.span.parent is None
    assert span.traceparent == traceparent_of(recorder.span)
    assert Tracing().slice(claim_with("", last=TRACEPARENT)).traceparent == ""


def test_a_completion_follows_from_the_slice_and_says_what_it_took_but_no_word_of_it(recorder: Recorder) -> None:
    with (
        recorder.tracing.slice(claim_with(TRACEPARENT)) as slice_,
        recorder.tracing.completion("openai:gpt-5-mini", "t1") as span,
    ):
        span.used(120, 30, 0.25)

    made, _ = recorder.spans
    assert (made.name, made.kind) == ("rap.completion openai:gpt-5-mini", SpanKind.CLIENT)
    assert made.parent is not None
    assert f"{made.parent.span_id:016x}" == slice_.traceparent.split("-")[2]
    assert made.attributes == {
        "rap.thread_id": "t1",
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5-mini",
        "gen_ai.usage.input_tokens": 120,
        "gen_ai.usage.output_tokens": 30,
        "rap.cost_dollars": 0.25,
        "rap.outcome": "ok",
    }


def test_a_model_without_a_provider_is_named_as_it_is(recorder: Recorder) -> None:
    with recorder.tracing.completion("mine", "t1"):
        pass

    assert recorder.span.attributes is not None
    assert recorder.span.attributes["gen_ai.request.model"] == "mine"
    assert "gen_ai.provider.name" not in recorder.span.attributes


def test_what_is_current_is_the_trace_of_a_request_while_it_is_answered(recorder: Recorder) -> None:
    """Of the span that whoever serves the app has made of it, or else of the header."""
    header = [(b"traceparent", TRACEPARENT.encode())]
    with request_span(header):
        assert current_traceparent() == TRACEPARENT
    with request_span([]):
        assert current_traceparent() == ""
    with recorder.provider.get_tracer("server").start_as_current_span("POST") as served, request_span(header):
        assert current_traceparent().split("-")[2] == f"{served.get_span_context().span_id:016x}"
    assert current_traceparent() == ""


async def test_the_authors_own_spans_are_within_the_call(recorder: Recorder) -> None:
    """In an async handler, in a task it starts, in a thread; and in calls side by side each in its own."""
    tracer = recorder.provider.get_tracer("author")

    def make(name: str) -> None:
        tracer.start_span(name).end()

    async def handler(name: str) -> None:
        with recorder.call(operation=name):
            await asyncio.sleep(0)
            make(f"{name} itself")
            await asyncio.create_task(asyncio.to_thread(make, f"{name} thread"))

    await asyncio.gather(handler("one"), handler("two"))

    calls = {span.name: span.context for span in recorder.spans if span.kind is SpanKind.CONSUMER}
    within = [span for span in recorder.spans if span.kind is SpanKind.INTERNAL]
    assert sorted(span.name for span in within) == ["one itself", "one thread", "two itself", "two thread"]
    for span in within:
        call = calls[f"rap.call {span.name.split()[0]}"]
        assert call is not None
        assert span.parent is not None
        assert span.parent.span_id == call.span_id
    assert not trace.get_current_span().get_span_context().is_valid


@pytest.mark.parametrize(
    ("outcome", "error", "status"),
    [
        ("ok", "", (StatusCode.UNSET, None)),
        ("error", "ToolError", (StatusCode.ERROR, "ToolError")),
        ("error", "", (StatusCode.ERROR, None)),
        ("cancelled", "", (StatusCode.UNSET, None)),
        ("suspended", "", (StatusCode.UNSET, None)),
    ],
)
def test_a_call_says_how_it_went(
    recorder: Recorder, outcome: str, error: str, status: tuple[StatusCode, str | None]
) -> None:
    with recorder.call() as span:
        span.ended(outcome, error)

    made = recorder.span
    assert outcome_of(made) == outcome
    assert (made.status.status_code, made.status.description) == status
    assert made.attributes is not None
    assert made.attributes.get("error.type") == (error or None)


def test_of_an_exception_only_the_class_is_told(recorder: Recorder) -> None:
    """INV-16"""
    with pytest.raises(ValueError, match="s3cret"), recorder.call():
        raise ValueError("s3cret")

    made = recorder.span
    assert outcome_of(made) == "error"
    assert (made.status.status_code, made.status.description) == (StatusCode.ERROR, "ValueError")
    assert made.events == ()
    assert "s3cret" not in made.to_json()


async def test_a_call_that_is_cancelled_says_so(recorder: Recorder) -> None:
    started = asyncio.Event()

    async def handler() -> None:
        with recorder.call():
            started.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(handler())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert outcome_of(recorder.span) == "cancelled"
    assert recorder.span.status.status_code is StatusCode.UNSET


def test_what_was_said_holds_even_if_the_call_then_unwinds(recorder: Recorder) -> None:
    with contextlib.suppress(asyncio.CancelledError), recorder.call() as span:
        span.ended("suspended")
        raise asyncio.CancelledError

    assert outcome_of(recorder.span) == "suspended"


def test_a_trace_that_is_not_sampled_is_passed_on_as_such() -> None:
    recorder = Recorder(ParentBased(ALWAYS_OFF))
    with recorder.call(f"00-{TRACE}-{CALLER}-00") as span:
        pass

    assert recorder.spans == ()
    assert span.traceparent.startswith(f"00-{TRACE}-")
    assert span.traceparent.endswith("-00")


@pytest.mark.parametrize("traceparent", [TRACEPARENT, ""])
def test_without_an_sdk_the_trace_is_passed_on_as_it_came(traceparent: str) -> None:
    for tracing in (Tracing(), Tracing(NoOpTracerProvider())):
        with tracing.call("forecast", traceparent, toolset="weather", thread_id="t1", call_id="c1") as call:
            call.ended("ok")
        with tracing.post(call.traceparent, kind="final", message_id="m1", origin="o", attempt=1) as callback:
            assert current_traceparent() == traceparent
            callback.answered(200)
            callback.ended("delivered")
        with tracing.completion("mine", "t1") as completion:
            completion.used(1, 1, 0.0)
        assert current_traceparent() == ""

        assert call.traceparent == callback.traceparent == traceparent


def test_without_an_sdk_exceptions_are_let_through() -> None:
    with (
        pytest.raises(ValueError, match="broken"),
        Tracing().call("forecast", "", toolset="weather", thread_id="t1", call_id="c1"),
    ):
        raise ValueError("broken")


def test_an_sdk_that_is_disabled_passes_the_trace_on_as_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    recorder = Recorder()
    with recorder.call() as continued, recorder.call("") as alone:
        pass

    assert recorder.spans == ()
    assert (continued.traceparent, alone.traceparent) == (TRACEPARENT, "")


class Blank(trace.TracerProvider, trace.Tracer):
    """Somebody's own tracing, whose spans have no ids."""

    def get_tracer(self, *args: object, **kwargs: object) -> trace.Tracer:
        return self

    def start_span(self, *args: object, **kwargs: object) -> trace.Span:
        return trace.INVALID_SPAN

    def start_as_current_span(self, *args: object, **kwargs: object) -> Any:
        raise NotImplementedError


def test_spans_without_ids_pass_the_trace_on_as_it_came() -> None:
    tracing = Tracing(Blank())
    for traceparent in (TRACEPARENT, ""):
        with tracing.call("forecast", traceparent, toolset="weather", thread_id="t1", call_id="c1") as span:
            assert span.traceparent == current_traceparent() == traceparent


class Broken(SpanProcessor):
    def __init__(self, *, at_start: bool) -> None:
        self._at_start = at_start

    def on_start(self, span: object, parent_context: object = None) -> None:
        if self._at_start:
            raise RuntimeError("broken")

    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError("broken")


@pytest.mark.parametrize("at_start", [True, False])
def test_a_call_goes_on_when_its_trace_cannot_be_recorded(
    recorder: Recorder, at_start: bool, caplog: pytest.LogCaptureFixture
) -> None:
    recorder.provider.add_span_processor(Broken(at_start=at_start))
    worked = threading.Event()
    with recorder.call() as span:
        worked.set()

    assert worked.is_set()
    assert span.traceparent.startswith(f"00-{TRACE}-")
    assert [record.levelno for record in ours(caplog)] == [logging.ERROR]
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_provider_that_cannot_be_loaded_is_told_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_PYTHON_TRACER_PROVIDER", "no_such_provider")

    with pytest.raises(ConfigError, match="or unset it"):
        Tracing()


LATE = f"""
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from rapkit.tracing import Tracing

tracing = Tracing()

def call():
    with tracing.call("forecast", "{TRACEPARENT}", toolset="weather", thread_id="t1", call_id="c1") as span:
        return span.traceparent

before = call()
trace.set_tracer_provider(TracerProvider())
print(before, call() != before)
"""


def test_an_sdk_configured_after_us_is_noticed() -> None:
    # In a process of its own: what is configured there is so for good.
    told = subprocess.run([sys.executable, "-c", LATE], capture_output=True, check=True, text=True)

    assert told.stdout.split() == [TRACEPARENT, "True"]
