"""A tool server as others have written them: it keeps everything in memory and keys it by the bare `id` of the call.

Standard library only. A tool is a function from the invocation to the messages that are sent to its callback URL, in order, after the 200
(or before it: `calls_back_first`).
"""

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.interop.http_peer import Answer, HttpPeer, Json, Received, post

Tool = Callable[[Json], Iterable[Json]]


def describe(name: str, **more: Any) -> Json:
    """A tool as a manifest describes it; `more` adds or replaces fields."""
    return {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}, **more}


def result(invocation: Json, text: str, **more: Any) -> Json:
    """A `tool_result` for an invocation."""
    return {
        "type": "tool_result",
        "group_id": invocation["group_id"],
        "id": invocation["id"],
        "call_id": invocation.get("call_id"),
        "text": text,
        **more,
    }


def event(invocation: Json, text: str, **more: Any) -> Json:
    """A `subscription_event` for an invocation."""
    return {
        "type": "subscription_event",
        "group_id": invocation["group_id"],
        "tool_call_id": invocation["id"],
        "text": text,
        **more,
    }


class ForeignServer(HttpPeer):
    """Serves tools by name. `statuses` says what is answered on a path instead of 200, e.g. {"/close_thread": 404}."""

    def __init__(
        self,
        tools: Mapping[str, Tool],
        *,
        manifest: Mapping[str, Any] | None = None,
        statuses: Mapping[str, int] | None = None,
        calls_back_first: bool = False,
    ) -> None:
        super().__init__()
        self.tools = dict(tools)
        self.statuses = dict(statuses or {})
        self.manifest: Json = {
            "name": "foreign",
            "endpoint": f"{self.url}/run",
            "tools": [describe(name) for name in self.tools],
            **(manifest or {}),
        }
        self.by_id: dict[str, Json] = {}
        """Live subscriptions by the bare id, as public servers keep them: the same id twice overwrites the first."""
        self.answers: list[tuple[Json, int]] = []
        """Each message that was sent to a callback URL, and the status it was answered with."""
        self._calls_back_first = calls_back_first
        self._lock = threading.Lock()

    def answer(self, request: Received) -> Answer:
        """Decide the answer to a request."""
        if request.path in self.statuses:
            return Answer(self.statuses[request.path])
        if request.path == "/.well-known/rap-toolset":
            return Answer(200, json.dumps(self.manifest).encode(), {"Content-Type": "application/json"})
        if request.path == "/cancel_tool_call":
            self.by_id.pop(request.json["tool_call_id"], None)
        elif request.path == "/run" and self._calls_back_first:
            self._run(request.json)
        return Answer()

    def after(self, request: Received, answer: Answer) -> None:
        """Run the tool once the invocation was acknowledged."""
        if request.path == "/run" and answer.status == 200 and not self._calls_back_first:
            self._run(request.json)

    def send(self, invocation: Json, message: Json, headers: Mapping[str, str] | None = None) -> int:
        """POST a message to the invocation's callback URL; the status it was answered with."""
        status, _ = post(invocation["callback_url"], message, headers)
        with self._lock:
            self.answers.append((message, status))
        return status

    def invocations(self, operation: str | None = None, count: int = 0) -> list[Json]:
        """The invocations that came, of one operation if it is named; wait until there are `count`."""

        def wanted(request: Received) -> bool:
            return request.path == "/run" and operation in (None, request.json["operation"])

        return [request.json for request in (self.wait(wanted, count) if count else self.received(wanted))]

    def notices(self, path: str, count: int = 0) -> list[Json]:
        """The notices that came to a path; wait until there are `count`."""

        def wanted(request: Received) -> bool:
            return request.path == path

        return [request.json for request in (self.wait(wanted, count) if count else self.received(wanted))]

    def _run(self, invocation: Json) -> None:
        for message in self.tools[invocation["operation"]](invocation):
            if message.get("subscription"):
                self.by_id[invocation["id"]] = invocation
            self.send(invocation, message)
