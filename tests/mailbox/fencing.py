"""Fencing and leases: nobody runs a box twice, and whoever lost it leaves no trace."""

import asyncio

import pytest

from rapkit.errors import Fenced
from rapkit.mailbox import Claim, Commit, Entry, Fact, NewBox, Record, Store, Timer
from tests.mailbox.harness import (
    ANNA,
    BERT,
    KIND,
    Harness,
    accepted,
    claim,
    claim_one,
    idle,
    new_mail,
    post,
    running,
    seqs,
    taken_over,
    texts,
    visible,
)

DAY = 24 * 3600.0


def everything_at_once(claim: Claim) -> Commit:
    return Commit(
        consumed=seqs(claim)[:1],
        set_aside=dict.fromkeys(seqs(claim)[1:], "zombie"),
        entries=[Entry("zombie", b"was here")],
        state=b"zombie",
        status="closed",
        put=[Record("call", "zombie")],
        drop=[("call", "c1")],
        timers=[Timer("zombie", claim.now), Timer("alarm", None)],
        outgoing=[post("zombie", "zombie lane")],
        unsend=["b1"],
        spawn=[NewBox("zombie", KIND)],
        facts=[Fact("other", "call", "zombie", b""), Fact("b1", "call", "c1", None), Fact("zombie", "call", "z", b"")],
        new_mails=[new_mail("from a zombie", "b1"), new_mail("from a zombie", "other")],
        again_at=claim.now,
    )


async def leaves_no_trace(store: Store, zombie: Claim) -> None:
    """Whatever the claim's worker tries, it is told it is too late, and all is as before."""
    commits = [everything_at_once(zombie), Commit(), Commit(keep=True), Commit(charge=True), Commit(forget_for=60)]
    before = await visible(store, "b1", "other", "zombie")
    for commit in commits:
        with pytest.raises(Fenced):
            await store.commit(zombie, commit)
    assert await visible(store, "b1", "other", "zombie") == before


