"""The calls of a test: numbered, sent until somebody takes them, and written down."""

import asyncio
import itertools
import json
import time
from dataclasses import dataclass, field, replace
from typing import Any

from tests.crash.history import Call, Sent, Stream
from tests.crash.retrying_client import RetryingClient

_CALLS_PER_THREAD = 7


@dataclass
class CallLog:
    """All that was sent, by number. `sink` is the port that results go to; `refused` is what nobody may answer."""

    door: RetryingClient
    sink: int
    sent: dict[int, Sent] = field(default_factory=dict)
    streams: dict[int, Stream] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def make(self, tool: str, seconds: float = 0.0, user_id: str | None = None) -> Call:
        """A call that is about to be sent."""
        call = self._call(tool, seconds, user_id)
        self.sent[call.n] = Sent(call, time.monotonic(), acknowledged=False)
        return call

    def subscribe(self, tool: str, last: int = 0, topic: str | None = None) -> Call:
        """A subscription that is about to be sent."""
        call = self._call(tool, 0.0, None)
        # In threads of their own, so that these can be closed.
        call = replace(call, group_id=f"stream_{call.n}")
        self.streams[call.n] = Stream(call, time.monotonic(), acknowledged=False, last=last, topic=topic)
        return call

    def _call(self, tool: str, seconds: float, user_id: str | None) -> Call:
        n = next(self._numbers)
        # The ids of models are not unique: the same ones come in every thread.
        group, id = divmod(n, _CALLS_PER_THREAD)
        call_id = f"model_{n}" if n % 3 == 0 else None
        return Call(n, tool, round(seconds, 3), f"thread_{group}", f"call_{id}", call_id, user_id)

    async def send(self, call: Call, arguments: dict[str, Any] | None = None, *, patient: bool = True) -> None:
        """Send a call until it is taken or refused; once, if impatient."""
        body = self._body(call, arguments or {"seconds": call.seconds})

        async def knock() -> int | None:
            return await self.door.post("/invoke", body)

        status = (await self.door.insist(knock))[-1] if patient else await knock()
        if status == 200:
            self._acknowledge(call.n)
        elif status is not None and status < 500:
            self.refused.append(f"{call} was answered {status}")

    def _body(self, call: Call, arguments: dict[str, Any]) -> bytes:
        return json.dumps(
            {
                "operation": call.tool,
                "arguments": {"n": call.n, **arguments},
                "id": call.id,
                "call_id": call.call_id,
                "group_id": call.group_id,
                "user_id": call.user_id,
                "callback_url": f"http://127.0.0.1:{self.sink}{call.path}",
            }
        ).encode()

    def _acknowledge(self, n: int) -> None:
        if n in self.sent:
            self.sent[n] = replace(self.sent[n], acknowledged=True)
        else:
            self.streams[n] = replace(self.streams[n], acknowledged=True)

    async def cancel(self, call: Call, *, close: bool = False) -> None:
        """Have a call cancelled, or its whole thread closed, until that is answered with 200."""
        if call.n in self.sent:
            self.sent[call.n] = replace(self.sent[call.n], cancelled_at=time.monotonic())
        else:
            self.streams[call.n] = replace(self.streams[call.n], cancelled_at=time.monotonic())
        path = "/close_thread" if close else "/cancel_tool_call"
        notice = {"thread_id": call.group_id} | ({} if close else {"tool_call_id": call.id})
        statuses = await self.door.insist(lambda: self.door.post(path, json.dumps(notice).encode()))
        if statuses[-1] != 200:
            self.refused.append(f"the cancellation of {call} was answered {statuses}")
        elif call.n in self.streams:
            self.streams[call.n] = replace(self.streams[call.n], silent_from=time.monotonic())

    async def mark(self, call: Call) -> None:
        """Have the sink write down that a subscription was cancelled before."""
        await self.door.insist(lambda: self._mark(self.streams[call.n].mark))

    async def _mark(self, path: str) -> int | None:
        # On a connection of its own, which the sink has to accept first: what was in its sockets before that, it has read by then.
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.sink)
        except OSError:
            return None
        try:
            id = path.replace("/", "_")
            writer.write(f"POST {path} HTTP/1.1\r\nwebhook-id: {id}\r\ncontent-length: 2\r\n\r\n{{}}".encode())
            return int((await reader.readline()).split()[1])
        except (OSError, IndexError):
            return None  # it was killed
        finally:
            writer.close()
