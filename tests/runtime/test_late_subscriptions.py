"""The notice to a server that confirms a subscription of a closed thread, through crashes."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from rapkit import Server
from rapkit.delivery.guard import Guard
from rapkit.errors import Fenced
from rapkit.kernel.thread import Thread, dump_thread
from rapkit.keyring import Keyring
from rapkit.mailbox import NewBox, Store
from rapkit.runtime.callback_urls import CallbackUrls
from rapkit.runtime.dispatch import Dispatch
from rapkit.runtime.late_subscriptions import LateSubscriptions
from rapkit.runtime.toolsets import THREAD
from rapkit.signer import Signer
from rapkit.stores.sqlite import SqliteStore
from rapkit.testing.activity import Activity
from rapkit.testing.crashable_run import CrashableRun

SERVER = Server("https://tools.example.com")
MOST_STEPS = 6


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    store = SqliteStore(":memory:", Keyring.random())
    thread = Thread("t1", closed=True, cancelled_by_close={"c1": SERVER.key})
    await store.create(NewBox("t1", THREAD, dump_thread(thread)))
    yield store
    await store.close()


def confirmations(life: CrashableRun, rung: list[str]) -> LateSubscriptions:
    callback_urls = CallbackUrls("https://agent.example.com", Signer([b"k" * 32]))
    return LateSubscriptions(life.store, Dispatch([SERVER], callback_urls, Guard()), rung.append)


@pytest.mark.parametrize("unheard", [False, True], ids=["before it", "after it"])
@pytest.mark.parametrize("step", range(MOST_STEPS))
async def test_a_process_lost_at_any_step_leaves_one_notice_and_nothing_else(
    store: Store, step: int, unheard: bool
) -> None:
    """SUB-18: the confirmation is not answered then, so its server repeats it."""
    first = CrashableRun(store, Activity())
    first.end_after(step, unheard=unheard)
    with contextlib.suppress(Fenced):
        await confirmations(first, []).cancel("t1", "c1")
    for _ in range(2):
        rung: list[str] = []
        await confirmations(CrashableRun(store, Activity()), rung).cancel("t1", "c1")
        assert rung == ["t1"]  # the process before may have died before it rang

    (notice,) = await store.outbox(dead=False)
    assert notice.kind == "notice"
    assert sum(first.operations.values()) < MOST_STEPS
    assert await store.backlog("late_subscription") == 0


async def test_an_open_thread_and_an_unknown_call_get_no_notice(store: Store) -> None:
    rung: list[str] = []
    late = confirmations(CrashableRun(store, Activity()), rung)

    await late.cancel("t1", "c2")
    await late.cancel("t2", "c1")

    assert (await store.outbox(dead=False), rung) == ([], [])
