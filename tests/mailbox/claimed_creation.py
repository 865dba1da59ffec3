"""Two steps in one, for whoever can go on at once; and what becomes of claims nobody takes."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from rapkit.errors import Fenced
from rapkit.mailbox import AcceptResult, Commit, NewBox, NewMail
from tests.mailbox.harness import (
    ANNA,
    BERT,
    DELIVERED,
    KIND,
    Harness,
    claim,
    claim_one,
    ids,
    post,
    retry,
    running,
    take,
    taken_over,
)


class ClaimedCreationContract:
    async def test_a_box_can_be_made_and_claimed_at_once(self, harness: Harness) -> None:
        store = harness.store
        await store.renew(ANNA)
        box = NewBox("b1", KIND, b"state", parent="thread", root="root", name="c1")

        claimed = await store.create_claimed(box, ANNA)

        assert claimed is not None
        assert claimed.box == await store.box("b1")
        assert (claimed.worker, claimed.attempts, claimed.mail, claimed.timers) == (ANNA, 1, (), ())
        assert await claim(store, BERT) == []
        await store.commit(claimed, Commit(forget_for=60))
        assert await store.create_claimed(box, ANNA) is None
        assert not await store.create(box)

    async def test_a_box_that_is_there_is_not_made_and_claimed(self, harness: Harness) -> None:
        store = harness.store
        await store.create(NewBox("b1", KIND, b"first"))

        assert await store.create_claimed(NewBox("b1", KIND, b"second"), ANNA) is None

        assert (await claim_one(store)).box.state == b"first"

    async def test_a_box_made_and_claimed_by_a_worker_that_is_lost_is_taken_over(self, harness: Harness) -> None:
        store = harness.store
        await store.renew(ANNA)
        lost = await store.create_claimed(NewBox("b1", KIND), ANNA)
        assert lost is not None

        heir = await taken_over(harness, store, BERT)

        assert heir.attempts == 2
        with pytest.raises(Fenced):
            await store.commit(lost, Commit())

    async def test_a_box_made_and_claimed_after_its_stop_is_stopped(self, harness: Harness) -> None:
        store = harness.store
        await store.stop([KIND], "thread", "c1", remember_for=60)

        claimed = await store.create_claimed(NewBox("b1", KIND, parent="thread", name="c1"), ANNA)

        assert claimed is not None
        assert claimed.box.stopped

    async def test_a_letter_for_an_idle_box_can_be_accepted_and_the_box_claimed_at_once(self, harness: Harness) -> None:
        store = harness.store
        await store.renew(ANNA)
        await store.create(NewBox("b1", KIND, b"state", idle=True))

        accept_result, claimed = await store.accept_claimed(NewMail("b1", "hello", b"body"), ANNA)

        assert accept_result is AcceptResult.ACCEPTED
        assert claimed is not None
        assert claimed.box == await store.box("b1")
        assert (claimed.worker, claimed.attempts, claimed.timers) == (ANNA, 1, ())
        assert [(mail.kind, mail.body, mail.attempts) for mail in claimed.mail] == [("hello", b"body", 1)]
        assert await claim(store, BERT) == []
        await store.commit(claimed, Commit(consumed=[mail.seq for mail in claimed.mail]))
        assert await claim(store, BERT) == []

    async def test_a_letter_is_accepted_without_a_claim_if_it_is_not_all_that_is_due(self, harness: Harness) -> None:
        store = harness.store
        await store.renew(ANNA)
        await store.create(NewBox("b1", KIND, idle=True))
        await store.accept(NewMail("b1", "first", b""))

        assert await store.accept_claimed(NewMail("b1", "second", b""), ANNA) == (AcceptResult.ACCEPTED, None)

        both = await claim_one(store)
        assert [mail.kind for mail in both.mail] == ["first", "second"]
        assert await store.accept_claimed(NewMail("b1", "third", b""), ANNA) == (AcceptResult.ACCEPTED, None)
        await store.commit(both, Commit(consumed=[mail.seq for mail in both.mail]))
        assert [mail.kind for mail in (await claim_one(store)).mail] == ["third"]

    async def test_a_letter_for_a_box_that_failed_comes_after_the_mail_it_failed_on(self, harness: Harness) -> None:
        store = harness.store
        await store.renew(ANNA)
        await store.create(NewBox("b1", KIND, idle=True))
        await store.accept(NewMail("b1", "first", b""))
        failed = await claim_one(store)
        await store.commit(failed, Commit(charge=True, again_at=failed.now + 3600))

        assert await store.accept_claimed(NewMail("b1", "second", b""), ANNA) == (AcceptResult.ACCEPTED, None)

        assert [mail.kind for mail in (await claim_one(store)).mail] == ["first", "second"]

    async def test_a_letter_that_is_not_wanted_or_known_claims_nothing(self, harness: Harness) -> None:
        store = harness.store
        await store.renew(ANNA)
        await store.create(NewBox("b1", KIND, idle=True))
        needy = NewMail("b1", "x", b"", needs=("call", "c1"))

        assert await store.accept_claimed(needy, ANNA) == (AcceptResult.UNWANTED, None)
        assert await store.accept_claimed(NewMail("b2", "x", b""), ANNA) == (AcceptResult.UNKNOWN, None)
        _, claimed = await store.accept_claimed(NewMail("b1", "x", b"", dedup="d"), ANNA)
        assert claimed is not None
        await store.commit(claimed, Commit(consumed=[mail.seq for mail in claimed.mail]))
        assert await store.accept_claimed(NewMail("b1", "x", b"", dedup="d"), ANNA) == (AcceptResult.DUPLICATE, None)
        assert await claim(store, BERT) == []

    async def test_a_box_claimed_with_its_letter_by_a_worker_that_is_lost_is_taken_over(self, harness: Harness) -> None:
        store = harness.store
        await store.renew(ANNA)
        await store.create(NewBox("b1", KIND, idle=True))
        _, lost = await store.accept_claimed(NewMail("b1", "x", b""), ANNA)
        assert lost is not None

        heir = await taken_over(harness, store, BERT)

        assert (heir.attempts, [mail.attempts for mail in heir.mail]) == (2, [2])
        with pytest.raises(Fenced):
            await store.commit(lost, Commit())

    async def test_a_commit_can_hand_its_posts_to_a_sender(self, harness: Harness) -> None:
        store = harness.store
        posts = [post("p1", "x"), post("p2", "x"), post("p3", "y"), post("p4", "z", once=True)]
        await store.renew(ANNA)

        taken = await store.commit(await running(store), Commit(outgoing=posts), sender=ANNA)

        assert [one.outgoing for one in taken] == [posts[0], posts[2]]
        assert [(one.attempts, one.age) for one in taken] == [(1, 0), (1, 0)]
        assert ids(await take(store, BERT)) == ["p4"]
        for one in taken:
            await store.settle(one, DELIVERED)
        assert ids(await take(store, BERT)) == ["p2"]

    async def test_a_post_that_waits_is_not_handed_over(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        later = post("p2", "y", not_before=claimed.now + 60)
        await store.commit(claimed, Commit(outgoing=[post("p0", "x")], keep=True))

        assert await store.commit(claimed, Commit(outgoing=[post("p1", "x"), later]), sender=ANNA) == []

        assert ids(await take(store)) == ["p0"]

    async def test_a_post_handed_over_is_tried_again_and_taken_over_like_any_other(self, harness: Harness) -> None:
        store = harness.store
        await store.renew(ANNA)
        claimed = await running(store)
        first, second = await store.commit(claimed, Commit(outgoing=[post("p1", "x"), post("p2", "y")]), sender=ANNA)

        await store.settle(first, retry(0))
        assert [(one.outgoing.id, one.attempts) for one in await take(store, ANNA)] == [("p1", 2)]
        await store.settle(first, DELIVERED)  # the first attempt is over: this changes nothing
        await harness.advance(1)
        heirs = await taken_over_by_bert(harness)

        assert heirs == {"p1", "p2"}
        await store.settle(second, DELIVERED)
        assert {outbox_row.id for outbox_row in await store.outbox(dead=False)} == {"p1", "p2"}

    async def test_whoever_is_cancelled_while_it_claims_holds_nothing(self, harness: Harness) -> None:
        store = harness.store
        await store.create(NewBox("b1", KIND))
        await store.renew(ANNA)

        await cancelled(store.claim(ANNA, KIND, 1))

        claimed = await claim_one(store, BERT)
        assert claimed.attempts == 1

    async def test_whoever_is_cancelled_while_it_makes_and_claims_a_box_holds_nothing(self, harness: Harness) -> None:
        store = harness.store
        await store.renew(ANNA)

        await cancelled(store.create_claimed(NewBox("b1", KIND), ANNA))

        assert (await claim_one(store, BERT)).attempts == 1

    async def test_whoever_is_cancelled_while_it_takes_holds_nothing(self, harness: Harness) -> None:
        store = harness.store
        await store.commit(await running(store), Commit(outgoing=[post("p1")]))
        await store.renew(ANNA)

        await cancelled(store.take(ANNA, 1))

        (taken,) = await take(store, BERT)
        assert taken.attempts == 1

    async def test_whoever_is_cancelled_while_it_commits_holds_no_post(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)

        await cancelled(store.commit(claimed, Commit(outgoing=[post("p1")]), sender=ANNA))

        assert ids(await take(store, BERT)) == ["p1"]

    async def test_a_claim_from_an_earlier_life_of_an_id_is_fenced(self, harness: Harness) -> None:
        store = harness.store
        zombie = await running(store)
        await store.commit(zombie, Commit(forget_for=0))
        await harness.advance(1)
        await running(store)

        with pytest.raises(Fenced):
            await store.commit(zombie, Commit(state=b"zombie"))


async def cancelled(operation: Coroutine[Any, Any, object]) -> None:
    """Ask for it, and be cancelled before the answer comes."""
    task = asyncio.create_task(operation)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def taken_over_by_bert(harness: Harness) -> set[str]:
    heirs: set[str] = set()
    for _ in range(2):
        await harness.advance(harness.store.lease.seconds)
        heirs |= set(ids(await take(harness.store, BERT)))
    return heirs
