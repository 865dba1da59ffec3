"""What a worker is given when it claims a box, and what it gives back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rapkit.mailbox.box import Box, Letter, Mail, NewBox
from rapkit.mailbox.outgoing import Outgoing


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to run one box, until the worker's lease ends or somebody stops the box.

    `attempts` counts the claims since the last commit that said the box got on, this one included: 1 means nobody was lost on it.
    `timers` are the keys of the timers that are due. `now` is the store's clock.
    """

    box: Box
    worker: str
    epoch: int
    attempts: int
    mail: tuple[Mail, ...]
    timers: tuple[str, ...]
    now: float


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a box's journal, numbered from 1 in the order of commits."""

    kind: str
    body: bytes
    seq: int = 0
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Record:
    """A fact kept beside a box under (kind, key): a pending call, a subscription, a choice."""

    kind: str
    key: str
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Timer:
    """Makes the box due at a time of the store's clock; `at=None` takes the timer away."""

    key: str
    at: float | None


@dataclass(frozen=True, slots=True)
class Commit:
    """Everything that follows from one slice of work, written in one transaction or not at all.

    `keep` holds on to the claim. `charge` leaves the attempt on the box's account: the slice failed. `forget_for` ends the box: it and all
    that is kept with it are deleted, unread mail too, and its id is remembered for so many seconds: a late repetition is recognised.
    What becomes of `letters` and `spawn` is not said: a letter to a box that is gone is dropped, a box that is known is not made again.
    """

    consumed: Sequence[int] = ()
    set_aside: Mapping[int, str] = field(default_factory=dict)
    entries: Sequence[Entry] = ()
    state: bytes | None = None
    status: str | None = None
    put: Sequence[Record] = ()
    drop: Sequence[tuple[str, str]] = ()
    timers: Sequence[Timer] = ()
    outgoing: Sequence[Outgoing] = ()
    unsend: Sequence[str] = ()
    spawn: Sequence[NewBox] = ()
    letters: Sequence[Letter] = ()
    again_at: float | None = None
    keep: bool = False
    charge: bool = False
    forget_for: float | None = None
