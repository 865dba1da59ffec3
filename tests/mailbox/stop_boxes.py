"""Stopping boxes by where they belong, also before they came."""

import pytest

from rapkit.errors import Fenced
from rapkit.mailbox import AcceptResult, Commit, NewBox, StoppedBoxes, Store, Timer, lane_under
from tests.mailbox.harness import (
    ANNA,
    BERT,
    KIND,
    Harness,
    accepted,
    claim,
    claim_one,
    ids,
    new_mail,
    post,
    retry,
    take,
    take_one,
    texts,
)

NOTHING = StoppedBoxes((), ())


async def waiting(store: Store) -> list[str]:
    return [outbox_row.id for outbox_row in await store.outbox(dead=False)]


def child(id: str, name: str | None, parent: str = "thread", kind: str = KIND) -> NewBox:
    return NewBox(id, kind, parent=parent, name=name)


class StopBoxesContract:
    async def test_an_idle_box_is_stopped_and_due(self, harness: Harness) -> None:
        store = harness.store
        await store.create(child("b1", "c1"))
        await store.commit(await claim_one(store), Commit())
        assert await claim(store) == []

        assert await store.stop([KIND], "thread", "c1", remember_for=60) == StoppedBoxes(("b1",), ())

        box = await store.box("b1")
        assert box is not None
        assert box.stopped
        assert (await claim_one(store)).box == box

    async def test_stopping_takes_a_box_from_the_worker_that_runs_it(self, harness: Harness) -> None:
        store = harness.store
        await store.create(child("b1", "c1"))
        await accepted(store, new_mail("unread"))
        claimed = await claim_one(store, ANNA)

        await store.stop([KIND], "thread", "c1", remember_for=60)

        with pytest.raises(Fenced):
            await store.commit(claimed, Commit(outgoing=[post("too late")]))
        again = await claim_one(store, BERT)
        assert again.box.stopped
        assert texts(again) == ["unread"]
        assert await take(store) == []

    async def test_a_name_stops_only_what_matches(self, harness: Harness) -> None:
        store = harness.store
        others = [child("b2", "c2"), child("b3", "c1", parent="stranger"), child("b4", "c1", kind="other")]
        for box in (child("b1", "c1"), child("b5", "c1"), *others):
            await store.create(box)

        assert sorted((await store.stop([KIND], "thread", "c1", remember_for=60)).boxes) == ["b1", "b5"]

        for box in others:
            found = await store.box(box.id)
            assert found is not None
            assert not found.stopped

    async def test_one_box_is_stopped_and_not_its_namesakes(self, harness: Harness) -> None:
        store = harness.store
        for box in (child("b1", "c1"), child("b2", "c1")):
            await store.create(box)
        claimed = {each.box.id: each for each in await claim(store)}
        for id, each in claimed.items():
            await store.commit(each, Commit(outgoing=[post(f"of {id}", id)], keep=True))
        assert len(await take(store, BERT)) == 2

        assert await store.stop_box("b1") == StoppedBoxes(("b1",), ("of b1",))
        assert await store.stop_box("unknown") == NOTHING

        with pytest.raises(Fenced):
            await store.commit(claimed["b1"], Commit(outgoing=[post("too late", "b1")]))
        again = await claim_one(store)
        assert (again.box.id, again.box.stopped) == ("b1", True)
        await store.commit(claimed["b2"], Commit())
        namesake = await store.box("b2")
        assert namesake is not None
        assert not namesake.stopped

    async def test_boxes_of_several_kinds_are_stopped_in_one_step(self, harness: Harness) -> None:
        store = harness.store
        others = [child("b3", "c1", kind="third"), child("b4", "c2", kind="other")]
        for box in (child("b1", "c1"), child("b2", "c1", kind="other"), *others):
            await store.create(box)
        first, second = await claim_one(store), (await claim(store, kind="other"))[0]
        await store.commit(first, Commit(outgoing=[post("p1", "b1"), post("p2", "b1")], keep=True))
        await store.commit(second, Commit(outgoing=[post("p3", "b2")], keep=True))
        assert ids(await take(store, BERT)) == ["p1", "p3"]

        stopped = await store.stop([KIND, "other"], "thread", "c1", remember_for=60)

        assert (sorted(stopped.boxes), sorted(stopped.in_flight)) == (["b1", "b2"], ["p1", "p3"])
        assert await store.outbox(dead=False) == []
        for lost in (first, second):
            with pytest.raises(Fenced):
                await store.commit(lost, Commit())
        assert (await claim_one(store)).box.stopped
        assert (await claim_one(store, kind="other")).box.stopped
        for box in others:
            found = await store.box(box.id)
            assert found is not None
            assert not found.stopped

    async def test_all_of_a_parents_boxes_of_several_kinds_are_stopped(self, harness: Harness) -> None:
        store = harness.store
        for box in (child("b1", "c1"), child("b2", None, kind="other"), child("b3", "c3", kind="third")):
            await store.create(box)

        assert sorted((await store.stop([KIND, "other"], "thread", None, remember_for=60)).boxes) == ["b1", "b2"]
        assert await store.stop([], "thread", None, remember_for=60) == NOTHING

    async def test_a_stop_of_several_kinds_is_remembered_for_each(self, harness: Harness) -> None:
        store = harness.store
        await store.stop([KIND, "other"], "thread", "c1", remember_for=60)

        await harness.advance(58)
        for box in (child("b1", "c1"), child("b2", "c1", kind="other"), child("b3", "c1", kind="third")):
            await store.create(box)

        assert [(await claim_one(store, kind=kind)).box.stopped for kind in (KIND, "other", "third")] == [
            True,
            True,
            False,
        ]

    async def test_a_stopped_box_brings_its_mail_and_its_due_timers_like_any_other(self, harness: Harness) -> None:
        store = harness.store
        await store.create(child("b1", "c1"))
        claimed = await claim_one(store)
        timers = [Timer("due", claimed.now + 5), Timer("later", claimed.now + 60)]
        await store.commit(claimed, Commit(timers=timers))
        await accepted(store, new_mail("one"), new_mail("two"))
        await harness.advance(6)
        await store.stop([KIND], "thread", "c1", remember_for=60)
        await accepted(store, new_mail("three"))

        again = await claim_one(store)

        assert (again.box.stopped, again.attempts, again.timers) == (True, 1, ("due",))
        assert texts(again) == ["one", "two", "three"]
        await store.commit(again, Commit(consumed=[mail.seq for mail in again.mail], timers=[Timer("due", None)]))
        assert await claim(store) == []
        await harness.advance(60)
        assert (await claim_one(store)).timers == ("later",)

    async def test_without_a_name_everything_of_the_parent_is_stopped(self, harness: Harness) -> None:
        store = harness.store
        for box in (child("b1", "c1"), child("b2", None), child("b3", "c1", parent="stranger")):
            await store.create(box)

        assert sorted((await store.stop([KIND], "thread", None, remember_for=60)).boxes) == ["b1", "b2"]

        await store.create(child("b4", "c4"))
        assert {one.box.id: one.box.stopped for one in await claim(store)} == {
            "b1": True,
            "b2": True,
            "b3": False,
            "b4": False,
        }

    async def test_a_box_that_comes_after_its_stop_is_made_stopped(self, harness: Harness) -> None:
        store = harness.store
        assert await store.stop([KIND], "thread", "c1", remember_for=60) == NOTHING

        await harness.advance(58)
        for box in (child("b1", "c1"), child("b2", "c2"), child("b3", "c1", kind="other")):
            assert await store.create(box)

        assert {one.box.id: one.box.stopped for one in await claim(store)} == {"b1": True, "b2": False}
        assert not (await claim_one(store, kind="other")).box.stopped

    async def test_a_stop_that_found_its_box_does_not_wait_for_another_of_that_name(self, harness: Harness) -> None:
        store = harness.store
        await store.create(child("b1", "c1"))
        assert (await store.stop([KIND, "other"], "thread", "c1", remember_for=60)).boxes == ("b1",)

        await store.create(child("b2", "c1"))
        await store.create(child("b3", "c1", kind="other"))

        assert {one.box.id: one.box.stopped for one in await claim(store)} == {"b1": True, "b2": False}
        assert not (await claim_one(store, kind="other")).box.stopped

    async def test_a_stop_is_forgotten_after_its_time(self, harness: Harness) -> None:
        store = harness.store
        await store.stop([KIND], "thread", "c1", remember_for=60)

        await harness.advance(61)
        await store.create(child("b1", "c1"))

        assert not (await claim_one(store)).box.stopped

    async def test_a_second_stop_does_not_shorten_the_first(self, harness: Harness) -> None:
        store = harness.store
        await store.stop([KIND], "thread", "c1", remember_for=3600)
        await store.stop([KIND], "thread", "c1", remember_for=1)

        await harness.advance(60)
        await store.create(child("b1", "c1"))

        assert (await claim_one(store)).box.stopped

    async def test_a_box_spawned_after_its_stop_is_made_stopped(self, harness: Harness) -> None:
        store = harness.store
        await store.create(NewBox("thread", KIND))
        claimed = await claim_one(store)
        await store.stop([KIND], "thread", "c1", remember_for=60)

        await store.commit(claimed, Commit(spawn=[child("b1", "c1")]))

        assert (await claim_one(store)).box.stopped

    async def test_posts_of_a_stopped_box_are_deleted_and_those_in_flight_named_and_never_sent_again(
        self, harness: Harness
    ) -> None:
        store = harness.store
        await store.create(child("b1", "c1"))
        await store.create(child("b2", "c2"))
        first, second = await claim(store)
        await store.commit(first, Commit(outgoing=[post("p1", "b1"), post("p2", "b1"), post("p3", "b1")]))
        await store.commit(second, Commit(outgoing=[post("p4", "b2"), post("p5", "b2")]))
        flying = (await take(store, BERT, 1))[0]
        assert flying.outgoing.id == "p1"

        stopped = await store.stop([KIND], "thread", "c1", remember_for=60)

        assert stopped == StoppedBoxes(("b1",), ("p1",))
        await store.settle(flying, retry(0))
        assert ids(await take(store)) == ["p4"]
        assert [outbox_row.id for outbox_row in await store.outbox(dead=False)] == ["p4", "p5"]

    async def test_lanes_under_a_stopped_box_are_deleted_too(self, harness: Harness) -> None:
        store = harness.store
        for box in (child("b1", "c1"), child("b2", "c2")):
            await store.create(box)
        first, second = await claim(store)
        view = post("p1", lane_under(first.box, "v"), latest=True)
        await store.commit(first, Commit(outgoing=[view, post("p2", "thread/c10/b1/v")]))
        await store.commit(
            second, Commit(outgoing=[post("p3", lane_under(second.box, "v")), post("p4", "threads/c2/b2/v")])
        )
        assert ids(await take(store, BERT, 1)) == ["p1"]

        assert await store.stop([KIND], "thread", "c1", remember_for=60) == StoppedBoxes(("b1",), ("p1",))
        assert await waiting(store) == ["p2", "p3", "p4"]

        await store.stop([KIND], "thread", None, remember_for=60)
        assert await waiting(store) == ["p4"]

    async def test_lanes_under_a_box_that_has_ended_are_deleted_by_its_name(self, harness: Harness) -> None:
        store = harness.store
        for box in (child("b1", "c1"), child("b2", "c1"), child("b3", "c2"), child("b4", "c1", parent="stranger")):
            await store.create(box)
        for claimed in await claim(store):
            id = claimed.box.id
            said = [post(f"view of {id}", lane_under(claimed.box, "v")), post(f"result of {id}", id)]
            await store.commit(claimed, Commit(outgoing=said, forget_for=60))
        flying = (await take(store, BERT, 1))[0]
        assert flying.outgoing.id == "view of b1"

        assert await store.stop([KIND], "thread", "c1", remember_for=60) == StoppedBoxes((), ("view of b1",))

        await store.settle(flying, retry(0))
        results = [f"result of b{number}" for number in (1, 2, 3, 4)]
        assert await waiting(store) == [*results, "view of b3", "view of b4"]

    async def test_a_name_reaches_no_lane_of_another_name(self, harness: Harness) -> None:
        store = harness.store
        names = ["c", "c/1", "c1", "c%2F1", "c0", "", "c/", "ü"]
        for number, name in enumerate(names):
            await store.create(child(f"b{number}", name))
        for claimed in await claim(store):
            await store.commit(claimed, Commit(outgoing=[post(claimed.box.id, lane_under(claimed.box, "v"))]))

        for number, name in enumerate(names):
            await store.stop([KIND], "thread", name, remember_for=60)
            assert await waiting(store) == [f"b{later}" for later in range(number + 1, len(names))]

    async def test_one_box_is_stopped_with_its_lanes_and_without_those_of_its_namesakes(self, harness: Harness) -> None:
        store = harness.store
        for id in ("b1", "b10", "b2"):
            await store.create(child(id, "c1"))
        for claimed in await claim(store):
            id = claimed.box.id
            forget_for = 60 if id == "b2" else None
            await store.commit(
                claimed, Commit(outgoing=[post(f"of {id}", lane_under(claimed.box, "v"))], forget_for=forget_for)
            )

        await store.stop_box("b1")
        assert await store.stop_box("b2") == NOTHING

        assert await waiting(store) == ["of b10", "of b2"]

    async def test_a_stopped_box_can_still_say_something(self, harness: Harness) -> None:
        store = harness.store
        await store.create(child("b1", "c1"))
        await store.commit(await claim_one(store), Commit(outgoing=[post("p1", "b1")]))
        await store.stop([KIND], "thread", "c1", remember_for=60)

        await store.commit(await claim_one(store), Commit(outgoing=[post("cancelled", "b1")], forget_for=60))

        assert (await take_one(store)).outgoing.id == "cancelled"

    async def test_stopping_twice_is_stopping(self, harness: Harness) -> None:
        store = harness.store
        await store.create(child("b1", "c1"))

        first = await store.stop([KIND], "thread", "c1", remember_for=60)
        second = await store.stop([KIND], "thread", "c1", remember_for=60)

        assert first == second == StoppedBoxes(("b1",), ())
        assert (await claim_one(store)).box.stopped

    async def test_a_stopped_box_still_takes_letters(self, harness: Harness) -> None:
        store = harness.store
        await store.create(child("b1", "c1"))
        await store.stop([KIND], "thread", "c1", remember_for=60)

        assert await store.accept(new_mail("late")) is AcceptResult.ACCEPTED

    async def test_a_finished_box_is_not_stopped(self, harness: Harness) -> None:
        store = harness.store
        await store.create(child("b1", "c1"))
        await store.commit(await claim_one(store), Commit(outgoing=[post("result", "b1")], forget_for=60))

        assert await store.stop([KIND], "thread", "c1", remember_for=60) == NOTHING

        assert (await take_one(store)).outgoing.id == "result"
