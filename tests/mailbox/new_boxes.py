"""How a box begins: with its first letter, or with nothing to do."""

import asyncio

import pytest

from rapkit.errors import StoreError
from rapkit.mailbox import AcceptResult, Commit, Entry, Fact, NewBox
from tests.mailbox.harness import (
    ANNA,
    KIND,
    Harness,
    accepted,
    claim,
    claim_one,
    idle,
    new_mail,
    running,
    seqs,
    texts,
)


class NewBoxesContract:
    async def test_a_box_can_be_made_with_its_first_letter(self, harness: Harness) -> None:
        store = harness.store

        assert await store.create(NewBox("b1", KIND, b"state"), new_mail("first", dedup="m1"))

        claimed = await claim_one(store)
        assert (claimed.box.state, texts(claimed)) == (b"state", ["first"])
        assert await store.accept(new_mail("first", dedup="m1")) is AcceptResult.DUPLICATE

    async def test_making_a_box_again_with_the_same_letter_changes_nothing(self, harness: Harness) -> None:
        store = harness.store
        await store.create(NewBox("b1", KIND, b"state"), new_mail("first", dedup="m1"))
        claimed = await claim_one(store)
        await store.commit(claimed, Commit(consumed=seqs(claimed)))

        assert not await store.create(NewBox("b1", KIND, b"other"), new_mail("first", dedup="m1"))

        assert await claim(store) == []
        box = await store.box("b1")
        assert box is not None
        assert box.state == b"state"

    async def test_of_many_that_make_a_box_with_the_same_letter_one_does(self, harness: Harness) -> None:
        store, box = harness.store, NewBox("b1", KIND)

        made = await asyncio.gather(*(store.create(box, new_mail("first", dedup="m1")) for _ in range(20)))

        assert sorted(made) == [False] * 19 + [True]
        assert texts(await claim_one(store)) == ["first"]

    async def test_a_box_that_is_there_takes_another_letter_like_any_other(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)

        assert not await store.create(NewBox("b1", KIND), new_mail("new", dedup="m1"))

        assert texts(await claim_one(store)) == ["new"]

    async def test_a_claimed_box_finds_such_a_letter_when_its_claim_ends(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)

        assert not await store.create(NewBox("b1", KIND), new_mail("meanwhile"))
        assert await claim(store) == []

        await store.commit(claimed, Commit())
        assert texts(await claim_one(store)) == ["meanwhile"]

    async def test_a_box_that_is_closed_or_has_ended_takes_no_such_letter(self, harness: Harness) -> None:
        store = harness.store
        await idle(store, "closed", status="closed")
        await idle(store, "ended", forget_for=60)

        for id in ("closed", "ended"):
            assert not await store.create(NewBox(id, KIND), new_mail("late", id))

        assert await claim(store) == []
        assert await store.box("ended") is None

    async def test_a_box_made_with_a_letter_after_its_stop_is_stopped(self, harness: Harness) -> None:
        store = harness.store
        await store.stop([KIND], "thread", "c1", remember_for=60)

        assert await store.create(NewBox("b1", KIND, parent="thread", name="c1"), new_mail("first"))

        claimed = await claim_one(store)
        assert (claimed.box.stopped, texts(claimed)) == (True, ["first"])

    async def test_a_letter_for_another_box_makes_none(self, harness: Harness) -> None:
        store = harness.store
        await idle(store, "b2")

        with pytest.raises(StoreError, match=r"box b1 is for box b2"):
            await store.create(NewBox("b1", KIND), new_mail("stray", "b2"))

        assert await store.box("b1") is None
        assert await claim(store) == []

    async def test_an_idle_box_is_made_with_nothing_due(self, harness: Harness) -> None:
        store = harness.store

        assert await store.create(NewBox("b1", KIND, b"state", idle=True))

        assert (await store.next_due(KIND), await store.backlog(KIND)) == (None, 0)
        await harness.advance(10 * 86_400)
        assert await claim(store) == []
        box = await store.box("b1")
        assert box is not None
        assert (box.state, box.status, box.busy) == (b"state", "open", False)
        assert not await store.create(NewBox("b1", KIND))
        assert await claim(store) == [], "who is refused wakes nobody"

    async def test_a_letter_makes_an_idle_box_due_whether_it_comes_along_or_later(self, harness: Harness) -> None:
        store = harness.store
        await store.create(NewBox("along", KIND, idle=True), new_mail("first", "along"))
        await store.create(NewBox("later", KIND, idle=True))
        assert [texts(one) for one in await claim(store)] == [["first"]]

        await accepted(store, new_mail("second", "later"))

        assert texts(await claim_one(store)) == ["second"]

    async def test_a_commit_makes_idle_boxes_and_its_letters_make_them_due(self, harness: Harness) -> None:
        store = harness.store
        spawn = [NewBox("written to", KIND, idle=True), NewBox("told", KIND, idle=True), NewBox("silent", KIND)]
        facts = [Fact("told", "call", "c1", b"")]

        await store.commit(
            await running(store), Commit(spawn=spawn, facts=facts, new_mails=[new_mail("hello", "written to")])
        )

        assert {one.box.id: texts(one) for one in await claim(store)} == {"written to": ["hello"], "silent": []}
        told = await store.box("told")
        assert told is not None
        assert not told.busy

    async def test_an_idle_box_can_be_stopped(self, harness: Harness) -> None:
        store = harness.store
        await store.create(NewBox("b1", KIND, parent="thread", name="c1", idle=True))

        assert (await store.stop([KIND], "thread", "c1", remember_for=60)).boxes == ("b1",)

        assert (await claim_one(store)).box.stopped

    async def test_an_idle_box_can_be_made_and_claimed_at_once(self, harness: Harness) -> None:
        store = harness.store
        await store.renew(ANNA)

        claimed = await store.create_claimed(NewBox("b1", KIND, idle=True), ANNA)

        assert claimed is not None
        await store.commit(claimed, Commit(entries=[Entry("e", b"")]))
        assert await claim(store) == []
