"""Callers that behave as a RAP runtime does: the same message again until somebody takes it, and at times once more after that."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.crash.call_log import CallLog
from tests.crash.history import Call

_MIX = {"quick": 4, "slow": 3, "put": 2, "pay": 4, "block": 1, "stamp": 2, "refuse": 1, "fail": 1}
_SECONDS = {"put": (0.0, 0.1), "pay": (0.0, 0.2), "block": (0.05, 0.3), "stamp": (0.0, 0.1)}


@dataclass
class Load:
    """Makes calls that are simply answered: `most` at most; slow ones take up to `longest` seconds."""

    ledger: CallLog
    random: random.Random
    most: int
    longest: float = 0.5
    _stopped: bool = False

    async def run(self, senders: int, pause: float) -> None:
        """Send until stopped or `most` calls were made, then see to it that those under way are taken too."""
        await asyncio.gather(*(self._sender(pause) for _ in range(senders)))

    def stop(self) -> None:
        self._stopped = True

    async def burst(self, count: int, on_first: Callable[[], None]) -> None:
        """So many calls at once; `on_first` is called when the first of them is acknowledged."""
        called = False

        async def one() -> None:
            nonlocal called
            await self._send(self._make())
            if not called:
                called = True
                on_first()

        await asyncio.gather(*(one() for _ in range(count)))

    async def _sender(self, pause: float) -> None:
        while not self._stopped and len(self.ledger.sent) < self.most:
            await self._send(self._make())
            await asyncio.sleep(self.random.uniform(0, 2 * pause))

    def _make(self) -> Call:
        tool = self.random.choices(list(_MIX), list(_MIX.values()))[0]
        least, longest = (0.05, self.longest) if tool == "slow" else _SECONDS.get(tool, (0.0, 0.0))
        return self.ledger.make(tool, self.random.uniform(least, longest))

    async def _send(self, call: Call) -> None:
        copies = 2 if self.random.random() < 0.05 else 1
        patient = self.random.random() >= 0.02
        await asyncio.gather(*(self.ledger.send(call, patient=patient) for _ in range(copies)))
        if self.ledger.sent[call.n].acknowledged and self.random.random() < 0.1:
            # A runtime whose own record of the 200 was lost: while the call runs, or when it has ended.
            await asyncio.sleep(self.random.choice((0.0, 0.5)))
            await self.ledger.send(call, patient=False)
