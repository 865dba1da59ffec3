"""Idempotency keys: a repeated request gets the first one's answer, and nothing is done twice.

What a key was used for is recorded before anything is done, so that after a crash the repetition finds it and finishes the work; that the
work itself happens once is for its id to see to.

A record is valid for almost four days, as long as duplicate mail is recognised. For four more days its key is refused; then it goes.
Records are spread over many small buckets by key, and a request that adds one removes expired ones from the same bucket.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from rapkit.errors import StoreError, ThreadError
from rapkit.mailbox import Fact, NewBox, Record, Store
from rapkit.runtime.mail_codec import REMEMBERED

_MARGIN = 3600.0
_KEPT = 2 * REMEMBERED
_DIGITS = 2
_MOST_CLEARED = 10


class KeyReused(ThreadError):
    """A key was used for something else, or so long ago that it cannot be told any more what became of it."""


@dataclass(frozen=True, slots=True)
class IdempotentRequest:
    """A request under its key: where its result is recorded, and what it asks for."""

    place: str
    asked: str

    @classmethod
    def of(cls, key: str | None, where: tuple[str, ...], asked: Any = None) -> Self | None:
        """What is asked of `where` under this key; None without one. Keys of different places have nothing to do with each other."""
        return None if key is None else cls(_digest([*where, key]), _digest(asked))

    @property
    def box(self) -> NewBox:
        """The box of its record: one of several, so that requests do not wait for each other."""
        return NewBox(f"rapkit/requests/{self.place[:_DIGITS]}", "requests", idle=True)

    @property
    def record_kind(self) -> str:
        """The bucket within the box, small enough to be read as a whole."""
        return f"noted/{self.place[_DIGITS : 2 * _DIGITS]}"


class IdempotencyKeys:
    """Records what keys were used for."""

    def __init__(self, store: Store, now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._now = now

    async def find(self, request: IdempotentRequest | None) -> str | None:
        """The id a request got; None if it was not made before. `KeyReused` if the key was used for something else, or too long ago."""
        if request is None:
            return None
        for record in await self._neighbours(request):
            noted = json.loads(record.body)
            if record.key != request.place or self._is_over(noted):
                continue
            if noted["asked"] != request.asked:
                raise KeyReused("This key was used before, for something else. Use a new one for every new request.")
            if noted["at"] < self._now() - REMEMBERED + _MARGIN:
                raise KeyReused(
                    "This key was used days ago. Look at the thread to see what became of it; use a new key to do it again."
                )
            return str(noted["id"])
        return None

    async def note(self, request: IdempotentRequest | None, id: str) -> str:
        """Give a request this id, unless it has one; the one it has."""
        if request is None:
            return id
        await self._clear(request)
        body = json.dumps({"id": id, "asked": request.asked, "at": self._now()}).encode()
        if await self._store.note(request.box, Fact(request.box.id, request.record_kind, request.place, body), None):
            return id
        noted = await self.find(request)
        if noted is None:
            raise StoreError("It could not be noted under its key.")
        return noted

    async def _neighbours(self, request: IdempotentRequest) -> list[Record]:
        return await self._store.records(request.box.id, request.record_kind)

    async def _clear(self, request: IdempotentRequest) -> None:
        """Drop expired records of the same bucket; only a few at once, because a client waits."""
        over = [each for each in await self._neighbours(request) if self._is_over(json.loads(each.body))]
        over.sort(key=lambda record: record.key != request.place)  # an old note under this key has to go first
        drops = [(Fact(request.box.id, each.kind, each.key, None), each.body) for each in over[:_MOST_CLEARED]]
        await asyncio.gather(*(self._store.note(request.box, fact, body) for fact, body in drops))

    def _is_over(self, noted: dict[str, Any]) -> bool:
        return bool(noted["at"] < self._now() - _KEPT)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
