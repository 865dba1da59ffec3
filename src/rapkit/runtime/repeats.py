"""Requests that may come twice: whoever repeats one with its key gets the answer of the first, and nothing is done again.

What a key was used for is noted before anything is done, so that after a crash the repetition finds it and finishes the work; that the work
itself happens once is for its id to see to. Notes stay: there are never more of them than of what they led to, which stays as well.
"""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from rapkit.errors import StoreError, ThreadError
from rapkit.mailbox import Fact, NewBox, Store
from rapkit.runtime.letters import REMEMBERED

_MARGIN = 3600.0
_SHELF_DIGITS = 2


class KeyReused(ThreadError):
    """A key was used for something else, or so long ago that it cannot be told any more what became of it."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """A request under its key: where what became of it is noted, and what it asks for."""

    place: str
    asked: str

    @classmethod
    def of(cls, key: str | None, where: tuple[str, ...], asked: Any = None) -> Self | None:
        """What is asked of `where` under this key; None without one. Keys of different places have nothing to do with each other."""
        return None if key is None else cls(_digest([*where, key]), _digest(asked))


@dataclass(frozen=True, slots=True)
class Noted:
    """The id a request got the first time it came. `fresh` if that was now."""

    id: str
    fresh: bool


class Repeats:
    """What keys were used for."""

    def __init__(self, store: Store, now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._now = now

    async def find(self, request: Keyed | None) -> Noted | None:
        """What is noted of a request; None if it was not made before. `KeyReused` if the key was used for something else."""
        if request is None:
            return None
        for record in await self._store.records(_shelf(request).id, request.place):
            noted = json.loads(record.body)
            if noted["asked"] != request.asked:
                raise KeyReused("This key was used before, for something else. Use a new one for every new request.")
            if noted["at"] < self._now() - REMEMBERED + _MARGIN:
                raise KeyReused(
                    "This key was used days ago. Look at the thread to see what became of it; use a new key to do it again."
                )
            return Noted(noted["id"], fresh=False)
        return None

    async def note(self, request: Keyed | None, id: str) -> Noted:
        """Give a request this id, unless it has one; the one it has."""
        if request is None:
            return Noted(id, fresh=True)
        body = json.dumps({"id": id, "asked": request.asked, "at": self._now()}).encode()
        shelf = _shelf(request)
        if await self._store.note(shelf, Fact(shelf.id, request.place, "", body), None):
            return Noted(id, fresh=True)
        noted = await self.find(request)
        if noted is None:
            raise StoreError("It could not be noted under its key.")
        return noted


def _shelf(request: Keyed) -> NewBox:
    """The box beside which it is noted: one of several, so that requests do not wait for each other."""
    return NewBox(f"rapkit/requests/{request.place[:_SHELF_DIGITS]}", "requests", idle=True)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
