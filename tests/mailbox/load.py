"""The load: how much waits, and for how long."""

from rapkit.mailbox import Commit, Load, Outcome, Settlement, Timer
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
    running,
    send,
    seqs,
    take,
)

NOTHING = Load(unread=0, oldest_unread=0.0, due=0, outgoing=0, oldest_outgoing=0.0, dead=0)


class LoadContract:
    async def test_nothing_waits_in_an_empty_store_nor_in_one_that_is_at_rest(self, harness: Harness) -> None:
        store = harness.store
        assert await store.load(KIND) == NOTHING

        claimed = await running(store)
        await store.commit(claimed, Commit(timers=[Timer("alarm", claimed.now + 30)]))
        await idle(store, "b2")
        assert await store.load(KIND) == NOTHING

        await harness.advance(30)
        assert (await store.load(KIND)).due == 1

    async def test_letters_are_unread_until_a_commit_consumes_them_or_sets_them_aside(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        await accepted(store, new_mail("one"))
        await harness.advance(2)
        await accepted(store, new_mail("two"))
        await harness.advance(3)
        await accepted(store, new_mail("three"))

        load = await store.load(KIND)
        assert (load.unread, load.oldest_unread) == (3, 5)
        claimed = await claim_one(store)
        load = await store.load(KIND)
        assert (load.unread, load.oldest_unread) == (3, 5)
        one, two, three = seqs(claimed)
        await store.commit(claimed, Commit(set_aside={one: "poison"}, keep=True))
        load = await store.load(KIND)
        assert (load.unread, load.oldest_unread) == (2, 3)
        await store.commit(claimed, Commit(consumed=[two, three]))
        assert await store.load(KIND) == NOTHING

    async def test_letters_of_a_box_that_has_ended_do_not_wait(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        await accepted(store, new_mail("late"))

        await store.commit(claimed, Commit(forget_for=60))

        assert await store.load(KIND) == NOTHING

    async def test_boxes_wait_until_a_worker_claims_them(self, harness: Harness) -> None:
        store = harness.store
        for id in ("b1", "b2", "b3"):
            await idle(store, id)
        await accepted(store, new_mail("x", "b1"), new_mail("y", "b1"), new_mail("z", "b2"))

        assert (await store.load(KIND)).due == 2
        assert (await store.load("other")).due == 0
        await claim(store, ANNA, limit=1)
        assert (await store.load(KIND)).due == 1
        await claim(store, BERT)
        assert (await store.load(KIND)).due == 0
        await store.retire(ANNA)
        assert (await store.load(KIND)).due == 1

    async def test_posts_wait_until_they_are_delivered_or_given_up(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1", "lane"))
        await harness.advance(4)
        await send(store, post("p2", "lane"), post("p3", "other"))
        await harness.advance(1)

        load = await store.load(KIND)
        assert (load.outgoing, load.oldest_outgoing, load.dead) == (3, 5, 0)
        first, third = await take(store)
        await store.settle(third, Settlement(Outcome.RETRY, "503", 60))
        load = await store.load(KIND)
        assert (load.outgoing, load.oldest_outgoing, load.dead) == (3, 5, 0)
        await store.settle(first, DEAD)
        load = await store.load(KIND)
        assert (load.outgoing, load.oldest_outgoing, load.dead) == (2, 1, 1)
        (second,) = await take(store)
        await store.settle(second, DELIVERED)
        load = await store.load(KIND)
        assert (load.outgoing, load.oldest_outgoing, load.dead) == (1, 1, 1)
        await store.resend(["p1"])
        load = await store.load(KIND)
        assert (load.outgoing, load.oldest_outgoing, load.dead) == (2, 5, 0)
