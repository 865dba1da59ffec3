"""Outgoing POSTs in the outbox, and their settlement."""

from dataclasses import dataclass
from enum import StrEnum

from rapkit.mailbox.box import Fact, NewMail


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A POST to be made after the commit that carries it.

    Within a `lane` the outbox is first-in-first-out: the next is due only when the one before was delivered or given up. `origin` is the
    part of the URL that may be known to everyone who can read the database. A `once` POST is deleted before it is sent: at most once, no
    retry. `kind` picks the retry policy. `id` is unique and stays the same over all attempts. `traceparent` is the W3C trace context the
    POST belongs to, if any. `reference` is not sent: it tells the sender of the POST what to do when the POST has ended.

    Of a lane of `latest` POSTs only the newest matters: one that is put into the lane replaces those that wait there, and the one that a
    sender has in hand is not tried again.
    """

    id: str
    lane: str
    kind: str
    origin: str
    url: str
    body: bytes
    once: bool = False
    not_before: float | None = None
    traceparent: str = ""
    reference: str = ""
    latest: bool = False


@dataclass(frozen=True, slots=True)
class TakenPost:
    """A POST that a sender has taken and may send now. `attempts` includes this one; `age` is the seconds since the first."""

    outgoing: Outgoing
    seq: int
    epoch: int
    attempts: int
    age: float


class Outcome(StrEnum):
    """The outcome of an attempt."""

    DELIVERED = "delivered"
    RETRY = "retry"
    DEAD = "dead"
    DROPPED = "dropped"  # given up, and not worth keeping


@dataclass(frozen=True, slots=True)
class Settlement:
    """How an attempt ended, with mail and a fact that follow from it, all written together. Both are dropped if their box is gone.

    The mail is written first, so that the fact can drop the record that the mail needs: then no other mail that needs it is accepted.
    """

    outcome: Outcome
    problem: str | None = None
    delay: float = 0.0
    new_mail: NewMail | None = None
    fact: Fact | None = None


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A row of the outbox as a person may see it: no URL, no body."""

    id: str
    lane: str
    kind: str
    origin: str
    attempts: int
    problem: str | None
    created_at: float
    due_at: float | None
    dead_at: float | None
