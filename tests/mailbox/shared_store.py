"""Several handles on one set of data, as several processes have them."""

import asyncio

import pytest

from rapkit.errors import Fenced
from rapkit.mailbox import OUTBOX, Commit, Entry, Fact, NewBox, Outgoing, Record, Store
from tests.mailbox.harness import (
    ANNA,
    BERT,
    DEAD,
    KIND,
    Harness,
    accepted,
    claim,
    claim_one,
    idle,
    ids,
    new_mail,
    post,
    post_taken_over,
    running,
    send,
    seqs,
    take,
    take_one,
    taken_over,
    texts,
    visible,
)


class SharedStoreContract:
    async def test_a_worker_that_lives_keeps_its_box_though_the_clock_is_set_back_ever_again(
        self, harness: Harness
    ) -> None:
        """Whenever another worker looks, the lease ends too late to be one; but it is another one each time."""
        store, other = harness.store, await harness.open()
        claimed = await running(store, worker=ANNA)
        for _ in range(20):
            await harness.advance(store.lease.renew_every)
            await store.renew(ANNA)
            await harness.set_back(24 * 3600)
            assert await claim(other, BERT) == []

        await store.commit(claimed, Commit())

    async def test_what_one_handle_was_told_the_other_finds(self, harness: Harness) -> None:
        here, there = harness.store, await harness.open()
        await here.create(NewBox("b1", KIND, b"state"))
        await accepted(here, new_mail("one", dedup="m1"))
        await accepted(there, new_mail("two"))

        assert (await there.accept(new_mail("one", dedup="m1"))).value == "duplicate"
        claimed = await claim_one(there)
        assert texts(claimed) == ["one", "two"]
        await there.commit(claimed, Commit(consumed=seqs(claimed), entries=[Entry("e", b"1")], outgoing=[post("p1")]))

        assert [entry.body for entry in await here.entries("b1")] == [b"1"]
        assert ids(await take(here)) == ["p1"]

    async def test_no_two_openings_of_a_store_have_the_same_incarnation(self, harness: Harness) -> None:
        """Whether its data was copied or restored in between, a store cannot know."""
        first = harness.store.incarnation
        second = await harness.open()
        await harness.crash(second)
        third = await harness.open()

        assert len({first, second.incarnation, third.incarnation}) == 3
        assert all(len(each) >= 32 for each in (first, second.incarnation, third.incarnation))
        assert harness.store.incarnation == first

    async def test_a_store_opened_again_has_everything(self, harness: Harness) -> None:
        before = harness.store
        await idle(before, put=[Record("call", "c1", b"x")], entries=[Entry("e", b"1")], outgoing=[post("p1")])
        await accepted(before, new_mail("unread"))
        seen = await visible(before, "b1")
        await harness.crash(before)

        after = await harness.open()

        assert await visible(after, "b1") == seen
        assert texts(await claim_one(after)) == ["unread"]

    async def test_handles_that_race_claim_different_boxes(self, harness: Harness) -> None:
        stores = [harness.store, await harness.open(), await harness.open()]
        for number in range(60):
            await stores[0].create(NewBox(f"b{number}", KIND))

        async def work(store: Store, worker: str) -> list[str]:
            mine: list[str] = []
            while claims := await claim(store, worker, limit=3):
                mine += [one.box.id for one in claims]
            return mine

        shares = await asyncio.gather(*(work(store, f"w{number}") for number, store in enumerate(stores)))

        assert sorted(id for share in shares for id in share) == sorted(f"b{number}" for number in range(60))

    async def test_handles_that_race_take_different_posts(self, harness: Harness) -> None:
        stores = [harness.store, await harness.open(), await harness.open()]
        await send(stores[0], *(post(f"p{number:02}", f"lane {number}") for number in range(60)))

        async def work(store: Store, worker: str) -> list[str]:
            mine: list[str] = []
            while taken := await take(store, worker, 3):
                mine += ids(taken)
            return mine

        shares = await asyncio.gather(*(work(store, f"w{number}") for number, store in enumerate(stores)))

        assert sorted(id for share in shares for id in share) == [f"p{number:02}" for number in range(60)]

    async def test_handles_that_race_make_a_box_once_and_accept_a_letter_once(self, harness: Harness) -> None:
        stores = [harness.store, await harness.open(), await harness.open()]

        made = await asyncio.gather(*(store.create(NewBox("b1", KIND)) for store in stores for _ in range(5)))
        told = await asyncio.gather(*(store.accept(new_mail("x", dedup="m")) for store in stores for _ in range(5)))

        assert sum(made) == 1
        assert [one.value for one in told].count("accepted") == 1
        assert len((await claim_one(stores[0])).mail) == 1

    async def test_handles_that_race_make_a_box_with_its_first_letter_once(self, harness: Harness) -> None:
        stores = [harness.store, await harness.open(), await harness.open()]
        box, first = NewBox("b1", KIND, idle=True), new_mail("first", dedup="m")

        made = await asyncio.gather(*(store.create(box, first) for store in stores for _ in range(5)))

        assert sum(made) == 1
        assert texts(await claim_one(stores[0])) == ["first"]

    async def test_of_handles_that_race_to_note_the_same_one_wins(self, harness: Harness) -> None:
        stores = [harness.store, await harness.open(), await harness.open()]
        box = NewBox("b1", KIND)
        standing = None
        for turn in range(10):
            bodies = [f"{turn}/{number}".encode() for number in range(len(stores))]
            facts = [Fact("b1", "token", "t", body) for body in bodies]

            won = await asyncio.gather(
                *(store.note(box, fact, standing) for store, fact in zip(stores, facts, strict=True))
            )

            assert sum(won) == 1
            standing = bodies[won.index(True)]
            for store in stores:
                assert await store.records("b1", "token") == [Record("token", "t", standing)]
        assert await stores[0].claim(ANNA, KIND, 10) == []

    async def test_no_note_is_lost_among_handles_that_count_together(self, harness: Harness) -> None:
        stores = [harness.store, await harness.open(), await harness.open()]

        async def count(store: Store) -> None:
            for _ in range(10):
                await count_one(store)

        await asyncio.gather(*(count(store) for store in stores))

        assert await stores[0].records("counter", "count") == [Record("count", "n", b"30")]

    async def test_handles_derive_the_same_keys(self, harness: Harness) -> None:
        here, there = harness.store, await harness.open()

        keys = here.derive("oauth state")

        assert keys == there.derive("oauth state") == here.derive("oauth state")
        assert len(keys) == 1
        assert not set(keys) & set(here.derive("something else"))
        await harness.crash(here)
        assert (await harness.open()).derive("oauth state") == keys

    async def test_with_a_new_key_new_ones_are_derived_and_the_old_ones_come_behind(self, harness: Harness) -> None:
        before = harness.store
        await before.note(NewBox("b1", KIND), Fact("b1", "token", "t", b"sealed with the old key"))
        old = before.derive("oauth state")
        await before.close()

        after = await harness.open_with_a_new_key()

        first, *rest = after.derive("oauth state")
        assert rest == old
        assert first not in old
        assert await after.note(NewBox("b1", KIND), Fact("b1", "token", "t", b"new"), b"sealed with the old key")

    async def test_a_crashed_handles_boxes_and_posts_are_taken_over_by_another(self, harness: Harness) -> None:
        crashed, alive = harness.store, await harness.open()
        await send(crashed, post("p1"))
        claimed = await running(crashed, worker=ANNA)
        taken = await take_one(crashed, ANNA)
        await harness.crash(crashed)

        assert await claim(alive, BERT) == []
        assert await take(alive, BERT) == []
        heir = await taken_over(harness, alive, BERT)
        assert (await post_taken_over(harness, alive, BERT)).outgoing.id == taken.outgoing.id
        assert (heir.box.id, heir.attempts) == (claimed.box.id, 2)

    async def test_a_handle_that_was_taken_over_leaves_no_trace(self, harness: Harness) -> None:
        late, alive = harness.store, await harness.open()
        zombie = await running(late, worker=ANNA)
        heir = await taken_over(harness, alive, BERT)
        before = await visible(alive, "b1")

        with pytest.raises(Fenced):
            await late.commit(zombie, Commit(entries=[Entry("zombie", b"")], outgoing=[post("zombie")]))

        assert await visible(alive, "b1") == before
        await alive.commit(heir, Commit())

    async def test_leases_outlive_a_handle_and_are_not_reset_when_another_starts(self, harness: Harness) -> None:
        claimed = await running(harness.store, worker=ANNA)
        await harness.store.close()

        reopened = await harness.open()

        assert await claim(reopened, BERT) == []
        await reopened.commit(claimed, Commit())

    @pytest.mark.parametrize("topic", [KIND, OUTBOX])
    async def test_another_handles_commit_rings_before_anybody_would_look_again(
        self, harness: Harness, topic: str
    ) -> None:
        here, there = harness.store, await harness.open()
        await claim(here)
        await take(here)
        for number in range(3):
            async with asyncio.timeout(20):
                waiting = asyncio.create_task(woken(here, topic))
                await asyncio.sleep(0.15)  # long enough for what was rung before to have been noticed
                if topic == OUTBOX:
                    await send(there, post(f"p{number}", f"lane {number}"))
                else:
                    await there.create(NewBox(f"b{number}", topic))
                await waiting

    async def test_another_handles_commit_rings_though_this_one_is_busy(self, harness: Harness) -> None:
        here, there = harness.store, await harness.open()
        await idle(here)

        async def chatter() -> None:
            while True:
                await here.renew(BERT)
                await asyncio.sleep(0.01)

        busy = asyncio.create_task(chatter())
        waiting = asyncio.create_task(woken(here, KIND))
        await asyncio.sleep(0.15)
        async with asyncio.timeout(20):
            await accepted(there, new_mail("hello"))
            await waiting
        busy.cancel()
        await asyncio.gather(busy, return_exceptions=True)

    async def test_nothing_secret_is_written_in_clear(self, harness: Harness) -> None:
        store = harness.store

        def secret(what: str) -> bytes:
            return f"PLANTED-{what}-SECRET".encode()

        await store.create(NewBox("b1", KIND, secret("first-state")))
        await accepted(store, new_mail(secret("mail").decode()))
        claimed = await claim_one(store)
        await store.commit(
            claimed,
            Commit(
                entries=[Entry("e", secret("entry"))],
                state=secret("state"),
                put=[Record("call", "c1", secret("record"))],
                outgoing=[
                    Outgoing(
                        "p1",
                        "x",
                        "k",
                        "https://tool.test",
                        f"https://tool.test/{secret('url')!r}",
                        secret("body"),
                        traceparent=secret("trace").decode(),
                    ),
                    Outgoing(
                        "p2", "y", "k", "https://tool.test", f"https://tool.test/{secret('dead')!r}", secret("dead")
                    ),
                ],
                spawn=[NewBox("b2", KIND, secret("child"))],
                facts=[Fact("b2", "call", "c1", secret("fact"))],
                new_mails=[new_mail(secret("letter").decode(), "b2")],
                keep=True,
            ),
        )
        await store.note(NewBox("b3", KIND, secret("noted-state")), Fact("b3", "call", "c1", secret("note")))
        _, given_up = await take(store)
        await store.settle(given_up, DEAD)
        unsettled = DEAD.problem
        assert unsettled is not None

        on_disk = harness.raw()

        assert b"PLANTED" not in on_disk
        for known in (b"b1", b"https://tool.test", unsettled.encode()):
            assert known in on_disk, "the test looks in the wrong place"


async def count_one(store: Store) -> None:
    """Read, add one, and write if it is still so; else begin anew."""
    while True:
        found = await store.records("counter", "count")
        standing = found[0].body if found else None
        more = str(int(standing or b"0") + 1).encode()
        if await store.note(NewBox("counter", "counter"), Fact("counter", "count", "n", more), standing):
            return


async def woken(store: Store, topic: str) -> None:
    """Wait as a worker does: look, and sleep until there may be something, until there is."""
    while not (await claim(store) if topic != OUTBOX else await take(store)):
        await store.wait(topic, 30)
