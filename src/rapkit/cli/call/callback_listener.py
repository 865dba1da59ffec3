"""A local HTTP listener for callbacks, open while a command waits."""

import contextlib
import queue
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from rapkit.cli.call.keyboard import Typed
from rapkit.errors import InvalidMessage
from rapkit.http.body_limits import DISCARD_PAUSE
from rapkit.http.limits import HttpLimits
from rapkit.protocol import Callback, parse_callback

_LARGEST = 16 * 1024 * 1024
_PART = 64 * 1024
_MOMENT = 1.0  # for an acknowledgement that is under way


class CallbackListener:
    """Receives callbacks under an unguessable URL, and hands them on in the order they came."""

    def __init__(self) -> None:
        self._messages: queue.Queue[Callback | Typed] = queue.Queue()
        self._acknowledging = threading.Lock()
        self._path = f"/callback/{secrets.token_urlsafe(16)}"
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}{self._path}"

    def __enter__(self) -> Self:
        """Start to listen."""
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop to listen. Who sent a message that was handed on is told so first, and need not send it again."""
        if self._acknowledging.acquire(timeout=_MOMENT):
            self._acknowledging.release()
        self._server.shutdown()
        self._server.server_close()

    def hand_on(self, typed: Typed) -> None:
        """Queue typed input between the messages."""
        self._messages.put(typed)

    def next(self, timeout: float | None) -> Callback | Typed | None:
        """The next message, or None if none comes in time."""
        try:
            return self._messages.get(timeout=timeout)
        except queue.Empty:
            return None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        path, messages, acknowledging = self._path, self._messages, self._acknowledging
        seen: set[str] = set()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = self.headers.get("Content-Length") or ""
                if not length.isdecimal() or int(length) > _LARGEST:
                    self.close_connection = True  # what follows cannot be told from a next request
                    self._answer(413 if length.isdecimal() else 411)
                    self._discard(int(length) if length.isdecimal() else 0)
                    return
                body = self.rfile.read(int(length))
                if self.path != path:
                    self._answer(404)
                    return
                try:
                    message = parse_callback(body)
                except InvalidMessage as error:
                    self._answer(400, str(error))
                    return
                id = self.headers.get("webhook-id")
                with acknowledging:
                    if id is None or id not in seen:  # a message that was sent twice is shown once
                        messages.put(message)
                    if id is not None:
                        seen.add(id)
                    self._answer(200)

            def _discard(self, left: int) -> None:
                """Read the rest of a body, so that its sender reads the answer instead of a reset."""
                self.connection.settimeout(DISCARD_PAUSE)
                left = min(left, HttpLimits().discard_bytes)
                with contextlib.suppress(OSError):
                    while left and (part := self.rfile.read(min(left, _PART))):
                        left -= len(part)

            def _answer(self, status: int, text: str = "") -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                pass

        return Handler
