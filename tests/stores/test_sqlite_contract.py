"""The contract, on a SQLite file and in memory."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.mailbox.contract import OneHandleContract, StoreContract
from tests.stores.sqlite_harness import SqliteHarness


class TestFile(StoreContract):
    @pytest.fixture
    async def harness(self, tmp_path: Path) -> AsyncIterator[SqliteHarness]:
        harness = SqliteHarness(tmp_path / "store.db")
        yield harness
        await harness.close()


class TestMemory(OneHandleContract):
    @pytest.fixture
    async def harness(self) -> AsyncIterator[SqliteHarness]:
        harness = SqliteHarness()
        yield harness
        await harness.close()
