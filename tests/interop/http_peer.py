"""What both foreign peers are made of: a threaded HTTP server that records requests, and a plain POST. Standard library only."""

import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds within which anything expected must happen, on a busy machine too."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Received:
    """One request as it came in."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float = field(default_factory=time.monotonic)

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    """What a peer answers: a status, a body, headers. `delay` holds the answer back for so many seconds."""

    status: int = 200
    body: bytes = b"OK"
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0


class HttpPeer:
    """A server on a free loopback port. Subclasses say what they answer in `answer`, and act in `after`, once the answer was sent."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._received: list[Received] = []
        self._closing = threading.Event()
        peer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                peer._handle(self)

            def do_POST(self) -> None:
                peer._handle(self)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
                """Say nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._http.server_address[1])

    @property
    def url(self) -> str:
        """Its base URL, without a trailing slash."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Any:
        """Start listening."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening."""
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()

    def answer(self, request: Received) -> Answer:
        """Decide the answer to a request."""
        raise NotImplementedError

    def after(self, request: Received, answer: Answer) -> None:
        """Act once the answer was sent."""

    def received(self, where: Callable[[Received], bool] = lambda _: True) -> list[Received]:
        """What has come in so far."""
        with self._changed:
            return [request for request in self._received if where(request)]

    def wait(self, where: Callable[[Received], bool], count: int = 1) -> list[Received]:
        """Wait until `count` such requests have come in."""
        deadline = time.monotonic() + PATIENCE
        with self._changed:
            while len(found := [request for request in self._received if where(request)]) < count:
                left = deadline - time.monotonic()
                came = [(r.method, r.path, r.body[:300]) for r in self._received]
                assert left > 0, f"{len(found)} of {count} expected requests came; all that came: {came}"
                self._changed.wait(left)
        return found

    def _handle(self, http: BaseHTTPRequestHandler) -> None:
        size = int(http.headers.get("content-length") or 0)
        headers = {name.lower(): value for name, value in http.headers.items()}
        request = Received(http.command, http.path, headers, http.rfile.read(size))
        with self._changed:
            self._received.append(request)
            self._changed.notify_all()
        answer = self.answer(request)
        if answer.delay:
            self._closing.wait(answer.delay)
        http.send_response(answer.status)
        for name, value in answer.headers.items():
            http.send_header(name, value)
        http.send_header("Content-Length", str(len(answer.body)))
        http.end_headers()
        http.wfile.write(answer.body)
        http.wfile.flush()
        self.after(request, answer)


def post(
    url: str, message: Any, headers: Mapping[str, str] | None = None, *, timeout: float = PATIENCE
) -> tuple[int, bytes]:
    """POST JSON (or bytes as they are) as urllib does it: a new connection each time, `Connection: close`. Returns status and body."""
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json", **(headers or {})}, method="POST")
    return _open(request, timeout)


def get(url: str, headers: Mapping[str, str] | None = None, *, tls: ssl.SSLContext | None = None) -> tuple[int, bytes]:
    """GET, and return status and body."""
    return _open(urllib.request.Request(url, headers=dict(headers or {})), PATIENCE, tls)


def _open(request: urllib.request.Request, timeout: float, tls: ssl.SSLContext | None = None) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(request, timeout=timeout, context=tls) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def eventually(look: Callable[[], T]) -> T:
    """Look again and again until what is seen is true; return it."""
    deadline = time.monotonic() + PATIENCE
    while not (seen := look()):
        assert time.monotonic() < deadline, f"it did not happen within {PATIENCE:g} s; last seen: {seen!r}"
        time.sleep(0.02)
    return seen
