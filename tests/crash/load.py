"""Callers that behave as a RAP runtime does: the same message again until somebody takes it, and at times once more after that."""

import asyncio
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import PyreqwestError

from tests.crash.history import Call, Sent

_MIX = {"quick": 4, "slow": 3, "put": 2, "pay": 4, "block": 1, "stamp": 2, "refuse": 1, "fail": 1}
_SECONDS = {"put": (0.0, 0.1), "pay": (0.0, 0.2), "block": (0.05, 0.3), "stamp": (0.0, 0.1)}
_CALLS_PER_THREAD = 7


@dataclass
class Load:
    """Makes calls and keeps account of them. `servers` are the ports to choose from, for every attempt anew.

    `most` calls are made at most; slow ones take up to `longest` seconds.
    """

    servers: list[int]
    sink: int
    random: random.Random
    most: int
    longest: float = 0.5
    sent: dict[int, Sent] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    _next: int = 0
    _stopped: bool = False

    async def run(self, senders: int, pause: float) -> None:
        """Send until stopped or `most` calls were made, then see to it that those under way are taken too."""
        async with _client() as client:
            await asyncio.gather(*(self._sender(client, pause) for _ in range(senders)))

    def stop(self) -> None:
        self._stopped = True

    async def burst(self, count: int, on_first: Callable[[], None]) -> None:
        """So many calls at once; `on_first` is called when the first of them is acknowledged."""
        called = False

        async def one(client: Client) -> None:
            nonlocal called
            await self._send(client, self._make())
            if not called:
                called = True
                on_first()

        async with _client() as client:
            await asyncio.gather(*(one(client) for _ in range(count)))

    async def _sender(self, client: Client, pause: float) -> None:
        while not self._stopped and len(self.sent) < self.most:
            await self._send(client, self._make())
            await asyncio.sleep(self.random.uniform(0, 2 * pause))

    def _make(self) -> Call:
        n, self._next = self._next, self._next + 1
        tool = self.random.choices(list(_MIX), list(_MIX.values()))[0]
        least, longest = (0.05, self.longest) if tool == "slow" else _SECONDS.get(tool, (0.0, 0.0))
        seconds = round(self.random.uniform(least, longest), 3)
        # The ids of models are not unique: the same ones come in every thread.
        group, id = divmod(n, _CALLS_PER_THREAD)
        call = Call(n, tool, seconds, f"thread_{group}", f"call_{id}", f"model_{n}" if n % 3 == 0 else None)
        self.sent[n] = Sent(call, time.monotonic(), acknowledged=False)
        return call

    async def _send(self, client: Client, call: Call) -> None:
        copies = 2 if self.random.random() < 0.05 else 1
        patient = self.random.random() >= 0.02
        await asyncio.gather(*(self._insist(client, call, patient) for _ in range(copies)))
        if self.sent[call.n].acknowledged and self.random.random() < 0.1:
            # A runtime whose own record of the 200 was lost: while the call runs, or when it has ended.
            await asyncio.sleep(self.random.choice((0.0, 0.5)))
            await self._insist(client, call, patient=False)

    async def _insist(self, client: Client, call: Call, patient: bool) -> None:
        body = json.dumps(
            {
                "operation": call.tool,
                "arguments": {"n": call.n, "seconds": call.seconds},
                "id": call.id,
                "call_id": call.call_id,
                "group_id": call.group_id,
                "callback_url": f"http://127.0.0.1:{self.sink}{call.path}",
            }
        ).encode()
        while True:
            status = await self._post(client, body)
            if status == 200:
                before = self.sent[call.n]
                self.sent[call.n] = Sent(call, before.at, acknowledged=True)
                return
            if status is not None and status < 500:
                self.refused.append(f"{call} was answered {status}")
                return
            if not patient:
                return
            await asyncio.sleep(self.random.uniform(0.02, 0.15))

    async def _post(self, client: Client, body: bytes) -> int | None:
        url = f"http://127.0.0.1:{self.random.choice(self.servers)}/invoke"
        request = client.post(url).header("content-type", "application/json").body_bytes(body)
        try:
            response = await request.build().send()
        except PyreqwestError:
            return None
        return response.status


def _client() -> Client:
    return ClientBuilder().timeout(timedelta(seconds=5)).no_proxy().build()
