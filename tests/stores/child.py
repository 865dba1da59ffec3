"""A process of its own for tests that kill it, break its disk, or start several at once: `python child.py WHAT DATABASE`.

It says what it was told, a line each, as soon as it was told.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any
from unittest import mock

import apsw

from rapkit.errors import StoreError
from rapkit.keyring import Keyring
from rapkit.mailbox import AcceptResult, Commit, Entry, Fact, Lease, NewBox, NewMail, Store
from rapkit.stores import open_store

KIND = "job"
BOXES = 4
COUNTS = 40
DEADLY = b"deadly"
FSYNC_FAILED = (apsw.IOError, apsw.SQLITE_IOERR_FSYNC)
WRITE_FAILED = (apsw.IOError, apsw.SQLITE_IOERR_WRITE)
DISK_FULL = (apsw.FullError, apsw.SQLITE_FULL)


def say(*words: object) -> None:
    print(*words, flush=True)


class Disk(apsw.VFS):
    """The real disk, until somebody breaks it."""

    def __init__(self) -> None:
        super().__init__("breakable", "unix", makedefault=True)
        self.writing: tuple[type[apsw.Error], int] | None = None
        self.syncing_log: tuple[type[apsw.Error], int] | None = None
        self.syncing_database: tuple[type[apsw.Error], int] | None = None

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _File(self, name, flags)


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        self._is_log = bool(flags[0] & apsw.SQLITE_OPEN_WAL)
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        _fail(self._disk.writing if self._is_log else None)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        _fail(self._disk.syncing_log if self._is_log else self._disk.syncing_database)
        super().xSync(flags)


def _fail(how: tuple[type[apsw.Error], int] | None) -> None:
    if how is not None:
        kind, code = how
        error = kind("the disk is broken")
        error.extendedresult = code  # type: ignore[attr-defined]  # where apsw looks for it
        raise error


async def opened(path: str) -> None:
    """Open, make a box, say so, close."""
    store = open_store(f"sqlite:///{path}")
    say(await store.create(NewBox("b1", KIND)))
    await store.close()


async def written(path: str) -> None:
    """Write and work until killed, saying each letter that was accepted."""
    store = open_store(f"sqlite:///{path}", lease=Lease(0.5))
    for number in range(BOXES):
        await store.create(NewBox(f"b{number}", KIND))
    async with asyncio.TaskGroup() as group:
        group.create_task(_work(store))
        for writer in range(8):
            group.create_task(_write(store, writer))


async def _write(store: Store, writer: int) -> None:
    for number in range(1_000_000):
        text = f"{writer}/{number}"
        box = f"b{writer % BOXES}"
        if await store.accept(NewMail(box, "note", text.encode(), dedup=text)) is AcceptResult.ACCEPTED:
            say(box, text)


async def _work(store: Store) -> None:
    while True:
        await store.renew("worker of the killed process")
        for claim in await store.claim("worker of the killed process", KIND, 10):
            entries = [Entry("note", mail.body) for mail in claim.mail]
            await store.commit(claim, Commit(consumed=[mail.seq for mail in claim.mail], entries=entries))
        await store.wait(KIND, 0.1)


async def killed_by_mail(path: str) -> None:
    """Claim what is due. To read a deadly letter kills the process, as too little memory would."""
    honest = Keyring.open

    def read(keys: Keyring, sealed: bytes) -> bytes:
        plain = honest(keys, sealed)
        if plain == DEADLY:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain

    with mock.patch.object(Keyring, "open", read):
        store = open_store(f"sqlite:///{path}", lease=Lease(0.2))
        worker = f"worker {os.getpid()}"
        while True:
            await store.renew(worker)
            await store.claim(worker, KIND, 10)
            await asyncio.sleep(0.05)


async def counted(path: str) -> None:
    """Add one to a number that others count up too, again and again."""
    store = open_store(f"sqlite:///{path}")
    box = NewBox("counter", KIND)
    for _ in range(COUNTS):
        written = False
        while not written:
            found = await store.records(box.id, "count")
            standing = found[0].body if found else None
            more = str(int(standing or b"0") + 1).encode()
            written = await store.note(box, Fact(box.id, "count", "n", more), standing)
    await store.close()


async def with_a_failing_fsync(path: str) -> None:
    disk = Disk()
    store = open_store(f"sqlite:///{path}")
    say("made", await store.create(NewBox("b1", KIND)))
    disk.syncing_log = FSYNC_FAILED
    say("made", await store.create(NewBox("b2", KIND)))


async def with_a_failing_fsync_at_a_checkpoint(path: str) -> None:
    disk = Disk()
    store = open_store(f"sqlite:///{path}")
    disk.syncing_database = FSYNC_FAILED
    say("made", await store.create(NewBox("b1", KIND, bytes(20_000_000))))
    await asyncio.sleep(10)
    say("alive")


async def with_failing_commits(path: str) -> None:
    disk = Disk()
    store = open_store(f"sqlite:///{path}")
    say("made", await store.create(NewBox("before", KIND)))
    for how in (WRITE_FAILED, DISK_FULL):
        disk.writing = how
        asked = [store.create(NewBox(f"b{number}", KIND)) for number in range(20)]
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            say("StoreError" if isinstance(answer, StoreError) else "wrong", answer)
    disk.writing = None
    say("made", await store.create(NewBox("after", KIND)))
    say("backlog", await store.backlog(KIND))
    await store.close()


ROLES: dict[str, Callable[[str], Coroutine[Any, Any, None]]] = {
    role.__name__: role
    for role in (
        opened,
        written,
        killed_by_mail,
        counted,
        with_a_failing_fsync,
        with_a_failing_fsync_at_a_checkpoint,
        with_failing_commits,
    )
}

if __name__ == "__main__":
    asyncio.run(ROLES[sys.argv[1]](sys.argv[2]))
