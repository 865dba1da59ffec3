"""Work: what a claim brings, when a box is due again, and how attempts are counted."""

import asyncio

import pytest

from rapkit.errors import StoreError
from rapkit.mailbox import Commit, NewBox, Quota, Timer
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
    running,
    seqs,
    taken_over,
    texts,
    visible,
)


class ClaimsContract:
    async def test_of_a_share_no_more_is_claimed_than_its_quota(self, harness: Harness) -> None:
        store = harness.store
        for number, share in enumerate(("anna", "anna", "anna", "bert", "carl")):
            await store.create(NewBox(f"b{number}", KIND, share=share))
            await harness.advance(1)

        quota = Quota({"anna": 2, "carl": 0})
        assert [claim.box.id for claim in await claim(store, quota=quota)] == ["b0", "b1", "b3"]
        assert await claim(store, quota=Quota({"anna": 0, "bert": 7}, others=0)) == []
        assert [claim.box.id for claim in await claim(store)] == ["b2", "b4"]

    async def test_whoever_claims_less_than_is_due_because_of_a_quota_is_called_at_once(self, harness: Harness) -> None:
        """What is behind the boxes that were left out has not been looked at."""
        store = harness.store
        for number in range(3):
            await store.create(NewBox(f"b{number}", KIND, share="anna"))
        await claim(store, quota=Quota(others=1))

        async with asyncio.timeout(30):
            await store.wait(KIND, 3600)

    async def test_one_box_is_found_behind_thousands_of_a_share_that_has_enough(self, harness: Harness) -> None:
        store = harness.store
        await asyncio.gather(*(store.create(NewBox(f"a{number}", KIND, share="anna")) for number in range(10_000)))
        await harness.advance(1)
        await store.create(NewBox("b1", KIND, share="bert"))

        assert [claim.box.id for claim in await claim(store, quota=Quota({"anna": 0}), limit=1)] == ["b1"]
        assert await store.backlog_of_shares(KIND) == {"anna": 10_000, "bert": 1}

    async def test_the_box_longest_due_comes_first(self, harness: Harness) -> None:
        store = harness.store
        for id in ("b3", "b1", "b2"):
            await store.create(NewBox(id, KIND))
            await harness.advance(1)

        assert [one.box.id for one in await claim(store, limit=2)] == ["b3", "b1"]
        assert [one.box.id for one in await claim(store, limit=2)] == ["b2"]

    async def test_a_box_that_waits_longer_comes_before_one_made_earlier(self, harness: Harness) -> None:
        store = harness.store
        await idle(store, "b1")
        await idle(store, "b2")
        await accepted(store, new_mail("first", "b2"))
        await harness.advance(1)
        await accepted(store, new_mail("second", "b1"))
        await harness.advance(1)
        await accepted(store, new_mail("third", "b2"))

        assert [one.box.id for one in await claim(store)] == ["b2", "b1"]

    async def test_only_boxes_of_the_kind_are_claimed(self, harness: Harness) -> None:
        store = harness.store
        await store.create(NewBox("b1", KIND))
        await store.create(NewBox("b2", "other"))

        assert [one.box.id for one in await claim(store, kind="other")] == ["b2"]

    async def test_a_claimed_box_is_claimed_by_nobody_else_nor_twice(self, harness: Harness) -> None:
        store = harness.store
        await running(store)
        await accepted(store, new_mail("for whom?"))

        assert await claim(store, BERT) == []
        assert await claim(store, ANNA) == []

    async def test_workers_that_race_get_different_boxes(self, harness: Harness) -> None:
        store = harness.store
        for number in range(60):
            await store.create(NewBox(f"b{number}", KIND))
        workers = [f"worker {number}" for number in range(6)]
        await asyncio.gather(*(store.renew(worker) for worker in workers))

        rounds = [store.claim(worker, KIND, 4) for worker in workers for _ in range(4)]
        claims = [one for some in await asyncio.gather(*rounds) for one in some]

        assert sorted(one.box.id for one in claims) == sorted(f"b{number}" for number in range(60))

    async def test_mail_that_comes_during_a_claim_makes_the_box_due_when_it_ends(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        await accepted(store, new_mail("meanwhile"))
        await store.commit(claimed, Commit())

        assert await store.next_due(KIND) == 0
        assert texts(await claim_one(store)) == ["meanwhile"]

    async def test_mail_for_a_claimed_box_wakes_nobody_for_nothing(self, harness: Harness) -> None:
        store = harness.store
        await running(store)

        await accepted(store, new_mail("meanwhile"))

        assert await store.next_due(KIND) != 0
        assert (await store.load(KIND)).due == 0

    async def test_mail_that_was_not_consumed_comes_again_and_only_that(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        await accepted(store, new_mail("one"), new_mail("two"), new_mail("three"))
        claimed = await claim_one(store)
        await accepted(store, new_mail("four"))

        first, _, third = seqs(claimed)
        await store.commit(claimed, Commit(consumed=[third, first]))

        assert texts(await claim_one(store)) == ["two", "four"]

    async def test_consuming_mail_that_is_not_there_changes_nothing(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        await accepted(store, new_mail("one"))
        claimed = await claim_one(store)
        before = await visible(store, "b1")

        with pytest.raises(StoreError):
            await store.commit(claimed, Commit(consumed=[*seqs(claimed), 999_999], state=b"new"))

        assert await visible(store, "b1") == before
        await store.commit(claimed, Commit(consumed=seqs(claimed)))
        assert await claim(store) == []

    async def test_mail_of_another_box_cannot_be_consumed(self, harness: Harness) -> None:
        store = harness.store
        await idle(store, "b1")
        await idle(store, "b2")
        await accepted(store, new_mail("one", "b1"), new_mail("two", "b2"))
        first, second = await claim(store)

        with pytest.raises(StoreError):
            await store.commit(first, Commit(consumed=seqs(second)))

        await store.commit(second, Commit())
        assert texts(await claim_one(store)) == ["two"]

    async def test_a_letter_set_aside_is_not_handed_out_again_and_the_box_goes_on(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        await accepted(store, new_mail("poison", dedup="m1"), new_mail("fine"))
        claimed = await claim_one(store)

        await store.commit(claimed, Commit(set_aside={seqs(claimed)[0]: "kills its worker"}))

        again = await claim_one(store)
        assert texts(again) == ["fine"]
        await store.commit(again, Commit(consumed=seqs(again)))
        assert await store.next_due(KIND) is None
        assert (await store.accept(new_mail("poison", dedup="m1"))).value == "duplicate"

    async def test_a_claim_names_its_worker_and_its_turn(self, harness: Harness) -> None:
        store = harness.store
        first = await running(store)
        await accepted(store, new_mail("more"))
        await store.commit(first, Commit())

        second = await claim_one(store, BERT)

        assert (first.worker, second.worker) == (ANNA, BERT)
        assert second.epoch > first.epoch

    async def test_attempts_count_lost_workers(self, harness: Harness) -> None:
        store = harness.store
        await store.create(NewBox("b1", KIND))
        await accepted(store, new_mail("one"))
        lost = await claim_one(store, ANNA)
        await accepted(store, new_mail("two"))

        second = await taken_over(harness, store, BERT)

        assert (lost.attempts, second.attempts) == (1, 2)
        assert [mail.attempts for mail in lost.mail] == [1]
        assert [(mail.body, mail.attempts) for mail in second.mail] == [(b"one", 2), (b"two", 1)]

    async def test_a_commit_clears_the_box_but_not_mail_it_leaves(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        await accepted(store, new_mail("left"))
        await store.commit(await claim_one(store), Commit())

        again = await claim_one(store)

        assert again.attempts == 1
        assert [mail.attempts for mail in again.mail] == [2]

    async def test_a_failed_slice_stays_on_the_account(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        await accepted(store, new_mail("hard"))
        await store.commit(await claim_one(store), Commit(charge=True))

        assert await store.next_due(KIND) == 0
        again = await claim_one(store)
        assert again.attempts == 2
        await store.commit(again, Commit(consumed=seqs(again)))

        await accepted(store, new_mail("easy"))
        assert (await claim_one(store)).attempts == 1

    async def test_after_two_lost_attempts_mail_is_handed_out_one_by_one(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        await accepted(store, new_mail("one"), new_mail("two"), new_mail("three"))
        await claim_one(store, "first")
        await taken_over(harness, store, "second")

        third = await taken_over(harness, store, "third")
        assert (third.attempts, texts(third)) == (3, ["one"])
        fourth = await taken_over(harness, store, "fourth")
        assert (fourth.attempts, texts(fourth)) == (4, ["one"])
        assert [mail.attempts for mail in fourth.mail] == [4]

        await store.commit(fourth, Commit(set_aside={seqs(fourth)[0]: "kills its worker"}))
        fifth = await claim_one(store)
        assert (fifth.attempts, texts(fifth)) == (1, ["two", "three"])
        assert [mail.attempts for mail in fifth.mail] == [3, 3]

    async def test_a_claim_brings_no_more_bytes_of_mail_than_it_asks_for(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        await accepted(store, *(new_mail(str(number) * 10) for number in range(5)))

        brought = []
        for _ in range(3):
            assert await store.next_due(KIND) == 0
            (claimed,) = await claim(store, mail_bytes=29)
            brought.append([text[0] for text in texts(claimed)])
            assert [mail.attempts for mail in claimed.mail] == [1] * len(claimed.mail)
            await store.commit(claimed, Commit(consumed=seqs(claimed)))

        assert brought == [["0", "1"], ["2", "3"], ["4"]]
        assert await store.next_due(KIND) is None

    async def test_mail_that_just_fits_is_brought(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        await accepted(store, new_mail("1" * 10), new_mail("2" * 20))

        (claimed,) = await claim(store, mail_bytes=30)

        assert len(claimed.mail) == 2

    async def test_a_claim_brings_one_letter_at_least_however_large_it_is(self, harness: Harness) -> None:
        store = harness.store
        await store.create(NewBox("none", KIND, idle=True))
        await idle(store)
        await accepted(store, new_mail("large" * 100), new_mail("small"))

        (claimed,) = await claim(store, mail_bytes=10)

        assert texts(claimed) == ["large" * 100]

    async def test_several_boxes_share_the_bytes_of_a_claim_and_keep_their_turn(self, harness: Harness) -> None:
        store = harness.store
        for id in ("b1", "b2", "b3", "b4"):
            await idle(store, id)
        for id, text in (("b1", "1" * 10), ("b2", "2" * 10), ("b2", "3" * 10), ("b3", "4" * 10), ("b4", "5" * 20)):
            await accepted(store, new_mail(text, id))
            await harness.advance(1)

        async with asyncio.timeout(15):
            first = await claim(store, mail_bytes=25)
            await store.wait(KIND, 20)  # the others did not lose their turn: nobody has to wait for something new
            second = await claim(store, mail_bytes=25)
            third = await claim(store, mail_bytes=25)

        assert [(one.box.id, texts(one)) for one in first] == [("b1", ["1" * 10]), ("b2", ["2" * 10])]
        assert [(one.box.id, texts(one)) for one in second] == [("b3", ["4" * 10])]
        assert [(one.box.id, texts(one)) for one in third] == [("b4", ["5" * 20])]
        await store.commit(first[1], Commit(consumed=seqs(first[1])))
        assert texts(await claim_one(store)) == ["3" * 10]

    async def test_a_worker_can_hold_on_to_its_claim(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        await accepted(store, new_mail("one"))
        claimed = await claim_one(store)

        await store.commit(claimed, Commit(consumed=seqs(claimed), state=b"halfway", keep=True))
        assert await claim(store, BERT) == []
        box = await store.box("b1")
        assert box is not None
        assert box.state == b"halfway"

        await store.commit(claimed, Commit(state=b"done"))
        assert await claim(store, BERT) == []
        assert await store.next_due(KIND) is None

    async def test_a_commit_that_holds_on_says_that_the_box_got_on(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        await accepted(store, new_mail("one"), new_mail("two"))
        await claim_one(store, "first")
        await taken_over(harness, store, "second")
        third = await taken_over(harness, store, "third")
        assert (third.attempts, texts(third)) == (3, ["one"])

        await store.commit(third, Commit(consumed=seqs(third), keep=True))

        fourth = await taken_over(harness, store, "fourth")
        assert (fourth.attempts, texts(fourth)) == (1, ["two"])
        assert (await taken_over(harness, store, "fifth")).attempts == 2

    async def test_holding_on_need_not_be_getting_on(self, harness: Harness) -> None:
        """A worker that puts down what it is about to do and is then lost over it must still be counted."""
        store = harness.store
        claimed = await running(store)
        await store.commit(claimed, Commit(state=b"about to", keep=True, charge=True))

        assert (await taken_over(harness, store, BERT)).attempts == 2

    async def test_a_box_can_ask_to_be_run_again(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        await store.commit(claimed, Commit(again_at=claimed.now + 30))

        assert await claim(store) == []
        await harness.advance(29)
        assert await claim(store) == []
        await harness.advance(2)
        again = await claim_one(store)
        assert (again.attempts, again.mail, again.timers) == (1, (), ())

        await store.commit(again, Commit())
        await harness.advance(1000)
        assert await claim(store) == []

    async def test_mail_does_not_wait_for_the_time_a_box_asked_for(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        await store.commit(claimed, Commit(again_at=claimed.now + 30))

        await accepted(store, new_mail("now"))

        again = await claim_one(store)
        await accepted(store, new_mail("and now"))
        await store.commit(again, Commit(consumed=seqs(again), again_at=again.now + 30))
        assert texts(await claim_one(store)) == ["and now"]

    async def test_a_failed_slice_is_not_run_again_before_it_said(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        await accepted(store, new_mail("hard"))
        claimed = await claim_one(store)
        await store.commit(claimed, Commit(charge=True, again_at=claimed.now + 30))

        await harness.advance(29)
        assert await claim(store) == []
        await harness.advance(2)
        again = await claim_one(store)
        assert (again.attempts, texts(again)) == (2, ["hard"])

    async def test_a_timer_that_is_due_does_not_cut_the_wait_of_a_failed_slice_short(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        await store.commit(claimed, Commit(timers=[Timer("alarm", claimed.now + 5)]))
        await harness.advance(6)
        failing = await claim_one(store)
        assert failing.timers == ("alarm",)

        await store.commit(failing, Commit(charge=True, again_at=failing.now + 30))

        await harness.advance(20)
        assert await claim(store) == []
        await harness.advance(11)
        again = await claim_one(store)
        assert (again.attempts, again.timers) == (2, ("alarm",))

    async def test_a_new_letter_revives_a_box_that_waits_after_a_failure(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        await store.commit(claimed, Commit(charge=True, again_at=claimed.now + 3600))

        await accepted(store, new_mail("try again"))

        again = await claim_one(store)
        assert (again.attempts, texts(again)) == (2, ["try again"])
