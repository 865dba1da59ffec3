import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import EllipsisType

import pytest

from rapkit.errors import StoreError
from rapkit.keyring import Keyring
from rapkit.mailbox import Fact, NewBox, Record, Store
from rapkit.stores.sqlite import SqliteStore
from tests.server.interaction.oauth.provider_server import ProviderServer, provider_running


class ManualClock:
    """Goes when it is told to. Who sleeps looks again at once: nothing here waits for a time, but for what others do."""

    def __init__(self) -> None:
        self.time = 1_700_000_000.0
        self.sleeps = 0

    def now(self) -> float:
        return self.time

    async def sleep(self, _seconds: float) -> None:
        self.sleeps += 1
        await asyncio.sleep(0.001)

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        return asyncio.timeout(seconds)


class Interrupted:
    """A store in a process that can be lost: from then on, whatever it tries comes to nothing. It counts what was asked of it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.lost = False
        self.asked = 0
        self.loses_before: Callable[[Fact], bool] = lambda _: False
        """The note before which the process is lost."""
        self.loses_after: Callable[[Fact], bool] = lambda _: False
        """The note after which it is."""

    async def note(self, box: NewBox, fact: Fact, expect: bytes | EllipsisType | None = ...) -> bool:
        self.lost = self.lost or self.loses_before(fact)
        self._check()
        noted = await self.store.note(box, fact, expect)
        self.lost = self.loses_after(fact)
        return noted

    async def records(self, box: str, kind: str) -> list[Record]:
        self._check()
        return await self.store.records(box, kind)

    def _check(self) -> None:
        self.asked += 1
        if self.lost:
            raise StoreError("the process is lost")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def provider(clock: ManualClock) -> AsyncIterator[ProviderServer]:
    async with provider_running(clock.now) as provider:
        yield provider


@pytest.fixture
async def another_store(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Callable[[], Store]]:
    """Make a handle on the test's one database; each has its own connection, so to SQLite it is another process."""
    keys = Keyring.random()
    stores: list[Store] = []

    def make() -> Store:
        stores.append(SqliteStore(str(tmp_path / "tools.db"), keys, clock=clock.now))
        return stores[-1]

    yield make
    for store in stores:
        await store.close()


async def until(condition: Callable[[], bool]) -> None:
    """Return when the condition holds; fail if it does not in time."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.fixture
async def store(another_store: Callable[[], Store]) -> Store:
    return another_store()
