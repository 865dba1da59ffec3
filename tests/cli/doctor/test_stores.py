"""What is seen of stores that are there, or are not, and of those that something is wrong with. Looking changes nothing."""

import os
import shutil
import time
from collections import namedtuple
from pathlib import Path

import apsw
import pytest

from rapkit.cli.doctor import store_file, stores
from rapkit.cli.doctor.check_result import CheckResult
from rapkit.cli.doctor.checked_agent import CheckedAgent
from rapkit.keyring import load_keyring
from rapkit.mailbox import Fact, NewBox, NewMail
from rapkit.runtime.callback_signatures import UNSIGNED
from rapkit.stores import open_store
from rapkit.stores.sqlite import SqliteStore
from tests.cli.doctor.checked_agents import checked

DEAD = """
    INSERT INTO outbox (id, lane, kind, origin, sealed, once, latest, not_before, created_at, dead_at)
    VALUES ('m1', 'l', 'result', 'https://agent.example.com', x'00', 0, 0, 1, 1, 1)
"""


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAPKIT_SECRET_KEY", raising=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".rapkit" / "agent.db"


async def make(path: Path, *new_mails: str, since: float = 0.0) -> None:
    """A store with a thread, and letters for it that have lain there for so many seconds."""
    await open_store(f"sqlite:///{path}").close()
    store = SqliteStore(str(path), load_keyring(path), clock=lambda: time.time() - since)
    await store.create(NewBox("t1", "thread", b"{}", root="t1"))
    for new_mail in new_mails:
        await store.accept(NewMail("t1", "user", new_mail.encode()))
    await store.close()


def change(path: Path, statement: str) -> None:
    db = apsw.Connection(str(path))
    db.execute(statement)
    db.close()


def only(examined: CheckedAgent) -> CheckResult:
    """That of the agent's own store, which comes first."""
    return stores.check(examined)[0]


def files(folder: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in sorted(folder.rglob("*")) if each.is_file()}


async def test_one_that_is_well(tmp_path: Path, path: Path) -> None:
    await make(path, "hello")
    change(path, "UPDATE boxes SET status = 'waiting'")
    examined = checked(tmp_path)
    before = files(tmp_path)

    assert only(examined) == CheckResult("store", "ok", f"{path}: threads 1 waiting, 1 unread, nobody at work")
    assert files(tmp_path) == before


async def test_one_that_is_in_use(tmp_path: Path, path: Path) -> None:
    await make(path)
    store = open_store(f"sqlite:///{path}")
    await store.renew("w1")
    names = sorted(each.name for each in path.parent.iterdir())

    assert only(checked(tmp_path)) == CheckResult("store", "ok", f"{path}: 1 process at work")
    assert sorted(each.name for each in path.parent.iterdir()) == names
    await store.close()


async def test_one_that_was_left_by_kill_9(tmp_path: Path, path: Path) -> None:
    await make(path)
    store = open_store(f"sqlite:///{path}")
    await store.accept(NewMail("t1", "user", b"hello"))
    left = tmp_path / "left"
    shutil.copytree(path.parent, left)  # with the log that nobody has closed
    await store.close()
    before = sorted(each.name for each in left.iterdir())

    assert only(checked(tmp_path, f'store = "sqlite:///{left}/agent.db"')).seen.endswith(": 1 unread, nobody at work")
    assert sorted(each.name for each in left.iterdir()) == before

    (left / "agent.db-shm").unlink()
    result = only(checked(tmp_path, f'store = "sqlite:///{left}/agent.db"'))
    assert "was not closed in order, and cannot be looked at without changing it" in result.seen
    assert result.do.startswith("Start what uses it, which puts it in order: ")
    assert not (left / "agent.db-shm").exists()


def test_one_that_is_not_there_is_not_made(tmp_path: Path, path: Path) -> None:
    assert only(checked(tmp_path)) == CheckResult("store", "ok", f"{path}: not there yet, and made at the first start")
    assert not path.parent.exists()


