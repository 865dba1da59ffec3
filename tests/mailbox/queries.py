"""Looking: whether a box is busy, lists of boxes, the end of a journal."""

import pytest

from rapkit.mailbox import Box, Commit, Entry, NewBox, Store, Timer
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
)


async def is_busy(store: Store, id: str = "b1") -> bool:
    box = await store.box(id)
    assert box is not None
    return box.busy


async def family(store: Store) -> None:
    """Two trees of threads, and others that are no threads or not to be listed."""
    for id, parent, root in (
        ("t1", None, "t1"),
        ("t2", "t1", "t1"),
        ("t3", "t1", "t1"),
        ("t4", None, "t4"),
        ("t5", "t2", "t1"),
    ):
        await store.create(NewBox(id, KIND, f"state of {id}".encode(), parent=parent, root=root, name=f"call {id}"))
    await store.create(NewBox("t6", "other", parent="t1", root="t1"))
    await store.create(NewBox("t7", KIND, parent="t1"))
    for claimed in await claim(store):
        await store.commit(claimed, Commit(status={"t2": "done", "t5": "done"}.get(claimed.box.id)))


def names(boxes: list[Box]) -> list[str]:
    return [box.id for box in boxes]


class QueriesContract:
    async def test_a_box_is_busy_while_it_is_due_or_claimed(self, harness: Harness) -> None:
        store = harness.store
        await store.create(NewBox("b1", KIND))
        assert await is_busy(store)

        claimed = await claim_one(store)
        assert claimed.box.busy
        assert await is_busy(store)

        await store.commit(claimed, Commit())
        assert not await is_busy(store)
        await accepted(store, new_mail("hello"))
        assert await is_busy(store)

    async def test_a_box_in_the_hands_of_a_worker_that_was_lost_is_busy(self, harness: Harness) -> None:
        store = harness.store
        await running(store, worker=ANNA)

        await harness.advance(100 * store.lease.seconds)

        assert await is_busy(store)

    async def test_a_box_that_waits_for_a_time_is_busy_from_then_on(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        await store.commit(claimed, Commit(timers=[Timer("alarm", claimed.now + 30)]))
        claimed = await running(store, "b2")
        await store.commit(claimed, Commit(again_at=claimed.now + 60))

        await harness.advance(29)
        assert not await is_busy(store)
        await harness.advance(1)
        assert await is_busy(store)
        assert not await is_busy(store, "b2")
        await harness.advance(30)
        assert await is_busy(store, "b2")

    async def test_a_box_knows_the_length_of_its_journal(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        assert claimed.box.length == 0
        await store.commit(claimed, Commit(entries=[Entry("a", b"1"), Entry("b", b"2")], keep=True))
        await store.commit(claimed, Commit(entries=[Entry("c", b"3")]))

        box = await store.box("b1")

        assert box is not None
        assert box.length == 3
        await accepted(store, new_mail("hello"))
        assert (await claim_one(store)).box.length == 3

    async def test_boxes_of_a_kind_that_have_a_root_are_listed_the_last_first(self, harness: Harness) -> None:
        store = harness.store
        await family(store)

        found = await store.boxes(KIND)

        assert names(found) == ["t5", "t4", "t3", "t2", "t1"]
        assert found == [await store.box(box.id) for box in found]
        assert found[0].state == b"state of t5"
        assert names(await store.boxes("other")) == ["t6"]
        assert await store.boxes("nothing") == []

    @pytest.mark.parametrize(
        ("parent", "status", "expected"),
        [
            (None, "done", ["t5", "t2"]),
            (None, "open", ["t4", "t3", "t1"]),
            (None, "closed", []),
            ("t1", None, ["t3", "t2"]),
            ("t1", "open", ["t3"]),
            ("t2", "done", ["t5"]),
            ("t2", "open", []),
            ("t9", None, []),
        ],
    )
    async def test_a_list_of_boxes_can_be_filtered_by_parent_and_status(
        self, harness: Harness, parent: str | None, status: str | None, expected: list[str]
    ) -> None:
        await family(harness.store)

        found = await harness.store.boxes(KIND, parent=parent, status=status)

        assert names(found) == expected

    @pytest.mark.parametrize("parent", [None, "p"])
    @pytest.mark.parametrize("status", [None, "open"])
    async def test_a_list_of_boxes_comes_in_pages(
        self, harness: Harness, parent: str | None, status: str | None
    ) -> None:
        store = harness.store
        ids = [f"t{number:02}" for number in range(25)]
        for id in ids:
            await store.create(NewBox(id, KIND, parent="p", root="p"))

        pages: list[list[str]] = []
        for _ in range(4):
            after = pages[-1][-1] if pages else ""
            pages.append(names(await store.boxes(KIND, parent=parent, status=status, after=after, limit=10)))

        assert [len(page) for page in pages] == [10, 10, 5, 0]
        assert [id for page in pages for id in page] == ids[::-1]

    async def test_a_page_goes_on_where_the_last_ended_whatever_came_and_went_meanwhile(self, harness: Harness) -> None:
        store = harness.store
        await family(store)
        assert names(await store.boxes(KIND, limit=2)) == ["t5", "t4"]

        await accepted(store, new_mail("end", "t4"))
        await store.commit(await claim_one(store), Commit(forget_for=0))
        await store.create(NewBox("t8", KIND, root="t8"))

        assert names(await store.boxes(KIND, after="t4", limit=2)) == ["t3", "t2"]
        assert names(await store.boxes(KIND, after="t2", limit=2)) == ["t1"]

    async def test_a_list_says_which_boxes_are_busy(self, harness: Harness) -> None:
        store = harness.store
        await family(store)
        await accepted(store, new_mail("hello", "t2"), new_mail("hello", "t3"))
        await claim(store, BERT, limit=1)

        for found in (
            await store.boxes(KIND),
            await store.boxes(KIND, parent="t1"),
            await store.boxes(KIND, status="done") + await store.boxes(KIND, status="open"),
        ):
            assert {box.id for box in found if box.busy} == {"t2", "t3"}

    async def test_a_list_follows_the_status(self, harness: Harness) -> None:
        store = harness.store
        await store.create(NewBox("t1", KIND, root="t1"))
        claimed = await claim_one(store)
        for status in ("waiting", "open", "closed"):
            await store.commit(claimed, Commit(status=status, keep=True))

            assert names(await store.boxes(KIND, status=status)) == ["t1"]
        assert await store.boxes(KIND, status="waiting") == []
        await store.commit(claimed, Commit(entries=[Entry("e", b"")]))
        assert names(await store.boxes(KIND, status="closed")) == ["t1"]

    async def test_the_end_of_a_journal_is_read_from_the_end(self, harness: Harness) -> None:
        store = harness.store
        await idle(store, entries=[Entry("n", str(number).encode()) for number in range(1, 8)])
        await idle(store, "b2", entries=[Entry("n", b"of another")])

        async def recent(limit: int, before: int | None = None) -> list[int]:
            return [one.seq for one in await store.recent("b1", limit, before)]

        assert await recent(3) == [5, 6, 7]
        assert await recent(3, 5) == [2, 3, 4]
        assert await recent(3, 2) == [1]
        assert await recent(3, 1) == []
        assert await recent(100) == list(range(1, 8))
        assert await recent(2, 1000) == [6, 7]
        assert await store.recent("b1", 100) == await store.entries("b1")
        assert await store.recent("nobody", 3) == []

    async def test_the_end_of_a_journal_can_be_bounded_in_bytes(self, harness: Harness) -> None:
        store = harness.store
        await idle(store, entries=[Entry("e", body) for body in (b"1" * 100, b"2" * 10, b"3" * 10, b"4" * 10)])

        async def recent(most_bytes: int, before: int | None = None) -> list[int]:
            return [one.seq for one in await store.recent("b1", 100, before, ["e"], most_bytes)]

        assert await recent(30) == [2, 3, 4]
        assert await recent(29) == [3, 4]
        assert await recent(1) == [4]
        assert await recent(1, before=2) == [1]

        async def entries(most_bytes: int, after: int = 0) -> list[int]:
            return [one.seq for one in await store.entries("b1", after, 100, most_bytes)]

        assert await entries(1) == [1]
        assert await entries(110) == [1, 2]
        assert await entries(29, after=1) == [2, 3]
        assert await entries(30, after=1) == [2, 3, 4]

    async def test_the_end_of_a_journal_can_be_read_without_what_is_of_no_interest(self, harness: Harness) -> None:
        store = harness.store
        entries = [Entry(kind, b"") for kind in ("said", "seen", "said", "seen", "seen", "done", "seen")]
        await store.commit(await running(store), Commit(entries=entries))

        async def recent(limit: int, before: int | None = None) -> list[int]:
            return [one.seq for one in await store.recent("b1", limit, before, ["said", "done"])]

        assert await recent(2) == [3, 6]
        assert await recent(9) == [1, 3, 6]
        assert await recent(2, 6) == [1, 3]
        assert await store.recent("b1", 2, kinds=[]) == []

    async def test_a_journal_grows_at_the_end_that_is_read(self, harness: Harness) -> None:
        store = harness.store
        await idle(store, entries=[Entry("n", b"1"), Entry("n", b"2")])
        await accepted(store, new_mail("more"))
        claimed = await claim_one(store)
        await store.commit(claimed, Commit(consumed=seqs(claimed), entries=[Entry("n", b"3")]))

        assert [(one.seq, one.body) for one in await store.recent("b1", 2)] == [(2, b"2"), (3, b"3")]