class FencingContract:
    async def test_a_lost_workers_box_is_taken_over_as_soon_as_its_lease_has_ended(self, harness: Harness) -> None:
        store = harness.store
        await running(store, worker=ANNA)
        for _ in range(9):
            await harness.advance(store.lease.seconds / 4)
            await store.renew(ANNA)
            assert await claim(store, BERT) == []

        await harness.advance(store.lease.seconds * 0.9)
        assert await claim(store, BERT) == []
        await harness.advance(store.lease.seconds * 0.11)

        assert len(await claim(store, BERT)) == 1

    async def a_box_with_everything(self, store: Store) -> Claim:
        await idle(store, "other", put=[Record("call", "c1")])
        claimed = await running(store)
        await accepted(store, new_mail("one"), new_mail("two"))
        facts = Commit(
            put=[Record("call", "c1")],
            timers=[Timer("alarm", claimed.now)],
            outgoing=[post("p1")],
            entries=[Entry("e", b"1")],
            state=b"good",
        )
        await store.commit(claimed, facts)
        return await claim_one(store)

    async def test_a_worker_that_lost_its_box_leaves_no_trace(self, harness: Harness) -> None:
        store = harness.store
        zombie = await self.a_box_with_everything(store)
        heir = await taken_over(harness, store, BERT)

        await leaves_no_trace(store, zombie)

        assert (texts(heir), heir.timers) == (["one", "two"], ("alarm",))
        await store.commit(heir, Commit(consumed=seqs(heir), timers=[Timer("alarm", None)]))
        assert await store.next_due(KIND) is None
        await leaves_no_trace(store, zombie)

    async def test_a_worker_whose_box_was_stopped_leaves_no_trace(self, harness: Harness) -> None:
        store = harness.store
        await store.create(NewBox("other", KIND))
        await store.create(NewBox("b1", KIND, parent="thread", name="call"))
        _, claimed = await claim(store)
        await store.stop([KIND], "thread", "call", remember_for=60)

        await leaves_no_trace(store, claimed)

        assert (await claim_one(store)).box.stopped

    async def test_an_earlier_claim_of_the_same_worker_leaves_no_trace(self, harness: Harness) -> None:
        store = harness.store
        zombie = await self.a_box_with_everything(store)
        heir = await taken_over(harness, store, BERT)
        await store.commit(heir, Commit())
        again = await claim_one(store, ANNA)

        await leaves_no_trace(store, zombie)

        await store.commit(again, Commit())

    async def test_a_claim_that_ended_leaves_no_trace(self, harness: Harness) -> None:
        store = harness.store
        claimed = await self.a_box_with_everything(store)
        await store.commit(claimed, Commit(consumed=seqs(claimed)))

        await leaves_no_trace(store, claimed)

    async def test_a_claim_of_a_finished_box_leaves_no_trace(self, harness: Harness) -> None:
        store = harness.store
        claimed = await self.a_box_with_everything(store)
        await store.commit(claimed, Commit(forget_for=60))
        await leaves_no_trace(store, claimed)

        await harness.advance(61)
        await store.create(NewBox("b1", KIND))
        await leaves_no_trace(store, claimed)

    async def test_a_silent_worker_keeps_its_box_until_its_lease_ends(self, harness: Harness) -> None:
        store = harness.store
        await running(store, worker=ANNA)

        await harness.advance(store.lease.seconds - 0.5)
        assert await claim(store, BERT) == []

        assert (await taken_over(harness, store, BERT)).worker == BERT

    async def test_a_worker_that_renews_its_lease_is_never_taken_over(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store, worker=ANNA)
        for _ in range(20):
            await harness.advance(store.lease.renew_every)
            await store.renew(ANNA)
            assert await claim(store, BERT) == []
        await store.commit(claimed, Commit())

    async def test_a_box_is_found_even_if_its_worker_lived_long_before_it_was_lost(self, harness: Harness) -> None:
        store = harness.store
        await running(store, worker=ANNA)
        for _ in range(10):
            await harness.advance(store.lease.renew_every)
            await store.renew(ANNA)
            assert await claim(store, BERT) == []

        assert (await taken_over(harness, store, BERT)).box.id == "b1"

    async def test_a_lost_workers_box_is_taken_over_though_the_clock_was_set_back(self, harness: Harness) -> None:
        """Its lease lies a day ahead; nobody has to wait for that day."""
        store = harness.store
        left = await running(store, worker=ANNA)
        await harness.set_back(DAY)
        assert await claim(store, BERT) == []
        await harness.advance(store.lease.seconds * 0.9)
        assert await claim(store, BERT) == []
        await harness.advance(store.lease.seconds * 0.11)

        assert (await claim_one(store, BERT)).attempts == 2
        await leaves_no_trace(store, left)

    async def test_a_worker_that_lives_keeps_its_box_though_the_clock_was_set_back(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store, worker=ANNA)
        await harness.set_back(DAY)
        for _ in range(20):
            assert await claim(store, BERT) == []
            await harness.advance(store.lease.renew_every)
            await store.renew(ANNA)

        await store.commit(claimed, Commit())

    async def test_a_worker_that_is_lost_long_after_the_clock_was_set_back_is_found(self, harness: Harness) -> None:
        """It claimed the box before, so that nobody was to look at it for a day."""
        store = harness.store
        await running(store, worker=ANNA)
        await harness.set_back(DAY)
        for _ in range(10):
            await store.renew(ANNA)
            assert await claim(store, BERT) == []
            await harness.advance(store.lease.renew_every)

        assert (await taken_over(harness, store, BERT)).box.id == "b1"

    async def test_a_worker_that_was_late_goes_on_if_nobody_wanted_its_box(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        await harness.advance(store.lease.seconds * 5)

        assert await store.claim(ANNA, KIND, 10) == []
        await store.commit(claimed, Commit(state=b"late"))

        box = await store.box("b1")
        assert box is not None
        assert box.state == b"late"

    async def test_what_a_retired_worker_holds_is_free_at_once(self, harness: Harness) -> None:
        store = harness.store
        left = await running(store, worker=ANNA)
        await store.retire(ANNA)

        assert (await claim_one(store, BERT)).attempts == 2
        await leaves_no_trace(store, left)

    async def test_retiring_touches_nobody_else(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store, worker=ANNA)
        await store.renew(BERT)
        await store.retire(BERT)
        await store.retire("a stranger")

        assert await claim(store, "carl") == []
        await store.commit(claimed, Commit())

    async def test_many_boxes_of_a_lost_worker_are_all_found(self, harness: Harness) -> None:
        store = harness.store
        for number in range(150):
            await store.create(NewBox(f"b{number:03}", KIND))
        assert len(await claim(store, ANNA, limit=150)) == 150
        await harness.advance(store.lease.seconds * 2)

        found: set[str] = set()
        while claims := await claim(store, BERT, limit=10):
            found |= {one.box.id for one in claims}

        assert len(found) == 150

    async def test_boxes_that_a_living_worker_holds_do_not_hide_others(self, harness: Harness) -> None:
        store = harness.store
        for number in range(150):
            await store.create(NewBox(f"b{number:03}", KIND))
        assert len(await claim(store, ANNA, limit=150)) == 150
        await harness.advance(store.lease.seconds * 0.9)
        await store.renew(ANNA)
        await harness.advance(store.lease.seconds * 0.9)
        await store.create(NewBox("free", KIND))

        async with asyncio.timeout(15):
            while not (claims := await claim(store, BERT, limit=1)):
                await store.wait(KIND, 20)

        assert [one.box.id for one in claims] == ["free"]