@pytest.mark.parametrize("url", ["sqlite://:memory:", "agent.db"])
def test_one_that_nothing_can_open_has_failed(tmp_path: Path, url: str) -> None:
    result = only(checked(tmp_path, f'store = "{url}"'))

    assert (result.state, result.seen) == ("failed", f"{url!r} is no store")


@pytest.mark.parametrize("url", ["sqlite:///.", "sqlite:////"])
def test_a_folder_is_none(tmp_path: Path, url: str) -> None:
    result = only(checked(tmp_path, f'store = "{url}"'))

    assert result.state == "failed"
    assert result.seen.endswith(" is no store but a folder")
    assert result.do.startswith("Name a file in it, like sqlite:///")


def test_one_in_memory_is_warned_of(tmp_path: Path) -> None:
    result = only(checked(tmp_path, 'store = "sqlite:///:memory:"'))

    assert (result.state, result.seen) == ("warning", "threads are kept in memory, and lost when the agent ends")


def test_what_is_no_store(tmp_path: Path) -> None:
    assert only(checked(tmp_path, 'store = "postgres://db"')).state == "failed"


async def test_stores_of_tool_servers_are_found(tmp_path: Path, path: Path) -> None:
    await make(path)
    await make(path.with_name("weather.db"))

    assert [result.seen.partition(":")[0] for result in stores.check(checked(tmp_path))] == [
        str(path),
        str(path.with_name("weather.db")),
    ]
    nothing = CheckedAgent(Path("rapkit.toml"), None, "There is none.", tmp_path)
    assert len(stores.check(nothing)) == 2


async def test_messages_that_could_not_be_delivered(tmp_path: Path, path: Path) -> None:
    await make(path)
    change(path, DEAD)

    result = only(checked(tmp_path))

    assert result.state == "warning"
    assert "; 1 message could not be delivered" in result.seen
    assert result.do == f"See: rapkit outbox list --store sqlite:///{path}"


async def test_callbacks_that_were_not_signed(tmp_path: Path, path: Path) -> None:
    """CB-12"""
    await make(path)
    store = open_store(f"sqlite:///{path}")
    await store.note(NewBox("t1", "thread"), Fact("t1", UNSIGNED, "c1", b"A callback was refused."))
    await store.close()

    result = only(checked(tmp_path))

    assert result.state == "warning"
    assert "; callbacks of 1 call were refused (401), because they are not signed" in result.seen
    assert "webhook_secret" in result.do


async def test_threads_that_are_parked(tmp_path: Path, path: Path) -> None:
    await make(path)
    change(path, "UPDATE boxes SET status = 'parked'")

    result = only(checked(tmp_path))

    assert (result.state, result.do) == ("warning", "See why: rapkit threads list")
    assert "threads 1 parked" in result.seen


async def test_mail_that_nobody_reads(tmp_path: Path, path: Path) -> None:
    await make(path, "hello", since=7200)

    result = only(checked(tmp_path))

    assert result.state == "warning"
    assert "; mail has waited for 2 h, and nobody works on it" in result.seen
    assert result.do.startswith("Start what uses this store")


async def test_a_key_that_others_may_read(tmp_path: Path, path: Path) -> None:
    await make(path)
    key = path.with_name("agent.db.key")
    key.chmod(0o640)

    result = only(checked(tmp_path))

    assert (result.state, result.do) == ("warning", f"Run: chmod 600 {key}")
    assert key.read_text().strip() not in result.seen


async def test_a_key_of_somebody_else(tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await make(path)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)

    assert "is somebody else's" in only(checked(tmp_path)).seen


async def test_a_key_that_is_gone(tmp_path: Path, path: Path) -> None:
    await make(path)
    path.with_name("agent.db.key").unlink()

    result = only(checked(tmp_path))

    assert result.state == "failed"
    assert "its key is missing: there is no file" in result.seen
    assert not path.with_name("agent.db.key").exists()


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("6" * 43 + "=", "it was sealed with another key"),
        ("short", "its key cannot be used: A key in RAPKIT_SECRET_KEY"),
    ],
)
async def test_a_key_that_does_not_fit(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch, key: str, said: str
) -> None:
    await make(path)
    monkeypatch.setenv("RAPKIT_SECRET_KEY", key)

    result = only(checked(tmp_path))

    assert result.state == "failed"
    assert said in result.seen
    assert key not in result.seen


