"""A runtime as others have written them: it sends invocations with explicit nulls, leaves `user_id` out, and takes callbacks at one URL.

Standard library only. It keeps every callback; `answers` decides what a callback is answered with.
"""

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.interop.http_peer import Answer, HttpPeer, Json, Received, get, post


class ForeignRuntime(HttpPeer):
    """Calls a tool server at `server`. Its callback URL has no path of its own unless `callback_path` says so."""

    def __init__(
        self,
        server: str = "",
        *,
        answers: Callable[[Received], Answer] = lambda _: Answer(),
        callback_path: str = "/callback",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.server = server.rstrip("/")
        self.answers = answers
        self.headers = dict(headers or {})
        self._callback_path = callback_path
        self._numbers = itertools.count(1)

    @property
    def callback_url(self) -> str:
        """Where tools send their messages, for all calls alike."""
        return f"{self.url}{self._callback_path}"

    def answer(self, request: Received) -> Answer:
        """Answer a callback as the test wants it."""
        return self.answers(request)

    def discover(self) -> Json:
        """Fetch the toolset."""
        status, body = get(f"{self.server}/.well-known/rap-toolset", self.headers)
        assert status == 200, body
        document: Json = json.loads(body)
        return document

    def invocation(self, operation: str, arguments: Any = None, **fields: Any) -> Json:
        """An invocation as this runtime writes it: explicit nulls, no user; `fields` replaces or adds."""
        return {
            "operation": operation,
            "arguments": {} if arguments is None else arguments,
            "id": f"call_{next(self._numbers)}",
            "call_id": None,
            "callback_url": self.callback_url,
            "group_id": "thread-1",
            "thread_ancestors": None,
            **fields,
        }

    def call(self, operation: str, arguments: Any = None, **fields: Any) -> Json:
        """Send an invocation, which must be acknowledged; return it."""
        invocation = self.invocation(operation, arguments, **fields)
        status, body = self.send("/invoke", invocation)
        assert status == 200, (status, body)
        return invocation

    def send(self, path: str, message: Any, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
        """POST anything to a path of the tool server."""
        return post(f"{self.server}{path}", message, {**self.headers, **(headers or {})})

    def close_thread(self, thread_id: str = "thread-1") -> int:
        """Say that a thread was closed."""
        return self.send("/close_thread", {"thread_id": thread_id})[0]

    def cancel(self, invocation: Json) -> int:
        """Say that a call was cancelled."""
        return self.send("/cancel_tool_call", {"thread_id": invocation["group_id"], "tool_call_id": invocation["id"]})[
            0
        ]

    def callbacks(
        self, kind: str | None = None, count: int = 0, where: Callable[[Json], bool] = lambda _: True
    ) -> list[Json]:
        """The messages that came to the callback URL, of one `type` if it is named; wait until there are `count`."""

        def wanted(request: Received) -> bool:
            return request.method == "POST" and kind in (None, request.json["type"]) and where(request.json)

        return [request.json for request in (self.wait(wanted, count) if count else self.received(wanted))]

    def result_of(self, invocation: Json) -> Json:
        """Wait for the result of a call."""
        return self.callbacks("tool_result", 1, lambda message: message["id"] == invocation["id"])[0]
