"""A clock that tests advance, and an agent that goes by it."""

import asyncio
import time
from pathlib import Path

from rapkit.keyring import load_keyring
from rapkit.mailbox import Lease, Store
from rapkit.runtime.config import AgentConfig
from rapkit.runtime.engine import AgentEnvironment
from rapkit.stores.sqlite import SqliteStore


class ManualClock:
    """Goes when it is told to."""

    def __init__(self) -> None:
        self.time = time.time()
        self._stores: list[SqliteStore] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        return asyncio.timeout(seconds)

    def advance(self, seconds: float) -> None:
        """So many seconds later."""
        self.time += seconds
        for store in self._stores:
            store.notify()

    def environment(self) -> AgentEnvironment:
        """Where this clock is the agent's, and its store's."""
        return AgentEnvironment(clock=self, open_store=self._open)

    def _open(self, config: AgentConfig) -> Store:
        path = Path(config.store.removeprefix("sqlite:///"))
        # Nobody is lost here, so leases never end.
        store = SqliteStore(str(path), load_keyring(path), lease=Lease(10**9), clock=self.now)
        self._stores.append(store)
        return store
