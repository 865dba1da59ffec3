"""Facts: records beside boxes that whoever writes them has not claimed."""

import asyncio

import pytest

from rapkit.errors import Fenced, StoreError
from rapkit.mailbox import AcceptResult, Commit, Fact, NewBox, Record, Store, Timer
from tests.mailbox.harness import (
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
    take_one,
    taken_over,
    texts,
)

DIARY = NewBox("diary", "diary", b"born", parent="thread", root="root", name="d1")


def fact(body: bytes | None, box: str = "b2", key: str = "c1") -> Fact:
    return Fact(box, "call", key, body)


async def calls(store: Store, box: str = "b2") -> list[tuple[str, bytes]]:
    return [(record.key, record.body) for record in await store.records(box, "call")]


class FactsContract:
    async def test_a_commit_writes_replaces_and_drops_records_of_other_boxes(self, harness: Harness) -> None:
        store = harness.store
        await idle(store, "b2", put=[Record("call", "old", b"1"), Record("call", "gone", b"2"), Record("view", "c1")])
        claimed = await running(store)
        told = [fact(b"new"), fact(b"replaced", key="old"), fact(None, key="gone"), fact(None, key="never there")]

        await store.commit(claimed, Commit(facts=told))

        assert await calls(store) == [("c1", b"new"), ("old", b"replaced")]
        assert await store.records("b2", "view") == [Record("view", "c1")]

    async def test_a_fact_neither_wakes_its_box_nor_disturbs_whoever_runs_it(self, harness: Harness) -> None:
        store = harness.store
        await idle(store, "asleep")
        awake = await running(store, "awake", BERT)
        claimed = await running(store)

        await store.commit(claimed, Commit(facts=[fact(b"x", "asleep"), fact(b"y", "awake")]))

        assert await claim(store) == []
        assert await store.backlog(KIND) == 1
        await store.commit(awake, Commit(put=[Record("call", "own", b"z")]))
        assert await calls(store, "awake") == [("c1", b"y"), ("own", b"z")]
        assert await calls(store, "asleep") == [("c1", b"x")]

    async def test_a_box_that_ends_leaves_facts_beside_others(self, harness: Harness) -> None:
        store = harness.store
        await idle(store, "b2", put=[Record("call", "gone")])
        claimed = await running(store)

        await store.commit(claimed, Commit(facts=[fact(b"it is done"), fact(None, key="gone")], forget_for=60))

        assert await calls(store) == [("c1", b"it is done")]

    async def test_a_fact_can_be_about_a_box_made_by_the_same_commit_and_wanted_by_its_letter(
        self, harness: Harness
    ) -> None:
        store = harness.store
        claimed = await running(store)
        result = new_mail("result", "b2", needs=("call", "c1"))

        await store.commit(claimed, Commit(spawn=[NewBox("b2", KIND)], facts=[fact(b"pending")], new_mails=[result]))

        assert await calls(store) == [("c1", b"pending")]
        assert texts(await claim_one(store)) == ["result"]

    async def test_of_facts_about_the_same_the_last_one_stands(self, harness: Harness) -> None:
        store = harness.store
        await idle(store, "b2")

        await idle(store, "b1", facts=[fact(b"first"), fact(b"second"), fact(b"x", key="c2"), fact(None, key="c2")])

        assert await calls(store) == [("c1", b"second")]

    async def test_facts_about_boxes_that_are_gone_or_closed_do_not_spoil_a_commit(self, harness: Harness) -> None:
        store = harness.store
        await idle(store, "closed", status="closed", put=[Record("call", "kept", b"as it was")])
        await idle(store, "ended", forget_for=60)
        claimed = await running(store)
        told = [fact(b"x", box) for box in ("nobody", "ended", "closed")]
        more = [fact(b"x", "closed", "kept"), fact(None, "closed", "kept"), fact(None, "nobody")]

        await store.commit(claimed, Commit(state=b"done", facts=[*told, *more]))

        box = await store.box("b1")
        assert box is not None
        assert box.state == b"done"
        assert [await store.box(id) for id in ("nobody", "ended")] == [None, None]
        assert [await calls(store, id) for id in ("nobody", "ended", "closed")] == [[], [], [("kept", b"as it was")]]

    async def test_facts_go_with_their_box(self, harness: Harness) -> None:
        store = harness.store
        other = await running(store, "b2")
        await idle(store, "b1", facts=[fact(b"x")])
        await store.commit(other, Commit(forget_for=0))

        await store.create(NewBox("b2", KIND))

        assert await calls(store) == []


