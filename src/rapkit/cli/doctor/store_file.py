"""A store that is only looked at: it is opened read-only, and nothing beside it is made or removed."""

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
from rapkit.keys import Keyring
from rapkit.stores.sqlite import statements as sql
from rapkit.stores.sqlite.schema import APPLICATION_ID, MIGRATIONS

_MOST_COUNTED = 10_000
_BUSY_MS = 2_000
_STEPS = 50_000

_STATUSES = """
    SELECT status, count(*) FROM boxes WHERE kind = 'thread' AND root IS NOT NULL GROUP BY status
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
    """How much is in a store. `threads` are counted by status, `oldest_unread` is in seconds, `workers` are processes at work on it."""

    threads: dict[str, int]
    unread: int
    oldest_unread: float
    dead: int
    workers: int


class StoreFile:
    """A SQLite store, as long as the context lasts; `StoreError` if it is none of ours, or cannot be read."""

    def __init__(self, path: Path) -> None:
        log, shared = path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")
        if log.exists() and not shared.exists():
            raise StoreError("it was not closed in order, and cannot be looked at without changing it")
        # Without a log nobody has it open, and it is what the file says. To say so keeps SQLite from making one.
        how = "mode=ro" if log.exists() else "mode=ro&immutable=1"
        with _our_words():
            flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
            self._db = apsw.Connection(f"file:{quote(str(path.resolve()))}?{how}", flags=flags)
            self._db.set_busy_timeout(_BUSY_MS)

    def __enter__(self) -> Self:
        """Check whose it is."""
        with _our_words():
            owner, version = self._db.pragma("application_id"), self._db.pragma("user_version")
        if owner != APPLICATION_ID:
            self._db.close()
            raise StoreError("it is a file of another program, or of a rapkit before its release")
        if version > len(MIGRATIONS):
            self._db.close()
            raise StoreError(f"it was written by a newer rapkit (schema {version}, this one knows {len(MIGRATIONS)})")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self._db.close()

    def is_sound(self, within: float) -> bool | None:
        """Whether SQLite finds nothing wrong with it; None if that takes longer than so many seconds."""
        ends_at = time.monotonic() + within
        self._db.set_progress_handler(lambda: time.monotonic() > ends_at, _STEPS)
        try:
            return self._db.execute(_QUICK_CHECK).fetchone() == ("ok",)
        except apsw.InterruptError:
            return None
        except apsw.Error:
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
        return Contents(dict(counted), unread, max(0.0, now - since) if since is not None else 0.0, dead, workers)

    def latest(self) -> float | None:
        """When the newest thing in it happened, by the clock of whoever wrote it."""
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
        raise StoreError("it is not a SQLite file, or is damaged") from None
    except apsw.BusyError:
        raise StoreError("another process keeps it locked") from None
    except apsw.Error as error:
        raise StoreError(f"SQLite says: {error}") from None
