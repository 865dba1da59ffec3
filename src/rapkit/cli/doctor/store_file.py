"""Inspect a store file read-only, without creating or removing any file beside it."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import apsw

from rapkit.errors import StoreError, WrongKey
from rapkit.keyring import Keyring
from rapkit.stores.sqlite import statements as sql
from rapkit.stores.sqlite.schema import APPLICATION_ID, MIGRATIONS

_MOST_COUNTED = 10_000
_BUSY_MS = 2_000
_STEPS = 50_000
_PAGE = 4096  # what SQLite writes at a time, unless it is told otherwise

_STATUSES = """
    SELECT status, count(*) FROM boxes WHERE kind = 'thread' AND root IS NOT NULL GROUP BY status
"""
_UNSIGNED = """
    SELECT count(*) FROM (
        SELECT 1 FROM boxes b JOIN records r ON r.box = b.id AND r.kind = 'unsigned'
        WHERE b.kind = 'thread' AND b.root IS NOT NULL AND b.status <> 'closed' LIMIT ?
    )
"""
_QUICK_CHECK = "PRAGMA quick_check(1)"
_WORKERS = "SELECT count(*) FROM workers WHERE expires_at > ?"
_LATEST = """
    SELECT max(at) FROM (
        SELECT max(created_at) AS at FROM (SELECT created_at FROM boxes ORDER BY row DESC LIMIT 1)
        UNION ALL SELECT max(at) FROM (SELECT at FROM entries ORDER BY rowid DESC LIMIT 1)
        UNION ALL SELECT max(accepted_at) FROM (SELECT accepted_at FROM mail ORDER BY seq DESC LIMIT 1)
    )
"""


@dataclass(frozen=True, slots=True)
class Contents:
    """How much is in a store. `threads` are counted by status, `oldest_unread` is in seconds, `workers` are processes at work on it.

    `unsigned` are live calls of which a callback was refused because of its signature.
    """

    threads: dict[str, int]
    unread: int
    oldest_unread: float
    dead: int
    workers: int
    unsigned: int = 0


class NotOurs(StoreError):
    """It is a file of another kind."""


class Unreadable(StoreError):
    """It cannot be looked at; `do` is what to do about it."""

    def __init__(self, seen: str, do: str) -> None:
        super().__init__(seen)
        self.do = do


class StoreFile:
    """A SQLite store, as long as the context lasts; `NotOurs` or `Unreadable` if it is none, or cannot be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        log, shared = path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")
        if log.exists() and not shared.exists():
            raise Unreadable(
                "it was not closed in order, and cannot be looked at without changing it",
                "Start what uses it, which puts it in order: rapkit up, rapkit wake or rapkit serve.",
            )
        # Without a log no process has it open, and it is what the file says. To say so keeps SQLite from making one.
        how = "mode=ro" if log.exists() else "mode=ro&immutable=1"
        with _our_words():
            flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
            self._db = apsw.Connection(f"file:{quote(str(path.resolve()))}?{how}", flags=flags)
            self._db.set_busy_timeout(_BUSY_MS)

    def __enter__(self) -> Self:
        """Check whose it is."""
        try:
            self._check_whose()
        except StoreError:
            self._db.close()
            raise
        return self

    def _check_whose(self) -> None:
        with _our_words():
            try:
                owner, version = self._db.pragma("application_id"), self._db.pragma("user_version")
            except apsw.NotADBError:
                if self._path.stat().st_size % _PAGE:  # which a store never is, whatever has become of what is in it
                    raise NotOurs("it is not a SQLite file") from None
                raise Unreadable(
                    "it is not a SQLite file, or is damaged", "Name another file, or restore it from a copy."
                ) from None
        if owner != APPLICATION_ID:
            raise NotOurs("it is a file of another program, or of a rapkit before its release")
        if version > len(MIGRATIONS):
            raise Unreadable(
                f"it was written by a newer rapkit (schema {version}, this one knows {len(MIGRATIONS)})",
                "Run: pip install -U rapkit",
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self._db.close()

    def is_sound(self, within: float) -> bool | None:
        """Whether SQLite finds nothing wrong with it; None if that takes longer than so many seconds."""
        ends_at = time.monotonic() + within
        self._db.set_progress_handler(lambda: time.monotonic() > ends_at, _STEPS)
        with _our_words():
            try:
                return self._db.execute(_QUICK_CHECK).fetchone() == ("ok",)
            except apsw.InterruptError:
                return None
            except (apsw.NotADBError, apsw.CorruptError):
                return False
            finally:
                self._db.set_progress_handler(None)

    def opens_with(self, keys: Keyring) -> bool:
        """Whether these are the keys it was sealed with."""
        sealed = self._row(sql.SEAL)
        try:
            if sealed is not None:
                keys.open(sealed[0])
        except WrongKey:
            return False
        return True

    def contents(self) -> Contents:
        """How much there is."""
        now = time.time()
        with _our_words():
            counted: list[Any] = self._db.execute(_STATUSES).fetchall()
        unread, since = self._row(sql.LOAD_OF_MAIL, (_MOST_COUNTED,)) or (0, None)
        (dead,) = self._row(sql.LOAD_OF_DEAD, (_MOST_COUNTED,)) or (0,)
        (workers,) = self._row(_WORKERS, (now,)) or (0,)
        (unsigned,) = self._row(_UNSIGNED, (_MOST_COUNTED,)) or (0,)
        oldest = max(0.0, now - since) if since is not None else 0.0
        return Contents(dict(counted), unread, oldest, dead, workers, unsigned)

    def latest(self) -> float | None:
        """When the newest thing in it happened, by the clock of the process that wrote it."""
        row = self._row(_LATEST)
        return None if row is None else row[0]

    def _row(self, statement: str, given: tuple[Any, ...] = ()) -> tuple[Any, ...] | None:
        with _our_words():
            row: tuple[Any, ...] | None = self._db.execute(statement, given).fetchone()
            return row


@contextlib.contextmanager
def _our_words() -> Iterator[None]:
    try:
        yield
    except (apsw.NotADBError, apsw.CorruptError):
        raise Unreadable("it is damaged", "Restore it from a copy.") from None
    except apsw.BusyError:
        raise Unreadable(
            "another process keeps it locked", "Try again; if it stays so, look at what uses it, and restart that."
        ) from None
    except apsw.Error as error:
        raise Unreadable(f"SQLite says: {error}", "Check the file and its disk.") from None
