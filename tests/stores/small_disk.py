"""A store in a process of its own that may write no more than so much to a file: the nearest thing to a small disk that needs no rights."""

import asyncio
import os
import resource
import sys

from rapkit.errors import StoreError
from rapkit.keyring import Keyring
from rapkit.mailbox import Fact, NewBox
from rapkit.stores.sqlite import SqliteStore

BOX = NewBox("b1", "job")
LARGE = 50_000


def limit(size: int) -> None:
    """Let no file grow beyond so many bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


async def write_much(store: SqliteStore) -> None:
    """The database stays small, and its log would not."""
    limit(2_000_000)
    for number in range(100):
        assert await store.note(BOX, Fact(BOX.id, "fact", "one", os.urandom(LARGE)))
        assert await store.create(NewBox(f"made {number}", "job"))
    print(await store.backlog("job"), "boxes")


async def write_nothing(store: SqliteStore) -> None:
    """Nothing can be written for a while."""
    await store.create(NewBox("before", "job"))
    limit(0)
    for number in range(3):
        try:
            await store.create(NewBox(f"during {number}", "job"))
        except StoreError as error:
            print(type(error).__name__)
    limit(resource.RLIM_INFINITY)
    assert await store.create(NewBox("during 0", "job"))
    print(await store.backlog("job"), "boxes")


async def main(path: str, what: str) -> None:
    store = SqliteStore(path, Keyring.random())
    await {"much": write_much, "nothing": write_nothing}[what](store)
    await store.close()


asyncio.run(main(*sys.argv[1:]))
