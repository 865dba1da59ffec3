"""Tracing: work that follows from a request continues its trace, in any process and at any later time.

In a tool server a call continues the trace of its caller, and its callbacks continue the call's. In the runtime a slice of a thread
continues the trace of the mail that woke it, and the completion and the POSTs that follow from the slice continue the slice's.

Spans are OpenTelemetry's. While the process has no SDK configured none are made; what came in as `traceparent` still goes out with what
follows, so that a trace does not break here.
"""

import logging
import re
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from opentelemetry import context, trace
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    NoOpTracer,
    ProxyTracer,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from rapkit import __version__
from rapkit.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextvars import Token

    from opentelemetry.trace import Tracer, TracerProvider

    from rapkit.mailbox import Claim

HEADER = "traceparent"

_NAME = HEADER.encode()
_LONGEST = 512
_FORMAT = re.compile(r"([0-9a-f]{2})-((?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16})-([0-9a-f]{2})(-[ -~]*)?")
_KNOWN_FLAGS = 0x03  # sampled, and that the trace id is random; others are not passed on
_FAILURES = frozenset({"error", "retry", "dead"})
_POSTS = {"final": "rap.callback", "question": "rap.callback"}  # the names of spans of POSTs whose kind is not the name

log = logging.getLogger("rapkit.tracing")


