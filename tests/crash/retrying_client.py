"""The servers' doors, as callers, sources and users know them: they knock again when nobody answers."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Literal, Self

from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import PyreqwestError

Moment = Literal["sent", "answered"]


class RetryingClient:
    """Where requests go. `ports` are the servers to choose from, for every attempt anew."""

    def __init__(self, ports: list[int], random: random.Random) -> None:
        self._ports = ports
        self._random = random
        self._client: Client | None = None
        self._ambushes: dict[tuple[str, Moment], asyncio.Future[None]] = {}

    async def __aenter__(self) -> Self:
        self._client = ClientBuilder().timeout(timedelta(seconds=5)).no_proxy().build()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.__aexit__(None, None, None)

    def ambush(self, path: str, moment: Moment) -> "asyncio.Future[None]":
        """Done when the next request to a path that begins so is sent, or was answered with 200."""
        return self._ambushes.setdefault((path, moment), asyncio.get_running_loop().create_future())

    async def post(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> int | None:
        """Knock once; the status, or None if nobody answered."""
        assert self._client is not None
        url = f"http://127.0.0.1:{self._random.choice(self._ports)}{path}"
        kind = {"content-type": "application/json"}
        request = self._client.post(url).headers({**kind, **(headers or {})}).body_bytes(body)
        self.spring(path, "sent")
        try:
            response = await request.build().send()
        except PyreqwestError:
            return None
        if response.status == 200:
            self.spring(path, "answered")
        return response.status

    def spring(self, path: str, moment: Moment) -> None:
        """A request to a path is sent, or was answered."""
        for key in [key for key in self._ambushes if path.startswith(key[0]) and key[1] == moment]:
            waiting = self._ambushes.pop(key)
            if not waiting.done():
                waiting.set_result(None)

    async def insist(self, knock: Callable[[], Awaitable[int | None]]) -> tuple[int | None, ...]:
        """Knock until somebody gives an answer that is final; the statuses of all attempts."""
        statuses: list[int | None] = []
        while True:
            status = await knock()
            statuses.append(status)
            if status is not None and status < 500:
                return tuple(statuses)
            await asyncio.sleep(self._random.uniform(0.02, 0.15))
