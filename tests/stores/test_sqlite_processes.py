"""What processes on one SQLite file can rely on when they start together, are killed, or lose their disk."""

import asyncio
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from rapkit.mailbox import Claim, Commit, Entry, Lease, NewBox, NewMail, Store
from rapkit.stores import open_store
from tests.stores import child


def start(role: Callable[[str], Coroutine[Any, Any, None]], database: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, child.__file__, role.__name__, str(database)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def outcome(process: "subprocess.Popen[str]") -> tuple[int, list[str], str]:
    said, complained = process.communicate(timeout=120)
    return process.returncode, said.splitlines(), complained


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("RAPKIT_SECRET_KEY", raising=False)
    return tmp_path / "data" / "store.db"


def test_processes_that_start_together_on_no_file_agree_on_tables_and_key(database: Path) -> None:
    outcomes = [outcome(process) for process in [start(child.opened, database) for _ in range(5)]]

    assert [(code, complained) for code, _, complained in outcomes] == [(0, "")] * 5
    assert sorted(said for _, (said,), _ in outcomes) == ["False"] * 4 + ["True"]
    assert sorted(file.name for file in database.parent.iterdir()) == ["store.db", "store.db.key"]


async def test_no_note_is_lost_among_processes_that_count_together(database: Path) -> None:
    outcomes = [outcome(process) for process in [start(child.counted, database) for _ in range(3)]]

    assert outcomes == [(0, [], "")] * 3
    store = open_store(f"sqlite:///{database}")
    (count,) = await store.records("counter", "count")
    assert int(count.body) == 3 * child.COUNTS
    await store.close()


async def test_everything_a_killed_process_was_told_is_there_exactly_once_and_in_order(database: Path) -> None:
    process = start(child.written, database)
    assert process.stdout is not None
    told = [process.stdout.readline().split() for _ in range(400)]
    process.kill()
    told += [line.split() for line in process.communicate()[0].splitlines()]

    store = open_store(f"sqlite:///{database}", lease=Lease(0.5))
    await drain(store)

    by_box: dict[str, list[str]] = defaultdict(list)
    for box, text in told[:-1]:  # the last line may have been cut short
        by_box[box].append(text)
    assert len(by_box) == child.BOXES
    for box, texts in by_box.items():
        journal = [entry.body.decode() for entry in await store.entries(box, limit=1_000_000)]
        assert len(journal) == len(set(journal))
        assert set(texts) <= set(journal)
        for writer in {text.split("/")[0] for text in texts}:
            numbers = [int(text.split("/")[1]) for text in journal if text.startswith(f"{writer}/")]
            assert numbers == list(range(len(numbers)))
    await store.close()


async def test_processes_that_are_killed_while_they_read_mail_are_counted(database: Path) -> None:
    """An attempt is on the disk before any mail is in memory; otherwise every start would die of the same mail."""
    store = open_store(f"sqlite:///{database}", lease=Lease(0.2))
    await store.create(NewBox("b1", child.KIND))
    for body in (b"harmless", child.DEADLY):
        await store.accept(NewMail("b1", "note", body))

    async def claim() -> Claim:
        async with asyncio.timeout(120):
            while not (claims := await store.claim("heir", child.KIND, 1)):
                await store.renew("heir")
                await asyncio.sleep(0.05)
        return claims[0]

    for _ in range(2):
        assert outcome(start(child.killed_by_mail, database))[0] == -signal.SIGKILL
    alone = await claim()
    assert (alone.attempts, [(mail.body, mail.attempts) for mail in alone.mail]) == (3, [(b"harmless", 3)])
    await store.commit(alone, Commit(consumed=[alone.mail[0].seq]))
    for _ in range(2):
        assert outcome(start(child.killed_by_mail, database))[0] == -signal.SIGKILL
    deadly = await claim()
    assert (deadly.attempts, [(mail.body, mail.attempts) for mail in deadly.mail]) == (3, [(child.DEADLY, 5)])
    await store.close()


async def drain(store: Store) -> None:
    """Journal what is left, once the killed worker's lease has ended."""
    async with asyncio.timeout(120):
        while (due := await store.next_due(child.KIND)) is not None:
            await store.renew("heir")
            for claim in await store.claim("heir", child.KIND, 10):
                entries = [Entry("note", mail.body) for mail in claim.mail]
                await store.commit(claim, Commit(consumed=[mail.seq for mail in claim.mail], entries=entries))
            await asyncio.sleep(min(due, 0.1))


def test_a_failed_fsync_ends_the_process_before_anybody_is_told_a_lie(database: Path) -> None:
    code, said, complained = outcome(start(child.with_a_failing_fsync, database))

    assert code == 74
    assert said == ["made True"]
    assert f"fsync of {database} failed" in complained


def test_a_failed_fsync_of_a_checkpoint_ends_the_process_too(database: Path) -> None:
    code, said, complained = outcome(start(child.with_a_failing_fsync_at_a_checkpoint, database))

    assert code == 74
    assert said in ([], ["made True"])
    assert f"fsync of {database} failed" in complained


def test_a_failed_commit_fails_everybody_in_it_and_the_store_goes_on(database: Path) -> None:
    code, said, _ = outcome(start(child.with_failing_commits, database))

    assert code == 0
    assert said[0] == "made True"
    assert all(line.startswith("StoreError ") for line in said[1:-2])
    assert len(said) == 43
    assert "The disk of" in said[-3]
    assert said[-2:] == ["made True", "backlog 2"]
