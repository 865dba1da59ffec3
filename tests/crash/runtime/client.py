"""The client API, as somebody uses it who says a thing again, under the same key, until it is acknowledged."""

import asyncio
import json
import random
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Self

from pyreqwest.client import Client as HttpClient
from pyreqwest.client import ClientBuilder
from pyreqwest.exceptions import PyreqwestError

from tests.crash.runtime.ledger import Ledger, Spoken, Wish

_IMPATIENCE = 0.1
_TOO_LATE = (404, 409)
"""The call has ended, the question was answered, the thread is closed."""


@dataclass(frozen=True)
class Glance:
    """A thread at a moment: its calls and subscriptions by id, each with the key it was made with; what is asked, by call; its children.

    What has no key is known by what it asks.
    """

    status: str
    pending: dict[str, str]
    subscriptions: dict[str, str]
    choices: dict[str, "Asked"]
    children: tuple[str, ...] = ()
    has_task: bool = False


@dataclass(frozen=True)
class Asked:
    """A question to the user."""

    choices: tuple[str, ...]
    in_words: bool


@dataclass
class Client:
    """Knocks at any of the runtimes, for every attempt anew, and writes down what comes of it. `refused` is what nobody may answer."""

    ports: list[int]
    random: random.Random
    ledger: Ledger = field(default_factory=Ledger)
    refused: list[str] = field(default_factory=list)
    _http: HttpClient | None = None

    async def __aenter__(self) -> Self:
        self._http = ClientBuilder().timeout(timedelta(seconds=5)).no_proxy().build()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._http is not None:
            await self._http.__aexit__(None, None, None)

    async def create(self, key: str, text: str) -> str:
        begun = time.monotonic()
        answers = await self._repeatedly("", {"text": text, "user_id": "u"}, key)
        ids = {str(made["thread_id"]) for _, made in answers}
        if len(ids) > 1:
            self.refused.append(f"one request made the threads {sorted(ids)}")
        thread_id = min(ids)
        self.ledger.threads.append(thread_id)
        self.ledger.spoken.append(Spoken(thread_id, text, begun, time.monotonic()))
        return thread_id

    async def send(self, thread_id: str, key: str, text: str) -> None:
        begun = time.monotonic()
        taken = await self._post(f"/{thread_id}/messages", {"text": text}, key)
        self.ledger.spoken.append(Spoken(thread_id, text, begun, time.monotonic() if taken else None))

    async def cancel(self, thread_id: str, call_id: str, key: str) -> None:
        taken = await self._post(f"/{thread_id}/calls/{call_id}/cancel", None, key)
        self.ledger.wishes.append(Wish("cancel", thread_id, call_id, taken))

    async def choose(self, thread_id: str, call_id: str, selected: int | None, key: str) -> None:
        taken = await self._post(f"/{thread_id}/calls/{call_id}/choice", {"selected": selected}, key)
        self.ledger.wishes.append(Wish("choice", thread_id, call_id, taken, selected))

    async def answer(self, thread_id: str, call_id: str, text: str, key: str) -> None:
        taken = await self._post(f"/{thread_id}/calls/{call_id}/answer", {"text": text}, key)
        self.ledger.wishes.append(Wish("answer", thread_id, call_id, taken, text))

    async def close(self, thread_id: str, key: str) -> None:
        if await self._post(f"/{thread_id}/close", None, key):
            self.ledger.closed.add(thread_id)

    async def look(self, thread_id: str) -> Glance:
        _, seen = await self._send_until_accepted("GET", f"/{thread_id}")
        asking = {each["call_id"]: Asked(tuple(each["choices"]), each["in_words"]) for each in seen["choices"]}
        pending, subscriptions = _keys(seen["pending_calls"]), _keys(seen["subscriptions"])
        return Glance(seen["status"], pending, subscriptions, asking, tuple(seen["children"]), seen["task"] is not None)

    async def _post(self, path: str, body: dict[str, Any] | None, key: str) -> bool:
        """Whether it was taken; it may have come too late."""
        return all(status not in _TOO_LATE for status, _ in await self._repeatedly(path, body, key))

    async def _repeatedly(self, path: str, body: dict[str, Any] | None, key: str) -> list[tuple[int, dict[str, Any]]]:
        """The same once, or twice at the same time, perhaps to different runtimes: a client may be impatient."""
        copies = 2 if self.random.random() < _IMPATIENCE else 1
        return await asyncio.gather(*(self._send_until_accepted("POST", path, body, key) for _ in range(copies)))

    async def _send_until_accepted(
        self, method: str, path: str, body: dict[str, Any] | None = None, key: str | None = None
    ) -> tuple[int, dict[str, Any]]:
        while True:
            answer = await self._knock(method, path, body, key)
            if answer is not None and answer[0] < 500:
                if answer[0] >= 400 and answer[0] not in _TOO_LATE:
                    self.refused.append(f"{method} {path} was answered {answer}")
                return answer
            await asyncio.sleep(self.random.uniform(0.02, 0.2))

    async def _knock(
        self, method: str, path: str, body: dict[str, Any] | None, key: str | None
    ) -> tuple[int, dict[str, Any]] | None:
        """The answer, or None if nobody gave one."""
        assert self._http is not None
        url = f"http://127.0.0.1:{self.random.choice(self.ports)}/v1/threads{path}"
        request = self._http.request(method, url)
        if body is not None:
            request = request.headers({"content-type": "application/json"}).body_bytes(json.dumps(body).encode())
        if key is not None:
            request = request.headers({"idempotency-key": key})
        try:
            response = await request.build().send()
            return response.status, json.loads(bytes(await response.bytes()))
        except PyreqwestError:
            return None


def _keys(calls: list[dict[str, Any]]) -> dict[str, str]:
    named = ((call["call_id"], call["arguments"]) for call in calls)
    return {call_id: arguments.get("key") or arguments.get("question", "") for call_id, arguments in named}
