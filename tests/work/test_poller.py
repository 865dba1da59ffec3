import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from rapkit.errors import StoreError
from rapkit.mailbox import Claim, Commit, NewBox, Store
from rapkit.stores import open_store
from rapkit.work.poller import Poller

PATIENCE = 60.0
KIND = "job"
WORKER = "anna"


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    store = open_store("sqlite:///:memory:")
    await store.renew(WORKER)
    yield store
    await store.close()


@contextlib.asynccontextmanager
async def running(poller: Poller[Claim]) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(poller.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await poller.drain(0)


async def put(store: Store, *ids: str) -> None:
    for id in ids:
        await store.create(NewBox(id, KIND))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.005)


class Workshop:
    """Does what it is given when it is allowed to, and notes how much of it is in hand."""

    def __init__(self, store: Store, limit: int = 1000) -> None:
        self.store = store
        self.allowed = asyncio.Event()
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.most = 0
        self.fetches: list[int] = []
        self.poller: Poller[Claim] = Poller(store, KIND, limit, self.fetch, self.work)

    async def fetch(self, limit: int) -> list[Claim]:
        self.fetches.append(limit)
        return await self.store.claim(WORKER, KIND, limit)

    async def work(self, claim: Claim) -> None:
        self.begun.append(claim.box.id)
        self.most = max(self.most, len(self.begun) - len(self.ended))
        try:
            await self.allowed.wait()
        finally:
            self.ended.append(claim.box.id)
        await self.store.commit(claim, Commit(forget_for=0))


async def test_what_is_due_is_worked_on_and_what_comes_later_too(store: Store) -> None:
    shop = Workshop(store)
    shop.allowed.set()
    await put(store, "b1", "b2")
    async with running(shop.poller):
        await until(lambda: len(shop.ended) == 2)
        await put(store, "b3")
        await until(lambda: len(shop.ended) == 3)

    assert shop.ended == ["b1", "b2", "b3"]


async def test_no_more_than_the_limit_is_in_hand_and_none_is_fetched_beyond_it(store: Store) -> None:
    shop = Workshop(store, limit=3)
    await put(store, *(f"b{number}" for number in range(10)))
    async with running(shop.poller):
        await until(lambda: len(shop.begun) == 3)
        assert await store.backlog(KIND) == 10
        shop.allowed.set()
        await until(lambda: len(shop.ended) == 10)

    assert shop.most == 3
    assert max(shop.fetches) == 3


async def test_room_is_used_as_soon_as_there_is_some(store: Store) -> None:
    release: dict[str, asyncio.Event] = {f"b{number}": asyncio.Event() for number in range(4)}
    begun: list[str] = []

    async def work(claim: Claim) -> None:
        begun.append(claim.box.id)
        await release[claim.box.id].wait()

    async def fetch(limit: int) -> list[Claim]:
        return await store.claim(WORKER, KIND, limit)

    await put(store, *release)
    async with running(Poller(store, KIND, 2, fetch, work)):
        await until(lambda: begun == ["b0", "b1"])
        release["b1"].set()
        await until(lambda: begun == ["b0", "b1", "b2"])
        release["b0"].set()
        await until(lambda: begun == ["b0", "b1", "b2", "b3"])


async def test_a_store_that_fails_is_asked_again(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    failures = [StoreError("disk failure"), StoreError("disk failure")]
    done: list[str] = []

    async def fetch(limit: int) -> list[Claim]:
        if failures:
            raise failures.pop()
        return await store.claim(WORKER, KIND, limit)

    async def work(claim: Claim) -> None:
        done.append(claim.box.id)

    await put(store, "b1")
    async with running(Poller(store, KIND, 5, fetch, work)):
        await until(lambda: done == ["b1"])

    assert caplog.text.count("cannot fetch from job: disk failure") == 2


async def test_work_that_fails_is_told_to_the_log_and_the_rest_goes_on(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []

    async def fetch(limit: int) -> list[Claim]:
        return await store.claim(WORKER, KIND, limit)

    async def work(claim: Claim) -> None:
        if claim.box.id == "bad":
            raise ValueError("a mistake of ours")
        done.append(claim.box.id)

    await put(store, "bad", "good")
    async with running(Poller(store, KIND, 1, fetch, work)):
        await until(lambda: done == ["good"])

    assert "work on job failed" in caplog.text
    assert "a mistake of ours" in caplog.text


async def test_draining_lets_work_end(store: Store) -> None:
    shop = Workshop(store)
    await put(store, "b1", "b2")
    async with running(shop.poller) as task:
        await until(lambda: len(shop.begun) == 2)
        task.cancel()
        draining = asyncio.create_task(shop.poller.drain(PATIENCE))
        await asyncio.sleep(0.05)
        assert not draining.done()
        shop.allowed.set()
        await draining

    assert await store.backlog(KIND) == 0


async def test_draining_cancels_what_does_not_end_in_time_and_waits_for_that(store: Store) -> None:
    shop = Workshop(store)
    await put(store, "b1", "b2")
    async with running(shop.poller) as task:
        await until(lambda: len(shop.begun) == 2)
        task.cancel()
        await shop.poller.drain(0)

        assert sorted(shop.ended) == ["b1", "b2"]


async def test_draining_nothing_is_done_at_once(store: Store) -> None:
    await Workshop(store).poller.drain(PATIENCE)


async def test_a_pump_that_is_stopped_while_the_store_fails_stops(store: Store) -> None:
    asked = asyncio.Event()
    go_on = asyncio.Event()

    async def fetch(_limit: int) -> list[Claim]:
        asked.set()
        await go_on.wait()
        raise StoreError("disk failure")

    async def work(_claim: Claim) -> None:
        raise AssertionError

    task = asyncio.create_task(Poller(store, KIND, 5, fetch, work).run())
    await asked.wait()
    task.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_fetch_that_fails_for_a_reason_of_its_own_does_not_end_the_pump(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rapkit.work.poller._PAUSE_AFTER_FAILURE", 0)
    shop = Workshop(store)
    shop.allowed.set()
    healthy: list[bool] = []

    async def fetch(limit: int) -> list[Claim]:
        healthy.append(poller.healthy)
        if len(healthy) <= 2:
            raise RuntimeError("a mistake of ours")
        return await shop.fetch(limit)

    poller: Poller[Claim] = Poller(store, KIND, 5, fetch, shop.work)
    await put(store, "b1")
    async with running(poller):
        await until(lambda: shop.ended == ["b1"])

    assert healthy[:3] == [True, False, False]
    assert "a mistake of ours" in caplog.text
