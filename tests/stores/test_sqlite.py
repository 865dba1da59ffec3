"""What is particular to SQLite: group commit, one file for many handles, files that are not ours."""

import asyncio
import contextlib
import secrets
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import apsw
import pytest

from rapkit.errors import ConfigError, Fenced, StoreBusy, StoreError, WrongKey
from rapkit.keyring import Keyring
from rapkit.mailbox import OUTBOX, AcceptResult, Commit, Entry, Lease, NewBox, NewMail, Outcome, Settlement
from rapkit.stores import open_store
from rapkit.stores.sqlite import SqliteStore, connection, schema, writer
from rapkit.stores.sqlite import store as store_module
from rapkit.stores.sqlite.boxes import Boxes
from rapkit.stores.sqlite.connection import explain
from rapkit.work.offload import LARGE
from tests.mailbox.harness import KIND, Harness, accepted, claim, claim_one, new_mail, post, running, seqs, take, texts
from tests.stores.sqlite_harness import SqliteHarness


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[SqliteHarness]:
    harness = SqliteHarness(tmp_path / "store.db")
    yield harness
    await harness.close()


class Traced:
    """A store in memory whose statements are noted."""

    def __init__(self) -> None:
        self.store = SqliteStore(":memory:", Keyring.random())
        self.db = self.store._writer._db
        self.statements: list[tuple[str, Any]] = []
        self.db.exec_trace = self._note

    def _note(self, _cursor: apsw.Cursor, statement: str, bindings: Any) -> bool:
        if statement not in ("BEGIN", "BEGIN IMMEDIATE", "COMMIT"):
            self.statements.append((statement, bindings))
        return True

    def count(self) -> int:
        """How many there were since it was last asked."""
        count = len(self.statements)
        self.statements.clear()
        return count

    def plans(self) -> list[list[str]]:
        """How SQLite goes about each of them."""
        self.db.exec_trace = None
        return [
            [row[3] for row in self.db.execute(f"EXPLAIN QUERY PLAN {statement}", bindings)]
            for statement, bindings in self.statements
        ]


@pytest.fixture
async def traced() -> AsyncIterator[Traced]:
    traced = Traced()
    yield traced
    await traced.store.close()


def transactions(log: Path) -> int:
    """How many commits SQLite's write-ahead log holds: a frame that ends one says how large the database then is."""
    data = log.read_bytes()
    page = int.from_bytes(data[8:12])
    return sum(data[at + 4 : at + 8] != bytes(4) for at in range(32, len(data) - page, 24 + page))


