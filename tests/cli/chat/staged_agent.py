"""An agent that says what a test makes it say, when the test wants it, and notes what it is asked to do."""

import contextlib
import json
import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.cli.terminal import Terminal

THREAD = "thr_0123456789abcdef"


class StagedAgent:
    """It has one thread, which begins with the first message. `detail` is how that is now; `posted` what it was sent, with the path."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.events: queue.Queue[bytes | None] = queue.Queue()
        self.posted: list[tuple[str, dict[str, Any]]] = []
        self.detail: dict[str, Any] = {
            "thread_id": THREAD,
            "status": "running",
            "length": 0,
            "pending_calls": [],
            "subscriptions": [],
            "choices": [],
            "oauth": [],
            "children": [],
            "views": {},
        }
        self._seq = 0

    def tell(self, event: str, **data: Any) -> None:
        """Send an event that is never repeated, such as a `delta`, or a status."""
        self.events.put(f"event: {event}\ndata: {json.dumps(data)}\n\n".encode())

    def write(self, kind: str, **fields: Any) -> None:
        """Add a line to the journal."""
        self._seq += 1
        self.detail["length"] = self._seq
        entry = {"seq": self._seq, "at": 1_763_270_400.0, "kind": kind, **fields}
        self.events.put(f"event: entry\nid: {self._seq}\ndata: {json.dumps(entry)}\n\n".encode())

    def ask(self, prompt: str, choices: list[str], *, in_words: bool = False) -> None:
        """Ask the user something."""
        question = {"call_id": "call_1", "prompt": prompt, "choices": choices, "default": None, "asked_at": 1.5}
        self.detail["choices"] = [{**question, "in_words": in_words}]
        self.write("choice", call_id="call_1", prompt=prompt, choices=choices)

    def take_back(self) -> None:
        """End the question: somebody else has answered it."""
        self.detail["choices"] = []
        self.write("chosen", call_id="call_1", selected=0)


def begin(staged: StagedAgent, terminal: Terminal) -> None:
    """Say something in a chat, which the model thinks about from now on."""
    terminal.send("Tell me a story.\r")
    terminal.until("(not read yet)")
    staged.write("user", text="Tell me a story.", id="msg_1")
    staged.tell("status", status="running", reason=None)
    terminal.until("· thinkin")  # there may be no room for more


@contextlib.contextmanager
def staged_agent() -> Iterator[StagedAgent]:
    """One that listens as long as the context lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/v1/agent":
                self._answer({"store": "nowhere", "works": True})
            elif self.path.endswith("/events"):
                self._stream()
            else:
                self._answer(agent.detail)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            agent.posted.append((self.path, body))
            self._answer({"thread_id": THREAD, "message_id": f"msg_{len(agent.posted)}"})

        def _stream(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self.end_headers()
            while (event := agent.events.get()) is not None:
                try:
                    self.wfile.write(event)
                except OSError:
                    return

        def _answer(self, answer: dict[str, Any]) -> None:
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    agent = StagedAgent(server.server_port)
    serving = threading.Thread(target=server.serve_forever, args=(0.02,))
    serving.start()
    try:
        yield agent
    finally:
        agent.events.put(None)
        server.shutdown()
        serving.join()
        server.server_close()
