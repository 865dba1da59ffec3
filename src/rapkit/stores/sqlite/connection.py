"""Open, configure and migrate a SQLite file."""

import errno
import logging
import os
import shutil
import sys
import time
from pathlib import Path

import apsw

from rapkit.errors import StoreBusy, StoreError, StoreFull, WrongKey
from rapkit.keyring import VARIABLE, Keyring, key_file
from rapkit.stores.sqlite import statements as sql
from rapkit.stores.sqlite.schema import APPLICATION_ID, MIGRATIONS, UNRELEASED

MEMORY = ":memory:"
BUSY_TIMEOUT_MS = 10_000
_FSYNC_FAILURES = {apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC}
_LEAST_ROOM = 64 * 1024
_LARGEST_IDLE_WAL = (
    32 * 1024**2
)  # bytes; one that has grown beyond, because of a long read, is cut to this when it is begun anew
_EXIT_CODE = 74  # EX_IOERR of sysexits.h

log = logging.getLogger("rapkit.store")


def connect(path: str, keys: Keyring) -> apsw.Connection:
    """Open the file, making it and its tables if need be; `WrongKey` if the keys are not those it was sealed with."""
    try:
        if path != MEMORY:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        db = apsw.Connection(path)
        try:
            _prepare(db, path, keys)
        except BaseException:
            db.close()
            raise
    except apsw.Error as error:
        raise explain(error, path) from error
    except OSError as error:
        raise StoreError(
            f"{path} cannot be opened for writing ({error}). Check the folder and its permissions."
        ) from error
    return db


def is_sealed(path: str) -> bool:
    """Whether there is a store that was sealed with a key. Nothing is made or changed; `StoreError` if the file is not a store of ours."""
    if not Path(path).exists():
        return False
    try:
        db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            db.set_busy_timeout(BUSY_TIMEOUT_MS)
            return _schema_version(db, path) > 0 and db.execute(sql.SEAL).fetchone() is not None
        finally:
            db.close()
    except apsw.Error as error:
        raise explain(error, path) from error


def _prepare(db: apsw.Connection, path: str, keys: Keyring) -> None:
    db.set_busy_timeout(BUSY_TIMEOUT_MS)
    # Not `with db`, which would roll back what a full disk has rolled back, and complain of that instead.
    db.execute("BEGIN")
    _schema_version(db, path)  # before anything is written to what may be another program's file
    db.execute("COMMIT")
    # Otherwise SQLite plans a statement anew for every value it looks for in an index, which takes several times as long as to run it.
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    db.pragma("foreign_keys", True)
    if path != MEMORY:
        # FULL: a commit is on the disk when it returns. NORMAL would survive kill -9 but not a power cut.
        _use_wal(db)
        db.pragma("synchronous", "full")
        db.pragma("journal_size_limit", _LARGEST_IDLE_WAL)
    db.pragma("cache_size", -64 * 1024)
    _migrate(db, path)
    _check_keys(db, keys, path)


def _use_wal(db: apsw.Connection) -> None:
    # SQLite does not let two processes that make the file together wait for each other here: one of them is told "busy" at once.
    until = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            db.pragma("journal_mode", "wal")
        except apsw.BusyError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def _migrate(db: apsw.Connection, path: str) -> None:
    # IMMEDIATE: of two processes that start together, one makes the tables and the other finds them made.
    db.execute("BEGIN IMMEDIATE")
    for migration in MIGRATIONS[_schema_version(db, path) :]:
        db.execute(migration)
    db.pragma("application_id", APPLICATION_ID)
    db.pragma("user_version", len(MIGRATIONS))
    db.execute("COMMIT")


def _schema_version(db: apsw.Connection, path: str) -> int:
    version: int = db.pragma("user_version")
    owner = db.pragma("application_id")
    if owner == UNRELEASED:
        raise StoreError(
            f"{path} was made by an earlier, unreleased rapkit, and this one cannot read it. Move it away, or name another file."
        )
    if owner not in (0, APPLICATION_ID) or (owner == 0 and db.execute("SELECT 1 FROM sqlite_schema").fetchone()):
        raise StoreError(f"{path} is a SQLite file of another program. Name another file for the store.")
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{path} was written by a newer rapkit (schema {version}, this one knows {len(MIGRATIONS)}). Upgrade."
        )
    return version


def _check_keys(db: apsw.Connection, keys: Keyring, path: str) -> None:
    """Refuse to go on with keys the store was not sealed with: nothing in it could be read, and nothing written be read by others."""
    db.execute("BEGIN IMMEDIATE")
    try:
        found = db.execute(sql.SEAL).fetchone()
        if found is not None:
            keys.open(found[0])
    except WrongKey:
        db.execute("ROLLBACK")
        raise WrongKey(_with_another_key(path)) from None
    db.execute(sql.REPLACE_SEAL)
    db.execute(sql.SET_SEAL, (keys.seal(b"rapkit"),))
    db.execute("COMMIT")


def _with_another_key(path: str) -> str:
    file = key_file(Path(path))
    beside = file.exists()
    if VARIABLE not in os.environ and beside:
        return (
            f"{path} was sealed with another key than the one in {file}. "
            f"Restore {file} from a backup, or set {VARIABLE} to the key it was sealed with."
        )
    advice = (
        f"{path} was sealed with another key. Set {VARIABLE} to that one; "
        f"to change keys, put it behind the new one: {VARIABLE}=new,old."
    )
    return f"{advice} It may be the one in {file}." if beside else advice


def explain(error: apsw.Error, path: str) -> StoreError:
    """The error in our words. A failed fsync ends the process: what is on the disk is no longer known, and a retry would lie about it."""
    if getattr(error, "extendedresult", None) in _FSYNC_FAILURES:
        log.critical("fsync of %s failed; ending the process, since nothing can be promised any more", path)
        logging.shutdown()
        sys.stderr.flush()
        os._exit(_EXIT_CODE)
    match error:
        case apsw.BusyError():
            return StoreBusy(f"Another process kept {path} locked for {BUSY_TIMEOUT_MS // 1000} seconds.")
        case apsw.CantOpenError() if _has_no_descriptors():
            return StoreError(
                f"{path} cannot be opened: the process has too many files open. Raise the limit: ulimit -n."
            )
        case apsw.CantOpenError() | apsw.ReadOnlyError() | apsw.PermissionsError():
            return StoreError(f"{path} cannot be opened for writing. Check the folder and its permissions.")
        case apsw.NotADBError() | apsw.CorruptError():
            return StoreError(f"{path} is not a SQLite file, or is damaged.")
        case apsw.FullError():
            return StoreFull(f"The disk of {path} is full. Make room on it.")
        case apsw.IOError() if path != MEMORY and _has_no_room(path):
            # What SQLite says if the files beside it cannot grow.
            return StoreFull(f"The disk of {path} is full. Make room on it.")
    return StoreError(f"{path}: {error}")


def _has_no_descriptors() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)
    return False


def _has_no_room(path: str) -> bool:
    try:
        return shutil.disk_usage(Path(path).parent).free < _LEAST_ROOM
    except OSError:
        return False
