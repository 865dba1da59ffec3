"""Workers, senders, crashes and zombies in any order, against a model.

The real store (SQLite in memory, a clock that goes when told to) and the model are asked the same; after every step all that can be seen
must be the same, and in the end, once nothing goes wrong any more, everything drains: what was acknowledged is in the journal exactly
once and in order, what was to be sent was delivered or given up, and what was to be sent once was not sent twice.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from rapkit.errors import Fenced
from rapkit.keyring import Keyring
from rapkit.mailbox import (
    MAIL_BYTES,
    OUTBOX,
    Box,
    Claim,
    Commit,
    Entry,
    Fact,
    Lease,
    Load,
    NewBox,
    NewMail,
    Outcome,
    Outgoing,
    Record,
    Settlement,
    TakenPost,
    Timer,
    lane_under,
)
from rapkit.stores.sqlite import SqliteStore
from tests.stores.model import LEASE, Model, ModelBox, ModelPost

T = TypeVar("T")

KIND = "job"
PARENT = "thread"
CALL = ("call", "c1")
IDS = ["b0", "b1", "b2"]
NAMES = {"b0": "c/1", "b1": "c", "b2": "c"}
ENDINGS = ["release"] * 4 + ["keep", "keep and charge", "charge", "close", "forget", "forget at once"]
KEYS = Keyring.random()
box_ids = st.sampled_from(IDS)
slots = st.integers(0, 1)
picks = st.integers(0, 1000)
mail_sizes = st.sampled_from([MAIL_BYTES, 1, 16, 17, 18, 30])
letter_ages = st.sampled_from([None, 5.0, 600.0])
bodies = st.sampled_from([None, b"", b"1", b"2"])


@dataclass(frozen=True)
class Plan:
    """What a worker will commit, whatever its claim brings."""

    ending: str
    consume: int
    aside: bool
    posts: list[str]
    again: float | None
    timer: str
    record: str
    unsend: bool
    hand_over: bool
    spawn: str | None
    idle: bool
    facts: list[Fact]
    write_to: str | None


facts = st.builds(Fact, box=box_ids, kind=st.just(CALL[0]), key=st.just(CALL[1]), body=bodies)


def mostly(usual: T, *others: T) -> st.SearchStrategy[T]:
    return st.sampled_from([usual] * (2 * len(others)) + list(others))


plans = st.builds(
    Plan,
    ending=st.sampled_from(ENDINGS),
    consume=st.integers(0, 3),
    aside=mostly(False, True),
    posts=st.lists(st.sampled_from(["now", "now", "later", "once", "aside"]), max_size=3),
    again=st.sampled_from([None, 3.0, 30.0]),
    timer=st.sampled_from(["leave", "set", "far", "drop"]),
    record=st.sampled_from(["leave", "put", "drop"]),
    unsend=mostly(False, True),
    hand_over=st.booleans(),
    spawn=mostly(None, *IDS),
    idle=st.booleans(),
    facts=st.lists(facts, min_size=1, max_size=3) | st.just([]),
    write_to=st.sampled_from([None, *IDS]),
)
first_plan = Plan("release", 3, False, ["now", "once", "now"], None, "set", "put", False, False, None, False, [], "b0")


class Mailboxes(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        self.model = Model()
        self.runner = asyncio.Runner()
        self.workers = [f"worker {slot}" for slot in range(2)]
        self.claims: list[Claim] = []
        self.taken: list[tuple[str, TakenPost]] = []
        self.counter = 0
        self.set_aside: set[str] = set()
        self.sent: Counter[str] = Counter()
        self.once: set[str] = set()
        self.store = self.run(self._open())
        for worker in self.workers:
            self._renew(worker)
        self.create(IDS[:2], False, False, None)
        self.claim_and_commit(0, first_plan, MAIL_BYTES)

    async def _open(self) -> SqliteStore:
        return SqliteStore(":memory:", KEYS, lease=Lease(LEASE), clock=lambda: self.model.now)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(coroutine)

    def next(self, what: str) -> str:
        self.counter += 1
        return f"{what}{self.counter}"

    # What can be seen

    def seen(self) -> dict[str, Any]:
        return self.run(self._seen())

    async def _seen(self) -> dict[str, Any]:
        store = self.store
        boxes = [box for id in IDS if (box := await store.box(id)) is not None]
        return {
            "boxes": {box.id: (box.status, box.stopped, box.traceparent, box.length, box.busy) for box in boxes},
            "listed": [box.id for box in await store.boxes(KIND)],
            "children": [box.id for box in await store.boxes(KIND, parent=PARENT, after=IDS[2])],
            "closed": [box.id for box in await store.boxes(KIND, status="closed", limit=1)],
            "ends": {id: [one.body.decode() for one in await store.recent(id, 2)] for id in IDS},
            "journals": {id: [one.body.decode() for one in await store.entries(id)] for id in IDS},
            "remembered": {id: await store.remembers(id, "m1") for id in IDS},
            "records": {id: await store.records(id, "call") for id in IDS},
            "lanes": {id: await store.waiting(id) for id in IDS},
            "waiting": {outbox_row.id: outbox_row.attempts for outbox_row in await store.outbox(dead=False)},
            "dead": {outbox_row.id: outbox_row.attempts for outbox_row in await store.outbox(dead=True)},
            "backlog": await store.backlog(KIND),
            "load": await store.load(KIND),
            "due now": (await store.next_due(KIND) == 0, await store.next_due(OUTBOX) == 0),
        }

    @invariant()
    def all_that_can_be_seen_is_as_in_the_model(self) -> None:
        seen, model = self.seen(), self.model
        boxes = model.boxes
        assert seen["boxes"] == {
            id: (box.status, box.stopped, box.trace, len(box.journal), model.is_busy(box)) for id, box in boxes.items()
        }
        ids = sorted(boxes, reverse=True)
        assert seen["listed"] == ids
        assert seen["children"] == [id for id in ids if id < IDS[2]]
        assert seen["closed"] == [id for id in ids if boxes[id].status == "closed"][:1]
        for id in IDS:
            assert seen["ends"][id] == seen["journals"][id][-2:]
            assert seen["journals"][id] == (boxes[id].journal if id in boxes else [])
            records = boxes[id].records.values() if id in boxes else ()
            assert seen["records"][id] == sorted(records, key=lambda record: record.key)
            assert seen["remembered"][id] == model.remembers(id, "m1")
            assert seen["lanes"][id] == len(model.lane(id))
        posts = model.posts.values()
        assert seen["waiting"] == {post.made.id: post.attempts for post in posts if not post.dead}
        assert seen["dead"] == {post.made.id: post.attempts for post in posts if post.dead}
        assert seen["backlog"] == sum(map(model.is_busy, boxes.values()))
        self._check_load(seen["load"])
        both: list[list[ModelBox] | list[ModelPost]] = [list(boxes.values()), list(posts)]
        for due_now, things in zip(seen["due now"], both, strict=True):
            if any(model.is_free(thing) or model.is_left(thing) for thing in things):
                assert due_now
            if all(model.is_quiet(thing) or model.is_held(thing) for thing in things):
                assert not due_now

    def _check_load(self, load: Load) -> None:
        model = self.model
        accepted = [mail.accepted_at for box in model.boxes.values() for mail in box.mail]
        made = [post.made_at for post in model.posts.values() if not post.dead]
        assert (load.unread, load.oldest_unread) == (len(accepted), model.now - min(accepted, default=model.now))
        assert (load.outgoing, load.oldest_outgoing) == (len(made), model.now - min(made, default=model.now))
        assert load.dead == len(model.posts) - len(made)
        boxes = model.boxes.values()
        wait = [model.is_free(box) or model.is_left(box) for box in boxes]
        may_be_looked_at = [not model.is_quiet(box) for box in boxes]
        assert sum(wait) <= load.due <= sum(may_be_looked_at)

    # Letters in

    @rule(
        ids=st.just(IDS) | st.lists(box_ids, min_size=1, max_size=2),
        idle=mostly(False, True),
        write=st.booleans(),
        dedup=st.sampled_from([None, "m1"]),
    )
    def create(self, ids: list[str], idle: bool, write: bool, dedup: str | None) -> None:
        for id in ids:
            box, new_mail = self._new_box(id, idle), self._letter(id, dedup) if write else None
            assert self.run(self.store.create(box, new_mail)) == self.model.create(box, new_mail)

    @rule(slot=slots, id=box_ids)
    def create_claimed(self, slot: int, id: str) -> None:
        box, worker = self._new_box(id), self.workers[slot]
        claim = self.run(self.store.create_claimed(box, worker))
        assert (claim is not None) == self.model.create(box)
        if claim is not None:
            self._note(claim, worker, 0)

    def _new_box(self, id: str, idle: bool = False) -> NewBox:
        return NewBox(id, KIND, parent=PARENT, root=PARENT, name=NAMES[id], idle=idle)

    @rule(
        ids=st.lists(box_ids, min_size=1, max_size=4),
        dedup=st.sampled_from([None, "m1"]),
        needy=mostly(False, True),
        remember_for=letter_ages,
        pause=mostly(0.0, 3.0, 7.0),
    )
    def accept(self, ids: list[str], dedup: str | None, needy: bool, remember_for: float | None, pause: float) -> None:
        for id in ids:
            new_mail = self._letter(id, dedup, needy, remember_for)
            assert self.run(self.store.accept(new_mail)) is self.model.accept(new_mail)
            self.model.now += pause

    def _letter(
        self, id: str, dedup: str | None = None, needy: bool = False, remember_for: float | None = None
    ) -> NewMail:
        text = self.next("letter ")
        trace = f"of {text}" if self.counter % 2 else ""
        return NewMail(id, "note", text.encode(), dedup, CALL if needy else None, remember_for, trace)

    @rule(said=st.lists(facts, min_size=1, max_size=4), expect=st.just(...) | bodies)
    def note(self, said: list[Fact], expect: bytes | EllipsisType | None) -> None:
        for fact in said:
            box = self._new_box(fact.box)
            assert self.run(self.store.note(box, fact, expect)) == self.model.note(box, fact, expect)

    # Time and faults

    @rule(seconds=st.sampled_from([0.5, 2.5, LEASE + 0.5, 3 * LEASE, 61.0]))
    def time_passes(self, seconds: float) -> None:
        self.model.now += seconds

    def _renew(self, worker: str) -> None:
        self.model.leases[worker] = self.model.now + LEASE
        self.run(self.store.renew(worker))

    @rule()
    def everybody_lives_through_a_lease(self) -> None:
        for _ in range(4):
            self.model.now += LEASE / 3
            for worker in self.workers:
                self._renew(worker)

    @rule(slot=slots, how=st.sampled_from(["crash", "retire"]))
    def a_process_ends(self, slot: int, how: str) -> None:
        """And another starts in its place. A crash takes along all it had; what a retired one had stays around as a zombie."""
        gone = self.workers[slot]
        if how == "crash":
            self.claims = [claim for claim in self.claims if claim.worker != gone]
            self.taken = [(worker, taken) for worker, taken in self.taken if worker != gone]
        else:
            del self.model.leases[gone]
            self.run(self.store.retire(gone))
        self.workers[slot] = self.next("process ")
        self._renew(self.workers[slot])

    @rule()
    def sweep(self) -> None:
        self.run(self.store.sweep(1e9))

    # Work

    @rule(slot=slots, limit=st.integers(1, 3), mail_bytes=mail_sizes)
    def claim(self, slot: int, limit: int, mail_bytes: int) -> None:
        self._claim(self.workers[slot], limit, mail_bytes)

    def _claim(self, worker: str, limit: int, mail_bytes: int = MAIL_BYTES) -> list[Claim]:
        claims = self.run(self.store.claim(worker, KIND, limit, mail_bytes))
        chosen = [claim.box.id for claim in claims]
        fitting = self.model.fitting(chosen, mail_bytes)
        assert -1 not in fitting, "more mail than there was room for"
        # Those left out for want of room are claimed before anything new: the model says which they may be.
        self._check_choice(
            chosen, limit, worker, self.model.boxes, lambda id: self._has_no_room(chosen, id, mail_bytes)
        )
        for claim, count in zip(claims, fitting, strict=True):
            self._note(claim, worker, count)
        return claims

    def _has_no_room(self, chosen: list[str], id: str, mail_bytes: int) -> bool:
        last = chosen[-1] if chosen else None
        full = (
            last is not None and self.model.fitting(chosen, mail_bytes)[-1] < self.model.fitting([last], MAIL_BYTES)[0]
        )
        return full or self.model.fitting([*chosen, id], mail_bytes)[-1] == -1

    def _note(self, claim: Claim, worker: str, count: int) -> None:
        attempts, mail, timers = self.model.claimed(claim, count)
        assert (claim.worker, claim.now, claim.attempts) == (worker, self.model.now, attempts)
        assert [(one.body.decode(), one.attempts, one.traceparent) for one in claim.mail] == mail
        assert list(claim.timers) == timers
        box = self.model.boxes[claim.box.id]
        assert (claim.box.stopped, claim.box.length, claim.box.busy) == (box.stopped, len(box.journal), True)
        assert claim.box.traceparent == box.trace
        self.claims.append(claim)

    def _check_choice(
        self,
        chosen: list[str],
        limit: int,
        worker: str,
        things: Mapping[str, ModelBox] | Mapping[str, ModelPost],
        no_room: Callable[[str], bool] = lambda _id: False,
    ) -> None:
        """Only what may be had, each once, no more than wanted, and nothing left out that was due for longer."""
        free = {id: thing.due_at or 0 for id, thing in things.items() if self.model.is_free(thing)}
        left = {id for id, thing in things.items() if self.model.is_left(thing)}
        lost = {id for id, thing in things.items() if self.model.is_lost(thing, worker)}
        assert len(chosen) == len(set(chosen)) <= limit
        assert set(chosen) <= {*free, *left, *lost}
        # The first that is left out for want of room leaves out those behind it, room or not.
        waiting = {*free, *left} - {*chosen}
        if len(chosen) < limit:
            assert not waiting or any(no_room(id) for id in {*waiting, *(lost - {*chosen})})
        got = [due_at for id, due_at in free.items() if id in chosen]
        others = [due_at for id, due_at in free.items() if id not in chosen]
        assert max(got, default=0) <= min(others, default=self.model.now)

    @rule(slot=slots, plan=plans, mail_bytes=mail_sizes)
    def claim_and_commit(self, slot: int, plan: Plan, mail_bytes: int) -> None:
        for claim in self._claim(self.workers[slot], 3, mail_bytes):
            self._commit(claim, self._fulfil(plan, claim), plan.hand_over)

    @rule(
        slot=slots,
        forget_for=st.sampled_from([0.0, 10.0, 60.0]),
        remember_for=letter_ages,
        later=st.sampled_from([7.0, 61.0]),
        idle=st.booleans(),
        write=st.booleans(),
    )
    def boxes_end_and_are_asked_for_again(
        self, slot: int, forget_for: float, remember_for: float | None, later: float, idle: bool, write: bool
    ) -> None:
        self.accept(IDS, "m1", False, remember_for, 0.0)
        for claim in self._claim(self.workers[slot], 1):
            self._commit(claim, Commit(forget_for=forget_for))
        self.note([Fact(id, *CALL, b"1") for id in IDS], None)
        self.model.now += later
        self.create(IDS, idle, write, "m1")
        self.accept(IDS, "m1", False, None, 0.0)

    @precondition(lambda self: self.claims)
    @rule(pick=picks, plan=plans)
    def commit(self, pick: int, plan: Plan) -> None:
        """For any claim anybody ever had and did not lose in a crash: a live one, or a zombie's."""
        claim = self.claims[pick % len(self.claims)]
        self._commit(claim, self._fulfil(plan, claim), plan.hand_over)

    @rule(plan=plans)
    def zombies_commit(self, plan: Plan) -> None:
        before = self.seen()
        for claim in self.claims[-12:]:
            if not self.model.lives(claim):
                with pytest.raises(Fenced):
                    self.run(self.store.commit(claim, self._fulfil(plan, claim)))
        assert self.seen() == before

    def _fulfil(self, plan: Plan, claim: Claim) -> Commit:
        done, rest = claim.mail[: plan.consume], claim.mail[plan.consume :]
        now = self.model.now
        timers = {"leave": [], "set": [Timer("t", now + 4)], "far": [Timer("u", now + 40)], "drop": [Timer("t", None)]}
        return Commit(
            consumed=[mail.seq for mail in done],
            entries=[Entry("note", mail.body) for mail in done],
            set_aside={rest[0].seq: "poison"} if plan.aside and rest else {},
            status="closed" if plan.ending == "close" else None,
            put=[Record(*CALL, b"", self.next("trace "))] if plan.record == "put" else [],
            drop=[CALL] if plan.record == "drop" else [],
            timers=timers[plan.timer],
            outgoing=[self._post(_lane(claim.box, how), how) for how in plan.posts],
            unsend=[claim.box.id] if plan.unsend else [],
            spawn=[self._new_box(plan.spawn, plan.idle)] if plan.spawn else [],
            facts=plan.facts,
            new_mails=[self._letter(plan.write_to)] if plan.write_to else [],
            again_at=None if plan.again is None else now + plan.again,
            keep=plan.ending in ("keep", "keep and charge"),
            charge=plan.ending in ("charge", "keep and charge"),
            forget_for={"forget": 60.0, "forget at once": 0.0}.get(plan.ending),
            traceparent=f"of {done[0].seq}" if done else None,
        )

    def _post(self, lane: str, how: str) -> Outgoing:
        id = self.next("post ")
        if how == "once":
            self.once.add(id)
        later = self.model.now + 5 if how == "later" else None
        url = f"https://tool.test/{id}"
        return Outgoing(id, lane, "callback", "https://tool.test", url, id.encode(), how == "once", later, f"of {id}")

    def _commit(self, claim: Claim, commit: Commit, hand_over: bool = False) -> None:
        sender = claim.worker if hand_over and claim.worker in self.workers else None
        if not self.model.lives(claim):
            with pytest.raises(Fenced):
                self.run(self.store.commit(claim, commit, sender))
            return
        taken = self.run(self.store.commit(claim, commit, sender))
        assert [one.outgoing.id for one in taken] == self.model.commit(claim, commit, sender)
        self._note_taken(taken, claim.worker)
        dealt_with = {*commit.consumed, *commit.set_aside}
        self.set_aside |= {mail.body.decode() for mail in claim.mail if mail.seq in commit.set_aside}
        if commit.keep:
            left = tuple(mail for mail in claim.mail if mail.seq not in dealt_with)
            self.claims[self.claims.index(claim)] = replace(claim, mail=left)

    @rule(
        kinds=mostly([KIND], ["other", KIND], ["other"]),
        name=st.sampled_from([None, *NAMES.values()]),
        remember_for=st.sampled_from([1.0, 60.0]),
    )
    def stop(self, kinds: list[str], name: str | None, remember_for: float) -> None:
        stopped = self.run(self.store.stop(kinds, PARENT, name, remember_for))
        assert (set(stopped.boxes), set(stopped.in_flight)) == self.model.stop(kinds, PARENT, name, remember_for)

    @rule(id=st.sampled_from(IDS))
    def stop_box(self, id: str) -> None:
        stopped = self.run(self.store.stop_box(id))
        assert (set(stopped.boxes), set(stopped.in_flight)) == self.model.stop_box(id)

    # Out

    @rule(key=st.sampled_from(["k1", "k2"]), remember_for=st.sampled_from([5.0, 60.0]), lane=st.sampled_from(IDS))
    def post(self, key: str, remember_for: float, lane: str) -> None:
        posts = [self._post(lane, "now")]
        assert self.run(self.store.post(posts, key, remember_for)) == self.model.post(posts, key, remember_for)

    @rule(slot=slots, limit=st.integers(1, 3))
    def take(self, slot: int, limit: int) -> None:
        self._take(self.workers[slot], limit)

    def _take(self, worker: str, limit: int) -> list[TakenPost]:
        taken = self.run(self.store.take(worker, limit))
        self._check_choice([one.outgoing.id for one in taken], limit, worker, self.model.posts)
        assert len({one.outgoing.lane for one in taken}) == len(taken), "two of one lane at once"
        self._note_taken(taken, worker)
        return taken

    def _note_taken(self, taken: list[TakenPost], worker: str) -> None:
        for one in taken:
            assert one.outgoing.body == one.outgoing.id.encode()
            assert one.outgoing.traceparent == f"of {one.outgoing.id}"
            assert one.attempts == self.model.taken(one, worker)
            self.sent[one.outgoing.id] += 1
        self.taken += [(worker, one) for one in taken]

    @rule(slot=slots, outcome=st.sampled_from(Outcome), delay=st.sampled_from([0.0, 5.0]), tell=mostly(None, *IDS))
    def take_and_settle(self, slot: int, outcome: Outcome, delay: float, tell: str | None) -> None:
        worker = self.workers[slot]
        for taken in self._take(worker, 2):
            new_mail = self._letter(tell) if tell else None
            body = None if outcome is Outcome.DELIVERED else b"settled"
            fact = Fact(tell, "call", "settled", body) if tell else None
            self._settle(worker, taken, Settlement(outcome, "why", delay, new_mail, fact))

    @precondition(lambda self: self.taken)
    @rule(pick=picks, outcome=st.sampled_from(Outcome), delay=st.sampled_from([0.0, 5.0]))
    def settle(self, pick: int, outcome: Outcome, delay: float) -> None:
        """Any attempt anybody ever made: a live one, one that was settled before, or one that was taken over."""
        worker, taken = self.taken[pick % len(self.taken)]
        self._settle(worker, taken, Settlement(outcome, "why", delay, self._letter("b0")))

    def _settle(self, worker: str, taken: TakenPost, settlement: Settlement) -> None:
        self.run(self.store.settle(taken, settlement))
        self.model.settle(taken, worker, settlement)

    @rule(outcome=st.sampled_from(Outcome))
    def late_senders_settle(self, outcome: Outcome) -> None:
        before = self.seen()
        for worker, taken in self.taken[-12:]:
            if not self.model.has(taken, worker):
                self.run(self.store.settle(taken, Settlement(outcome, "late", 0.0, self._letter("b0"))))
        assert self.seen() == before

    @precondition(lambda self: any(post.dead for post in self.model.posts.values()))
    @rule(which=st.sampled_from(["all", "first", "last"]))
    def resend(self, which: str) -> None:
        dead = sorted(id for id, post in self.model.posts.items() if post.dead)
        ids = {"all": dead, "first": dead[:1], "last": dead[-1:]}[which]
        assert self.run(self.store.resend([*ids, "nobody"])) == self.model.resend(ids)

    # The end

    def teardown(self) -> None:
        try:
            self._drain()
            self.all_that_can_be_seen_is_as_in_the_model()
            self._check_the_end()
        finally:
            self.run(self.store.close())
            self.runner.close()

    def _drain(self) -> None:
        """Nothing goes wrong any more; one worker lives."""
        for _ in range(100):
            self.model.now += LEASE + 1
            self._renew("the last")
            for claim in self._claim("the last", 3, 100):
                entries = [Entry("note", mail.body) for mail in claim.mail]
                timers = [Timer("t", None), Timer("u", None)]
                self._commit(claim, Commit([mail.seq for mail in claim.mail], entries=entries, timers=timers))
            for taken in self._take("the last", 3):
                self._settle("the last", taken, Settlement(Outcome.DELIVERED))
            posts = [post for post in self.model.posts.values() if not post.dead]
            if not posts and all(box.due_at is None for box in self.model.boxes.values()):
                return
        raise AssertionError("it does not drain")

    def _check_the_end(self) -> None:
        for id in self.model.boxes:
            journal = [one.body.decode() for one in self.run(self.store.entries(id))]
            assert journal == [text for text in self.model.acknowledged[id] if text not in self.set_aside]
        assert all(self.sent[id] <= 1 for id in self.once)
        assert self.run(self.store.next_due(KIND)) is None
        assert self.run(self.store.next_due(OUTBOX)) is None


def _lane(box: Box, how: str) -> str:
    return lane_under(box, "aside") if how == "aside" else box.id


def test_the_store_does_as_the_model_does_whatever_happens() -> None:
    run(max_examples=60, stateful_step_count=40, derandomize=True)


@pytest.mark.soak
def test_the_store_does_as_the_model_does_whatever_happens_for_long(request: pytest.FixtureRequest) -> None:
    if "soak" not in request.config.getoption("markexpr"):
        pytest.skip("takes long; run by scripts/soak")
    short = os.environ.get("RAPKIT_SOAK") == "short"
    run(max_examples=200 if short else 4000, stateful_step_count=60)


def run(**more: Any) -> None:
    how = settings(deadline=None, suppress_health_check=list(HealthCheck), **more)
    run_state_machine_as_test(Mailboxes, settings=how)
