"""SQLite for the contract: a file or `:memory:`, and a clock that goes when it is told to."""

import secrets
from pathlib import Path

from rapkit.keyring import Keyring
from rapkit.mailbox import Store
from rapkit.stores.sqlite import SqliteStore


class SqliteHarness:
    """Handles on one SQLite database; each has its own connection and thread, so to SQLite it is another process."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._keys = [secrets.token_bytes(32)]
        self._now = 1_700_000_000.0
        self._running = 1000.0
        self._handles: list[Store] = []
        self.store: Store = self._open()

    def _open(self) -> Store:
        path = ":memory:" if self._path is None else str(self._path)
        store = SqliteStore(path, Keyring(*self._keys), clock=lambda: self._now, monotonic=lambda: self._running)
        self._handles.append(store)
        return store

    async def open(self) -> Store:
        assert self._path is not None, "a database in memory has one handle"
        return self._open()

    async def open_with_a_new_key(self) -> Store:
        self._keys.insert(0, secrets.token_bytes(32))
        return await self.open()

    async def crash(self, store: Store) -> None:
        """Nothing happens to the data when a process is lost; nobody uses the handle again."""

    async def advance(self, seconds: float) -> None:
        self._now += seconds
        self._running += seconds

    async def set_back(self, seconds: float) -> None:
        self._now -= seconds

    def raw(self) -> bytes:
        assert self._path is not None, "a database in memory writes no files"
        return b"".join(file.read_bytes() for file in sorted(self._path.parent.glob(self._path.name + "*")))

    async def close(self) -> None:
        for store in self._handles:
            await store.close()
