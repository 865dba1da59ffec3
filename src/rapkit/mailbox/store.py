"""The store protocol, and what its implementations guarantee.

- What `create`, `accept` and `note` say is durable when it is said. Accepted mail is handed to every claim of its box, in acceptance
  order, until a commit consumes it or sets it aside; duplicates change nothing.
- A commit is atomic: all of it or nothing. A worker whose claim is no longer the box's last leaves no trace, not even an outgoing POST, a
  mail or a fact beside another box.
- Of `note`s that expect the same to stand there, one is written, whatever the number of processes.
- No two live claims of one box. A claim lives as long as its worker's lease: workers renew one row, claims point to it, and only the
  store's clock is asked. Leases are never reset when a process starts. If the clock is set back, a worker that goes on renewing its lease
  keeps its claims, and one that was lost is detected by any process that renews its lease, or asks what is due, for a lease time.
- Readiness, lease ends and timers share one indexed time, so that a box with nothing due costs nothing, however many there are.
- An attempt is charged when a box is claimed, not when it fails: a worker that is killed counts too, until a commit says that the box got
  on. It is charged durably before any mail is read, so that a process which has no memory for the mail counts as well. After two lost
  attempts mail is handed out one item at a time, so that the one that kills its workers can be told from the others and set aside.
- The outbox is first-in-first-out per lane; a `once` POST is deleted before it is handed out, and does not hold its lane. A lane of
  `latest` POSTs holds one in hand and one that waits at most.
- A caller that is cancelled while it claims or takes holds nothing afterwards. What else was asked for may have happened all the same.
- After a `StoreError` other than `Fenced` it is open whether the operation happened: repeat it, all of them bear that (a repeated `commit`
  is `Fenced` if the first one went through and ended the claim; a repeated `note` finds what the first one wrote).
- How long duplicates are recognised is bounded: while the box lives, or as long as the mail says, and never longer than `forget_for`
  seconds after the box has ended.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Final, Protocol

from rapkit.mailbox.box import AcceptResult, Box, Fact, NewBox, NewMail
from rapkit.mailbox.commit import Claim, Commit, Entry, Record
from rapkit.mailbox.outgoing import OutboxRow, Outgoing, Settlement, TakenPost
from rapkit.mailbox.quota import Quota

OUTBOX: Final = "outbox"
"""The topic to `wait` on for outgoing POSTs; for boxes it is their kind."""

MAIL_BYTES: Final = 32 * 1024 * 1024
"""How many bytes of mail a claim brings at most, unless it says otherwise."""

MOST_COUNTED: Final = 10_000
"""How far `Store.load` counts: a number that great means so many or more."""


@dataclass(frozen=True, slots=True)
class Lease:
    """How long a silent worker keeps its claims. Renew it at least three times as often."""

    seconds: float = 6.0

    @property
    def renew_every(self) -> float:
        """Seconds between two renewals."""
        return self.seconds / 4


@dataclass(frozen=True, slots=True)
class StoppedBoxes:
    """Boxes that were stopped, and ids of their POSTs that a sender has taken."""

    boxes: tuple[str, ...]
    in_flight: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """How much waits in a store, each counted up to `MOST_COUNTED`, and how many seconds the oldest has waited; 0 if there is none.

    `unread` is mail to any box that no commit has consumed or set aside. `due` are boxes of one kind that wait for a worker; one that a
    worker has had for longer than a lease may be among them until the next claim. `outgoing` are POSTs neither delivered nor given up,
    `dead` those given up.
    """

    unread: int
    oldest_unread: float
    due: int
    outgoing: int
    oldest_outgoing: float
    dead: int


class Store(Protocol):
    """Where boxes are kept. Every method raises `StoreError` if it could not do what it says."""

    @property
    def lease(self) -> Lease:
        """How long a silent worker keeps what it claimed."""

    @property
    def incarnation(self) -> str:
        """A random value of this opening of the store; no other opening of it, or of a copy of it, has the same.

        Whatever is made from it is new, even to those who remember what a store did before it was restored from a backup.
        """

    def derive(self, purpose: str) -> list[bytes]:
        """Keys for signing that every process on this store shares, newest first: sign with the first, believe any."""

    # Incoming mail

    async def create(self, box: NewBox, new_mail: NewMail | None = None) -> bool:
        """Make a box, due at once unless it is idle. False if its id is known: alive, or remembered.

        If (kind, parent, name) was stopped before the box came, it is made with `stopped` set.

        A `new_mail` for the box is put into it in the same step, as by `accept`, whether the box was made now or before: who repeats both
        after a crash, with a `dedup`, has one box with one mail in it.
        """

    async def create_claimed(self, box: NewBox, worker: str) -> Claim | None:
        """`create` and `claim` in one step, for a worker that can begin at once. None if the box's id is known."""

    async def accept(self, new_mail: NewMail) -> AcceptResult:
        """Put mail into a box and make the box due; see `AcceptResult`."""

    async def accept_claimed(self, new_mail: NewMail, worker: str) -> tuple[AcceptResult, Claim | None]:
        """`accept` and `claim` in one step, for a worker that can begin at once. There is a claim only if nothing else was due."""

    async def note(self, box: NewBox, fact: Fact, expect: bytes | EllipsisType | None = ...) -> bool:
        """Write or drop one record beside a box, claimed or not; if there is no such box it is made, idle: nothing is due.

        Only if `expect` is what stands there: a body, None for no record, `...` for whatever it is. False if it is not, or if the box is
        closed or was ended and is remembered; then nothing happens, and no box is made. Nor is one made to drop a record.
        """

    # Work

    async def renew(self, worker: str) -> None:
        """Make or prolong the worker's lease. A name is used by one process and never again, so no worker takes over from itself."""

    async def retire(self, worker: str) -> None:
        """End the worker's lease now: others may take over what it still holds."""

    async def claim(
        self, worker: str, kind: str, limit: int, mail_bytes: int = MAIL_BYTES, quota: Quota[str] | None = None
    ) -> list[Claim]:
        """Claim up to `limit` due boxes, longest due first, and no more of a `NewBox.share` than its quota. The worker must have a lease.

        The bodies of their mail have `mail_bytes` bytes at most, all boxes taken together, or are a single mail. The rest of the mail
        comes with later claims, and a box that is left with none of its mail is not claimed: both stay due.

        There may be fewer than are due and within their quotas, even none while others are at them; `wait` returns soon then.
        """

    async def commit(self, claim: Claim, commit: Commit, sender: str | None = None) -> list[TakenPost]:
        """Write the commit and, unless it says `keep`, end the claim. `Fenced` if the claim is no longer the box's last.

        With a `sender`, those of the commit's POSTs that are due at once are taken for that worker in the same step, and returned.
        """

    async def stop(self, kinds: Sequence[str], parent: str, name: str | None, remember_for: float) -> StoppedBoxes:
        """Take the matching boxes of all these kinds (all of the parent's, without a name) from the workers that run them, in one step.

        They are due at once, with `stopped` set, and bring their unread mail and due timers like any other. The POSTs in the lanes of
        their ids are deleted, and those in the lanes under the name (`lane_under`; without a name, under the parent), whether their boxes
        still live or have ended; also those that a sender has taken: no sender sends them again. With a name that matches none of them yet,
        one of any of the kinds that comes within `remember_for` seconds is made stopped.
        """

    async def stop_box(self, id: str) -> StoppedBoxes:
        """Stop one box as `stop` does, and no other that has the same parent and name, nor its lanes. Nothing happens if there is none."""

    # Out

    async def post(self, outgoing: Sequence[Outgoing], key: str, remember_for: float) -> bool:
        """Put POSTs into the outbox that no claim stands for, unless that was done under this key within `remember_for` seconds."""

    async def take(
        self,
        worker: str,
        limit: int,
        quota: Quota[tuple[str, bool]] | None = None,
        most_bytes: int = MAIL_BYTES,
        largest: int | None = None,
    ) -> list[TakenPost]:
        """Up to `limit` POSTs that are due, longest due first, and no more of a share than its quota. The worker must have a lease.

        A share is an origin, and whether its `latest` POSTs are meant or the others. There may be fewer than are due and within their
        quotas; `wait` returns soon then. Their bodies have no more than `most_bytes` together, but there is at least one; with `largest`
        those whose bodies have more bytes than that are left for another time.
        """

    async def held(self, taken: Sequence[TakenPost]) -> set[str]:
        """The ids of those of these POSTs that are still their sender's: neither deleted, nor settled, nor taken over."""

    async def settle(self, taken: TakenPost, settlement: Settlement) -> None:
        """Say how the attempt ended, with its mail and its fact. Nothing happens if another sender has the POST, or it was deleted."""

    async def resend(self, ids: Sequence[str]) -> int:
        """Put given-up POSTs back into the outbox, at their old place in the lane; says how many there were."""

    # Waiting

    async def wait(self, topic: str, at_most: float) -> None:
        """Return when something of the topic may have become due since the last `claim` or `take`, or after `at_most` seconds."""

    async def next_due(self, topic: str) -> float | None:
        """Seconds until something of the topic is due (0 if it is), or None.

        What a worker holds is due when its lease ends, and until then only said to be: a lease that is prolonged makes it later. So look
        again at that time.
        """

    # Looking

    async def box(self, id: str) -> Box | None:
        """One box."""

    async def boxes(
        self, kind: str, *, parent: str | None = None, status: str | None = None, after: str = "", limit: int = 100
    ) -> list[Box]:
        """Boxes of a kind that have a `root`, the greatest id first; only those of a parent, or of a status, if one is named.

        `after` is the last id of the page before. A page costs the same wherever it begins and however many boxes there are, except that
        with a `parent` all of its boxes are looked at.
        """

    async def known(self, id: str) -> bool:
        """Whether `create` would refuse this id: the box is alive, or remembered."""

    async def remembers(self, box: str, dedup: str) -> bool:
        """Whether mail to this box with this `dedup` would be a `DUPLICATE`."""

    async def backlog(self, kind: str) -> int:
        """How many boxes of a kind are due or being run; idle ones, and those that wait for a timer, do not count."""

    async def backlog_of_shares(self, kind: str) -> dict[str, int]:
        """The same for each `NewBox.share` that has any."""

    async def load(self, kind: str) -> Load:
        """How much waits. It costs no more than to count so far, however many boxes, mail and POSTs there are."""

    async def waiting(self, lane: str) -> int:
        """How many POSTs of a lane are neither delivered nor given up; those in some sender's hands count, unless they are sent `once`."""

    async def entries(self, box: str, after: int = 0, limit: int = 1000, most_bytes: int | None = None) -> list[Entry]:
        """The journal of a box, oldest first, from the entry after `after`.

        With `most_bytes` there are fewer if their bodies would have more bytes together, but at least one.
        """

    async def recent(
        self,
        box: str,
        limit: int,
        before: int | None = None,
        kinds: Collection[str] | None = None,
        most_bytes: int | None = None,
    ) -> list[Entry]:
        """The last `limit` entries of a journal, or the last before the entry `before`; oldest first, too. Only of some kinds, if named.

        With `most_bytes` there are fewer if their bodies would have more bytes together, but at least one.
        """

    async def records(self, box: str, kind: str) -> list[Record]:
        """The records of a box of one kind, by key."""

    async def outbox(self, dead: bool, after: str = "", limit: int = 100) -> list[OutboxRow]:
        """POSTs given up (`dead`) or waiting, by id."""

    # Housekeeping

    async def check(self) -> None:
        """Raise `StoreError` if what is accepted next may not be kept: `StoreLost`, or `StoreFull`. Asked often, so it costs little."""

    async def sweep(self, dead_letters_kept_for: float) -> int:
        """Remove some of what has expired; says how many rows, so that one can go on until it is 0."""

    async def close(self) -> None:
        """Finish what was asked and close. The store's leases stay: `retire` first."""
