"""Commits: everything that can follow from a slice of work, all of it or nothing."""

import pytest

from rapkit.errors import StoreError
from rapkit.mailbox import AcceptResult, Commit, Entry, NewBox, Record, Timer
from tests.mailbox.harness import (
    BERT,
    KIND,
    Harness,
    accepted,
    claim,
    claim_one,
    idle,
    ids,
    new_mail,
    post,
    retry,
    running,
    seqs,
    take,
    take_one,
    taken_over,
    texts,
    visible,
)


class CommitContract:
    async def test_the_journal_is_numbered_in_the_order_of_commits(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        await store.commit(claimed, Commit(entries=[Entry("a", b"1"), Entry("b", b"2")], keep=True))
        await harness.advance(5)
        await store.commit(claimed, Commit(entries=[Entry("c", b"3")]))

        journal = await store.entries("b1")

        assert [(one.seq, one.kind, one.body) for one in journal] == [(1, "a", b"1"), (2, "b", b"2"), (3, "c", b"3")]
        assert claimed.now <= journal[0].at == journal[1].at < journal[2].at

    async def test_the_journal_is_read_in_stretches(self, harness: Harness) -> None:
        store = harness.store
        await idle(store, entries=[Entry("n", str(number).encode()) for number in range(1, 8)])

        assert [one.seq for one in await store.entries("b1", limit=3)] == [1, 2, 3]
        assert [one.seq for one in await store.entries("b1", after=3, limit=3)] == [4, 5, 6]
        assert [one.seq for one in await store.entries("b1", after=6)] == [7]
        assert await store.entries("b1", after=7) == []

    async def test_state_and_status_stay_unless_they_are_written(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        await store.commit(claimed, Commit(state=b"kept", status="parked", keep=True))
        await store.commit(claimed, Commit())

        box = await store.box("b1")

        assert box is not None
        assert (box.state, box.status) == (b"kept", "parked")

    async def test_state_can_be_emptied(self, harness: Harness) -> None:
        store = harness.store
        await idle(store, state=b"full")
        await accepted(store, new_mail("empty it"))
        await store.commit(await claim_one(store), Commit(state=b""))

        box = await store.box("b1")

        assert box is not None
        assert box.state == b""

    async def test_records_are_put_replaced_and_dropped(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        put = [Record("call", "c2", b"two"), Record("call", "c1", b"one"), Record("view", "c1", b"other")]
        await store.commit(claimed, Commit(put=put, keep=True))
        assert await store.records("b1", "call") == [put[1], put[0]]

        replaced = Record("call", "c1", b"replaced")
        await store.commit(claimed, Commit(put=[replaced], drop=[("call", "c2"), ("call", "c9")]))

        assert await store.records("b1", "call") == [replaced]
        assert await store.records("b1", "view") == [put[2]]
        assert await store.records("b2", "call") == []

    async def test_a_timer_makes_the_box_due_and_is_handed_out_until_it_is_taken_away(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        timers = [Timer("late", claimed.now + 20), Timer("early", claimed.now + 10), Timer("far", claimed.now + 900)]
        await store.commit(claimed, Commit(timers=timers))

        await harness.advance(9)
        assert await claim(store) == []
        await harness.advance(2)
        first = await claim_one(store)
        assert first.timers == ("early",)
        await store.commit(first, Commit())

        again = await claim_one(store)
        assert again.timers == ("early",)
        await harness.advance(10)
        await store.commit(again, Commit())

        both = await claim_one(store)
        assert both.timers == ("early", "late")
        await store.commit(both, Commit(timers=[Timer("early", None), Timer("late", None), Timer("none", None)]))
        assert await claim(store) == []

        await harness.advance(900)
        assert (await claim_one(store)).timers == ("far",)

    async def test_a_timer_can_be_moved(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        await store.commit(claimed, Commit(timers=[Timer("alarm", claimed.now + 10)], keep=True))
        await store.commit(claimed, Commit(timers=[Timer("alarm", claimed.now + 100)]))

        await harness.advance(50)
        assert await claim(store) == []
        await harness.advance(51)
        assert (await claim_one(store)).timers == ("alarm",)

    async def test_a_timer_that_is_due_is_handed_out_until_it_is_moved(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        await store.commit(claimed, Commit(timers=[Timer("alarm", claimed.now + 5)]))
        await harness.advance(6)
        first = await claim_one(store)
        await store.commit(first, Commit(state=b"busy", keep=True))
        second = await taken_over(harness, store, BERT)
        await store.commit(second, Commit(charge=True))
        third = await claim_one(store)
        assert first.timers == second.timers == third.timers == ("alarm",)

        await store.commit(third, Commit(timers=[Timer("alarm", third.now + 60)]))

        assert await claim(store) == []
        await accepted(store, new_mail("too early"))
        early = await claim_one(store)
        assert early.timers == ()
        await store.commit(early, Commit(consumed=seqs(early)))
        await harness.advance(61)
        assert (await claim_one(store)).timers == ("alarm",)

    async def test_a_timer_that_comes_due_during_a_claim_makes_the_box_due_when_it_ends(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        await store.commit(claimed, Commit(timers=[Timer("alarm", claimed.now + 2)], keep=True))
        await harness.advance(3)
        await store.commit(claimed, Commit())

        assert (await claim_one(store)).timers == ("alarm",)

    async def test_mail_does_not_disturb_a_timer(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        await store.commit(claimed, Commit(timers=[Timer("alarm", claimed.now + 60)]))
        await accepted(store, new_mail("hello"))
        awake = await claim_one(store)
        assert awake.timers == ()
        await store.commit(awake, Commit(consumed=seqs(awake)))

        await harness.advance(50)
        assert await claim(store) == []
        await harness.advance(11)
        assert (await claim_one(store)).timers == ("alarm",)

    async def test_a_box_is_made_together_with_its_first_letters(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store, "parent")
        await store.commit(
            claimed,
            Commit(
                entries=[Entry("spawned", b"child")],
                spawn=[NewBox("child", KIND, b"born", parent="parent", root="parent", name="c1")],
                new_mails=[
                    new_mail("first", "child"),
                    new_mail("second", "child", dedup="m2"),
                    new_mail("self", "parent"),
                ],
            ),
        )

        both = {one.box.id: one for one in await claim(store)}

        assert texts(both["child"]) == ["first", "second"]
        assert (both["child"].box.state, both["child"].box.parent, both["child"].box.name) == (b"born", "parent", "c1")
        assert texts(both["parent"]) == ["self"]
        assert await store.accept(new_mail("second", "child", dedup="m2")) is AcceptResult.DUPLICATE

    async def test_letters_nobody_can_take_do_not_spoil_a_commit(self, harness: Harness) -> None:
        store = harness.store
        await idle(store, "closed", status="closed")
        claimed = await running(store)
        new_mails = [new_mail("?", "nobody"), new_mail("?", "closed"), new_mail("?", needs=("call", "c1"))]

        await store.commit(claimed, Commit(state=b"done", spawn=[NewBox("closed", KIND)], new_mails=new_mails))

        box = await store.box("b1")
        assert box is not None
        assert box.state == b"done"
        assert await claim(store) == []

    async def test_a_record_put_by_a_commit_is_there_for_its_letters(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        result = new_mail("result", needs=("call", "c1"))

        await store.commit(claimed, Commit(put=[Record("call", "c1")], new_mails=[result]))

        assert texts(await claim_one(store)) == ["result"]

    async def test_mail_that_a_box_had_when_it_was_closed_is_still_handed_out(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        await accepted(store, new_mail("in time"))
        await store.commit(claimed, Commit(status="closed"))

        assert texts(await claim_one(store)) == ["in time"]

    async def test_posts_leave_with_the_commit_and_not_before(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        assert await take(store) == []

        await store.commit(claimed, Commit(outgoing=[post("p1"), post("p2", "other lane")]))

        assert sorted(ids(await take(store))) == ["p1", "p2"]

    async def test_what_is_queued_can_be_unsent(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        queued = [post("p1", "x"), post("p2", "x"), post("p3", "y"), post("p4", "z")]
        await store.commit(claimed, Commit(outgoing=queued, keep=True))

        await store.commit(claimed, Commit(unsend=["x", "y", "none"], outgoing=[post("p5", "x")]))

        assert sorted(ids(await take(store))) == ["p4", "p5"]

    async def test_what_is_in_flight_when_it_is_unsent_is_not_sent_again(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        await store.commit(claimed, Commit(outgoing=[post("p1"), post("p2")], keep=True))
        flying = await take_one(store, BERT)

        await store.commit(claimed, Commit(unsend=["b1"], keep=True))
        await store.settle(flying, retry(0))

        assert await store.outbox(dead=False) == []
        assert await store.outbox(dead=True) == []
        await store.commit(claimed, Commit(outgoing=[post("p3")]))
        assert ids(await take(store)) == ["p3"]

    async def test_the_last_commit_of_a_box_takes_everything_with_it_but_its_posts(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        facts = Commit(
            entries=[Entry("e", b"")], put=[Record("call", "c1")], timers=[Timer("t", claimed.now)], keep=True
        )
        await store.commit(claimed, facts)
        await accepted(store, new_mail("never read"))

        await store.commit(claimed, Commit(forget_for=0, outgoing=[post("bye")], spawn=[NewBox("heir", KIND)]))

        assert await store.box("b1") is None
        assert ids(await take(store)) == ["bye"]
        assert [one.box.id for one in await claim(store)] == ["heir"]
        assert await store.create(NewBox("b1", KIND))
        reborn = await claim_one(store)
        assert (reborn.mail, reborn.timers) == ((), ())
        assert await store.entries("b1") == []
        assert await store.records("b1", "call") == []

    async def test_a_commit_that_cannot_be_written_changes_nothing(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        await accepted(store, new_mail("stays"))
        await store.commit(claimed, Commit(outgoing=[post("taken id")], put=[Record("call", "c1")], keep=True))
        before = await visible(store, "b1", "b2")

        with pytest.raises(StoreError):
            await store.commit(
                claimed,
                Commit(
                    entries=[Entry("e", b"")],
                    state=b"new",
                    status="parked",
                    put=[Record("call", "c2")],
                    drop=[("call", "c1")],
                    spawn=[NewBox("b2", KIND)],
                    outgoing=[post("free id", "lane"), post("taken id")],
                ),
            )
        assert await visible(store, "b1", "b2") == before

        await store.commit(claimed, Commit())
        assert texts(await claim_one(store)) == ["stays"]
