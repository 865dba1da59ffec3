"""Those who subscribe, and at times change their minds; and the sources that tell the server what there is to hear of."""

import asyncio
import hashlib
import hmac
import json
import random
import time
from dataclasses import dataclass, field, replace
from typing import Any

from rapkit.delivery import signatures
from tests.crash.call_log import CallLog
from tests.crash.history import Call, Emission

GITHUB_SECRET = "a secret that only the source knows"
STANDARD_SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
TOPICS = {"weather": "/hooks/github", "sports": "/hooks/standard"}

_A_SEASON = 60
_MIX = {"count": 3, "count_slowly": 2, "count_plainly": 2, "count_out": 1, "news": 4}


@dataclass
class Subscribers:
    """Make subscriptions, cancel some of them, close the threads of others."""

    ledger: CallLog
    random: random.Random
    _stopped: bool = False

    async def run(self, subscribers: int, pause: float) -> None:
        """Subscribe until stopped; what was begun is brought to an end."""
        await asyncio.gather(*(self._subscriber(pause) for _ in range(subscribers)))

    def stop(self) -> None:
        self._stopped = True

    async def _subscriber(self, pause: float) -> None:
        async with asyncio.TaskGroup() as changes_of_mind:
            while not self._stopped:
                call = await self._subscribe()
                if self.random.random() < 0.4:
                    changes_of_mind.create_task(self._cancel(call))
                await asyncio.sleep(self.random.uniform(0, 2 * pause))

    async def _subscribe(self) -> Call:
        tool = self.random.choices(list(_MIX), list(_MIX.values()))[0]
        arguments: dict[str, Any]
        if tool == "news":
            topic = self.random.choice(list(TOPICS))
            call, arguments = self.ledger.subscribe(tool, topic=topic), {"topic": topic}
        else:
            last = self.random.randint(1, 60)
            pause = self.random.uniform(0.0, 0.05)
            call, arguments = self.ledger.subscribe(tool, last), {"last": last, "pause": pause}
        await self.ledger.send(call, arguments)
        if self.random.random() < 0.1:
            await self.ledger.send(call, arguments, patient=False)
        return call

    async def _cancel(self, call: Call) -> None:
        await asyncio.sleep(self.random.choice((0.0, self.random.uniform(0, 2))))
        await self.ledger.cancel(call, close=self.random.random() < 0.3)
        await self.ledger.mark(call)


@dataclass
class Source:
    """Tells of one topic, one thing after another, each until it is acknowledged. Now and then something ends whoever has heard of it."""

    topic: str
    ledger: CallLog
    random: random.Random
    emissions: list[Emission] = field(default_factory=list)
    _stopped: bool = False

    async def run(self, pause: float) -> None:
        """Tell until stopped."""
        while not self._stopped:
            await self._tell(last=len(self.emissions) % _A_SEASON == _A_SEASON - 1)
            await asyncio.sleep(self.random.uniform(0, 2 * pause))

    def stop(self) -> None:
        self._stopped = True

    async def say_that_it_ends(self) -> None:
        """The last thing there is to tell."""
        await self._tell(last=True)

    async def _tell(self, *, last: bool) -> None:
        number = len(self.emissions)
        self.emissions.append(Emission(self.topic, number, time.monotonic(), last=last))
        body = json.dumps({"topic": self.topic, "number": number, "last": last}).encode()
        path = TOPICS[self.topic]
        statuses = await self.ledger.door.insist(lambda: self.ledger.door.post(path, body, self._sign(number, body)))
        if statuses[-1] != 200:
            self.ledger.refused.append(f"what {self.topic} told was answered {statuses}")
            return
        self.emissions[number] = replace(self.emissions[number], acknowledged_at=time.monotonic())
        if self.random.random() < 0.1:  # a source that has lost its record of the 200
            await self.ledger.door.post(path, body, self._sign(number, body))

    def _sign(self, number: int, body: bytes) -> dict[str, str]:
        id = f"{self.topic}-{number}"
        if TOPICS[self.topic] == "/hooks/standard":
            return signatures.headers(id, time.time(), body, [STANDARD_SECRET])
        digest = hmac.new(GITHUB_SECRET.encode(), body, hashlib.sha256).hexdigest()
        return {"x-hub-signature-256": f"sha256={digest}", "x-github-delivery": id, "x-github-event": "news"}
