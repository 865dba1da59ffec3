"""Listen briefly where an agent would, to test reachability."""

import secrets
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import TracebackType
from typing import Self

from rapkit.http.http_server import listen


class ProbeListener:
    """Answers a request for a secret path with a `word`, and no other request. `ConfigError` if the port is taken."""

    def __init__(self, host: str, port: int) -> None:
        self.word = f"rapkit-doctor-{secrets.token_urlsafe(16)}"
        self._listener = listen(host, port)
        self._server = HTTPServer((host, port), _handler(self.word), bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = self._listener

    def __enter__(self) -> Self:
        """Begin to answer."""
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the place."""
        self._server.shutdown()
        self._server.server_close()


def _handler(word: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 5  # a client that connects and sends nothing would keep all others waiting

        def do_GET(self) -> None:
            known = self.path.endswith(f"/{word}")
            body = word.encode() if known else b""
            self.send_response(200 if known else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - what it is called there
            pass

    return Handler
