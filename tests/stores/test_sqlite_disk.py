"""SQLite when its disk is small or full, when somebody reads for long, and when its files are taken away."""

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import apsw
import pytest

from rapkit.errors import StoreError, StoreFull, StoreLost
from rapkit.mailbox import AcceptResult, Fact, NewBox
from rapkit.stores.sqlite import writer
from tests.mailbox.harness import ANNA, KIND, new_mail
from tests.stores.sqlite_harness import SqliteHarness

PATIENCE = 60.0
BOX = NewBox("b1", KIND)


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[SqliteHarness]:
    harness = SqliteHarness(tmp_path / "store" / "store.db")
    yield harness
    await harness.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"a file system cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def limited(path: Path, what: str) -> list[str]:
    """What a process prints that may not write much."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.stores.small_disk", str(path), what],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


class TestSmallDisk:
    def test_the_log_is_emptied_before_a_commit_is_given_up(self, tmp_path: Path) -> None:
        """By a limit on the size of files: the log reaches it, and the database does not."""
        assert limited(tmp_path / "store.db", "much") == ["100 boxes"]

    def test_a_store_goes_on_when_its_disk_has_room_again(self, tmp_path: Path) -> None:
        assert limited(tmp_path / "store.db", "nothing") == ["StoreError"] * 3 + ["2 boxes"]

    async def test_most_of_a_small_disk_can_be_used_and_nothing_acknowledged_is_lost(self, small_disk: Path) -> None:
        harness = SqliteHarness(small_disk / "store.db")
        acknowledged = 0
        with contextlib.suppress(StoreFull):
            while True:
                assert await harness.store.create(NewBox(f"box {acknowledged}", KIND, os.urandom(10_000)))
                acknowledged += 1
        # The rest is pages that are not full, and the log with the last commits.
        assert acknowledged * 10_000 > 4_500_000

        subprocess.run(["mount", "-o", "remount,size=32m", str(small_disk)], check=True)
        for number in range(acknowledged, acknowledged + 50):
            assert await harness.store.create(NewBox(f"box {number}", KIND, os.urandom(10_000)))
        other = await harness.open()
        assert await other.backlog(KIND) == acknowledged + 50
        await harness.close()

    async def test_facts_that_replace_each_other_never_fill_a_small_disk(self, small_disk: Path) -> None:
        harness = SqliteHarness(small_disk / "store.db")
        for _ in range(400):
            assert await harness.store.note(BOX, Fact(BOX.id, "fact", "one", os.urandom(50_000)))
        await harness.store.check()
        await harness.close()

    async def test_a_full_disk_is_found_before_something_fails(
        self, harness: SqliteHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await harness.store.check()
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))

        with pytest.raises(StoreFull, match="is full"):
            await harness.store.check()
        await harness.store.renew(ANNA)  # what still can be written is written


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Read for as long as the context lasts."""
    reader = apsw.Connection(str(path))
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM boxes").fetchall()
    try:
        yield
    finally:
        reader.close()


class TestLongReaders:
    @pytest.fixture(autouse=True)
    def _early(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writer, "_CHECKPOINT_PAGES", 50)
        monkeypatch.setattr(writer, "_WAIT_FOR_READERS_MS", 200)

    async def test_the_log_shrinks_when_a_long_reader_has_ended(self, harness: SqliteHarness, folder: Path) -> None:
        async def write() -> int:
            for _ in range(20):
                await harness.store.note(BOX, Fact(BOX.id, "fact", "one", os.urandom(50_000)))
            return (folder / "store.db-wal").stat().st_size

        with reading(folder / "store.db"):
            grown = await write()

        assert grown > 1_000_000
        assert await write() < grown / 2

    async def test_readers_that_take_turns_do_not_keep_the_log_growing(
        self, harness: SqliteHarness, folder: Path
    ) -> None:
        async def take_turns() -> None:
            first = reading(folder / "store.db")
            first.__enter__()
            while True:
                second = reading(folder / "store.db")
                second.__enter__()
                first.__exit__(None, None, None)
                first = second
                await asyncio.sleep(0.02)

        turns = asyncio.create_task(take_turns())
        sizes = []
        for _ in range(60):
            await harness.store.note(BOX, Fact(BOX.id, "fact", "one", os.urandom(50_000)))
            sizes.append((folder / "store.db-wal").stat().st_size)
        turns.cancel()
        await asyncio.gather(turns, return_exceptions=True)

        assert sizes[-1] < 2_000_000  # of the 3 MB that were written


