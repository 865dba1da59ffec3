"""Waiting: nobody polls, and a wake-up is never lost."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rapkit.mailbox import OUTBOX, Commit, NewBox, Store, Timer
from tests.mailbox.harness import (
    ANNA,
    BERT,
    DEAD,
    DELIVERED,
    KIND,
    Harness,
    accepted,
    claim,
    claim_one,
    idle,
    new_mail,
    post,
    retry,
    running,
    send,
    seqs,
    take,
    take_one,
    texts,
)

LONG = 20.0


@asynccontextmanager
async def rings(store: Store, topic: str) -> AsyncIterator[None]:
    """Whoever waits for the topic is woken by what happens inside, be it before it waits or while it does."""
    early = asyncio.create_task(store.wait(topic, LONG))
    await asyncio.sleep(0)
    yield
    async with asyncio.timeout(LONG / 2):
        await early
        await store.wait(topic, LONG)


class WaitContract:
    async def test_what_a_lost_worker_holds_is_due_though_the_clock_was_set_back_and_nobody_works(
        self, harness: Harness
    ) -> None:
        store = harness.store
        await running(store)
        await harness.set_back(24 * 3600)
        assert await store.next_due(KIND) != 0
        await harness.advance(store.lease.seconds * 0.9)
        assert await store.next_due(KIND) != 0

        await harness.advance(store.lease.seconds * 0.11)

        assert await store.next_due(KIND) == 0

    async def test_waiting_ends_after_the_time_that_was_given(self, harness: Harness) -> None:
        store = harness.store
        await claim(store)
        began = time.monotonic()

        await store.wait(KIND, 0.5)
        await store.wait(KIND, 0.01)

        assert time.monotonic() - began < LONG / 2

    async def test_a_new_box_rings(self, harness: Harness) -> None:
        await claim(harness.store)
        async with rings(harness.store, KIND):
            await harness.store.create(NewBox("b1", KIND))

    async def test_a_letter_rings(self, harness: Harness) -> None:
        await idle(harness.store)
        await claim(harness.store)
        async with rings(harness.store, KIND):
            await accepted(harness.store, new_mail("hello"))

    async def test_mail_that_came_during_a_claim_rings_when_the_claim_ends(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        await accepted(store, new_mail("meanwhile"))
        assert await claim(store, BERT) == []
        async with rings(store, KIND):
            await store.commit(claimed, Commit())

    async def test_a_timer_rings_so_that_a_worker_can_look_how_long_to_wait(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        async with rings(store, KIND):
            await store.commit(claimed, Commit(timers=[Timer("alarm", claimed.now + 60)]))

    async def test_a_spawned_box_and_a_letter_in_a_commit_ring(self, harness: Harness) -> None:
        store = harness.store
        await idle(store, "b2")
        claimed = await running(store)
        await claim(store)
        async with rings(store, KIND):
            await store.commit(claimed, Commit(keep=True, new_mails=[new_mail("hello", "b2")]))
        await claim(store, kind="child")
        async with rings(store, "child"):
            await store.commit(claimed, Commit(keep=True, spawn=[NewBox("b3", "child")]))

    async def test_a_stop_rings(self, harness: Harness) -> None:
        store = harness.store
        await store.create(NewBox("b1", KIND, parent="thread", name="c1"))
        await claim_one(store)
        async with rings(store, KIND):
            await store.stop([KIND], "thread", "c1", remember_for=60)

    @pytest.mark.parametrize("kind", [KIND, "other"])
    async def test_a_stop_of_several_kinds_rings_for_each(self, harness: Harness, kind: str) -> None:
        store = harness.store
        for each in (KIND, "other"):
            await store.create(NewBox(f"b of {each}", each, parent="thread", name="c1"))
            await claim_one(store, kind=each)
        async with rings(store, kind):
            await store.stop([KIND, "other"], "thread", "c1", remember_for=60)

    async def test_a_retired_workers_box_rings(self, harness: Harness) -> None:
        store = harness.store
        await running(store, worker=ANNA)
        await claim(store, BERT)
        async with rings(store, KIND):
            await store.retire(ANNA)

    async def test_a_post_rings(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        await take(store)
        async with rings(store, OUTBOX):
            await store.commit(claimed, Commit(outgoing=[post("p1")]))

    async def test_the_next_post_of_a_lane_rings(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1"), post("p2"), post("p3"), post("p4", once=True), post("p5"))
        for outcome in (retry(0), DELIVERED, DEAD):
            taken = await take_one(store)
            async with rings(store, OUTBOX):
                await store.settle(taken, outcome)
        await store.settle(await take_one(store), DELIVERED)
        async with rings(store, OUTBOX):
            await take_one(store)

    async def test_a_post_sent_again_rings(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1"))
        await store.settle(await take_one(store), DEAD)
        await take(store)
        async with rings(store, OUTBOX):
            await store.resend(["p1"])

    async def test_a_settled_posts_letter_rings(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        await send(store, post("p1"))
        await claim(store)
        taken = await take_one(store)
        async with rings(store, KIND):
            await store.settle(taken, type(DELIVERED)(DELIVERED.outcome, new_mail=new_mail("delivered")))

    async def test_what_comes_while_a_claim_is_under_way_rings(self, harness: Harness) -> None:
        store = harness.store
        for number in range(20):
            await store.renew(ANNA)
            claims, _ = await asyncio.gather(store.claim(ANNA, KIND, 10), store.create(NewBox(f"b{number}", KIND)))
            async with asyncio.timeout(LONG / 2):
                while not claims:
                    await store.wait(KIND, LONG)
                    claims = await store.claim(ANNA, KIND, 10)

    async def test_what_comes_while_posts_are_being_taken_rings(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        for number in range(20):
            await store.renew(ANNA)
            news = Commit(outgoing=[post(f"p{number}", f"lane {number}")], keep=True)
            taken, _ = await asyncio.gather(store.take(ANNA, 10), store.commit(claimed, news))
            async with asyncio.timeout(LONG / 2):
                while not taken:
                    await store.wait(OUTBOX, LONG)
                    taken = await store.take(ANNA, 10)

    async def test_next_due_is_nothing_now_or_later(self, harness: Harness) -> None:
        store = harness.store
        assert await store.next_due(KIND) is None
        assert await store.next_due(OUTBOX) is None

        await store.create(NewBox("b1", KIND))
        assert await store.next_due(KIND) == 0
        assert await store.next_due("other") is None
        await harness.advance(5)
        assert await store.next_due(KIND) == 0

        claimed = await claim_one(store)
        later = Commit(timers=[Timer("alarm", claimed.now + 60)], outgoing=[post("p1", not_before=claimed.now + 90)])
        await store.commit(claimed, later)
        assert await store.next_due(KIND) == pytest.approx(60, abs=1)
        assert await store.next_due("other") is None
        assert await store.next_due(OUTBOX) == pytest.approx(90, abs=1)

        await harness.advance(100)
        assert await store.next_due(KIND) == 0
        assert await store.next_due(OUTBOX) == 0

        await store.settle(await take_one(store), DELIVERED)
        await store.commit(await claim_one(store), Commit(timers=[Timer("alarm", None)]))
        assert await store.next_due(KIND) is None
        assert await store.next_due(OUTBOX) is None

    async def test_what_a_worker_holds_is_due_when_its_lease_ends_and_not_before(self, harness: Harness) -> None:
        """However long it has had it, and whether or not anybody has looked since: it renews, so it lives."""
        store = harness.store
        lease = store.lease.seconds
        await running(store)
        await send(store, post("p1"))
        await take_one(store)
        for _ in range(5):
            await harness.advance(lease / 2)
            await store.renew(ANNA)

        for topic in (KIND, OUTBOX):
            assert await store.next_due(topic) == pytest.approx(lease, abs=0.1)
        await harness.advance(lease)
        for topic in (KIND, OUTBOX):
            assert await store.next_due(topic) == 0

    async def test_what_a_worker_holds_hides_nothing_that_is_due(self, harness: Harness) -> None:
        store = harness.store
        await running(store)
        await send(store, post("p1"))
        await take_one(store)
        await harness.advance(store.lease.seconds)
        await store.renew(ANNA)
        await store.create(NewBox("b2", KIND))
        await send(store, post("p2", lane="b2"))

        for topic in (KIND, OUTBOX):
            assert await store.next_due(topic) == 0
        claimed = await claim_one(store, BERT)
        await store.settle(await take_one(store, BERT), DELIVERED)
        await store.commit(claimed, Commit(timers=[Timer("alarm", claimed.now + 1)]))
        assert await store.next_due(KIND) == pytest.approx(1, abs=0.1)

    async def test_what_a_worker_held_that_retired_is_due(self, harness: Harness) -> None:
        store = harness.store
        await running(store)
        await send(store, post("p1"))
        await take_one(store)

        await store.retire(ANNA)

        for topic in (KIND, OUTBOX):
            assert await store.next_due(topic) == 0

    async def test_no_wake_up_is_lost_between_a_worker_and_many_senders(self, harness: Harness) -> None:
        """A worker that trusts the bell alone reads every letter while letters rain from all sides."""
        store = harness.store
        for number in range(3):
            await idle(store, f"b{number}")
        read: list[str] = []
        all_read = asyncio.Event()

        async def work(worker: str) -> None:
            while True:
                for claimed in await claim(store, worker, limit=2):
                    read.extend(texts(claimed))
                    await asyncio.sleep(0)
                    await store.commit(claimed, Commit(consumed=seqs(claimed)))
                if len(read) == 150:
                    all_read.set()
                if await store.next_due(KIND) != 0:
                    await store.wait(KIND, LONG)

        async def write(writer: int) -> None:
            for number in range(30):
                await accepted(store, new_mail(f"{writer}/{number}", f"b{(writer + number) % 3}"))

        workers = [asyncio.create_task(work(ANNA)), asyncio.create_task(work(BERT))]
        async with asyncio.timeout(LONG / 2):
            await asyncio.gather(*(write(writer) for writer in range(5)))
            await all_read.wait()
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

        assert sorted(read) == sorted(f"{writer}/{number}" for writer in range(5) for number in range(30))
