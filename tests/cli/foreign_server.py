"""A server on this machine that is not ours: it answers as a test tells it, and notes what it is sent."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import Request, urlopen

_MINIMAL_TOOL = {"name": "watch", "description": "Watch something.", "inputSchema": {"type": "object"}}


class ForeignServer:
    """Answers GET with `document`, POST with `status`; after a POST of an invocation it sends `callbacks` to where that wants them.

    It notes the `headers` of each GET; what each POST said is `received`, where to is in `paths`, and who said it in `authorizations`.
    While `answering` is not set, no POST is answered.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.document: bytes = b""
        self.discovery_status = 200
        self.status = 200
        self.callbacks: list[dict[str, Any]] = []
        self.received: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.answering = threading.Event()
        self.answering.set()
        self.headers: list[dict[str, str]] = []
        self.authorizations: list[str | None] = []

    def offer(self, **schema: object) -> None:
        """A toolset with one tool, `watch`, and these parameters."""
        tool = {**_MINIMAL_TOOL, "inputSchema": {"type": "object", "properties": schema}}
        self.document = json.dumps({"name": "strange", "endpoint": f"{self.url}/invoke", "tools": [tool]}).encode()

    def call_back(self, invocation: dict[str, Any]) -> None:
        """Send the callbacks in order."""
        for callback in self.callbacks:
            ids = {"group_id": invocation["group_id"], "id": invocation["id"], "tool_call_id": invocation["id"]}
            body = json.dumps({**ids, **callback}).encode()
            with urlopen(Request(invocation["callback_url"], body, {"Content-Type": "application/json"})):
                pass


@contextlib.contextmanager
def listening() -> Iterator[ForeignServer]:
    """A stranger on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            stranger.headers.append({name.lower(): value for name, value in self.headers.items()})
            self._answer(stranger.discovery_status, stranger.document)

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            calls_back = bool(stranger.callbacks)  # before a test sees that it came, and has us say something else
            stranger.paths.append(self.path)
            stranger.received.append(message)
            stranger.authorizations.append(self.headers["Authorization"])
            stranger.answering.wait()
            with contextlib.suppress(ConnectionError):  # whoever waited for it is gone
                self._answer(stranger.status, b"")
            if calls_back and "callback_url" in message:
                threading.Thread(target=stranger.call_back, args=(message,), daemon=True).start()

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stranger = ForeignServer(server.server_port)
    serving = threading.Thread(target=server.serve_forever, args=(0.02,))
    serving.start()
    try:
        yield stranger
    finally:
        stranger.answering.set()
        server.shutdown()
        serving.join()
        server.server_close()
