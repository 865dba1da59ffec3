"""The two endpoints of the table: where invocations come in, and where callbacks do."""

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tests.interop.foreign_runtime import ForeignRuntime
from tests.interop.foreign_server import ForeignServer
from tests.interop.http_peer import Json, eventually, get, post
from tests.interop.processes import OurRuntime, OurServer

LIMIT = 1024 * 1024
"""Bytes that both endpoints take."""

FAR_TOO_LARGE = 8 * LIMIT
"""Bytes that do not fit into the buffers of a connection, so that a sender which is not read from notices."""

TOKEN = "token-of-the-table"
AUTHORIZED = f"Authorization: Bearer {TOKEN}"

PAUSE = 2
"""Seconds that may pass without a byte of a body."""

TOOLS = f"""
    from rapkit import HttpLimits, Limits, Toolset

    tools = Toolset("lengths", limits=Limits(body={LIMIT}, http=HttpLimits(body_pause_seconds={PAUSE})))

    @tools.tool
    async def length(text: str) -> str:
        return str(len(text))
"""

PLAN = """
- user: work
  calls: [work]
- say: Fine.
"""


@dataclass(frozen=True)
class Message:
    """A message that its endpoint takes: `head`, then any number of letters, then `tail`. `arrived` waits until so many have."""

    url: str
    headers: tuple[str, ...]
    head: str
    tail: str
    arrived: Callable[[int], None]


@dataclass(frozen=True)
class Refused:
    """A request that is refused: where it goes, and what it is answered. Unless it says so, its body is far past every limit."""

    url: str
    status: int
    method: str = "POST"
    headers: tuple[str, ...] = ()
    head: str = '{"text": "'
    tail: str = '"}'
    new_mails: int = FAR_TOO_LARGE


class Endpoint(Protocol):
    """One of the two. Its URLs are those of the process itself; `url` is the part that a proxy replaces."""

    name: str
    url: str

    def message(self) -> Message:
        """A new message that is taken."""
        ...

    def refused(self) -> dict[str, Refused]:
        """Requests that are refused, by name."""
        ...


class Invocations:
    """`/invoke` of a tool server."""

    name = "server"

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._runtime: ForeignRuntime = ForeignRuntime().__enter__()
        self._numbers = itertools.count()
        options = ["--token", f"table={TOKEN}", "--allow-callback", "127.0.0.1"]
        self.process = OurServer(folder, TOOLS, options)
        self.process.start()
        self.url = self.process.url

    def message(self) -> Message:
        """An invocation that is taken, of a tool that measures its argument."""
        call = {
            "id": f"call_{next(self._numbers)}",
            "group_id": "thread-1",
            "callback_url": self._runtime.callback_url,
            "operation": "length",
            "arguments": {"text": "|"},
        }
        head, tail = json.dumps(call).split("|")

        def arrived(new_mails: int) -> None:
            assert self._runtime.result_of(call)["text"] == str(new_mails)

        return Message(f"{self.url}/invoke", (AUTHORIZED,), head, tail, arrived)

    def refused(self) -> dict[str, Refused]:
        """Requests that are refused, by name."""
        return {
            "no token": Refused(f"{self.url}/invoke", 401),
            "unknown path": Refused(f"{self.url}/nothing", 404, headers=(AUTHORIZED,)),
            "wrong method": Refused(f"{self.url}/invoke", 405, "PUT", (AUTHORIZED,)),
        }

    def end(self) -> None:
        """End it."""
        self.process.kill()
        self._runtime.__exit__()


class Callbacks:
    """`/callback/` of an agent."""

    name = "runtime"

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._server: ForeignServer = ForeignServer({"work": lambda _: []}).__enter__()
        tables: dict[str, Json] = {
            "agent.tokens": {"table": TOKEN},
            "agent.capacity": {"callback": LIMIT, "message": LIMIT},
            "agent.capacity.http": {"body_pause_seconds": PAUSE},
        }
        self.process = OurRuntime(folder, PLAN, [self._server.url], tables=tables)
        self.process.start()
        self.url = self.process.url
        self._gone = self._result_for_a_closed_thread()

    def message(self) -> Message:
        """A result of a call that a thread waits for."""
        call = self._call()
        head, tail = _result(call)

        def arrived(new_mails: int) -> None:
            eventually(lambda: f'"{"x" * new_mails}"' in self._history(call["group_id"]))

        return Message(call["callback_url"], (), head, tail, arrived)

    def refused(self) -> dict[str, Refused]:
        """Requests that are refused, by name."""
        return {
            "no token": Refused(f"{self.url}/v1/threads", 401),
            "unknown path": Refused(f"{self.url}/nothing", 404, headers=(AUTHORIZED,)),
            "unknown callback": Refused(f"{self.url}/callback/none-of-ours", 404),
            "wrong method": Refused(self._gone.url, 405, "PUT"),
            "closed thread": self._gone,
        }

    def end(self) -> None:
        """End it."""
        self.process.kill()
        self._server.__exit__()

    def _call(self) -> Json:
        thread = self._ask("/v1/threads", {"text": "work"})["thread_id"]
        (request,) = self._server.wait(lambda each: each.path == "/run" and each.json["group_id"] == thread)
        call: Json = request.json
        return call

    def _result_for_a_closed_thread(self) -> Refused:
        call = self._call()
        self._ask(f"/v1/threads/{call['group_id']}/close", {})
        self._server.notices("/close_thread", 1)
        head, tail = _result(call)
        return Refused(call["callback_url"], 410, head=head, tail=tail, new_mails=LIMIT - len(head) - len(tail))

    def _ask(self, path: str, message: Any) -> Json:
        status, body = post(f"{self.url}{path}", message, {"Authorization": f"Bearer {TOKEN}"})
        assert status < 300, (status, body)
        answer: Json = json.loads(body)
        return answer

    def _history(self, thread: str) -> str:
        status, body = get(f"{self.url}/v1/threads/{thread}/history", {"Authorization": f"Bearer {TOKEN}"})
        assert status == 200, body
        return body.decode()


def _result(call: Json) -> tuple[str, str]:
    answer = {"type": "tool_result", "group_id": call["group_id"], "id": call["id"], "text": "|"}
    head, tail = json.dumps(answer).split("|")
    return head, tail
