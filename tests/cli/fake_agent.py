"""A server that stands where an agent is expected, and answers as a test tells it: request by request, byte by byte."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[BaseHTTPRequestHandler], None]


@dataclass(frozen=True)
class Request:
    """What was asked; the names of headers are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class FakeAgent:
    """Answers with `answers`, one after the other; the last one again and again."""

    url: str
    answers: list[Answer] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)


def document(value: Any, status: int = 200) -> Answer:
    """An answer in JSON."""
    return raw(json.dumps(value).encode(), status, "application/json")


def problem(status: int, detail: str) -> Answer:
    """A refusal, as agents write it."""
    return document({"type": "about:blank", "title": "?", "status": status, "detail": detail}, status)


def raw(body: bytes, status: int = 200, kind: str = "text/html") -> Answer:
    """Any answer."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def events(*parts: bytes, until: threading.Event | None = None, cut: bool = False) -> Answer:
    """A stream of events. It ends after these parts, or when `until` is set; in order, or cut off in the middle."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for part in parts:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        handler.wfile.flush()
        if until is not None:
            until.wait()
        if cut:
            handler.wfile.write(b"1000\r\nevent: entry\nda")
        else:
            with contextlib.suppress(OSError):
                handler.wfile.write(b"0\r\n\r\n")

    return answer


def entry(seq: int, **fields: Any) -> bytes:
    """An entry of a journal, as it stands in a stream."""
    data = json.dumps({"seq": seq, "at": 0.0, **fields})
    return f"event: entry\nid: {seq}\ndata: {data}\n\n".encode()


@contextlib.contextmanager
def posing() -> Iterator[FakeAgent]:
    """One on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            impostor.requests.append(Request(self.command, self.path, headers, self.rfile.read(length)))
            answer = impostor.answers.pop(0) if len(impostor.answers) > 1 else impostor.answers[0]
            self.close_connection = True
            answer(self)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    impostor = FakeAgent(f"http://127.0.0.1:{server.server_port}")
    serving = threading.Thread(target=server.serve_forever, args=(0.02,))
    serving.start()
    try:
        yield impostor
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