def read_traceparent(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The `traceparent` among the headers of a request, in the form of version 00; "" if there is none, or none that is valid.

    A version we do not know is read as far as we know it, as W3C Trace Context wants it.
    """
    found = [value for name, value in headers if name == _NAME]
    if len(found) != 1 or len(found[0]) > _LONGEST:
        return ""
    match = _FORMAT.fullmatch(found[0].decode("latin-1").strip(" \t"))
    if match is None:
        return ""
    version, ids, flags, more = match.groups()
    if version == "ff" or (version == "00" and more is not None):
        return ""
    return f"00-{ids}-{int(flags, 16) & _KNOWN_FLAGS:02x}"


def current_traceparent() -> str:
    """The `traceparent` of the span that is current; "" if there is none."""
    return _traceparent(trace.get_current_span().get_span_context())


def request_span(headers: Iterable[tuple[bytes, bytes]]) -> "Span":
    """The trace of a request, to be entered: the one that the server of the app has made current, or the one that the request names."""
    return Span("" if current_traceparent() else read_traceparent(headers))


class Span:
    """A piece of work that may be part of a trace: this one is not, and only passes on what came in.

    `traceparent` belongs with whatever follows from the work; it is "" if there is no trace at all.
    """

    __slots__ = ("_token", "traceparent")

    def __init__(self, traceparent: str) -> None:
        self.traceparent = traceparent
        self._token: Token[context.Context] | None = None

    def __enter__(self) -> Self:
        """Make it the current span."""
        if self.traceparent:
            self._token = context.attach(set_span_in_context(NonRecordingSpan(_remote(self.traceparent))))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End it. If no outcome was set: ok, or cancelled, or an error whose class is told and whose message is not."""
        if self._token is not None:
            context.detach(self._token)

    def answered(self, status: int) -> None:
        """Note the HTTP status of the answer."""

    def used(self, input_tokens: int, output_tokens: int, cost: float) -> None:
        """Note what a completion took; the cost is in US dollars."""

    def ended(self, outcome: str, error: str = "") -> None:
        """Say how it went: ok, error, cancelled or suspended for a call; delivered, retry or dead for a POST.

        `error` is the name of a kind of error, such as an exception's class; never a message, which may have secrets.
        """


class Tracing:
    """Makes spans, with the given provider or with the one that the process has configured by then."""

    def __init__(self, provider: "TracerProvider | None" = None) -> None:
        self._given = provider
        self._provider: TracerProvider | None = None
        self._tracer: Tracer | None = None
        try:
            self._find_tracer()
        except Exception as error:
            # Here, where it is read. It would be the same for every call.
            raise ConfigError(
                f"The OpenTelemetry tracer provider cannot be loaded ({type(error).__name__}). "
                "Install what OTEL_PYTHON_TRACER_PROVIDER names, or unset it."
            ) from error

    def call(self, operation: str, traceparent: str, *, toolset: str, thread_id: str, call_id: str) -> Span:
        """The execution of a call; `traceparent` is as `read_traceparent` gave it. The handler's own spans are to be made within."""
        tracer = self._find_tracer()
        if tracer is None:
            return Span(traceparent)
        attributes: dict[str, str | int] = {
            "rap.toolset": toolset,
            "rap.operation": operation,
            "rap.thread_id": thread_id,
            "rap.call_id": call_id,
        }
        return _start(tracer, f"rap.call {operation}", SpanKind.CONSUMER, traceparent, attributes)

    def slice(self, claim: "Claim") -> Span:
        """What one claim of a thread leads to: it continues the trace of the first mail that has one, and is linked to the others'.

        Mail without any begins a trace. Without mail, the thread continues its last trace.
        """
        tracer = self._find_tracer()
        traces = [mail.traceparent for mail in claim.mail if mail.traceparent]
        first = next(iter(traces), "" if claim.mail else claim.box.traceparent)
        if tracer is None:
            return Span(first)
        attributes: dict[str, str | int] = {
            "rap.thread_id": claim.box.id,
            "rap.attempt": claim.attempts,
            "rap.letters": len(claim.mail),
            "rap.timers": len(claim.timers),
        }
        others = [each for each in dict.fromkeys(traces) if each != first]
        return _start(tracer, "rap.slice", SpanKind.CONSUMER, first, attributes, others)

    def completion(self, model: str, thread_id: str) -> Span:
        """A completion of the model, which follows from the span that is current. `model` is like `openai:gpt-5-mini`."""
        tracer = self._find_tracer()
        if tracer is None:
            return Span("")
        provider, colon, name = model.partition(":")
        attributes: dict[str, str | int] = {
            "rap.thread_id": thread_id,
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": name if colon else model,
        }
        if colon:
            attributes["gen_ai.provider.name"] = provider
        return _start(tracer, f"rap.completion {model}", SpanKind.CLIENT, current_traceparent(), attributes)

    def post(self, traceparent: str, *, kind: str, message_id: str, origin: str, attempt: int) -> Span:
        """One attempt of a POST; its kind names it. Without a traceparent it belongs to no trace, and starts none."""
        tracer = self._find_tracer() if traceparent else None
        if tracer is None:
            return Span(traceparent)
        attributes: dict[str, str | int] = {
            "rap.message_id": message_id,
            "rap.origin": origin,
            "rap.attempt": attempt,
            "http.request.method": "POST",
        }
        return _start(tracer, _POSTS.get(kind) or f"rap.{kind}", SpanKind.CLIENT, traceparent, attributes)

    def _find_tracer(self) -> "Tracer | None":
        provider = self._given or trace.get_tracer_provider()
        if provider is not self._provider:
            tracer = provider.get_tracer("rapkit", __version__)
            # These would make spans that do nothing, and take several times as long for it; older ones lose the trace on top.
            self._tracer = None if isinstance(tracer, ProxyTracer | NoOpTracer) else tracer
            self._provider = provider
        return self._tracer


class _Recorded(Span):
    """A span that the SDK records."""

    __slots__ = ("_ended", "_span")

    def __init__(self, span: trace.Span, traceparent: str) -> None:
        super().__init__(traceparent)
        self._span = span
        self._ended = False

    def __enter__(self) -> Self:
        if not self._span.get_span_context().is_valid:
            return super().__enter__()
        self._token = context.attach(set_span_in_context(self._span))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)
        if not self._ended:
            if error is None:
                self.ended("ok")
            elif isinstance(error, Exception):
                self.ended("error", type(error).__name__)
            else:
                self.ended("cancelled")
        try:
            self._span.end()
        except Exception as failure:  # noqa: BLE001 - as in `_start`
            log.error("a span cannot be ended: %r", failure)

    def answered(self, status: int) -> None:
        self._span.set_attribute("http.response.status_code", status)

    def used(self, input_tokens: int, output_tokens: int, cost: float) -> None:
        self._span.set_attribute("gen_ai.usage.input_tokens", input_tokens)
        self._span.set_attribute("gen_ai.usage.output_tokens", output_tokens)
        self._span.set_attribute("rap.cost_dollars", cost)

    def ended(self, outcome: str, error: str = "") -> None:
        self._ended = True
        self._span.set_attribute("rap.outcome", str(outcome))
        if outcome in _FAILURES:
            self._span.set_status(StatusCode.ERROR, error or None)
        if error:
            self._span.set_attribute("error.type", error)


def _start(
    tracer: "Tracer",
    name: str,
    kind: SpanKind,
    traceparent: str,
    attributes: dict[str, str | int],
    linked: "Sequence[str]" = (),
) -> Span:
    try:
        # Exceptions are not recorded: their messages and tracebacks are full of secrets.
        span = tracer.start_span(
            name,
            _parent(traceparent),
            kind,
            attributes,
            links=[Link(_remote(each)) for each in linked],
            record_exception=False,
            set_status_on_exception=False,
        )
        return _Recorded(span, _traceparent(span.get_span_context()) or traceparent)
    except Exception as error:  # noqa: BLE001 - samplers and processors are third-party code, and no call is lost over one of them
        log.error("a span cannot be started: %r", error)
        return Span(traceparent)


def _parent(traceparent: str) -> context.Context:
    # Never the span that happens to be current: work is started by whatever request or timer comes along.
    if not traceparent:
        return context.Context()
    return set_span_in_context(NonRecordingSpan(_remote(traceparent)), context.Context())


def _remote(traceparent: str) -> SpanContext:
    _, trace_id, span_id, flags = traceparent.split("-")
    return SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16)))


def _traceparent(span: SpanContext) -> str:
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}" if span.is_valid else ""