def test_a_file_that_is_no_store(tmp_path: Path, path: Path) -> None:
    path.parent.mkdir()
    path.write_text("not a database, and long enough to be taken for one" * 20)

    result = only(checked(tmp_path))

    assert result == CheckResult("store", "failed", f"{path}: it is not a SQLite file", "Name another file.")


async def test_a_store_whose_beginning_is_damaged_may_still_be_one(tmp_path: Path, path: Path) -> None:
    await make(path)
    with path.open("r+b") as file:
        file.write(b"\0" * 4096)

    result = only(checked(tmp_path))

    assert result.seen == f"{path}; it is not a SQLite file, or is damaged"
    assert result.do == "Name another file, or restore it from a copy."


def test_a_file_that_is_empty_is_filled(tmp_path: Path, path: Path) -> None:
    path.parent.mkdir()
    path.touch()

    assert only(checked(tmp_path)) == CheckResult("store", "ok", f"{path}: empty yet, and filled at the first start")


async def test_a_file_of_another_program_or_of_a_newer_rapkit(tmp_path: Path, path: Path) -> None:
    await make(path)
    change(path, "PRAGMA user_version = 99")
    newer = only(checked(tmp_path))
    assert "it was written by a newer rapkit (schema 99" in newer.seen
    assert newer.do == "Run: pip install -U rapkit"
    path.with_name("agent.db.key").unlink()
    change(path, "PRAGMA application_id = 5")
    another = only(checked(tmp_path))
    assert "it is a file of another program" in another.seen
    assert another.do == "Name another file."


async def test_one_that_is_damaged(tmp_path: Path, path: Path) -> None:
    await make(path, *(f"letter {number}" * 100 for number in range(50)))
    with path.open("r+b") as file:
        file.seek(path.stat().st_size - 3 * 4096)
        file.write(b"\xff" * 3 * 4096)

    result = only(checked(tmp_path))

    assert result.state == "failed"
    assert "damaged" in result.seen


async def test_one_that_takes_too_long_to_check_is_not_said_to_be_damaged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(path, *(f"letter {number}" * 100 for number in range(50)))
    monkeypatch.setattr(store_file, "_STEPS", 1)

    with store_file.StoreFile(path) as opened:
        assert opened.is_sound(within=-1) is None
        assert opened.is_sound(within=60) is True


@pytest.mark.parametrize(("free", "state"), [(500 * 1024**2, "warning"), (1024**2, "failed")])
async def test_a_disk_that_is_nearly_full(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch, free: int, state: str
) -> None:
    await make(path)
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(free))

    result = only(checked(tmp_path))

    assert (result.state, result.do) == (state, "Make room.")


@pytest.mark.parametrize("left", ["a log without an index", "nothing", "an error of SQLite"])
async def test_a_disk_that_was_full_when_something_was_written_needs_only_room(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise apsw.FullError("database or disk is full")

    await make(path)
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(0))
    match left:
        case "nothing":
            path.write_bytes(b"")
        case "a log without an index":
            path.with_name("agent.db-wal").write_bytes(b"")
        case _:
            monkeypatch.setattr(apsw, "Connection", fail)

    result = only(checked(tmp_path))

    assert (result.state, result.do) == ("failed", "Make room.")


async def test_what_cannot_be_written(tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write everything, so it is the system's word that stands in here."""
    await make(path)
    monkeypatch.setattr(os, "access", lambda *_: False)

    assert "it cannot be written" in only(checked(tmp_path)).seen
    assert "cannot be made" in only(checked(tmp_path, 'store = "sqlite:///elsewhere.db"')).seen
