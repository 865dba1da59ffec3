"""HTTP/1.1 on one connection: uvicorn's httptools protocol, with limits on everything a peer can send, hold back or leave unread.

The parser (llhttp) is strict about what makes a request ambiguous: a repeated Content-Length, one beside a Transfer-Encoding, folded
headers. What it does not bound is bounded here; see `HttpLimits`.
"""

import asyncio
import math
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from rapkit.http.body_limits import WHOLE_BODY_RECEIVED
from rapkit.http.certificates import PEER_NAMES, peer_names
from rapkit.http.connections import Connection, Connections
from rapkit.http.requests import Refusal, problem_document, retry_later

_BETWEEN, _HEAD, _BODY = range(3)
_FRAMING_A_BYTE = 16
"""What the framing of a chunked body may take for each byte of it: a chunk of one byte takes 5, or more with leading zeros."""
_RETRY_WHEN_FULL = 5.0


class HttpProtocol(HttpToolsProtocol):
    """One connection. `connections` are all of its server; it takes the place of its TLS handshake among them."""

    flow: "_Flow"

    def __init__(self, *, connections: Connections, handshake: Connection | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._handshake = handshake
        self._shared = connections
        self._limits = connections.limits
        self._part = _BETWEEN
        self._deadline = math.inf
        self._received = 0
        self._head_reads = 0
        self._head_bytes = 0
        self._framing = 0
        self._has_host = False
        self._upgrade = False
        self._refusal: Refusal | None = None
        self._answered: RequestResponseCycle | None = None
        self._discarding = False
        self._discarded = 0
        self._ended = False
        self._unsent = 0
        self._unsent_deadline = math.inf

    # Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request, if there is a place."""
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            # The handshake is over, so the certificate was verified.
            self.app_state = {**self.app_state, PEER_NAMES: peer_names(tls.getpeercert())}
        self.app_state = {**self.app_state, WHOLE_BODY_RECEIVED: self._is_whole_body_received}
        super().connection_made(transport)
        self.flow = _Flow(transport)
        if self._handshake is not None:
            self._shared.forget(self._handshake)
        if not self._shared.admit(self):
            self._write(retry_later("The server has as many connections as it takes.", _RETRY_WHEN_FULL))
            transport.close()
            return
        self._deadline = self._shared.now + self._limits.head_seconds

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell all who read requests of it, or answer them."""
        self._shared.forget(self)
        for cycle in (self._answered, *(cycle for cycle, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer a request that was received as a whole, though its sender says that nothing more comes (`shutdown`).

        Once the answer to a GET has begun, it is the end of the sender: events are streamed for as long as the connection lasts.
        """
        self._ended = True
        cycle = self._answered
        if cycle is None or cycle.response_complete or cycle.more_body:
            return False
        is_followed = cycle.response_started and cycle.scope["method"] == "GET"
        return not is_followed and self.transport.can_write_eof()

    def abort(self) -> None:
        """Close at once: another connection needs the place."""
        self.transport.abort()

    def look(self, now: float) -> None:
        """Close if the peer has not done in time what we wait for."""
        if self.transport.is_closing() or self.flow.write_paused:
            unsent = self.transport.get_write_buffer_size()
            if unsent != self._unsent or self._unsent_deadline == math.inf:
                self._unsent, self._unsent_deadline = unsent, now + self._limits.write_pause_seconds
            elif now >= self._unsent_deadline:
                self.transport.abort()
        elif now >= self._deadline and not self._is_answering():
            self.transport.close()

    def _is_whole_body_received(self) -> bool:
        """Whether nothing more comes of the request that is being answered."""
        return self._answered is not None and not self._answered.more_body

    def _is_answering(self) -> bool:
        return self._answered is not None and not self._answered.response_complete

    def pause_writing(self) -> None:
        """Wait for the peer to take what was written."""
        super().pause_writing()
        self._unsent_deadline = math.inf  # it begins when it is looked at
        self._shared.waiting[self] = None

    def resume_writing(self) -> None:
        """Go on: the peer has taken it."""
        super().resume_writing()
        if self._answered is not None and not self._answered.response_complete and not self._answered.more_body:
            self._shared.waiting.pop(self, None)

    # What comes in

    def data_received(self, data: bytes) -> None:
        """Parse it, and refuse what goes beyond the limits."""
        if self._discarding:
            self._discard(len(data))
            return
        self._received = len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._go_on_without_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError:
            self._refuse(self._refusal or Refusal(400, "This is not HTTP/1.1."))
            return
        if self._part != _BETWEEN:
            self._wait_for_rest(len(data))

    def _wait_for_rest(self, size: int) -> None:
        """A request has begun to come, and not all of it is there."""
        if self._part == _HEAD:
            if self._head_reads == 0:
                self._deadline = self._shared.now + self._limits.head_seconds
            else:  # the first read may begin with the body of an earlier request
                self._head_bytes += size
            self._head_reads += 1
            refusal = self._too_long(len(self.headers), self._head_bytes - len(self.url))
            if refusal is not None:
                self._refuse(refusal)
            return
        if self in self._shared.waiting:
            self._shared.waiting.move_to_end(self)
        # What a body has not used of its allowance is no allowance for trailers of a thousand times the size.
        self._framing = max(self._framing + size, 0)
        if self._framing > 2 * self._limits.header_bytes + self._limits.url_bytes:
            self._refuse(Refusal(431, "The trailers or chunk extensions of the body are too long."))

    def _too_long(self, headers: int, size: int) -> Refusal | None:
        limits = self._limits
        if len(self.url) > limits.url_bytes:
            return Refusal(414, f"The path and query of a request may have at most {limits.url_bytes} bytes.")
        if headers > limits.header_count or size > limits.header_bytes:
            return Refusal(
                431,
                f"A request may have at most {limits.header_count} headers with {limits.header_bytes} bytes together.",
            )
        return None

    # Parser callbacks

    def on_message_begin(self) -> None:
        """A request begins."""
        self._part = _HEAD
        self._head_reads = 0
        self._head_bytes = 0
        self._has_host = False
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer."""
        if self._part == _BODY:
            return  # nobody reads trailers, and there may be as many of them as their bytes allow
        name = name.lower()
        if name == b"host":
            if self._has_host:
                # Which of them counts is read differently by different programs.
                self._stop(Refusal(400, "A request has one Host header."))
            self._has_host = True
        elif name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head of a request is there."""
        size = 0
        if self._head_reads > 0 or self._received > self._limits.header_bytes:
            size = sum(len(name) + len(value) + 4 for name, value in self.headers)
        refusal = self._too_long(len(self.headers), size)
        if refusal is not None:
            self._stop(refusal)
        if len(self.pipeline) >= self._limits.pipelined:
            self._stop(Refusal(400, "Too many requests were sent ahead."))
        self._framing = -self._received  # of this read, what came before the body does not count
        self._deadline = math.inf
        self._upgrade = self.parser.should_upgrade()
        super().on_headers_complete()  # which fails if the URL is none
        self._part = _BODY
        if self.pipeline:
            self.flow.hold()

    def on_body(self, body: bytes) -> None:
        """A part of a body."""
        self._framing -= len(body) * (1 + _FRAMING_A_BYTE)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is there as a whole."""
        if self._upgrade:
            return  # its body is not: see `_go_on_without_upgrade`
        self._part = _BETWEEN
        self._shared.waiting.pop(self, None)
        super().on_message_complete()

    def _should_upgrade(self) -> bool:
        return False

    def _go_on_without_upgrade(self, rest: bytes) -> None:
        """Read the body of a request that asks for another protocol (`Upgrade: h2c`), as the JDK's client does with each over plain HTTP.

        llhttp stops at the head of such a request, and takes what follows for the other protocol. We stay with HTTP/1.1.
        """
        self._upgrade = False
        framing = [
            b"%b: %b\r\n" % (name, value)
            for name, value in self.cycle.scope["headers"]
            if name in (b"content-length", b"transfer-encoding")
        ]
        if framing:
            callbacks = _Muted(self)
            self.parser = httptools.HttpRequestParser(callbacks)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(framing))
            callbacks.muted = False
            if callbacks.complete:
                self.on_message_complete()
        else:
            self.on_message_complete()
        if rest:
            self.data_received(rest)

    # Answers

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """A response is written: go on with the next request."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self._answered is not None and self._answered.more_body:
            self.transport.close()  # the rest of the request was waited for already, within bounds
            return
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            if not self.pipeline:
                self.flow.release()
            if cycle.more_body:
                self._shared.waiting[self] = None
            self._start_asgi_task(cycle, app)
            return
        if self._ended:
            self.transport.close()
            return
        self.flow.release()
        self._shared.waiting[self] = None
        limits = self._limits
        self._deadline = self._shared.now + (limits.head_seconds if self._part == _HEAD else limits.idle_seconds)

    # Refusals

    def _stop(self, refusal: Refusal) -> None:
        """End parsing, from within a callback of the parser."""
        self._refusal = refusal
        raise ValueError(refusal.detail)

    def _refuse(self, refusal: Refusal) -> None:
        """Answer what cannot be parsed any further, and close: at once if nothing more comes, else once it was read, within bounds."""
        self._discarding = True
        self._deadline = self._shared.now + self._limits.discard_seconds
        cycle = self.cycle
        if self._part == _BODY and not self.pipeline and cycle.response_started:
            self.transport.close()  # it was answered already
            return
        if self._is_answering() and (self._part != _BODY or self.pipeline):
            cycle.keep_alive = False  # requests that came before are answered first, and that is the end
            self.flow.release()
            return
        if self._part == _BODY:
            cycle.disconnected = True
            cycle.message_event.set()
        self._shared.waiting[self] = None
        is_head = self.url and self.parser.get_method() == b"HEAD"  # llhttp names a method before the space behind it
        self._write(refusal, has_body=not is_head)
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _write(self, refusal: Refusal, *, has_body: bool = True) -> None:
        self._shared.refused(self.client[0] if self.client else None, refusal)
        headers, body = problem_document(refusal)
        lines = [b"%b: %b\r\n" % header for header in headers]
        self.transport.write(
            b"%bcontent-length: %d\r\nconnection: close\r\n%b\r\n%b"
            % (STATUS_LINE[refusal.status], len(body), b"".join(lines), body if has_body else b"")
        )

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > self._limits.discard_bytes:
            self.transport.close()


class _Flow(FlowControl):
    """Flow control that does not resume reading while requests that were sent ahead wait for their turn."""

    _held = False

    def hold(self) -> None:
        self._held = True
        self.pause_reading()

    def release(self) -> None:
        self._held = False
        self.resume_reading()

    def resume_reading(self) -> None:
        if not self._held:
            super().resume_reading()


class _Muted:
    """Callbacks of a parser that is given a head which a protocol knows already, and then what follows it."""

    def __init__(self, protocol: HttpProtocol) -> None:
        self.muted = True
        self.complete = False
        self.on_body = protocol.on_body
        self._protocol = protocol

    def on_message_begin(self) -> None:
        if not self.muted:
            self._protocol.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self.muted:
            self._protocol.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.muted:
            self._protocol.on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self.muted:
            self._protocol.on_headers_complete()

    def on_message_complete(self) -> None:
        if self.muted:
            self.complete = True
        else:
            self._protocol.on_message_complete()