class NotesContract:
    """One record beside a box that nobody need claim, or that is made for it."""

    async def test_a_note_makes_its_box_if_there_is_none_and_nothing_is_due(self, harness: Harness) -> None:
        store = harness.store

        assert await store.note(DIARY, fact(b"dear", "diary"))

        box = await store.box("diary")
        assert box is not None
        assert (box.kind, box.state, box.parent, box.root, box.name) == ("diary", b"born", "thread", "root", "d1")
        assert (box.status, box.stopped) == ("open", False)
        assert await calls(store, "diary") == [("c1", b"dear")]
        assert await claim(store, kind="diary") == []
        assert await store.next_due("diary") is None
        assert await store.backlog("diary") == 0
        assert await store.known("diary")
        assert not await store.create(DIARY)

    async def test_a_box_made_by_a_note_wakes_to_a_letter_like_any_other(self, harness: Harness) -> None:
        store = harness.store
        await store.note(DIARY, fact(b"dear", "diary"))

        await accepted(store, new_mail("wake up", "diary", needs=("call", "c1")))

        claimed = await claim_one(store, kind="diary")
        assert (claimed.attempts, texts(claimed)) == (1, ["wake up"])
        await store.commit(claimed, Commit(forget_for=60))
        assert await store.box("diary") is None

    async def test_a_note_leaves_a_box_that_is_there_as_it_is(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        await store.commit(claimed, Commit(state=b"mine", keep=True))

        assert await store.note(NewBox("b1", "other", b"theirs", name="n"), fact(b"x", "b1"))

        box = await store.box("b1")
        assert box is not None
        assert (box.kind, box.state, box.name) == (KIND, b"mine", None)
        await store.commit(claimed, Commit(put=[Record("call", "c2")]))
        assert await calls(store, "b1") == [("c1", b"x"), ("c2", b"")]
        assert await claim(store) == []

    async def test_a_note_replaces_and_drops_what_stands_there(self, harness: Harness) -> None:
        store = harness.store
        for body in (b"first", b"second", b""):
            assert await store.note(DIARY, fact(body, "diary"))
            assert await calls(store, "diary") == [("c1", body)]

        assert await store.note(DIARY, fact(None, "diary"))
        assert await calls(store, "diary") == []
        assert await store.note(DIARY, fact(None, "diary"))

    async def test_a_note_is_written_only_if_what_it_expects_stands_there(self, harness: Harness) -> None:
        store = harness.store
        assert await store.note(DIARY, fact(b"1", "diary"), None)
        assert not await store.note(DIARY, fact(b"2", "diary"), None)
        assert not await store.note(DIARY, fact(b"2", "diary"), b"0")
        assert not await store.note(DIARY, fact(None, "diary"), b"")
        assert await calls(store, "diary") == [("c1", b"1")]

        assert await store.note(DIARY, fact(b"2", "diary"), b"1")
        assert await calls(store, "diary") == [("c1", b"2")]

        assert not await store.note(DIARY, fact(None, "diary"), None)
        assert not await store.note(DIARY, fact(None, "diary"), b"1")
        assert await store.note(DIARY, fact(None, "diary"), b"2")
        assert await calls(store, "diary") == []
        assert not await store.note(DIARY, fact(b"3", "diary"), b"2")
        assert await store.note(DIARY, fact(b"3", "diary"), None)

    async def test_an_empty_record_is_not_no_record(self, harness: Harness) -> None:
        store = harness.store
        await store.note(DIARY, fact(b"", "diary"))

        assert not await store.note(DIARY, fact(b"x", "diary"), None)
        assert await store.note(DIARY, fact(b"x", "diary"), b"")

    async def test_no_box_is_made_in_vain(self, harness: Harness) -> None:
        store = harness.store
        assert not await store.note(DIARY, fact(b"x", "diary"), b"expected")
        assert not await store.note(DIARY, fact(None, "diary"), b"expected")
        assert await store.note(DIARY, fact(None, "diary"), None)
        assert await store.note(DIARY, fact(None, "diary"))

        assert await store.box("diary") is None
        assert not await store.known("diary")

    async def test_nothing_is_noted_beside_a_box_that_ended_while_it_is_remembered(self, harness: Harness) -> None:
        store = harness.store
        await idle(store, "diary", forget_for=60)

        await harness.advance(58)
        assert not await store.note(DIARY, fact(b"too late", "diary"))
        assert not await store.note(DIARY, fact(b"too late", "diary"), None)
        assert not await store.note(DIARY, fact(None, "diary"))
        assert await store.box("diary") is None

        await harness.advance(3)
        assert await store.note(DIARY, fact(b"another life", "diary"))

    async def test_nothing_is_noted_beside_a_closed_box(self, harness: Harness) -> None:
        store = harness.store
        await idle(store, status="closed", put=[Record("call", "c1", b"last")])

        assert not await store.note(NewBox("b1", KIND), fact(b"late", "b1"))
        assert not await store.note(NewBox("b1", KIND), fact(None, "b1"), b"last")

        assert await calls(store, "b1") == [("c1", b"last")]

    async def test_of_many_that_expect_the_same_one_is_written(self, harness: Harness) -> None:
        store = harness.store
        for expected, turn in ((None, "a"), (b"a", "b"), (b"b", "c")):
            bodies = [f"{turn}{number}".encode() for number in range(20)]

            won = await asyncio.gather(*(store.note(DIARY, fact(body, "diary"), expected) for body in bodies))

            assert sum(won) == 1
            assert await calls(store, "diary") == [("c1", bodies[won.index(True)])]
            await store.note(DIARY, fact(turn.encode(), "diary"))

    async def test_a_note_about_one_box_beside_another_is_refused(self, harness: Harness) -> None:
        store = harness.store

        with pytest.raises(StoreError, match="one and the same"):
            await store.note(DIARY, fact(b"x", "b2"))

        assert await store.box("diary") is None

    async def test_a_box_made_by_a_note_after_its_stop_is_stopped(self, harness: Harness) -> None:
        store = harness.store
        await store.stop(["diary"], "thread", "d1", remember_for=60)

        await store.note(DIARY, fact(b"x", "diary"))

        box = await store.box("diary")
        assert box is not None
        assert box.stopped

    async def test_a_fact_and_a_note_take_turns(self, harness: Harness) -> None:
        """What a commit says of a box and what anybody notes beside it is one record, and each sees the other's."""
        store = harness.store
        await store.note(DIARY, fact(b"1", "diary"))
        await idle(store, facts=[fact(b"2", "diary")])

        assert not await store.note(DIARY, fact(b"3", "diary"), b"1")
        assert await store.note(DIARY, fact(b"3", "diary"), b"2")

    async def test_a_note_wants_no_claim_and_ends_none(self, harness: Harness) -> None:
        store = harness.store
        lost = await running(store)
        await store.commit(lost, Commit(timers=[Timer("alarm", lost.now)], outgoing=[post("p1")], keep=True))
        heir = await taken_over(harness, store, BERT)
        await store.note(NewBox("b1", KIND), fact(b"x", "b1"))

        with pytest.raises(Fenced):
            await store.commit(lost, Commit())
        assert await store.accept(new_mail("hello", needs=("call", "c1"))) is AcceptResult.ACCEPTED
        await store.commit(heir, Commit(drop=[("call", "c1")]))
        assert (await claim_one(store)).timers == ("alarm",)
        assert (await take_one(store)).outgoing.id == "p1"
        assert await calls(store, "b1") == []
