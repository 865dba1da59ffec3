"""What a worker gets when it claims a box, and the commit it returns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rapkit.mailbox.box import Box, Fact, Mail, NewBox, NewMail
from rapkit.mailbox.outgoing import Outgoing


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to run one box, until the worker's lease ends or the box is stopped.

    `attempts` counts the claims since the last commit that said the box got on, this one included: 1 means that no worker was lost on it.
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
    """A fact kept beside a box under (kind, key): a pending call, a subscription, a choice.

    Mail that needs it and has no trace context of their own belong to the record's `traceparent`.
    """

    kind: str
    key: str
    body: bytes = b""
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class Timer:
    """Makes the box due at a time of the store's clock, and is handed to every claim from then on; `at=None` takes the timer away."""

    key: str
    at: float | None


@dataclass(frozen=True, slots=True)
class Commit:
    """Everything that follows from one slice of work, written in one transaction or not at all.

    A commit says that the box got on, and clears its attempts; with `charge` it says that the slice failed, or is not there yet, and leaves
    them on the account. `keep` holds on to the claim, and clears or charges all the same: after a `keep` without `charge` the next claim is
    the first attempt, even if this worker is lost. So a worker that only puts down what it is about to do says `charge`, or what kills it
    will never be noticed. `forget_for` ends the box: it and all that is kept with it are deleted, unread mail too, and its id is remembered
    for so many seconds: a late repetition is recognised.

    `unsend` names lanes whose POSTs are not wanted any more: they are deleted, and what some sender has in its hands is not sent again.

    `remember` are keys, with seconds: for so long mail to this box with one of them as its `dedup` is a duplicate. So what will be
    superfluous from now on is recognised without having come before.

    `facts` are records of other boxes, whichever worker holds those; they are written after `spawn` and before `new_mails`. The commit does
    not report what becomes of these three: a box that is known is not created again, mail or a fact for a box that is gone or closed is
    dropped.

    `traceparent` becomes the box's; None leaves it as it is.
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
    remember: Mapping[str, float] = field(default_factory=dict)
    spawn: Sequence[NewBox] = ()
    facts: Sequence[Fact] = ()
    new_mails: Sequence[NewMail] = ()
    again_at: float | None = None
    keep: bool = False
    charge: bool = False
    forget_for: float | None = None
    traceparent: str | None = None
