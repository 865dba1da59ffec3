"""Boxes, and the mail and facts that are put into them."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class NewBox:
    """A box to be made. It is due at once, unless it is `idle` or made by a `note`: then nothing is due before something comes for it.

    `parent` and `name` say where it belongs (for an invocation: its thread and call id), so that it can be stopped without knowing its id.
    Only boxes with a `root` are listed by `Store.boxes`; the others do not pay for it. `share` says on whose behalf it is worked
    on, so that a worker can divide its places between them (`Quota`).
    """

    id: str
    kind: str
    state: bytes = b""
    parent: str | None = None
    root: str | None = None
    name: str | None = None
    idle: bool = False
    share: str = ""


@dataclass(frozen=True, slots=True)
class Box:
    """A box as it stands in the store.

    `length` is the number of entries in its journal. `busy` says that a worker has claimed it, or could: something is due. `traceparent` is
    the trace context that its last commits belonged to, for a slice that no mail brings about.
    """

    id: str
    kind: str
    status: str
    parent: str | None
    root: str | None
    name: str | None
    state: bytes
    stopped: bool
    created_at: float
    length: int
    busy: bool
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class NewMail:
    """Mail that is to be put into a box.

    The same `dedup` twice for one box is accepted once: while the box lives, or only for `remember_for` seconds, which is for boxes that
    live long and are written to often. `needs` names a record (kind, key) the box must have for the mail to be wanted: the pending call a
    result is for, the subscription an event is for. `traceparent` is the W3C trace context that the mail belongs to; if it has none it
    belongs to that of the record it needs.
    """

    box: str
    kind: str
    body: bytes
    dedup: str | None = None
    needs: tuple[str, str] | None = None
    remember_for: float | None = None
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class Mail:
    """Accepted mail. `seq` orders the mail of a box; `attempts` counts the claims that were handed it, this one included.

    `traceparent` is the trace context that it belongs to, or "".
    """

    seq: int
    kind: str
    body: bytes
    accepted_at: float
    attempts: int
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """A record written beside a box that the writer need not have claimed; `body=None` drops the record."""

    box: str
    kind: str
    key: str
    body: bytes | None


class AcceptResult(StrEnum):
    """What became of new mail. The result is durable when it is returned."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    UNKNOWN = "unknown"  # no such box, or it is closed
    UNWANTED = "unwanted"  # the record it needs is not there (any more)
