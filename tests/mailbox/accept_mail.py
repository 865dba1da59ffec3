"""Letters in: making boxes, accepting letters, recognising repetitions."""

import asyncio

from rapkit.mailbox import AcceptResult, Box, Commit, NewBox, Record
from tests.mailbox.harness import (
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


class AcceptMailContract:
    async def test_a_box_is_kept_as_it_was_made(self, harness: Harness) -> None:
        store = harness.store
        assert await store.create(NewBox("b1", KIND, b"state", parent="thread", root="root", name="call"))

        box = await store.box("b1")

        assert box is not None
        created_at = box.created_at
        assert box == Box("b1", KIND, "open", "thread", "root", "call", b"state", False, created_at, 0, True)
        assert (await claim_one(store)).box == box

    async def test_a_box_nobody_made_is_not_there(self, harness: Harness) -> None:
        assert await harness.store.box("b1") is None
        assert await harness.store.entries("b1") == []
        assert await harness.store.records("b1", "call") == []

    async def test_an_id_that_is_alive_is_not_made_again(self, harness: Harness) -> None:
        store = harness.store
        await store.create(NewBox("b1", KIND, b"first"))

        assert not await store.create(NewBox("b1", KIND, b"second"))
        assert not await store.create(NewBox("b1", "other", b"third"))

        assert (await claim_one(store)).box.state == b"first"
        assert await claim(store, kind="other") == []

    async def test_one_of_many_that_make_the_same_box_makes_it(self, harness: Harness) -> None:
        made = await asyncio.gather(*(harness.store.create(NewBox("b1", KIND)) for _ in range(20)))

        assert sorted(made) == [False] * 19 + [True]

    async def test_a_finished_box_is_remembered_for_a_while(self, harness: Harness) -> None:
        store = harness.store
        await idle(store, forget_for=60.0)

        await harness.advance(58)
        assert await store.box("b1") is None
        assert not await store.create(NewBox("b1", KIND))
        assert await claim(store) == []

        await harness.advance(3)
        assert await store.create(NewBox("b1", KIND))
        assert (await claim_one(store)).attempts == 1

    async def test_a_box_can_be_forgotten_at_once(self, harness: Harness) -> None:
        await idle(harness.store, forget_for=0)

        assert await harness.store.create(NewBox("b1", KIND))

    async def test_letters_are_handed_out_in_the_order_they_were_accepted(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        sent = [f"letter {number}" for number in range(30)]
        await accepted(store, *map(new_mail, sent))

        claimed = await claim_one(store)

        assert texts(claimed) == sent
        assert seqs(claimed) == sorted(set(seqs(claimed)))
        assert {mail.kind for mail in claimed.mail} == {"note"}
        assert all(mail.accepted_at <= claimed.now and mail.attempts == 1 for mail in claimed.mail)

    async def test_more_letters_than_one_claim_can_carry_all_arrive_in_order(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        sent = [f"letter {number}" for number in range(1500)]
        await asyncio.gather(*(store.accept(new_mail(text)) for text in sent))

        got: list[str] = []
        while claims := await claim(store):
            got += texts(claims[0])
            await store.commit(claims[0], Commit(consumed=seqs(claims[0])))

        assert got == sent

    async def test_a_repeated_letter_is_one_letter(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        await accepted(store, new_mail("first", dedup="m1"))

        assert await store.accept(new_mail("again", dedup="m1")) is AcceptResult.DUPLICATE

        assert texts(await claim_one(store)) == ["first"]

    async def test_a_letter_repeated_by_many_at_once_is_one_letter(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)

        told = await asyncio.gather(*(store.accept(new_mail("once", dedup="m1")) for _ in range(20)))

        assert sorted(told) == [AcceptResult.ACCEPTED] + [AcceptResult.DUPLICATE] * 19
        assert texts(await claim_one(store)) == ["once"]

    async def test_a_repetition_is_recognised_after_its_letter_was_consumed(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        await accepted(store, new_mail("first", dedup="m1"))
        claimed = await claim_one(store)
        await store.commit(claimed, Commit(consumed=seqs(claimed)))

        await harness.advance(10 * 86_400)

        assert await store.accept(new_mail("first", dedup="m1")) is AcceptResult.DUPLICATE
        assert await claim(store) == []

    async def test_a_repetition_does_not_make_an_idle_box_due(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        await accepted(store, new_mail("first", dedup="m1"))
        claimed = await claim_one(store)
        await store.commit(claimed, Commit(consumed=seqs(claimed)))

        await store.accept(new_mail("first", dedup="m1"))

        assert await store.next_due(KIND) is None
        assert await store.backlog(KIND) == 0

    async def test_letters_are_never_deduplicated_by_their_body(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        await accepted(
            store, new_mail("same"), new_mail("same"), new_mail("same", dedup="1"), new_mail("same", dedup="2")
        )

        assert texts(await claim_one(store)) == ["same"] * 4

    async def test_the_same_key_in_two_boxes_means_two_letters(self, harness: Harness) -> None:
        store = harness.store
        await idle(store, "b1")
        await idle(store, "b2")

        await accepted(store, new_mail("one", "b1", dedup="m1"), new_mail("two", "b2", dedup="m1"))

        assert [texts(each) for each in await claim(store)] == [["one"], ["two"]]

    async def test_a_letter_to_nobody_is_not_remembered(self, harness: Harness) -> None:
        store = harness.store
        assert await store.accept(new_mail("too early", dedup="m1")) is AcceptResult.UNKNOWN

        await idle(store)

        assert await store.accept(new_mail("in time", dedup="m1")) is AcceptResult.ACCEPTED

    async def test_a_closed_box_takes_no_letters_but_knows_those_it_had(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        await accepted(store, new_mail("first", dedup="m1"))
        claimed = await claim_one(store)
        await store.commit(claimed, Commit(consumed=seqs(claimed), status="closed"))

        assert await store.accept(new_mail("first", dedup="m1")) is AcceptResult.DUPLICATE
        assert await store.accept(new_mail("new", dedup="m2")) is AcceptResult.UNKNOWN
        assert await store.accept(new_mail("new")) is AcceptResult.UNKNOWN
        assert await claim(store) == []

    async def test_it_can_be_asked_whether_a_letter_would_be_a_repetition(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        await accepted(store, new_mail("for ever", dedup="m1"), new_mail("for a while", dedup="m2", remember_for=60))

        async def remembered() -> list[bool]:
            asked = [("b1", "m1"), ("b1", "m2"), ("b1", "m3"), ("b2", "m1")]
            return [await store.remembers(box, dedup) for box, dedup in asked]

        assert await remembered() == [True, True, False, False]
        assert await store.accept(new_mail("new", dedup="m3")) is AcceptResult.ACCEPTED  # to ask leaves no trace
        await harness.advance(61)
        assert await remembered() == [True, False, True, False]

    async def test_a_forgotten_box_knows_the_letters_it_had_as_long_as_its_id(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        await accepted(store, new_mail("first", dedup="m1"))
        await store.commit(await claim_one(store), Commit(forget_for=60.0))

        await harness.advance(58)
        assert await store.accept(new_mail("first", dedup="m1")) is AcceptResult.DUPLICATE
        assert await store.accept(new_mail("new", dedup="m2")) is AcceptResult.UNKNOWN

        await harness.advance(3)
        assert await store.accept(new_mail("first", dedup="m1")) is AcceptResult.UNKNOWN

    async def test_a_letter_can_be_remembered_for_less_than_its_box_lives(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        event = new_mail("event", dedup="m1", remember_for=60)
        await accepted(store, event, new_mail("call", dedup="m2"))

        await harness.advance(58)
        assert await store.accept(event) is AcceptResult.DUPLICATE

        await harness.advance(3)
        assert await store.accept(event) is AcceptResult.ACCEPTED
        assert await store.accept(new_mail("call", dedup="m2")) is AcceptResult.DUPLICATE
        assert texts(await claim_one(store)) == ["event", "call", "event"]

        await harness.advance(58)
        assert await store.accept(event) is AcceptResult.DUPLICATE

    async def test_a_repetition_does_not_prolong_how_long_its_letter_is_remembered(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        event = new_mail("event", dedup="m1", remember_for=60)
        await accepted(store, event)

        await harness.advance(40)
        assert await store.accept(event) is AcceptResult.DUPLICATE
        assert await store.accept(new_mail("event", dedup="m1")) is AcceptResult.DUPLICATE

        await harness.advance(21)
        assert await store.accept(new_mail("event", dedup="m1")) is AcceptResult.ACCEPTED
        await harness.advance(10 * 86_400)
        assert await store.accept(event) is AcceptResult.DUPLICATE

    async def test_a_forgotten_box_knows_no_letter_longer_than_the_letter_said_or_its_id(
        self, harness: Harness
    ) -> None:
        store = harness.store
        await idle(store)
        brief, long = new_mail("brief", dedup="m1", remember_for=30), new_mail("long", dedup="m2", remember_for=3600)
        await accepted(store, brief, long)
        await store.commit(await claim_one(store), Commit(forget_for=60))

        await harness.advance(31)
        assert await store.accept(brief) is AcceptResult.UNKNOWN
        assert await store.accept(long) is AcceptResult.DUPLICATE

        await harness.advance(30)
        await store.create(NewBox("b1", KIND))
        await accepted(store, brief, long)

    async def test_letters_of_a_commit_are_remembered_as_long_as_they_say(self, harness: Harness) -> None:
        store = harness.store
        await idle(store, "b2")
        event = new_mail("event", "b2", dedup="m1", remember_for=60)
        await store.commit(await running(store), Commit(new_mails=[event, event]))
        assert texts(await claim_one(store)) == ["event"]

        assert await store.accept(event) is AcceptResult.DUPLICATE
        await harness.advance(61)
        assert await store.accept(event) is AcceptResult.ACCEPTED

    async def test_a_commit_can_have_letters_known_that_never_came(self, harness: Harness) -> None:
        store = harness.store
        box = await running(store)
        await store.commit(box, Commit(remember={"k": 60.0}))

        await harness.advance(58)
        assert await store.accept(new_mail("again", dedup="k")) is AcceptResult.DUPLICATE
        assert await store.accept(new_mail("again", dedup="k", needs=("call", "c1"))) is AcceptResult.DUPLICATE
        await harness.advance(4)
        assert await store.accept(new_mail("another", dedup="k")) is AcceptResult.ACCEPTED

    async def test_a_box_made_anew_takes_a_letter_like_one_its_predecessor_had(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        await accepted(store, new_mail("first", dedup="m1"))
        await store.commit(await claim_one(store), Commit(forget_for=60.0))
        await harness.advance(61)
        await store.create(NewBox("b1", KIND))

        assert await store.accept(new_mail("another life", dedup="m1")) is AcceptResult.ACCEPTED
        assert await store.accept(new_mail("another life", dedup="m1")) is AcceptResult.DUPLICATE
        assert texts(await claim_one(store)) == ["another life"]

    async def test_a_letter_that_needs_a_record_is_unwanted_without_it(self, harness: Harness) -> None:
        store = harness.store
        await idle(store, put=[Record("call", "c1")])

        assert await store.accept(new_mail("result", needs=("call", "c2"))) is AcceptResult.UNWANTED
        assert await store.accept(new_mail("result", needs=("subscription", "c1"))) is AcceptResult.UNWANTED
        assert await claim(store) == []

        assert await store.accept(new_mail("result", needs=("call", "c1"))) is AcceptResult.ACCEPTED
        assert texts(await claim_one(store)) == ["result"]

    async def test_an_unwanted_letter_is_not_remembered(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        event = new_mail("event", dedup="m1", needs=("call", "c1"))
        assert await store.accept(event) is AcceptResult.UNWANTED
        await accepted(store, new_mail("wake up"))
        await store.commit(await claim_one(store), Commit(put=[Record("call", "c1")]))

        assert await store.accept(event) is AcceptResult.ACCEPTED

    async def test_a_repetition_is_recognised_though_its_record_is_gone(self, harness: Harness) -> None:
        store = harness.store
        await idle(store, put=[Record("call", "c1")])
        result = new_mail("result", dedup="m1", needs=("call", "c1"))
        await accepted(store, result)
        await store.commit(await claim_one(store), Commit(drop=[("call", "c1")]))

        assert await store.accept(result) is AcceptResult.DUPLICATE
        assert await store.accept(new_mail("late", dedup="m2", needs=("call", "c1"))) is AcceptResult.UNWANTED

    async def test_no_key_a_stranger_chooses_is_mistaken_for_something_else(self, harness: Harness) -> None:
        """Keys come from headers strangers write; ids of stopped and of finished boxes are remembered too."""
        store = harness.store
        await running(store, "b1")
        await store.stop(["child"], "b1", "c1", remember_for=60)

        for key in ("", "child/c1", "/", "stopped/child/c1"):
            assert await store.accept(new_mail("mine", dedup=key)) is AcceptResult.ACCEPTED
            assert await store.accept(new_mail("mine", dedup=key)) is AcceptResult.DUPLICATE
