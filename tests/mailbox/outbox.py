"""The outbox: order per lane, at least once or at most once, and what could not be delivered."""

import asyncio
from dataclasses import fields, replace

import pytest

from rapkit.mailbox import OUTBOX, AcceptResult, Fact, OutboxRow, Outcome, Outgoing, Quota, Record, Settlement
from tests.mailbox.harness import (
    ANNA,
    BERT,
    DEAD,
    DELIVERED,
    ORIGIN,
    Harness,
    claim,
    claim_one,
    idle,
    ids,
    new_mail,
    post,
    post_taken_over,
    retry,
    send,
    take,
    take_one,
    texts,
    visible,
)

DAY = 24 * 3600.0


class OutboxContract:
    async def test_a_lost_senders_post_is_taken_over_though_the_clock_was_set_back(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1"))
        await take_one(store, ANNA)
        await harness.set_back(DAY)
        assert await take(store, BERT) == []

        await harness.advance(store.lease.seconds)

        assert (await take_one(store, BERT)).attempts == 2

    async def test_a_sender_that_lives_keeps_its_post_though_the_clock_was_set_back(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1"))
        taken = await take_one(store, ANNA)
        await harness.set_back(DAY)
        for _ in range(20):
            assert await take(store, BERT) == []
            await harness.advance(store.lease.renew_every)
            await store.renew(ANNA)

        assert await store.held([taken]) == {"p1"}
        assert (await post_taken_over(harness, store, BERT)).attempts == 2

    async def test_a_post_is_taken_as_it_was_put(self, harness: Harness) -> None:
        store = harness.store
        url = "https://tool.test/callback/s3cret?ü=1"
        outgoing = Outgoing("p1", "lane", "invocation", ORIGIN, url, b'{"a": "\xff\x00"}')
        await send(store, outgoing)

        taken = await take_one(store)

        assert taken.outgoing == outgoing
        assert (taken.attempts, taken.age) == (1, 0)

    async def test_a_post_that_no_claim_stands_for_is_put_once_under_its_key(self, harness: Harness) -> None:
        store = harness.store
        assert await store.post([post("p1", "x"), post("p2", "x"), post("p3", "y")], "k1", remember_for=60)
        assert not await store.post([post("p4", "z")], "k1", remember_for=3600)
        assert await store.post([post("p5", "z")], "k2", remember_for=60)

        assert ids(await take(store)) == ["p1", "p3", "p5"]
        await harness.advance(58)
        assert not await store.post([post("p6", "w")], "k1", remember_for=60)
        await harness.advance(3)
        assert await store.post([post("p7", "w")], "k1", remember_for=60)
        assert [outbox_row.id for outbox_row in await store.outbox(dead=False)] == ["p1", "p2", "p3", "p5", "p7"]

    async def test_what_a_post_refers_to_stays_with_it(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1", "x", reference="ü/1", traceparent="00-1-1-01"), post("p2", "y"))

        first, second = await take(store)

        assert (first.outgoing.reference, second.outgoing.reference) == ("ü/1", "")
        assert first.outgoing == post("p1", "x", reference="ü/1", traceparent="00-1-1-01")

    async def test_the_trace_a_post_belongs_to_travels_with_it(self, harness: Harness) -> None:
        store = harness.store
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        await send(store, post("p1", "x", traceparent=trace), post("p2", "y"))

        first, second = await take(store)
        assert (first.outgoing, second.outgoing) == (post("p1", "x", traceparent=trace), post("p2", "y"))

        await store.settle(first, DEAD)
        await store.resend(["p1"])
        assert (await take_one(store)).outgoing.traceparent == trace

    async def test_what_waits_in_a_lane_is_counted_until_it_is_delivered_or_given_up(self, harness: Harness) -> None:
        store = harness.store
        later = (await claim_one_now(harness)) + 60
        assert await store.waiting("x") == 0
        await send(store, post("p1", "x"), post("p2", "x"), post("p3", "x", not_before=later), post("p4", "y"))
        assert (await store.waiting("x"), await store.waiting("y"), await store.waiting("z")) == (3, 1, 0)

        first, _ = await take(store)
        assert await store.waiting("x") == 3
        await store.settle(first, retry(0))
        assert await store.waiting("x") == 3
        await store.settle(await take_one(store), DELIVERED)
        assert await store.waiting("x") == 2
        await store.settle(await take_one(store), DEAD)
        assert (await store.waiting("x"), await store.waiting("y")) == (1, 1)

        await store.resend(["p2"])
        assert await store.waiting("x") == 2

    async def test_what_is_sent_once_waits_until_it_is_handed_out(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1", "x", once=True))
        assert await store.waiting("x") == 1

        await take_one(store)

        assert await store.waiting("x") == 0

    async def test_a_lane_is_first_in_first_out(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1"), post("p2"))
        await send(store, post("p3"))

        for id in ("p1", "p2", "p3"):
            taken = await take_one(store)
            assert taken.outgoing.id == id
            assert await take(store, BERT) == []
            await store.settle(taken, DELIVERED)

        assert await take(store) == []
        assert await store.outbox(dead=False) == []

    async def test_a_retry_holds_its_lane_back(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1"), post("p2"))
        await store.settle(await take_one(store), retry(30))

        assert await take(store) == []
        await harness.advance(29)
        assert await take(store) == []
        await harness.advance(2)
        again = await take_one(store)
        assert (again.outgoing, again.attempts) == (post("p1"), 2)
        assert again.age == pytest.approx(31, abs=1)

        await store.settle(again, DELIVERED)
        assert (await take_one(store)).outgoing == post("p2")

    async def test_a_post_given_up_lets_the_next_one_go(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1"), post("p2"))
        await store.settle(await take_one(store), DEAD)

        assert (await take_one(store)).outgoing.id == "p2"
        await harness.advance(1_000_000)
        assert (await post_taken_over(harness, store, BERT)).outgoing.id == "p2"

    async def test_lanes_do_not_wait_for_each_other(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1", "x"), post("p2", "y"), post("p3", "x"), post("p4", "y"))
        x, y = await take(store)
        assert ids([x, y]) == ["p1", "p2"]

        await store.settle(x, retry(1000))
        await store.settle(y, DELIVERED)

        assert ids(await take(store)) == ["p4"]

    async def test_the_post_longest_due_comes_first(self, harness: Harness) -> None:
        store = harness.store
        for id in ("p3", "p1", "p2"):
            await send(store, post(id, lane=id))
            await harness.advance(1)

        assert ids(await take(store, limit=2)) == ["p3", "p1"]
        assert ids(await take(store, limit=2)) == ["p2"]

    async def test_an_origin_can_be_avoided(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1", "x", origin="https://slow.test"), post("p2", "y"), post("p3", "z"))

        assert ids(
            await take(store, quota=Quota({("https://slow.test", False): 0, ("https://none.test", True): 0}))
        ) == ["p2", "p3"]
        assert ids(await take(store)) == ["p1"]

    async def test_the_latest_of_an_origin_can_be_avoided_alone(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1", "x", latest=True), post("p2", "y"))

        assert ids(await take(store, quota=Quota({(ORIGIN, True): 0}))) == ["p2"]
        assert ids(await take(store)) == ["p1"]

    async def test_of_an_origin_no_more_is_taken_than_its_quota(self, harness: Harness) -> None:
        store = harness.store
        await send(store, *(post(f"p{n}", f"x{n}") for n in range(3)), post("p3", "y", origin="https://other.test"))

        assert ids(await take(store, quota=Quota({(ORIGIN, False): 2}))) == ["p0", "p1", "p3"]
        assert ids(await take(store, quota=Quota(others=1))) == ["p2"]

    async def test_what_is_taken_together_has_a_bound_in_bytes(self, harness: Harness) -> None:
        store = harness.store
        await store.renew(ANNA)
        await send(
            store,
            *(replace(post(f"p{n}", lane=f"l{n}"), body=b"x" * size) for n, size in enumerate((5000, 10, 5000, 10))),
        )

        assert ids(await store.take(ANNA, 100, largest=4000)) == ["p1", "p3"]
        assert ids(await store.take(ANNA, 100, most_bytes=4000)) == ["p0"]
        assert ids(await store.take(ANNA, 100, most_bytes=4000)) == ["p2"]

    async def test_only_the_origins_that_have_a_quota_can_be_asked_for(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1", "x", origin="https://new.test"), post("p2", "y"), post("p3", "z", latest=True))

        assert ids(await take(store, quota=Quota({(ORIGIN, False): 5}, others=0))) == ["p2"]
        assert ids(await take(store)) == ["p1", "p3"]

    async def test_whoever_gets_less_than_is_due_because_of_a_quota_is_called_at_once(self, harness: Harness) -> None:
        """What is behind the POSTs that were left out has not been looked at."""
        store = harness.store
        await send(store, *(post(f"p{n}", f"x{n}") for n in range(3)))
        await take(store, quota=Quota(others=1))

        async with asyncio.timeout(30):
            await store.wait(OUTBOX, 3600)

    async def test_of_what_waits_in_a_lane_of_latest_posts_the_newest_is_left(self, harness: Harness) -> None:
        """The one in hand stays until its sender has settled it, and is not tried again."""
        store = harness.store
        await send(store, post("p1", "x", latest=True))
        first = await take_one(store)
        assert first.outgoing == post("p1", "x", latest=True)
        await send(store, post("p2", "x", latest=True))
        await send(store, post("p3", "x", latest=True))
        assert await take(store) == []

        await store.settle(first, retry(1000))

        assert (await take_one(store)).outgoing.id == "p3"
        assert [outbox_row.id for outbox_row in await store.outbox(dead=False)] == ["p3"]

    async def test_a_retry_of_a_latest_post_ends_when_a_newer_one_comes(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1", "x", latest=True))
        await store.settle(await take_one(store), retry(1000))
        await send(store, post("p2", "x", latest=True), post("p3", "y", latest=True))

        assert ids(await take(store)) == ["p2", "p3"]

    async def test_a_latest_post_in_a_lost_senders_hands_is_not_sent_again_after_a_newer_one(
        self, harness: Harness
    ) -> None:
        store = harness.store
        await send(store, post("p1", "x", latest=True))
        await take_one(store, ANNA)
        await send(store, post("p2", "x", latest=True))
        await store.retire(ANNA)

        assert await take(store, BERT) == []
        assert (await take_one(store, BERT)).outgoing.id == "p2"

    async def test_what_is_dropped_is_neither_sent_nor_kept(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1"), post("p2"))
        await store.settle(await take_one(store), Settlement(Outcome.DROPPED, "refused"))

        assert (await take_one(store)).outgoing.id == "p2"
        assert await store.outbox(dead=True) == []

    async def test_a_post_is_not_due_before_its_time(self, harness: Harness) -> None:
        store = harness.store
        now = (await claim_one_now(harness)) + 60
        await send(store, post("p1", "x", not_before=now), post("p2", "y"), post("p3", "y", not_before=now))
        await store.settle(await take_one(store), DELIVERED)

        await harness.advance(58)
        assert await take(store) == []
        await harness.advance(3)
        assert sorted(ids(await take(store))) == ["p1", "p3"]

    async def test_a_post_that_must_wait_holds_its_lane_back(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1", not_before=(await claim_one_now(harness)) + 60), post("p2"))

        assert await take(store) == []
        await harness.advance(61)
        assert (await take_one(store)).outgoing.id == "p1"

    async def test_senders_that_race_get_different_posts(self, harness: Harness) -> None:
        store = harness.store
        await send(store, *(post(f"p{number:02}", f"lane {number}") for number in range(60)))
        workers = [f"worker {number}" for number in range(6)]
        await asyncio.gather(*(store.renew(worker) for worker in workers))

        rounds = [store.take(worker, 4) for worker in workers for _ in range(4)]
        taken = [one for some in await asyncio.gather(*rounds) for one in some]

        assert sorted(ids(taken)) == [f"p{number:02}" for number in range(60)]

    async def test_a_sender_can_see_which_posts_are_still_its_own(self, harness: Harness) -> None:
        store = harness.store
        await send(store, *(post(f"p{number}", f"l{number}") for number in range(4)))
        delivered, failed, lost, kept = await take(store, ANNA)
        assert await store.held([delivered, failed, lost, kept]) == {"p0", "p1", "p2", "p3"}
        await store.settle(delivered, DELIVERED)
        await store.settle(failed, retry(1000))
        await store.retire(ANNA)
        heirs = await take(store, BERT, 1)

        assert await store.held([delivered, failed, lost]) == set()
        assert await store.held([kept, *heirs]) == {"p3", "p2"}
        assert await store.held([]) == set()

    async def test_a_lost_senders_post_is_taken_over_after_its_lease(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1"), post("p2"))
        await take_one(store, ANNA)

        await harness.advance(store.lease.seconds - 0.5)
        assert await take(store, BERT) == []

        taken = await post_taken_over(harness, store, BERT)
        assert (taken.outgoing.id, taken.attempts) == ("p1", 2)

    async def test_a_sender_that_renews_its_lease_keeps_its_post(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1"), post("p2"))
        taken = await take_one(store, ANNA)
        for _ in range(20):
            await harness.advance(store.lease.renew_every)
            await store.renew(ANNA)
            assert await take(store, BERT) == []

        await store.settle(taken, DELIVERED)
        assert (await take_one(store, BERT)).outgoing.id == "p2"

    async def test_what_a_retired_sender_holds_is_free_at_once(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1"))
        await take_one(store, ANNA)
        await store.retire(ANNA)

        assert (await take_one(store, BERT)).attempts == 2

    async def test_a_sender_that_was_late_may_still_settle(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1"))
        taken = await take_one(store)
        await harness.advance(store.lease.seconds * 5)
        assert await store.take(ANNA, 10) == []

        await store.settle(taken, DELIVERED)

        assert await store.outbox(dead=False) == []

    @pytest.mark.parametrize("outcome", list(Outcome))
    async def test_a_sender_whose_post_was_taken_over_settles_nothing(self, harness: Harness, outcome: Outcome) -> None:
        store = harness.store
        await idle(store)
        await send(store, post("p1"), post("p2"))
        late = await take_one(store, ANNA)
        heir = await post_taken_over(harness, store, BERT)
        before = await visible(store, "b1")

        await store.settle(late, Settlement(outcome, "late", 0.0, new_mail("late")))

        assert await visible(store, "b1") == before
        assert await take(store) == []
        assert await claim(store) == []
        await store.settle(heir, DELIVERED)
        assert (await take_one(store)).outgoing.id == "p2"

    @pytest.mark.parametrize("outcome", list(Outcome))
    async def test_an_attempt_is_settled_once(self, harness: Harness, outcome: Outcome) -> None:
        store = harness.store
        await idle(store)
        await send(store, post("p1"))
        taken = await take_one(store)
        await store.settle(taken, retry(1000))
        before = await visible(store, "b1")

        await store.settle(taken, Settlement(outcome, "again", 0.0, new_mail("again")))

        assert await visible(store, "b1") == before
        assert await claim(store) == []

    async def test_the_outcome_and_its_letter_are_written_together(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        await send(store, post("p1", "x"), post("p2", "y"), post("p3", "z"), post("p4", "w"))
        for taken, outcome in zip(await take(store), Outcome, strict=True):
            news = new_mail(f"{taken.outgoing.id} {outcome}", dedup=taken.outgoing.id)
            await store.settle(taken, Settlement(outcome, "why", 60.0, news))

        assert texts(await claim_one(store)) == ["p1 delivered", "p2 retry", "p3 dead", "p4 dropped"]

    async def test_a_fact_can_drop_what_its_letter_needs(self, harness: Harness) -> None:
        """The last letter that needs a record, and the end of the record, in one step."""
        store = harness.store
        await idle(store, put=[Record("open", "q1")])
        await send(store, post("p1"))
        news = new_mail("refused", needs=("open", "q1"))

        await store.settle(
            await take_one(store), Settlement(Outcome.DEAD, "400", 0.0, news, Fact("b1", "open", "q1", None))
        )

        assert await store.accept(new_mail("late", needs=("open", "q1"))) is AcceptResult.UNWANTED
        assert texts(await claim_one(store)) == ["refused"]

    async def test_the_outcome_and_its_fact_are_written_together(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        await send(store, post("p1", "x"), post("p2", "x"), post("p3", "x"))
        await store.settle(await take_one(store), Settlement(Outcome.DEAD, "404", fact=Fact("b1", "mark", "", b"1")))
        assert [record.body for record in await store.records("b1", "mark")] == [b"1"]

        late = await take_one(store)
        await store.settle(late, retry(0))
        await store.settle(late, Settlement(Outcome.DEAD, "404", fact=Fact("b1", "mark", "", b"late")))
        assert [record.body for record in await store.records("b1", "mark")] == [b"1"]

        await store.settle(await take_one(store), Settlement(Outcome.DELIVERED, fact=Fact("b1", "mark", "", None)))
        assert await store.records("b1", "mark") == []
        await store.settle(
            await take_one(store), Settlement(Outcome.DEAD, "404", fact=Fact("nobody", "mark", "", b"1"))
        )
        assert await store.outbox(dead=False) == []
        assert await claim(store) == []

    async def test_a_letter_nobody_wants_does_not_keep_an_attempt_from_being_settled(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1"))

        await store.settle(await take_one(store), Settlement(Outcome.DELIVERED, new_mail=new_mail("?", "nobody")))

        assert await store.outbox(dead=False) == []

    async def test_a_once_post_is_gone_before_it_is_handed_out(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1", once=True), post("p2"))

        taken = await take_one(store)

        assert taken.outgoing == post("p1", once=True)
        assert [outbox_row.id for outbox_row in await store.outbox(dead=False)] == ["p2"]
        await store.retire(ANNA)
        await harness.advance(store.lease.seconds * 3)
        assert ids(await take(store, BERT)) == ["p2"]

    @pytest.mark.parametrize("outcome", list(Outcome))
    async def test_a_once_post_does_not_come_back(self, harness: Harness, outcome: Outcome) -> None:
        store = harness.store
        await send(store, post("p1", once=True))

        await store.settle(await take_one(store), Settlement(outcome, "refused"))

        await harness.advance(1_000_000)
        assert await take(store, BERT) == []
        assert await store.outbox(dead=True) == []
        assert await store.resend(["p1"]) == 0

    async def test_a_once_post_waits_for_its_turn(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1"), post("p2", once=True))

        first = await take_one(store)
        await store.settle(first, retry(10))
        assert await take(store) == []
        await harness.advance(11)
        await store.settle(await take_one(store), DELIVERED)

        assert (await take_one(store)).outgoing.id == "p2"

    async def test_a_person_sees_what_was_given_up_but_neither_where_it_went_nor_what_it_said(
        self, harness: Harness
    ) -> None:
        store = harness.store
        await send(store, post("p1", "x"), post("p2", "y"))
        given_up, _ = await take(store)
        await store.settle(given_up, DEAD)

        (dead,) = await store.outbox(dead=True)
        (waiting,) = await store.outbox(dead=False)

        shown = (dead.id, dead.lane, dead.kind, dead.origin, dead.attempts, dead.problem, dead.due_at)
        assert shown == ("p1", "x", "callback", ORIGIN, 1, "410 Gone", None)
        assert dead.dead_at is not None
        assert dead.dead_at >= dead.created_at
        assert (waiting.id, waiting.attempts, waiting.dead_at) == ("p2", 1, None)
        assert not {"url", "body"} & {field.name for field in fields(OutboxRow)}
        assert "/callback/" not in repr(dead)

    async def test_the_problem_of_a_retry_is_shown(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1"))
        await store.settle(await take_one(store), retry(60))

        (waiting,) = await store.outbox(dead=False)

        assert waiting.problem == "503 Service Unavailable"
        assert waiting.due_at == pytest.approx(waiting.created_at + 60, abs=1)

    async def test_the_outbox_is_listed_in_stretches(self, harness: Harness) -> None:
        store = harness.store
        await send(store, *(post(f"p{number}", f"lane {number}") for number in (3, 1, 4, 2, 5)))

        first = await store.outbox(dead=False, limit=2)
        rest = await store.outbox(dead=False, after=first[-1].id)

        assert [outbox_row.id for outbox_row in first + rest] == ["p1", "p2", "p3", "p4", "p5"]

    async def test_a_given_up_post_can_be_sent_again_as_new(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1", "x"), post("p2", "y"))
        for taken in await take(store):
            await store.settle(taken, DEAD)
        await harness.advance(1000)

        assert await store.resend(["p1", "nobody"]) == 1
        assert await store.resend(["p1"]) == 0

        taken = await take_one(store)
        assert (taken.outgoing, taken.attempts, taken.age) == (post("p1", "x"), 1, 0)
        assert [outbox_row.id for outbox_row in await store.outbox(dead=True)] == ["p2"]

    async def test_only_what_was_given_up_is_sent_again(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1"), post("p2"))
        taken = await take_one(store)

        assert await store.resend(["p1", "p2"]) == 0

        assert await take(store) == []
        await store.settle(taken, DELIVERED)
        assert (await take_one(store)).outgoing.id == "p2"

    async def test_what_is_sent_again_goes_before_what_came_after_it(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1"), post("p2"), post("p3"))
        await store.settle(await take_one(store), DEAD)

        assert await store.resend(["p1"]) == 1

        for id in ("p1", "p2", "p3"):
            taken = await take_one(store)
            assert taken.outgoing.id == id
            await store.settle(taken, DELIVERED)

    async def test_what_is_sent_again_waits_for_the_one_in_flight(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1"), post("p2"), post("p3"))
        await store.settle(await take_one(store), DEAD)
        flying = await take_one(store)

        await store.resend(["p1"])

        assert await take(store, BERT) == []
        await store.settle(flying, DELIVERED)
        for id in ("p1", "p3"):
            taken = await take_one(store)
            assert taken.outgoing.id == id
            await store.settle(taken, DELIVERED)

    async def test_several_of_a_lane_are_sent_again_one_after_the_other(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1"), post("p2"))
        for _ in range(2):
            await store.settle(await take_one(store), DEAD)
        await store.resend(["p2"])
        await store.settle(await take_one(store), retry(60))

        await store.resend(["p1"])

        await store.settle(first := await take_one(store), DELIVERED)
        second = await take_one(store)
        assert ids([first, second]) == ["p1", "p2"]

    async def test_an_id_that_is_in_the_outbox_is_not_put_there_again(self, harness: Harness) -> None:
        store = harness.store
        await send(store, post("p1"))
        taken = await take_one(store)
        await store.settle(taken, DELIVERED)

        await send(store, post("p1"))

        assert (await take_one(store)).seq > taken.seq


async def claim_one_now(harness: Harness) -> float:
    """The store's time."""
    await idle(harness.store, "clock")
    box = await harness.store.box("clock")
    assert box is not None
    return box.created_at
