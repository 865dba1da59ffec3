"""The single writer of a SQLite file: operations requested together are committed together.

A disk can flush a few thousand times a second, however little is flushed. So while one transaction is being flushed, on a thread of its
own, the next operations gather, and go into the next transaction. Its statements take microseconds and are run right here on the event
loop: a thread that runs them would fight the loop for the interpreter's lock at every one of them, which costs more than they do. Only if
another process is writing does the flusher wait for its turn and run them. It also runs those that have to do with much data, which takes
as long as a flush.

First all operations are run plainly; if any fails, the transaction is rolled back and they are run again with a savepoint each, so that
the bad one fails alone. No caller gets a result before the COMMIT has returned, and if that fails every caller gets the error.

The write-ahead log is copied into the database (a checkpoint) when it has grown by 16 MB, or earlier on a small disk: as long as the log is
smaller than what is free, the copy fits. If a commit finds the disk full all the same, the log is emptied and the commit tried once more.
"""

import asyncio
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import apsw

from rapkit.errors import StoreBusy, StoreError, StoreLost
from rapkit.keyring import Keyring
from rapkit.stores.sqlite.connection import BUSY_TIMEOUT_MS, MEMORY, connect, explain
from rapkit.stores.sqlite.files import DatabaseFiles
from rapkit.work.offload import LARGE

T = TypeVar("T")

_MOST_IN_ONE_TRANSACTION = 256
_MOST_WAITING = 20_000
_CHECKPOINT_PAGES = 4_000
_FEWEST_CHECKPOINT_PAGES = 64
_MANY_PAGES = 16 * _CHECKPOINT_PAGES
_PAGE = 4_096
_WAIT_FOR_READERS_MS = 1_000
_LOOK_FOR_OTHERS_EVERY = 0.1
_LOOK_FOR_LOOP_EVERY = 1.0
_PAUSE_AFTER_FAILURE = 0.5

log = logging.getLogger("rapkit.store")


