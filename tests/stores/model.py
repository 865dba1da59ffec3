"""A store that is obviously right: dictionaries, lists, no concurrency, no disk. The machine compares the real one with it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import EllipsisType

from rapkit.mailbox import (
    AcceptResult,
    Claim,
    Commit,
    Fact,
    NewBox,
    NewMail,
    Outcome,
    Outgoing,
    Record,
    Settlement,
    TakenPost,
    lanes_of_box,
    lanes_of_name,
)

LEASE = 6.0
ONE_BY_ONE_AFTER = 2


@dataclass
class ModelMail:
    text: str
    accepted_at: float
    trace: str
    attempts: int = 0


@dataclass
class ModelBox:
    made: NewBox
    due_at: float | None
    stopped: bool
    status: str = "open"
    holder: tuple[str, int] | None = None
    held_at: float = 0.0
    attempts: int = 0
    mail: list[ModelMail] = field(default_factory=list)
    journal: list[str] = field(default_factory=list)
    records: dict[tuple[str, str], Record] = field(default_factory=dict)
    timers: dict[str, float] = field(default_factory=dict)
    trace: str = ""


@dataclass
class ModelPost:
    made: Outgoing
    number: int
    made_at: float
    not_before: float
    due_at: float | None
    holder: tuple[str, int] | None = None
    held_at: float = 0.0
    attempts: int = 0
    dead: bool = False


class Model:
    def __init__(self) -> None:
        self.now = 1000.0
        self.leases: dict[str, float] = {}
        self.boxes: dict[str, ModelBox] = {}
        self.posts: dict[str, ModelPost] = {}
        self.remembered: dict[str, float] = {}
        self.stops: dict[tuple[str, str, str], float] = {}
        self.seen: dict[tuple[str, str], float | None] = {}
        self.posted = 0
        self.keys: dict[str, float] = {}
        self.acknowledged: dict[str, list[str]] = {}

    # Letters in

    def create(self, box: NewBox, new_mail: NewMail | None = None) -> bool:
        made = box.id not in self.boxes and self.remembered.get(box.id, 0) <= self.now
        if made:
            self._make(box, None if box.idle else self.now)
        if new_mail is not None:
            self.accept(new_mail)
        return made

    def _make(self, box: NewBox, due_at: float | None) -> None:
        stopped = self.stops.get((box.kind, str(box.parent), str(box.name)), 0) > self.now
        self.boxes[box.id] = ModelBox(box, due_at, stopped)
        self.acknowledged[box.id] = []

    def accept(self, new_mail: NewMail) -> AcceptResult:
        key = (new_mail.box, str(new_mail.dedup))
        if new_mail.dedup is not None and self.remembers(new_mail.box, new_mail.dedup):
            return AcceptResult.DUPLICATE
        box = self.boxes.get(new_mail.box)
        if box is None or box.status == "closed":
            return AcceptResult.UNKNOWN
        if new_mail.needs is not None and new_mail.needs not in box.records:
            return AcceptResult.UNWANTED
        if new_mail.dedup is not None:
            self.seen[key] = None if new_mail.remember_for is None else self.now + new_mail.remember_for
        inherited = box.records[new_mail.needs].traceparent if new_mail.needs else ""
        box.mail.append(ModelMail(new_mail.body.decode(), self.now, new_mail.traceparent or inherited))
        self.acknowledged[new_mail.box].append(new_mail.body.decode())
        if box.holder is None:
            box.due_at = self.now if box.due_at is None else min(box.due_at, self.now)
        return AcceptResult.ACCEPTED

    def remembers(self, box: str, dedup: str) -> bool:
        until = self.seen.get((box, dedup), 0)
        return until is None or until > self.now

    def note(self, new: NewBox, fact: Fact, expect: bytes | EllipsisType | None) -> bool:
        box = self.boxes.get(new.id)
        if box is None and self.remembered.get(new.id, 0) > self.now:
            return False
        if box is not None and box.status == "closed":
            return False
        stands = box.records.get((fact.kind, fact.key)) if box else None
        if expect is not ... and expect != (stands and stands.body):
            return False
        if box is None and fact.body is not None:
            self._make(new, None)
        self._state(fact)
        return True

    def _state(self, fact: Fact) -> None:
        box = self.boxes.get(fact.box)
        if box is None or box.status == "closed":
            return
        if fact.body is None:
            box.records.pop((fact.kind, fact.key), None)
        else:
            box.records[fact.kind, fact.key] = Record(fact.kind, fact.key, fact.body)

    # Work

    def is_free(self, thing: ModelBox | ModelPost) -> bool:
        """Due and in nobody's hands: whoever asks must get it."""
        return thing.holder is None and thing.due_at is not None and thing.due_at <= self.now

    def is_busy(self, box: ModelBox) -> bool:
        """Claimed, whatever became of its worker, or to be claimed."""
        return box.holder is not None or self.is_free(box)

    def is_left(self, thing: ModelBox | ModelPost) -> bool:
        """In the hands of somebody who has retired: whoever asks must get it."""
        return thing.holder is not None and thing.holder[0] not in self.leases

    def is_lost(self, thing: ModelBox | ModelPost, worker: str) -> bool:
        """In the hands of somebody else whose lease has ended: whoever asks may get it."""
        return (
            thing.holder is not None and thing.holder[0] != worker and self.leases.get(thing.holder[0], 0) <= self.now
        )

    def is_quiet(self, thing: ModelBox | ModelPost) -> bool:
        """Nobody needs to look at it now."""
        if thing.holder is None:
            return thing.due_at is None or thing.due_at > self.now
        return not self.is_left(thing) and self.now < thing.held_at + LEASE

    def is_held(self, thing: ModelBox | ModelPost) -> bool:
        """In the hands of somebody whose lease has not ended: nobody else may get it."""
        return thing.holder is not None and self.leases.get(thing.holder[0], 0) > self.now

    def claimed(self, claim: Claim, most: int) -> tuple[int, list[tuple[str, int, str]], list[str]]:
        """Note a claim; what it should have brought: the box's attempts, `most` of its mail with attempts and trace, the timers."""
        box = self.boxes[claim.box.id]
        box.holder, box.held_at = (claim.worker, claim.epoch), self.now
        box.attempts += 1
        handed = box.mail[:most]
        for mail in handed:
            mail.attempts += 1
        due = sorted((at, key) for key, at in box.timers.items() if at <= self.now)
        return box.attempts, [(mail.text, mail.attempts, mail.trace) for mail in handed], [key for _, key in due]

    def fitting(self, boxes: Sequence[str], room: int) -> list[int]:
        """How many letters each of these boxes is handed, claimed together in this order; -1 if it has to wait, and those behind it."""
        counts: list[int] = []
        handed = 0
        for id in boxes:
            box = self.boxes[id]
            wanted = box.mail[:1] if box.attempts >= ONE_BY_ONE_AFTER else box.mail
            count = 0
            for mail in wanted:
                room -= len(mail.text)
                if room < 0 and handed:
                    rest = len(boxes) - len(counts) - 1
                    return [*counts, count or -1, *[-1] * rest]
                count += 1
                handed += 1
            counts.append(count)
        return counts

    def lives(self, claim: Claim) -> bool:
        box = self.boxes.get(claim.box.id)
        return box is not None and box.holder == (claim.worker, claim.epoch)

    def commit(self, claim: Claim, commit: Commit, sender: str | None) -> list[str]:
        """The ids of the POSTs that the sender is given."""
        id = claim.box.id
        box = self.boxes[id]
        if commit.forget_for is not None:
            del self.boxes[id]
            until = self.now + commit.forget_for
            self.remembered[id] = until
            mine = {key: old for key, old in self.seen.items() if key[0] == id}
            self.seen.update({key: until if old is None else min(old, until) for key, old in mine.items()})
        else:
            self._apply(box, claim, commit)
        for lane in commit.unsend:
            self.unsend(lane)
        given = []
        for post in commit.outgoing:
            self._enqueue(post)
            if sender and not post.once and self.posts[post.id].due_at == self.now:
                given.append(post.id)
        for new in commit.spawn:
            self.create(new)
        for fact in commit.facts:
            self._state(fact)
        for new_mail in commit.new_mails:
            self.accept(new_mail)
        return given

    def _apply(self, box: ModelBox, claim: Claim, commit: Commit) -> None:
        texts = {mail.seq: mail.body.decode() for mail in claim.mail}
        gone = {texts[seq] for seq in [*commit.consumed, *commit.set_aside]}
        box.mail = [mail for mail in box.mail if mail.text not in gone]
        box.journal += [entry.body.decode() for entry in commit.entries]
        box.status = commit.status or box.status
        box.records |= {(record.kind, record.key): record for record in commit.put}
        box.trace = box.trace if commit.traceparent is None else commit.traceparent
        for dropped in commit.drop:
            box.records.pop(dropped, None)
        for timer in commit.timers:
            if timer.at is None:
                box.timers.pop(timer.key, None)
            else:
                box.timers[timer.key] = timer.at
        if not commit.charge:
            box.attempts = 0
        if commit.keep:
            return
        box.holder = None
        if commit.charge and commit.again_at is not None:
            box.due_at = commit.again_at
        elif box.mail:
            box.due_at = self.now
        else:
            times = [*box.timers.values(), *([] if commit.again_at is None else [commit.again_at])]
            box.due_at = min(times, default=None)

    def stop_box(self, id: str) -> tuple[set[str], set[str]]:
        if (box := self.boxes.get(id)) is None:
            return set(), set()
        box.stopped, box.holder, box.due_at = True, None, self.now
        return {id}, self._drop([id], lanes_of_box(box.made.parent, box.made.name, id))

    def stop(
        self, kinds: Sequence[str], parent: str, name: str | None, remember_for: float
    ) -> tuple[set[str], set[str]]:
        stopped: set[str] = set()
        flying = self._drop([], parent if name is None else lanes_of_name(parent, name))
        for id, box in self.boxes.items():
            if box.made.kind in kinds and box.made.parent == parent and name in (None, box.made.name):
                stopped.add(id)
                flying |= self.stop_box(id)[1]
        for kind in kinds if name is not None and not stopped else ():
            key = (kind, parent, str(name))
            self.stops[key] = max(self.stops.get(key, 0), self.now + remember_for)
        return stopped, flying

    def _drop(self, lanes: Sequence[str], under: str) -> set[str]:
        gone = [
            post
            for post in self.posts.values()
            if not post.dead and (post.made.lane in lanes or post.made.lane.startswith(f"{under}/"))
        ]
        for post in gone:
            del self.posts[post.made.id]
        return {post.made.id for post in gone if post.holder}

    # Out

    def lane(self, lane: str) -> list[ModelPost]:
        """Its POSTs that are not dead, first in first."""
        posts = [post for post in self.posts.values() if post.made.lane == lane and not post.dead]
        return sorted(posts, key=lambda post: post.number)

    def post(self, posts: Sequence[Outgoing], key: str, remember_for: float) -> bool:
        if self.keys.get(key, 0) > self.now:
            return False
        self.keys[key] = self.now + remember_for
        for post in posts:
            self._enqueue(post)
        return True

    def _enqueue(self, post: Outgoing) -> None:
        self.posted += 1
        not_before = max(self.now, post.not_before or 0)
        due_at = None if self.lane(post.lane) else not_before
        self.posts[post.id] = ModelPost(post, self.posted, self.now, not_before, due_at)

    def unsend(self, lane: str) -> None:
        for post in self.lane(lane):
            del self.posts[post.made.id]

    def _advance(self, lane: str) -> None:
        """The first of a lane is due, unless one is in flight."""
        posts = self.lane(lane)
        if posts and not any(post.holder for post in posts) and posts[0].due_at is None:
            posts[0].due_at = max(self.now, posts[0].not_before)

    def taken(self, taken: TakenPost, worker: str) -> int:
        """Note that a POST was taken; how many attempts it should say."""
        post = self.posts[taken.outgoing.id]
        post.holder, post.held_at = (worker, taken.epoch), self.now
        post.attempts += 1
        if post.made.once:
            del self.posts[post.made.id]
            self._advance(post.made.lane)
        return post.attempts

    def has(self, taken: TakenPost, worker: str) -> bool:
        post = self.posts.get(taken.outgoing.id)
        return post is not None and post.holder == (worker, taken.epoch)

    def settle(self, taken: TakenPost, worker: str, settlement: Settlement) -> None:
        if not self.has(taken, worker):
            return
        post = self.posts[taken.outgoing.id]
        post.holder = post.due_at = None
        match settlement.outcome:
            case Outcome.DELIVERED | Outcome.DROPPED:
                del self.posts[post.made.id]
            case Outcome.RETRY:
                post.due_at = self.now + settlement.delay
            case Outcome.DEAD:
                post.dead = True
        if settlement.outcome is not Outcome.RETRY:
            self._advance(post.made.lane)
        if settlement.new_mail is not None:
            self.accept(settlement.new_mail)
        if settlement.fact is not None:
            self._state(settlement.fact)

    def resend(self, ids: list[str]) -> int:
        back = [self.posts[id] for id in ids if id in self.posts and self.posts[id].dead]
        for post in back:
            post.dead, post.attempts, post.due_at = False, 0, None
        for lane in {post.made.lane for post in back}:
            for later in self.lane(lane)[1:]:
                later.due_at = None
            self._advance(lane)
        return len(back)
