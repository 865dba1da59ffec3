"""Housekeeping: what has expired goes, a little at a time; how much is waiting; closing."""

import asyncio

import pytest

from rapkit.errors import StoreError
from rapkit.mailbox import AcceptResult, Commit, NewBox, Timer
from tests.mailbox.harness import (
    DEAD,
    KIND,
    Harness,
    accepted,
    claim_one,
    idle,
    new_mail,
    post,
    running,
    send,
    take,
)

DAY = 86_400.0


class SweepContract:
    async def test_there_is_nothing_to_sweep_in_a_store_that_lives(self, harness: Harness) -> None:
        store = harness.store
        await idle(store, "ended", forget_for=DAY)
        await idle(store, "alive")
        await accepted(store, new_mail("kept", "alive", dedup="m1"))
        await store.stop([KIND], "thread", "c1", remember_for=DAY)
        await send(store, post("p1"))
        await store.settle((await take(store))[0], DEAD)
        while await store.sweep(DAY):
            pass  # what the set-up left behind

        await harness.advance(DAY / 2)

        assert await store.sweep(DAY) == 0
        assert await store.accept(new_mail("kept", "alive", dedup="m1")) is AcceptResult.DUPLICATE
        assert not await store.create(NewBox("ended", KIND))
        await store.create(NewBox("b1", KIND, parent="thread", name="c1"))
        stopped = await store.box("b1")
        assert stopped is not None
        assert stopped.stopped
        assert await store.resend(["p1"]) == 1

    async def test_what_has_expired_is_swept_and_what_lives_stays(self, harness: Harness) -> None:
        store = harness.store
        await idle(store, "alive")
        await accepted(store, new_mail("kept", "alive", dedup="m1"), new_mail("unread", "alive"))
        await send(store, post("p1", "x"), post("p2", "y"))
        first, second = await take(store)
        await store.settle(first, DEAD)
        await harness.advance(2 * DAY)
        await store.settle(second, DEAD)

        assert await store.sweep(DAY) >= 1

        assert [outbox_row.id for outbox_row in await store.outbox(dead=True)] == ["p2"]
        assert await store.accept(new_mail("kept", "alive", dedup="m1")) is AcceptResult.DUPLICATE
        assert len((await claim_one(store)).mail) == 2

    async def test_everything_remembered_of_a_finished_box_is_swept_in_the_end(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        await accepted(store, *(new_mail("x", dedup=f"m{number}") for number in range(5)))
        await store.commit(await claim_one(store), Commit(forget_for=60.0))
        await store.stop([KIND], "thread", "c1", remember_for=60.0)
        while await store.sweep(DAY):
            pass

        await harness.advance(61)

        # The id, its five letters, and the stop.
        assert await store.sweep(DAY) == 7
        assert await store.sweep(DAY) == 0

    async def test_letters_are_forgotten_when_they_say_though_their_box_lives(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        await accepted(store, *(new_mail("x", dedup=f"m{number}", remember_for=60) for number in range(5)))
        await accepted(store, new_mail("x", dedup="kept"), new_mail("x", dedup="for long", remember_for=DAY))
        while await store.sweep(DAY):
            pass

        await harness.advance(61)

        assert await store.sweep(DAY) == 5
        assert await store.sweep(DAY) == 0
        for kept in ("kept", "for long"):
            assert await store.accept(new_mail("x", dedup=kept)) is AcceptResult.DUPLICATE
        assert len((await claim_one(store)).mail) == 7

    async def test_a_sweep_does_a_little_at_a_time_and_comes_to_an_end(self, harness: Harness) -> None:
        store = harness.store
        stops = 2500
        await asyncio.gather(*(store.stop([KIND], "thread", f"c{number}", remember_for=1) for number in range(stops)))
        await harness.advance(2)

        swept = [await store.sweep(DAY)]
        while swept[-1]:
            swept.append(await store.sweep(DAY))

        assert sum(swept) == stops
        assert max(swept) <= stops / 2

    async def test_the_backlog_counts_what_waits_and_what_runs_but_not_what_is_idle(self, harness: Harness) -> None:
        store = harness.store
        assert await store.backlog(KIND) == 0
        await idle(store, "idle")
        await running(store, "running")
        await store.create(NewBox("waiting", KIND))
        await store.create(NewBox("another", "other"))

        assert await store.backlog(KIND) == 2
        assert await store.backlog("other") == 1

        await accepted(store, new_mail("wake up", "idle"))
        assert await store.backlog(KIND) == 3

    async def test_what_waits_for_a_timer_is_no_backlog_until_then(self, harness: Harness) -> None:
        store = harness.store
        claim = await running(store, "patient")
        await store.commit(claim, Commit(timers=[Timer("later", claim.now + 60)]))
        assert await store.backlog(KIND) == 0

        await harness.advance(61)
        assert await store.backlog(KIND) == 1

    async def test_a_closed_store_says_so(self, harness: Harness) -> None:
        store = harness.store
        await store.close()
        await store.close()

        with pytest.raises(StoreError, match="closed"):
            await store.create(NewBox("b1", KIND))
        with pytest.raises(StoreError, match="closed"):
            await store.box("b1")

    async def test_closing_finishes_what_was_asked_before(self, harness: Harness) -> None:
        store = harness.store
        asked = [asyncio.create_task(store.create(NewBox(f"b{number}", KIND))) for number in range(200)]
        await asyncio.sleep(0)

        await store.close()

        assert all(await asyncio.gather(*asked))