@dataclass(slots=True)
class Transaction:
    """What operations of one transaction share: the connection, the time, and the topics in which they made something due."""

    db: apsw.Connection
    now: float
    due: set[str] = field(default_factory=set)
    on_loop: bool = False
    _size: int = 0

    def handle(self, size: int) -> None:
        """Say that so many bytes are read or written. If that becomes much, the transaction is begun again off the event loop."""
        self._size += size
        if self.on_loop and self._size > LARGE:
            raise _NotOnTheLoop

    def rows(self, statement: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
        """All rows of a statement."""
        return self.db.execute(statement, bindings).fetchall()

    def each(self, statement: str, bindings: tuple[Any, ...] = ()) -> Iterator[Any]:
        """The rows of a statement, one by one, for those that may hold much."""
        return iter(self.db.execute(statement, bindings))

    def row(self, statement: str, bindings: tuple[Any, ...] = ()) -> Any:
        """The first row of a statement, or None."""
        return self.db.execute(statement, bindings).fetchone()

    def write(self, statement: str, bindings: tuple[Any, ...] = ()) -> int:
        """How many rows a statement changed."""
        self.db.execute(statement, bindings)
        return self.db.changes()


class _NotOnTheLoop(Exception):
    """There is too much to do for the event loop."""


Operation = Callable[[Transaction], Any]


Undo = Callable[[Any], Operation]
"""From a result that no caller took to the operation that gives it back."""


class _Request(NamedTuple):
    operation: Operation
    writes: bool
    undo: Undo | None
    future: "asyncio.Future[Any]"


Answer = tuple[_Request, Any, BaseException | None]


class _Flush(NamedTuple):
    """A transaction to commit. If another process was writing, or there is much to do, nothing is done yet."""

    batch: list[_Request]
    done: tuple[list[Answer], set[str]] | None


class Writer:
    """Runs operations in transactions.

    `on_due` is called after a commit that made something due; with None when another process committed something.
    """

    def __init__(
        self, path: str, keys: Keyring, clock: Callable[[], float], on_due: Callable[[set[str] | None], None]
    ) -> None:
        self._path = path
        self._clock = clock
        self._on_due = on_due
        self._loop = asyncio.get_running_loop()
        self._db = connect(path, keys)
        self._requests: deque[_Request] = deque()
        self._scheduled = False
        self._flushing = False  # the connection is the flusher's
        self._flushes: queue.SimpleQueue[_Flush | None] = queue.SimpleQueue()
        self._files = DatabaseFiles(self._db)
        self._wal_pages = 0
        self._checkpointed_at = 0  # how many pages the log had
        self._data_version: int = self._db.pragma("data_version")
        self._closed = False
        self._db.set_wal_hook(self._note_wal_size)
        self._db.set_busy_timeout(0)
        self._flusher = threading.Thread(target=self._flush_all, name=f"rapkit-store-{path}", daemon=True)
        self._flusher.start()
        self._look = self._loop.call_later(_LOOK_FOR_OTHERS_EVERY, self._look_for_others)

    async def run(
        self,
        operation: Callable[[Transaction], T],
        *,
        writes: bool = True,
        undo: Callable[[T], Operation] | None = None,
    ) -> T:
        """The operation's result, once it is durable.

        If the caller is cancelled meanwhile it may happen all the same; then it is undone, if it says how.
        """
        if self._closed:
            raise StoreError(f"The store {self._path} is closed.")
        if len(self._requests) > _MOST_WAITING:
            raise StoreBusy(f"More than {_MOST_WAITING} operations wait for {self._path}.")
        future: asyncio.Future[T] = self._loop.create_future()
        request = _Request(operation, writes, undo, future)
        self._requests.append(request)
        self._schedule()
        try:
            return await future
        except asyncio.CancelledError:
            if not future.cancelled() and future.exception() is None:  # answered and cancelled in the same moment
                self._abandoned(request, future.result(), None)
            raise

    def check(self) -> None:
        """Raise `StoreLost` or `StoreFull` if what is asked for next may not be kept."""
        self._files.check()
        self._files.check_room()

    async def close(self) -> None:
        """Finish what was asked for, then close the file."""
        self._closed = True
        while self._requests or self._flushing:
            await asyncio.sleep(0.001)
        self._look.cancel()
        if self._flusher.is_alive():
            self._flushes.put(None)
            await asyncio.to_thread(self._flusher.join)
            self._db.close()

    def _schedule(self) -> None:
        if self._requests and not self._scheduled and not self._flushing:
            self._scheduled = True
            self._loop.call_soon(self._transact)

    def _transact(self) -> None:
        """Run what was asked for so far in one transaction, and have it flushed."""
        self._scheduled = False
        count = min(len(self._requests), _MOST_IN_ONE_TRANSACTION)
        batch = [self._requests.popleft() for _ in range(count)]
        before = self._db.total_changes()
        done = None
        try:
            if any(request.writes for request in batch):
                self._files.check()  # also before it is said that there is nothing to write, because it was written before
            self._begin(batch)
            done = self._execute(batch, on_loop=True)
            if self._path == MEMORY or self._db.total_changes() == before:
                self._db.execute("COMMIT")  # nothing to flush
                self._flushed(*done)
                return
        except apsw.BusyError:
            pass  # another process is writing: the flusher can wait for it, the event loop cannot
        except (apsw.FullError, apsw.IOError, _NotOnTheLoop):
            self._roll_back()
            done = None  # the flusher can make room, and can take its time
        except (apsw.Error, StoreLost) as error:
            self._flushed(self._failed(batch, error), set())
            return
        self._flushing = True
        self._flushes.put(_Flush(batch, done))

    def _begin(self, batch: list[_Request]) -> None:
        self._db.execute("BEGIN IMMEDIATE" if any(request.writes for request in batch) else "BEGIN")

    def _execute(self, batch: list[_Request], *, on_loop: bool = False) -> tuple[list[Answer], set[str]]:
        transaction = Transaction(self._db, self._clock(), on_loop=on_loop)
        try:
            return [(request, request.operation(transaction), None) for request in batch], transaction.due
        except _NotOnTheLoop:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it was comes again below, and is told to the one it belongs to
            self._give_up_if_rolled_back(error)
        self._db.execute("ROLLBACK")
        self._begin(batch)
        return [self._run_alone(request, transaction) for request in batch], transaction.due

    def _run_alone(self, request: _Request, transaction: Transaction) -> Answer:
        self._db.execute("SAVEPOINT alone")
        try:
            result = request.operation(transaction)
        except _NotOnTheLoop:
            raise
        except Exception as error:  # noqa: BLE001 - nothing an operation does may stop what all others depend on
            self._give_up_if_rolled_back(error)
            self._db.execute("ROLLBACK TO alone; RELEASE alone")
            return (request, None, explain(error, self._path) if isinstance(error, apsw.Error) else error)
        self._db.execute("RELEASE alone")
        return (request, result, None)

    def _give_up_if_rolled_back(self, error: Exception) -> None:
        """A full disk or a failed write makes SQLite roll back by itself: then no operation has happened."""
        if isinstance(error, apsw.FullError | apsw.IOError):
            raise error
        if isinstance(error, apsw.Error) and not self._db.in_transaction:
            raise error

    def _failed(self, batch: list[_Request], error: Exception) -> list[Answer]:
        self._roll_back()
        problem = explain(error, self._path) if isinstance(error, apsw.Error) else error
        return [(request, None, problem) for request in batch]

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def _flushed(self, answers: list[Answer], due: set[str] | None, free: bool = True) -> None:
        for request, result, error in answers:
            if request.future.cancelled():
                self._abandoned(request, result, error)
            elif error is None:
                request.future.set_result(result)
            else:
                request.future.set_exception(error)
        if due or due is None:
            self._on_due(due)
        if free:
            self._flushing = False
            self._schedule()

    def _abandoned(self, request: _Request, result: Any, error: BaseException | None) -> None:
        """The caller was cancelled. What was written stays written, unless no other caller could ever give it back."""
        if error is None and request.undo is not None:
            self.retry_until_written(request.undo(result))

    def retry_until_written(self, operation: Operation) -> None:
        """Run an operation in the background, and again until it succeeds or the store is closed."""
        if not self._flusher.is_alive():
            return

        def done(future: "asyncio.Future[Any]") -> None:
            if not future.cancelled() and (error := future.exception()) is not None:
                log.error("cannot give back what nobody took: %s", error)
                if not self._closed:
                    self._loop.call_later(_PAUSE_AFTER_FAILURE, self.retry_until_written, operation)

        nobody = self._loop.create_future()
        nobody.add_done_callback(done)
        self._requests.append(_Request(operation, True, None, nobody))
        self._schedule()

    # On the flusher's thread

    def _flush_all(self) -> None:
        while (flush := self._next_flush()) is not None:
            answers, due = self._flush(flush)
            checkpoint = self._next_checkpoint()
            try:
                self._loop.call_soon_threadsafe(self._flushed, answers, due, checkpoint is None)
                if checkpoint is not None:
                    self._checkpoint(checkpoint)
                    self._loop.call_soon_threadsafe(self._flushed, [], set())
            except RuntimeError:
                return  # the loop was closed meanwhile

    def _next_flush(self) -> _Flush | None:
        while not self._loop.is_closed():
            try:
                return self._flushes.get(timeout=_LOOK_FOR_LOOP_EVERY)
            except queue.Empty:
                continue
        return None  # the loop was closed without closing the writer: no caller is left

    def _flush(self, flush: _Flush) -> tuple[list[Answer], set[str]]:
        try:
            try:
                return self._commit(flush.batch, flush.done)
            except (apsw.FullError, apsw.IOError) as error:
                explain(error, self._path)  # after a failed fsync nothing may be tried again
            self._roll_back()
            self._checkpoint(apsw.SQLITE_CHECKPOINT_TRUNCATE)
            return self._commit(flush.batch, None)
        except Exception as error:  # noqa: BLE001 - the callers wait for an answer, and the flusher for the next batch
            return self._failed(flush.batch, error), set()

    def _commit(
        self, batch: list[_Request], done: tuple[list[Answer], set[str]] | None
    ) -> tuple[list[Answer], set[str]]:
        done = done or self._wait_and_execute(batch)
        self._db.execute("COMMIT")
        self._files.check()  # what was written to a deleted file was not written
        return done

    def _wait_and_execute(self, batch: list[_Request]) -> tuple[list[Answer], set[str]]:
        self._db.set_busy_timeout(BUSY_TIMEOUT_MS)
        try:
            self._begin(batch)
            # It waits here too: if an operation fails, all is begun again, and another process may be faster.
            return self._execute(batch)
        finally:
            self._db.set_busy_timeout(0)

    def _next_checkpoint(self) -> int | None:
        """The mode of the checkpoint that is needed now, if one is."""
        pages = self._wal_pages
        grown = pages - self._checkpointed_at
        if grown >= _CHECKPOINT_PAGES:
            # A passive one gets no further than the oldest reader. If readers take turns it never completes, so at last it waits.
            return apsw.SQLITE_CHECKPOINT_PASSIVE if pages < 2 * _CHECKPOINT_PAGES else apsw.SQLITE_CHECKPOINT_TRUNCATE
        if grown >= _FEWEST_CHECKPOINT_PAGES:
            room = self._files.room()
            if room is not None and room < 2 * pages * _PAGE:
                return apsw.SQLITE_CHECKPOINT_TRUNCATE  # so that the room the log takes is there for the database
        return None

    def _checkpoint(self, mode: int) -> None:
        # Ours rather than SQLite's automatic one, which keeps the failure of an fsync to itself.
        before = self._checkpointed_at = self._wal_pages
        self._db.set_busy_timeout(_WAIT_FOR_READERS_MS)
        try:
            self._db.wal_checkpoint(mode=mode)
        except apsw.BusyError:
            log.log(
                logging.DEBUG if before < _MANY_PAGES else logging.WARNING,
                "checkpoint: another process reads %s, or makes a checkpoint; the write-ahead log has %d pages",
                self._path,
                before,
            )
        except apsw.Error as error:
            log.warning("checkpoint: %s", explain(error, self._path))
        finally:
            self._db.set_busy_timeout(0)

    # Others

    def _note_wal_size(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        if pages < self._checkpointed_at:
            self._checkpointed_at = 0  # the log was begun anew
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _look_for_others(self) -> None:
        self._look = self._loop.call_later(_LOOK_FOR_OTHERS_EVERY, self._look_for_others)
        if not self._flushing and self._others_wrote():
            self._on_due(None)

    def _others_wrote(self) -> bool:
        try:
            version: int = self._db.pragma("data_version")
        except apsw.Error as error:
            log.warning("looking for what others wrote: %s", explain(error, self._path))
            return False
        changed = version != self._data_version
        self._data_version = version
        return changed
