"""The workspaces of threads: one folder each.

A folder is named after the key of its thread, a hash that no caller can choose: nothing of a `thread_id` is ever part of a path (CLO-7).

A folder that is to go is renamed before it is deleted. So it goes in one step: a call that comes meanwhile gets a new one and never a half
deleted one, and what is left of it, because the server was killed or something in it cannot be deleted, does no harm until it is
tried again.
"""

import contextlib
import os
import re
import secrets
import shutil
import stat
import tempfile
import threading
import time
import weakref
from pathlib import Path

_SQLITE = "sqlite:///"
_MEMORY = "sqlite:///:memory:"
_OURS = re.compile(r"t_[A-Za-z0-9_-]{24}")
_DISCARDED = re.compile(r"gone_t_[A-Za-z0-9_-]{24}_[0-9a-f]{8}")
_PAUSES = (0.05, 0.5)


def workspaces_for(store_url: str) -> Path | None:
    """Where the workspaces beside a store are: `x.db.workspaces` for `x.db`, None for a store that leaves nothing behind."""
    if not store_url.startswith(_SQLITE) or store_url == _MEMORY:
        return None
    database = Path(store_url.removeprefix(_SQLITE))
    return database.with_name(f"{database.name}.workspaces")


class Workspaces:
    """The folders of threads under one root; without one, under a temporary folder that ends with the server.

    Everything here blocks, and is safe to call from threads.
    """

    def __init__(self, root: Path | None) -> None:
        # Resolved now: the working directory may change.
        self._root = None if root is None else root.resolve()
        self._making = threading.Lock()
        self._temporary: weakref.finalize[[Path], Workspaces] | None = None

    def folder(self, key: str) -> Path:
        """The folder of a thread, made if need be. `OSError` if something else stands there."""
        root = self._made_root()
        folder = root / _checked(key)
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            # A link there would lead out of the root. A program that a handler has run can have put it there.
            if not stat.S_ISDIR(folder.lstat().st_mode):
                raise NotADirectoryError(
                    f"{folder} should be the workspace of a thread and is a link or a file. Find out who made it, and delete it."
                ) from None
            os.utime(folder)  # it is in use: see `untouched_since`
        if folder.resolve().parent != root:
            raise NotADirectoryError(f"{folder} leads out of {root}.")
        return folder

    def existing(self, key: str) -> Path | None:
        """The folder of a thread, if there is one."""
        folder = None if self._root is None else self._root / _checked(key)
        return folder if folder is not None and _is_folder(folder) else None

    def discard(self, key: str) -> Path | None:
        """Take a thread's folder away; it remains to be deleted under the returned name. None if there is none."""
        if self._root is None:
            return None
        folder = self._root / _checked(key)
        gone = self._root / f"gone_{key}_{secrets.token_hex(4)}"
        try:
            folder.rename(gone)
        except FileNotFoundError:
            return None
        return gone

    def discarded(self) -> list[Path]:
        """What was discarded and not deleted."""
        return [Path(entry) for entry in self._entries() if _DISCARDED.fullmatch(entry.name)]

    def untouched_since(self, time: float) -> list[str]:
        """The keys of folders in which nothing was made or deleted since a time, as far as one sees from outside."""
        return [entry.name for entry in self._entries() if _OURS.fullmatch(entry.name) and _touched(entry.path) < time]

    def close(self) -> None:
        """Delete the temporary folder, if there is one."""
        if self._temporary is not None:
            self._temporary()

    def _entries(self) -> list["os.DirEntry[str]"]:
        if self._root is None:
            return []
        try:
            with os.scandir(self._root) as entries:
                return list(entries)
        except FileNotFoundError:
            return []  # no handler has asked for a workspace yet

    def _made_root(self) -> Path:
        with self._making:
            if self._root is None:
                self._root = Path(tempfile.mkdtemp(prefix="rapkit-")).resolve()
                self._temporary = weakref.finalize(self, _delete_what_can_be, self._root)
            else:
                self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            return self._root


def delete(folder: Path) -> None:
    """Delete a discarded folder with all that is in it, and nothing that links in it lead to. `OSError` if something has to stay."""
    for pause in _PAUSES:
        try:
            _delete(folder)
        except OSError:
            if not os.path.lexists(folder):
                return  # another server has deleted it at the same time
            time.sleep(pause)  # a program that is just being stopped may still write there
        else:
            return
    _delete(folder)


def _delete(folder: Path) -> None:
    if not _is_folder(folder):
        folder.unlink(missing_ok=True)
        return
    try:
        try:
            shutil.rmtree(folder)  # it does not follow links
        except PermissionError:
            _unlock(folder)
            shutil.rmtree(folder)
    except RecursionError:
        raise OSError(f"{folder} is nested too deep") from None


def _delete_what_can_be(folder: Path) -> None:
    with contextlib.suppress(OSError):  # the server ends, and will not try again
        _delete(folder)


def _unlock(folder: Path) -> None:
    """Let folders that were made read-only, as version control and package managers do, be deleted from."""
    folder.chmod(0o700)
    for parent, children, _ in os.walk(folder):  # from the top: each is unlocked before it is entered
        for child in children:
            path = Path(parent, child)
            if _is_folder(path):
                path.chmod(0o700)


def _touched(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except FileNotFoundError:
        return float("inf")  # gone by now


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _checked(key: str) -> str:
    if not _OURS.fullmatch(key):
        raise ValueError(f"{key!r} is not the key of a thread.")
    return key
