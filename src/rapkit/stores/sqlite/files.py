"""The files of an open database: detect that they were replaced, and measure the free disk space.

SQLite goes on with a file that was deleted, and says that a commit was written: to a file that ends with the process. So nothing is
acknowledged unless the files at the paths are those that were opened. They are never opened here: to close a second descriptor would
release SQLite's locks on the first one.
"""

import os
import shutil
from typing import Final

import apsw

from rapkit.errors import StoreFull, StoreLost

LEAST_ROOM: Final = 1024 * 1024
"""Bytes that have to be free on the disk: a large message, and what SQLite writes with it."""


class DatabaseFiles:
    """The files behind a connection in WAL mode, after its first write; a database in memory has none."""

    def __init__(self, db: apsw.Connection) -> None:
        self._path = db.filename
        paths = [self._path, f"{self._path}-wal", f"{self._path}-shm"] if self._path else []
        self._opened = {path: os.stat(path) for path in paths}

    def check(self) -> None:
        """Raise `StoreLost` unless the files at the paths are those that were opened."""
        for path, opened in self._opened.items():
            try:
                found = os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                break
            except OSError:
                continue  # it may be there: the folder's permissions were changed, for example
            if not os.path.samestat(opened, found):
                break
        else:
            return
        raise StoreLost(
            f"{path} was deleted, moved or replaced while it was in use. Nothing more is accepted. "
            f"Stop the process, put {self._path} back (from a backup if it is gone) and start the process again."
        )

    def check_room(self) -> None:
        """Raise `StoreFull` if the disk has less than `LEAST_ROOM`."""
        free = self.room()
        if free is not None and free < LEAST_ROOM:
            raise StoreFull(f"The disk of {self._path} is full: {free // 1024} KB are free. Make room on it.")

    def room(self) -> int | None:
        """How many bytes are free on the disk; None if that is unknown, or there is no disk."""
        if not self._path:
            return None
        try:
            return shutil.disk_usage(os.path.dirname(self._path)).free
        except OSError:
            return None
