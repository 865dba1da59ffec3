"""A store whose disk takes its time, and which is watched: what became a fact, when, and what was refused."""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, cast

from rapkit.errors import Fenced, StoreError
from rapkit.keyring import Keyring
from rapkit.mailbox import Claim, Commit, Outgoing, Store, TakenPost
from rapkit.stores.sqlite import SqliteStore
from rapkit.stores.sqlite.writer import Transaction
from rapkit.testing.crashable_run import CrashableRun
from tests.simulation.observed_history import Did, Message, ObservedHistory

_SLOW = {"create", "create_claimed", "accept", "note", "claim", "commit", "stop", "take", "settle"}
_NEVER_FAIL = {"stop"}
"""A notice is acknowledged even if it could not be heeded, so nothing would follow from its acknowledgement."""
_FAILURES = 0.01


class SlowStore(SqliteStore):
    """In memory, but a flush takes as long as on a disk: meanwhile operations gather, and nobody hears of those that are done."""

    def __init__(self, seed: str, clock: Callable[[], float], stories: Mapping[str, ObservedHistory]) -> None:
        super().__init__(":memory:", Keyring.random(), clock=clock)
        self.fails = False
        """Whether an operation fails now and then, done or not."""
        self._dice = Random(f"{seed}/disk")
        self._stories = stories
        self._messages: dict[str, Message] = {}
        writer: Any = self._writer
        self._answer = writer._flushed
        writer._flushed = self._flush
        boxes: Any = self._boxes
        self._commit = boxes.commit
        boxes.commit, boxes._enqueue = self._watch_commit, self._watch_post

    def message(self, id: str) -> Message:
        """A message that was committed."""
        return self._messages[id]

    def rows(self, statement: str) -> list[Any]:
        """What is in the database at this moment."""
        return self._writer._db.execute(statement).fetchall()

    def _flush(self, *done: Any) -> None:
        writer: Any = self._writer
        writer._flushing = True
        delay = self._dice.choice((0.0, 0.0002, self._dice.uniform(0, 0.001), self._dice.uniform(0, 0.006)))
        asyncio.get_running_loop().call_later(delay, self._answer, *done)

    # The writer may roll back and do it again, because of somebody else in the same transaction: so all is noted once.

    def _watch_commit(self, claim: Claim, commit: Commit, sender: str | None, tx: Transaction) -> Any:
        try:
            return self._commit(claim, commit, sender, tx)
        except Fenced:
            for outgoing in commit.outgoing:
                if outgoing.id not in self._messages:
                    self._note(Did.FENCED, outgoing)
            raise

    def _watch_post(self, outgoing: Outgoing, sender: str | None, tx: Transaction) -> TakenPost | None:
        taken = self._outbox.enqueue(outgoing, sender, tx)
        if outgoing.id not in self._messages:
            message = self._note(Did.COMMITTED, outgoing)
            self._stories[message.thread].messages.append(message)
        return taken

    def _note(self, did: Did, outgoing: Outgoing) -> Message:
        message = self._messages[outgoing.id] = Message.read(outgoing.id, outgoing.url, outgoing.body)
        message.committed = self._stories[message.thread].note(did, message.kind, message.call, str(message))
        return message

    def _ring(self, topics: set[str] | None) -> None:
        # In an order that does not depend on how strings are hashed.
        for topic in sorted(self._wakeups if topics is None else topics):
            self._wakeup(topic).set()


class Hands:
    """The store in the hands of one server, which is slow to reach for it, and dies with its life."""

    def __init__(self, life: CrashableRun, disk: SlowStore, dice: Random) -> None:
        self._life = life
        self._disk = disk
        self._store = life.store
        self._dice = dice

    @property
    def store(self) -> Store:
        """As the server knows it."""
        return cast("Store", self)

    async def wait(self, topic: str, at_most: float) -> None:
        """By the clock of the loop, which is the only one there is."""
        await self._disk.wait(topic, at_most)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not inspect.iscoroutinefunction(method) or name not in _SLOW:
            return method

        async def operation(*arguments: Any, **options: Any) -> Any:
            if self._life.over:
                return await method(*arguments, **options)
            await self._dally()
            may_fail = self._disk.fails and name not in _NEVER_FAIL
            if may_fail and self._dice.random() < _FAILURES:
                raise StoreError("The disk is out of order.")
            result = await method(*arguments, **options)
            if may_fail and not _holds(name, result) and self._dice.random() < _FAILURES:
                raise StoreError("The disk is out of order, or so it says.")
            return result

        vars(self)[name] = operation
        return operation

    async def _dally(self) -> None:
        """Give others the chance to be first."""
        if self._dice.random() < 0.5:
            await asyncio.sleep(self._dice.choice((0.0, self._dice.uniform(0, 0.002), self._dice.uniform(0, 0.008))))


def _holds(name: str, result: object) -> bool:
    """Whether the server holds something now. If it does not hear of it nobody else gets it, as long as the server lives."""
    return name in ("create_claimed", "claim", "take") or (name == "commit" and bool(result))