class TestGroupCommit:
    async def test_a_bad_operation_among_many_fails_alone_and_the_others_are_durable(self, harness: Harness) -> None:
        store = harness.store
        good = await running(store, "good")
        bad = await running(store, "bad")
        await store.commit(good, Commit(outgoing=[post("p1")], keep=True))

        answers = await asyncio.gather(
            *(store.create(NewBox(f"before {number}", KIND)) for number in range(20)),
            store.commit(bad, Commit(state=b"bad", outgoing=[post("p2"), post("p1")], spawn=[NewBox("no", KIND)])),
            store.commit(good, Commit(state=b"good", outgoing=[post("p3")])),
            store.commit(good, Commit(state=b"zombie")),
            *(store.accept(new_mail(str(number), "good")) for number in range(20)),
            return_exceptions=True,
        )

        assert answers[:20] == [True] * 20
        assert [type(answer) for answer in answers[20:23]] == [StoreError, list, Fenced]
        assert answers[23:] == [AcceptResult.ACCEPTED] * 20
        other = await harness.open()
        assert await other.backlog(KIND) == 22
        assert [outbox_row.id for outbox_row in await other.outbox(dead=False)] == ["p1", "p3"]
        found = [await other.box(id) for id in ("good", "bad", "no")]
        assert [box and box.state for box in found] == [b"good", b"", None]

    async def test_an_operation_that_cannot_be_written_down_fails_alone(self, harness: Harness) -> None:
        store = harness.store
        made, failed, also_made = await asyncio.gather(
            store.create(NewBox("b1", KIND)),
            store.create(NewBox("b2", KIND, name=object())),  # type: ignore[arg-type]
            store.create(NewBox("b3", KIND)),
            return_exceptions=True,
        )

        assert (made, also_made) == (True, True)
        assert isinstance(failed, Exception)
        assert await store.create(NewBox("b4", KIND))

    async def test_many_operations_share_a_transaction(self, harness: Harness, tmp_path: Path) -> None:
        before = transactions(tmp_path / "store.db-wal")

        await asyncio.gather(*(harness.store.renew(f"worker {number}") for number in range(2000)))

        assert 0 < transactions(tmp_path / "store.db-wal") - before < 20

    async def test_whoever_is_cancelled_does_not_disturb_the_others(self, harness: Harness) -> None:
        store = harness.store
        tasks = [asyncio.create_task(store.create(NewBox(f"b{number}", KIND))) for number in range(10)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()

        answers = await asyncio.gather(*tasks, return_exceptions=True)

        assert answers[1::2] == [True] * 5
        assert await store.backlog(KIND) == 10


class TestCancellation:
    """At every turn of the loop between asking and being told: before the transaction, and in the moment of the answer."""

    @pytest.mark.parametrize("turns", [1, 2, 3])
    async def test_a_cancelled_claim_is_held_by_nobody(self, turns: int) -> None:
        store = SqliteStore(":memory:", Keyring.random())
        await store.create(NewBox("b1", KIND))
        await store.renew("anna")

        was_cancelled = await cancelled_after(turns, store.claim("anna", KIND, 1))

        if was_cancelled:
            assert (await claim_one(store, "bert")).attempts == 1
        await store.close()

    @pytest.mark.parametrize("turns", range(1, 8))
    async def test_a_claim_that_is_cancelled_while_its_mail_is_read_is_held_by_nobody(self, turns: int) -> None:
        store = SqliteStore(":memory:", Keyring.random())
        await store.create(NewBox("b1", KIND), new_mail("one"))
        await store.renew("anna")

        was_cancelled = await cancelled_after(turns, store.claim("anna", KIND, 1))

        if was_cancelled:
            claimed = await claim_one(store, "bert")
            assert (claimed.attempts, texts(claimed)) == (1, ["one"])
        await store.close()

    @pytest.mark.parametrize("turns", [1, 2, 3])
    async def test_a_failure_in_the_same_moment_does_not_swallow_the_cancellation(self, turns: int) -> None:
        store = SqliteStore(":memory:", Keyring.random())
        zombie = await running(store)
        await store.commit(zombie, Commit())

        with contextlib.suppress(Fenced):  # it was told before it was cancelled
            assert await cancelled_after(turns, store.commit(zombie, Commit()))
        await store.close()


class TestUnreadMail:
    """A claim whose mail could not be read is held by nobody, and its box is due."""

    @pytest.mark.parametrize(("error", "attempts"), [(StoreError("The disk is broken."), 1), (MemoryError(), 2)])
    async def test_only_too_little_memory_is_held_against_the_mail(
        self, error: Exception, attempts: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = SqliteStore(":memory:", Keyring.random())
        await store.create(NewBox("b1", KIND), new_mail("one"))
        with monkeypatch.context() as patch:
            patch.setattr(Boxes, "read_mail", mock.Mock(side_effect=error))
            with pytest.raises(type(error)):
                await claim_one(store)

        await store.wait(KIND, 20)

        claimed = await claim_one(store)
        assert (claimed.attempts, texts(claimed)) == (attempts, ["one"])
        await store.close()

    async def test_it_is_given_back_as_soon_as_the_store_can_write_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writer, "_PAUSE_AFTER_FAILURE", 0.01)
        store = SqliteStore(":memory:", Keyring.random())
        await store.create(NewBox("b1", KIND), new_mail("one"))
        give_back, is_broken = Boxes.give_back, [True] * 3

        def failing(*words: Any, **more: Any) -> None:
            if is_broken and is_broken.pop():
                raise StoreError("The disk is broken.")
            give_back(*words, **more)

        monkeypatch.setattr(Boxes, "give_back", failing)
        with monkeypatch.context() as patch:
            patch.setattr(Boxes, "read_mail", mock.Mock(side_effect=StoreError("The disk is broken.")))
            with pytest.raises(StoreError):
                await claim_one(store)

        async with asyncio.timeout(20):
            while not (claims := await claim(store)):
                await asyncio.sleep(0.01)
        assert texts(claims[0]) == ["one"]
        await store.close()


async def cancelled_after(turns: int, operation: Coroutine[Any, Any, object]) -> bool:
    """Whether the operation, asked for and cancelled so many turns of the loop later, ended as cancelled."""
    task = asyncio.create_task(operation)
    for _ in range(turns):
        await asyncio.sleep(0)
    if not task.cancel():
        task.result()
        return False
    await asyncio.wait([task])
    assert task.cancelled(), "the cancellation was swallowed"
    return True


class TestOneFile:
    async def test_a_locked_file_is_busy_and_can_be_tried_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connection, "BUSY_TIMEOUT_MS", 100)
        monkeypatch.setattr(writer, "BUSY_TIMEOUT_MS", 100)
        harness = SqliteHarness(tmp_path / "store.db")
        await harness.store.create(NewBox("b1", KIND))
        other = apsw.Connection(str(tmp_path / "store.db"))
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(StoreBusy, match=r"kept .*store\.db locked"):
            await harness.store.create(NewBox("b2", KIND))
        with pytest.raises(StoreBusy):
            await harness.open()
        assert await harness.store.box("b1") is not None

        other.execute("ROLLBACK")
        assert await harness.store.create(NewBox("b2", KIND))
        other.close()
        await harness.close()

    async def test_a_store_whose_loop_is_gone_lets_go_of_the_file(self, tmp_path: Path) -> None:
        def forget_to_close() -> None:
            async def use() -> None:
                store = SqliteStore(str(tmp_path / "store.db"), Keyring.random())
                await store.create(NewBox("b1", KIND))

            asyncio.run(use())

        await asyncio.to_thread(forget_to_close)

        name = f"rapkit-store-{tmp_path / 'store.db'}"
        async with asyncio.timeout(60):
            while name in {thread.name for thread in threading.enumerate()}:
                await asyncio.sleep(0.05)

    async def test_the_log_does_not_grow_for_ever(self, harness: SqliteHarness, tmp_path: Path) -> None:
        store = harness.store
        claimed = await running(store)
        for _ in range(30):
            await store.commit(claimed, Commit(state=bytes(2_000_000), keep=True))

        assert (tmp_path / "store.db-wal").stat().st_size < 40_000_000

    async def test_another_key_does_not_open_it(self, harness: SqliteHarness, tmp_path: Path) -> None:
        await harness.store.create(NewBox("b1", KIND))

        with pytest.raises(WrongKey, match=r"store\.db was sealed with another key.*RAPKIT_SECRET_KEY=new,old"):
            SqliteStore(str(tmp_path / "store.db"), Keyring.random())

    async def test_what_was_sealed_with_a_key_that_is_gone_holds_nobody_up(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = str(tmp_path / "store.db")
        old, new = bytes(range(32)), bytes(range(1, 33))
        first = SqliteStore(path, Keyring(old))
        await first.create(NewBox("old box", KIND))
        await first.create(NewBox("sender", "sender"))
        await first.commit(
            await claim_one(first, kind="sender"), Commit(outgoing=[post("old post", "x")], forget_for=0)
        )
        await first.close()
        await SqliteStore(path, Keyring(new, old)).close()

        second = SqliteStore(path, Keyring(new))
        await second.create(NewBox("new box", KIND))
        assert [one.box.id for one in await claim(second)] == ["new box"]
        assert await take(second) == []
        assert await second.next_due(KIND) > 0  # type: ignore[operator]
        assert "box old box cannot be opened" in caplog.text
        assert "message old post cannot be opened" in caplog.text
        await second.close()

    async def test_a_letter_sealed_with_a_key_that_is_gone_holds_up_its_own_box_alone(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = str(tmp_path / "store.db")
        old, new = bytes(range(32)), bytes(range(1, 33))
        for keys, says in (((new, old), "new"), ((old, new), "old"), ((new, old), "new again")):
            store = SqliteStore(path, Keyring(*keys))
            for box in ("b1", "b2") if says == "old" else ("b2",):
                await store.create(NewBox(box, KIND))
            await store.accept(new_mail(says, "b1" if says == "old" else "b2"))
            await store.close()
        store = SqliteStore(path, Keyring(new, old))
        (claimed,) = [one for one in await claim(store) if one.box.id == "b1"]
        await store.commit(claimed, Commit(state=b"resealed"))
        await store.retire(claimed.worker)
        await store.close()

        store = SqliteStore(path, Keyring(new))
        (only,) = await claim(store, "bert")
        assert only.box.id == "b2"
        assert [one.body for one in only.mail] == [b"new", b"new again"]
        assert "box b1 cannot be opened" in caplog.text
        await store.close()

    async def test_the_real_clock_is_the_default(self) -> None:
        store = SqliteStore(":memory:", Keyring.random(), lease=Lease(0.2))
        await store.create(NewBox("b1", KIND))
        first = await claim_one(store, "lost")
        assert abs(first.now - time.time()) < 5

        async with asyncio.timeout(60):
            while not (claims := await claim(store, "heir")):
                await store.wait(KIND, await store.next_due(KIND) or 0)

        assert claims[0].attempts == 2
        await store.close()


class TestPlans:
    """Without these a store with a million boxes answers all the same, but too late."""

    @pytest.mark.parametrize(
        ("filters", "plan"),
        [
            ({}, ["SEARCH boxes USING INDEX boxes_listed (kind=? AND id<?)"]),
            (
                {"status": "open"},
                ["SEARCH boxes USING INDEX boxes_by_status (kind=? AND status=? AND id<?)"],
            ),
            (
                {"parent": "p", "status": "open"},
                ["SEARCH boxes USING INDEX boxes_family (parent=?)", "USE TEMP B-TREE FOR ORDER BY"],
            ),
        ],
        ids=["of a kind", "of a status", "of a parent"],
    )
    async def test_a_page_of_boxes_is_found_by_an_index(
        self, traced: Traced, filters: dict[str, str], plan: list[str]
    ) -> None:
        for after in ("", "b1"):
            await traced.store.boxes(KIND, after=after, **filters)  # type: ignore[arg-type]

        first, second = traced.plans()
        assert first == second == plan

    async def test_one_box_and_the_end_of_a_journal_are_found_by_an_index(self, traced: Traced) -> None:
        await traced.store.box("b1")
        await traced.store.recent("b1", 10)
        await traced.store.recent("b1", 10, before=5)

        one, *ends = traced.plans()
        assert one == ["SEARCH boxes USING INDEX sqlite_autoindex_boxes_1 (id=?)"]
        assert ends == [["SEARCH entries USING INDEX sqlite_autoindex_entries_1 (box=? AND seq<?)"]] * 2

    @pytest.mark.parametrize(
        ("topic", "table", "found"),
        [(KIND, "boxes", "boxes_due (kind=? AND "), (OUTBOX, "outbox", "outbox_due (")],
        ids=["boxes", "posts"],
    )
    async def test_what_is_due_next_is_found_by_an_index(
        self, traced: Traced, topic: str, table: str, found: str
    ) -> None:
        await traced.store.next_due(topic)

        _leases, now, later = traced.plans()
        short = table[0]
        assert now == [
            f"SEARCH {short} USING INDEX {found}due_at<?)",
            "SEARCH w USING PRIMARY KEY (id=?) LEFT-JOIN",
        ]
        assert later == [f"SEARCH {table} USING COVERING INDEX {found}due_at>?)"]

    async def test_the_load_is_read_from_indexes_alone(self, traced: Traced) -> None:
        await traced.store.load(KIND)

        assert [step for plan in traced.plans() for step in plan if "INDEX" in step or "B-TREE" in step] == [
            "SCAN mail USING COVERING INDEX mail_unread",
            "SEARCH boxes USING COVERING INDEX boxes_due (kind=? AND due_at<?)",
            "SCAN outbox USING COVERING INDEX outbox_age",
            "SEARCH outbox USING COVERING INDEX outbox_dead (dead_at>?)",
        ]

    async def test_the_load_is_counted_so_far_and_no_further(
        self, traced: Traced, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(store_module, "MOST_COUNTED", 3)
        store = traced.store
        for number in range(5):
            await store.create(NewBox(f"b{number}", KIND), new_mail("hello", f"b{number}"))
        await store.create(NewBox("sender", "sender"))
        posts = [post(f"p{number}", f"lane {number}") for number in range(10)]
        await store.commit(await claim_one(store, kind="sender"), Commit(outgoing=posts))
        for taken in await take(store, limit=5):
            await store.settle(taken, Settlement(Outcome.DEAD, "gone"))

        load = await store.load(KIND)

        assert (load.unread, load.due, load.outgoing, load.dead) == (3, 3, 3, 3)

    async def test_boxes_that_are_not_listed_do_not_pay_for_the_list(self, traced: Traced) -> None:
        pages = "SELECT name, sum(payload) FROM dbstat WHERE name IN ('boxes_listed', 'boxes_by_status') GROUP BY name"
        await traced.store.create(NewBox("b1", KIND, parent="thread"))
        assert traced.db.execute(pages).fetchall() == [("boxes_by_status", 0), ("boxes_listed", 0)]

        await traced.store.create(NewBox("b2", KIND, root="b2"))

        assert all(size > 0 for _, size in traced.db.execute(pages))

    async def test_a_statement_is_planned_once_whatever_it_is_asked_for(self, traced: Traced) -> None:
        planned: list[str | None] = []

        def note(action: int, table: str | None, *_: str | None) -> int:
            if action == apsw.SQLITE_READ:
                planned.append(table)
            return apsw.SQLITE_OK

        async def ask_for(name: str) -> None:
            await traced.store.create(NewBox(name, KIND), new_mail("m1", name))
            await traced.store.records(name, KIND)
            await traced.store.recent(name, 10, kinds=[KIND])

        traced.db.authorizer = note  # which is asked whenever a statement is planned
        await ask_for("b1")
        assert planned
        planned.clear()
        await ask_for("b2")

        assert planned == []

    async def test_a_claim_and_a_commit_take_as_few_statements_as_ever(self, traced: Traced) -> None:
        """The hot path of both sides. One more statement for every commit should be decided, not happen."""
        store = traced.store
        await store.create(NewBox("b1", KIND, root="b1"), new_mail("hello"))
        await store.renew("anna")
        traced.statements.clear()

        (claimed,) = await store.claim("anna", KIND, 1)
        claiming = traced.count()
        await store.commit(claimed, Commit(seqs(claimed), entries=[Entry("e", b"")], state=b"s", status="waiting"))

        # Mail takes three: what fits, the charge, and, once that is committed, what it says.
        assert (claiming, traced.count()) == (6, 4)


class TestOpening:
    async def test_a_relative_file_is_made_with_its_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        store = open_store("sqlite:///some/folder/store.db", lease=Lease(3))
        assert store.lease == Lease(3)
        await store.create(NewBox("b1", KIND))
        await store.close()

        again = open_store(f"sqlite:///{tmp_path}/some/folder/store.db")
        assert await again.box("b1") is not None
        await again.close()

    async def test_memory_leaves_no_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        store = open_store("sqlite:///:memory:")
        await store.create(NewBox("b1", KIND))
        await store.close()

        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("url", ["", "store.db", "sqlite:///", "sqlite://store.db", "mysql://x/y"])
    async def test_what_is_no_store_is_refused(self, url: str) -> None:
        with pytest.raises(ConfigError, match=r"sqlite:///file\.db"):
            open_store(url)

    async def test_the_file_says_whose_it_is_and_of_which_version(self, harness: SqliteHarness, tmp_path: Path) -> None:
        await harness.close()
        with apsw.Connection(str(tmp_path / "store.db")) as db:
            assert db.pragma("application_id") == schema.APPLICATION_ID
            assert db.pragma("user_version") == len(schema.MIGRATIONS)
            assert db.pragma("journal_mode") == "wal"
            assert db.pragma("integrity_check") == "ok"

    async def test_a_file_of_the_first_version_is_brought_up_to_date(
        self, harness: SqliteHarness, tmp_path: Path
    ) -> None:
        await harness.store.create(NewBox("b1", KIND))
        await harness.close()
        with apsw.Connection(str(tmp_path / "store.db")) as db:
            db.execute("DROP INDEX boxes_due; ALTER TABLE boxes DROP COLUMN share")
            db.execute("CREATE INDEX boxes_due ON boxes (kind, due_at) WHERE due_at IS NOT NULL")
            db.pragma("user_version", 1)

        store = await harness.open()

        assert [claimed.box.id for claimed in await claim(store)] == ["b1"]

    async def test_a_file_of_a_newer_rapkit_is_refused(self, harness: SqliteHarness, tmp_path: Path) -> None:
        await harness.close()
        with apsw.Connection(str(tmp_path / "store.db")) as db:
            db.pragma("user_version", 99)

        with pytest.raises(StoreError, match=r"newer rapkit \(schema 99, this one knows \d+\)\. Upgrade\.$"):
            await harness.open()

    async def test_a_file_of_another_program_is_refused_and_not_touched(self, tmp_path: Path) -> None:
        path = tmp_path / "other.db"
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE theirs (x)")
        db.close()
        before = path.read_bytes()

        with pytest.raises(StoreError, match="another program"):
            open_store(f"sqlite:///{path}")

        assert path.read_bytes() == before

    async def test_a_file_marked_by_another_program_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "other.db"
        with sqlite3.connect(path) as db:
            db.execute("PRAGMA application_id = 7")
        db.close()

        with pytest.raises(StoreError, match="another program"):
            open_store(f"sqlite:///{path}")

    async def test_what_is_no_database_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "letter.txt"
        path.write_text("Dear database, " * 1000)

        with pytest.raises(StoreError, match="is not a SQLite file"):
            open_store(f"sqlite:///{path}")

    async def test_a_folder_is_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"is no store but a folder\. Name a file in it, like sqlite:///"):
            open_store(f"sqlite:///{tmp_path}")

    async def test_a_disk_that_takes_nothing_is_told_when_the_store_is_opened(self, tmp_path: Path) -> None:
        """By a limit on the size of files: a disk without room takes a file system of its own."""
        await open_store(f"sqlite:///{tmp_path}/store.db").close()
        script = (
            "import resource, sys; from rapkit.errors import StoreError; from rapkit.keyring import Keyring\n"
            "from rapkit.stores.sqlite.connection import connect\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
            "try: connect(sys.argv[1], Keyring.random())\n"
            "except StoreError as error: print(error)"
        )
        ended = subprocess.run([sys.executable, "-c", script, f"{tmp_path}/store.db"], capture_output=True, text=True)

        assert (ended.stdout, ended.stderr) == (f"{tmp_path}/store.db: disk I/O error\n", "")

    def test_a_disk_without_room_is_called_full(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = str(tmp_path / "store.db")
        assert "full" not in str(explain(apsw.IOError("disk I/O error"), file))
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
        assert str(explain(apsw.IOError("disk I/O error"), file)) == f"The disk of {file} is full. Make room on it."

    async def test_a_file_cannot_be_a_folder(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        path = str(tmp_path / "file" / "store.db")

        with pytest.raises(StoreError, match="Check the folder"):
            open_store(f"sqlite:///{path}")
        with pytest.raises(StoreError, match="Check the folder"):
            SqliteStore(path, Keyring.random())

    async def test_a_folder_one_may_not_write_to_is_refused(self, tmp_path: Path) -> None:
        folder = tmp_path / "folder"
        folder.mkdir(mode=0o555)
        if can_write(folder):
            pytest.skip("this user may write anywhere")

        with pytest.raises(StoreError, match="Check the folder"):
            open_store(f"sqlite:///{folder}/store.db")
        with pytest.raises(StoreError, match="Check the folder"):
            SqliteStore(f"{folder}/store.db", Keyring.random())

    async def test_a_store_opened_again_finds_its_key(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("RAPKIT_SECRET_KEY", raising=False)
        url = f"sqlite:///{tmp_path}/store.db"
        store = open_store(url)
        await store.create(NewBox("b1", KIND, b"state"))
        await accepted(store, new_mail("hello"))
        await store.close()

        store = open_store(url)

        claimed = await claim_one(store)
        assert (claimed.box.state, texts(claimed)) == (b"state", ["hello"])
        await store.close()

    async def test_a_store_whose_key_file_is_lost_gets_no_new_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("RAPKIT_SECRET_KEY", raising=False)
        url = f"sqlite:///{tmp_path}/store.db"
        await open_store(url).close()
        key = tmp_path / "store.db.key"
        kept = key.read_text()
        key.unlink()

        with pytest.raises(WrongKey, match=r"there is no file .*store\.db\.key"):
            open_store(url)
        assert not key.exists()

        monkeypatch.setenv("RAPKIT_SECRET_KEY", kept)
        await open_store(url).close()

    async def test_a_key_is_made_for_a_store_that_holds_nothing_yet(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What a start leaves behind that met a full disk."""
        monkeypatch.delenv("RAPKIT_SECRET_KEY", raising=False)
        (tmp_path / "store.db").touch()

        await open_store(f"sqlite:///{tmp_path}/store.db").close()

        assert (tmp_path / "store.db.key").exists()

    async def test_no_key_is_made_beside_a_file_of_another_program(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("RAPKIT_SECRET_KEY", raising=False)
        (tmp_path / "letter.txt").write_text("Dear database, " * 1000)

        with pytest.raises(StoreError, match="is not a SQLite file"):
            open_store(f"sqlite:///{tmp_path}/letter.txt")

        assert [file.name for file in tmp_path.iterdir()] == ["letter.txt"]

    async def test_a_wrong_key_names_no_file_that_is_not_there(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        url = f"sqlite:///{tmp_path}/store.db"
        monkeypatch.setenv("RAPKIT_SECRET_KEY", secrets.token_urlsafe(32))
        await open_store(url).close()
        monkeypatch.setenv("RAPKIT_SECRET_KEY", secrets.token_urlsafe(32))

        with pytest.raises(WrongKey, match="sealed with another key") as caught:
            open_store(url)

        assert ".key" not in str(caught.value)
        assert not (tmp_path / "store.db.key").exists()

    async def test_another_key_file_is_told_apart_from_another_variable(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("RAPKIT_SECRET_KEY", raising=False)
        url = f"sqlite:///{tmp_path}/store.db"
        await open_store(url).close()
        (tmp_path / "store.db.key").write_text(secrets.token_urlsafe(32))

        with pytest.raises(WrongKey, match=r"another key than the one in .*store\.db\.key"):
            open_store(url)


def can_write(folder: Path) -> bool:
    try:
        (folder / "probe").touch()
    except OSError:
        return False
    return True


# Much data


class Watched(Keyring):
    """Keys that note in which threads they are used for much data."""

    used_in: set[str]

    def seal(self, plain: bytes) -> bytes:
        self._note(plain)
        return super().seal(plain)

    def open(self, sealed: bytes) -> bytes:
        self._note(sealed)
        return super().open(sealed)

    def _note(self, data: bytes) -> None:
        if len(data) > LARGE:
            self.used_in.add(threading.current_thread().name)


@pytest.mark.parametrize("path", ["store.db", ":memory:"])
async def test_what_has_to_do_with_much_data_is_not_done_on_the_event_loop(path: str, tmp_path: Path) -> None:
    keys = Watched.random()
    assert isinstance(keys, Watched)
    keys.used_in = set()
    store = SqliteStore(path if path == ":memory:" else str(tmp_path / path), keys)
    body = b"x" * (LARGE + 1)

    await store.create(NewBox("b1", KIND), NewMail("b1", "large", body))
    assert await store.accept(NewMail("b1", "larger", body * 2)) is AcceptResult.ACCEPTED
    (claim,) = await store.claim("w1", KIND, 1)
    assert [each.body for each in claim.mail] == [body, body * 2]
    done = Commit(entries=[Entry("a", body), Entry("b", b"")], consumed=[each.seq for each in claim.mail])
    await store.commit(claim, done)
    assert [each.body for each in await store.entries("b1")] == [body, b""]
    assert [each.kind for each in await store.recent("b1", 5)] == ["a", "b"]
    await store.close()

    (thread,) = keys.used_in
    assert thread.startswith("rapkit-store")


async def test_an_operation_that_fails_beside_one_with_much_data_fails_alone(harness: SqliteHarness) -> None:
    store = harness.store
    await store.create(NewBox("b1", KIND))
    claim = await claim_one(store)
    await store.commit(claim, Commit())

    accepted, failed = await asyncio.gather(
        store.accept(NewMail("b1", "large", b"x" * (LARGE + 1))),
        store.commit(claim, Commit(entries=[Entry("a", b"")])),
        return_exceptions=True,
    )

    assert accepted is AcceptResult.ACCEPTED
    assert isinstance(failed, Fenced)
