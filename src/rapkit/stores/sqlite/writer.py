"""One thread, one connection, many callers: operations that are asked for together are committed together.

A disk can flush a few thousand times a second, however little is flushed. So while one transaction is being flushed the next
operations gather, and go into one transaction. First all of them are run plainly; if any fails, the transaction is rolled back and they are
run again with a savepoint each, so that the bad one fails alone. Nobody is told anything before the COMMIT has returned, and if that fails
everybody is told so. The event loop is woken once per transaction, not once per operation.
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import apsw

from rapkit.errors import StoreBusy, StoreError
from rapkit.stores.sqlite.connection import connect, explain

T = TypeVar("T")
Answer = tuple["asyncio.Future[Any]", Any, BaseException | None]

_MOST_IN_ONE_TRANSACTION = 512
_MOST_WAITING = 20_000
_CHECKPOINT_PAGES = 4_000
_LOOK_FOR_OTHERS_EVERY = 0.1

log = logging.getLogger("rapkit.store")


@dataclass(slots=True)
class Transaction:
    """What operations of one transaction share: the connection, the time, and the topics in which they made something due."""

    db: apsw.Connection
    now: float
    due: set[str] = field(default_factory=set)

    def rows(self, statement: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
        """All rows of a statement."""
        return self.db.execute(statement, bindings).fetchall()

    def row(self, statement: str, bindings: tuple[Any, ...] = ()) -> Any:
        """The first row of a statement, or None."""
        return self.db.execute(statement, bindings).fetchone()

    def write(self, statement: str, bindings: tuple[Any, ...] = ()) -> int:
        """How many rows a statement changed."""
        self.db.execute(statement, bindings)
        return self.db.changes()


Operation = Callable[[Transaction], Any]


class _Request(NamedTuple):
    operation: Operation
    writes: bool
    future: "asyncio.Future[Any]"


class Writer:
    """Runs operations on the connection's own thread.

    `on_due` is called on the event loop after a commit that made something due; with None when another process committed something.
    """

    def __init__(self, path: str, clock: Callable[[], float], on_due: Callable[[set[str] | None], None]) -> None:
        self._path = path
        self._clock = clock
        self._on_due = on_due
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._db = connect(path)
        self._wal_pages = 0
        self._data_version: int = self._db.pragma("data_version")
        self._closed = False
        self._db.set_wal_hook(self._note_wal_size)
        self._thread = threading.Thread(target=self._run, name=f"rapkit-store-{path}", daemon=True)
        self._thread.start()

    async def run(self, operation: Callable[[Transaction], T], *, writes: bool = True) -> T:
        """The operation's result, once it is durable."""
        if self._closed:
            raise StoreError(f"The store {self._path} is closed.")
        if self._requests.qsize() > _MOST_WAITING:
            raise StoreBusy(f"More than {_MOST_WAITING} operations wait for {self._path}.")
        future: asyncio.Future[T] = self._loop.create_future()
        self._requests.put(_Request(operation, writes, future))
        return await future

    async def close(self) -> None:
        """Finish what was asked for, then close the file."""
        if not self._closed:
            self._closed = True
            self._requests.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        open_ = True
        look_at = time.monotonic()
        while open_:
            batch, open_ = self._gather()
            if batch:
                answers, due = self._commit(batch)
                self._tell(answers, due)
                if self._wal_pages >= _CHECKPOINT_PAGES:
                    self._checkpoint()
            # Under load too: those who wait for what others write must not wait for a pause in what we write.
            if open_ and time.monotonic() >= look_at:
                look_at = time.monotonic() + _LOOK_FOR_OTHERS_EVERY
                if self._others_wrote():
                    self._tell([], None)
                open_ = not self._loop.is_closed()  # closed without closing us: nobody is left to work for
        self._db.close()

    def _gather(self) -> tuple[list[_Request], bool]:
        batch: list[_Request] = []
        try:
            request = self._requests.get(timeout=_LOOK_FOR_OTHERS_EVERY)
            while request is not None:
                batch.append(request)
                if len(batch) == _MOST_IN_ONE_TRANSACTION:
                    return batch, True
                request = self._requests.get_nowait()
        except queue.Empty:
            return batch, True
        return batch, False

    def _commit(self, batch: list[_Request]) -> tuple[list[Answer], set[str]]:
        begin = "BEGIN IMMEDIATE" if any(request.writes for request in batch) else "BEGIN"
        try:
            self._db.execute(begin)
            transaction = Transaction(self._db, self._clock())
            try:
                answers: list[Answer] = [(request.future, request.operation(transaction), None) for request in batch]
            except Exception as error:  # noqa: BLE001 - whatever it was comes again below, and is told to the one it belongs to
                self._give_up_if_rolled_back(error)
                self._db.execute("ROLLBACK")
                self._db.execute(begin)
                answers = [self._run_alone(request, transaction) for request in batch]
            self._db.execute("COMMIT")
        except apsw.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            problem = explain(error, self._path)
            return [(request.future, None, problem) for request in batch], set()
        return answers, transaction.due

    def _run_alone(self, request: _Request, transaction: Transaction) -> Answer:
        self._db.execute("SAVEPOINT alone")
        try:
            result = request.operation(transaction)
        except Exception as error:  # noqa: BLE001 - nothing an operation does may end the thread all others depend on
            self._give_up_if_rolled_back(error)
            self._db.execute("ROLLBACK TO alone; RELEASE alone")
            return (request.future, None, explain(error, self._path) if isinstance(error, apsw.Error) else error)
        self._db.execute("RELEASE alone")
        return (request.future, result, None)

    def _give_up_if_rolled_back(self, error: Exception) -> None:
        """A full disk or a failed write makes SQLite roll back by itself: then nobody's operation has happened."""
        if isinstance(error, apsw.Error) and not self._db.in_transaction:
            raise error

    def _tell(self, answers: list[Answer], due: set[str] | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._resolve, answers, due)
        except RuntimeError:  # the loop was closed: nobody is left to tell
            self._closed = True

    def _resolve(self, answers: list[Answer], due: set[str] | None) -> None:
        for future, result, error in answers:
            if future.done():
                continue  # whoever asked was cancelled meanwhile; what was written stays written
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        if due or due is None:
            self._on_due(due)

    def _note_wal_size(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        # Ours rather than SQLite's automatic one, which keeps the failure of an fsync to itself.
        self._wal_pages = 0
        try:
            self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as error:
            log.warning("checkpoint: %s", explain(error, self._path))

    def _others_wrote(self) -> bool:
        try:
            version: int = self._db.pragma("data_version")
        except apsw.Error as error:
            log.warning("looking for what others wrote: %s", explain(error, self._path))
            return False
        changed = version != self._data_version
        self._data_version = version
        return changed
