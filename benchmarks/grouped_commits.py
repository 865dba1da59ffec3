"""The least that durable writes to SQLite take: one thread with one connection, which commits what has piled up in one transaction.

For the floor programs. It has nothing that makes a store of it: no leases, no fences, no schema versions, no retries.
"""

import asyncio
import queue
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, TypeAlias

import apsw

Statement: TypeAlias = tuple[str, tuple[Any, ...]]
_Waiting: TypeAlias = tuple[Sequence[Statement], "asyncio.Future[None]"]

_MOST_IN_ONE_TRANSACTION = 256


class GroupedCommits:
    """Commits statements durably (`synchronous=FULL`), those of several callers together."""

    def __init__(self, file: Path, schema: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._connection = apsw.Connection(str(file))
        for each in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", *schema.split(";")):
            self._connection.execute(each)
        self.reader = apsw.Connection(str(file))
        """For reading on the event loop."""
        self._thread = threading.Thread(target=self._run)

    async def __aenter__(self) -> Self:
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        self.reader.close()
        self._connection.close()

    async def commit(self, *statements: Statement) -> None:
        """Return when they are on disk."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._queue.put((statements, done))
        await done

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            batch = [first]
            while len(batch) < _MOST_IN_ONE_TRANSACTION and not self._queue.empty():
                another = self._queue.get()
                if another is None:
                    self._queue.put(None)
                    break
                batch.append(another)
            execute = self._connection.execute
            execute("BEGIN IMMEDIATE")
            for statements, _ in batch:
                for sql, values in statements:
                    execute(sql, values)
            execute("COMMIT")
            self._loop.call_soon_threadsafe(_wake, batch)


def _wake(batch: Sequence[_Waiting]) -> None:
    for _, done in batch:
        done.set_result(None)