def delete_all(folder: Path) -> None:
    shutil.rmtree(folder)


def delete_database(folder: Path) -> None:
    (folder / "store.db").unlink()


def delete_log(folder: Path) -> None:
    (folder / "store.db-wal").unlink()


def restore(folder: Path) -> None:
    shutil.copy(folder / "store.db", folder / "copy")
    (folder / "copy").rename(folder / "store.db")


class TestLostFiles:
    @pytest.mark.parametrize("lose", [delete_all, delete_database, delete_log, restore])
    async def test_nothing_is_accepted_once_the_files_are_gone(
        self, harness: SqliteHarness, folder: Path, lose: Callable[[Path], None]
    ) -> None:
        store = harness.store
        await store.create(BOX)
        assert await store.accept(new_mail("one", dedup="one")) is AcceptResult.ACCEPTED
        lose(folder)

        for attempt in (
            store.accept(new_mail("two")),
            store.accept(new_mail("one", dedup="one")),  # which is known, but to nobody after a restart
            store.renew(ANNA),
            store.check(),
        ):
            with pytest.raises(StoreLost, match=r"deleted, moved or replaced .*start the process again"):
                await attempt

    async def test_what_is_deleted_while_it_is_written_is_not_acknowledged(
        self, harness: SqliteHarness, folder: Path
    ) -> None:
        await harness.store.create(BOX)

        def delete_at_commit(_cursor: apsw.Cursor, statement: str, _bindings: object) -> bool:
            if statement == "COMMIT":
                shutil.rmtree(folder, ignore_errors=True)
            return True

        harness.store._writer._db.exec_trace = delete_at_commit  # type: ignore[attr-defined]

        with pytest.raises(StoreLost):
            await harness.store.accept(new_mail("one"))

    async def test_an_unexpected_failure_reaches_the_caller_and_the_store_goes_on(self, harness: SqliteHarness) -> None:
        await harness.store.create(BOX)
        database = harness.store._writer._db  # type: ignore[attr-defined]

        def fail_at_commit(_cursor: apsw.Cursor, statement: str, _bindings: object) -> bool:
            if statement == "COMMIT":
                database.exec_trace = None
                raise OSError("this was not expected")
            return True

        database.exec_trace = fail_at_commit

        async with asyncio.timeout(PATIENCE):
            with pytest.raises(OSError, match="not expected"):
                await harness.store.accept(new_mail("one"))
            assert await harness.store.accept(new_mail("two")) is AcceptResult.ACCEPTED

    async def test_what_can_be_read_is_read(self, harness: SqliteHarness, folder: Path) -> None:
        await harness.store.create(BOX)
        delete_all(folder)

        assert await harness.store.box(BOX.id) is not None

    async def test_files_that_are_put_back_are_used_again(self, harness: SqliteHarness, folder: Path) -> None:
        folder.rename(folder.with_name("elsewhere"))
        with pytest.raises(StoreError):
            await harness.store.create(BOX)
        folder.with_name("elsewhere").rename(folder)

        assert await harness.store.create(BOX)

    async def test_a_process_may_change_its_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path)
        harness = SqliteHarness(Path("store.db"))
        monkeypatch.chdir("elsewhere")

        assert await harness.store.create(BOX)
        await harness.store.check()
        await harness.close()
