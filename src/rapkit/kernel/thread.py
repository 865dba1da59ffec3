"""What is known of a thread between two messages: everything but its journal."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter

from rapkit.kernel.completion import Usage


@dataclass(frozen=True, slots=True)
class EarlyEvent:
    """An event that came before its call was confirmed to be a subscription: the number of its entry, and what it said of itself."""

    seq: int
    associative: bool
    final: bool


@dataclass(frozen=True, slots=True)
class Pending:
    """A call that was made and is not answered.

    `name` is what the model calls the tool, `operation` what its server does. `detached` is a call the model was told is still running: its
    answer will not come in its place any more. `corrected` is one that was sent again for a newer toolset.
    """

    name: str
    arguments: dict[str, Any]
    server: str
    operation: str
    made_at: float
    provider_id: str = ""
    detached: bool = False
    corrected: bool = False
    early: tuple[EarlyEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class Subscription:
    """A call that goes on: events of it may come."""

    name: str
    arguments: dict[str, Any]
    since: float
    server: str = ""


@dataclass(frozen=True, slots=True)
class Expired:
    """A call that was given up; one late answer is still taken, and what came early is kept until then."""

    name: str
    arguments: dict[str, Any]
    server: str = ""
    early: tuple[EarlyEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenChoice:
    """A question to the user that a call waits for."""

    prompt: str
    choices: tuple[str, ...]
    default: int
    response_url: str = field(repr=False)
    server: str
    asked_at: float


@dataclass(frozen=True, slots=True)
class WaitingEvent:
    """An event that waits for a child thread: the number of its entry, its call, and the last entry the child will inherit."""

    seq: int
    call_id: str
    upto: int


@dataclass(frozen=True, slots=True)
class Inherited:
    """Whose journal comes before a thread's own, and up to which entry."""

    thread_id: str
    upto: int


class Status(StrEnum):
    """What a thread is doing, as far as it knows itself. That it is running is known to whoever runs it."""

    IDLE = "idle"
    WAITING = "waiting"
    PARKED = "parked"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Thread:
    """The state of a thread.

    `ancestors` go from the root to the parent; `length` is the length of its journal, `shown` how many lines of it
    are for models. `wants_model` says that the model is to be asked
    next, but not before `retry_at`. `ended` are subscriptions that are over while events of theirs still wait for a child.
    """

    id: str
    user_id: str | None = None
    ancestors: tuple[str, ...] = ()
    inherits: Inherited | None = None
    for_event: bool = False
    length: int = 0
    shown: int = 0
    calls_made: int = 0
    children_made: int = 0
    pending: dict[str, Pending] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    expired: dict[str, Expired] = field(default_factory=dict)
    choices: dict[str, tuple[OpenChoice, ...]] = field(default_factory=dict)
    authorizing: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    waiting_events: tuple[WaitingEvent, ...] = ()
    ended: dict[str, Subscription] = field(default_factory=dict)
    wants_model: bool = False
    retry_at: float = 0.0
    failures: int = 0
    mistakes: int = 0
    parked: str | None = None
    closed: bool = False
    usage: Usage = field(default_factory=Usage)

    @property
    def parent(self) -> str | None:
        """The thread that made this one."""
        return self.ancestors[-1] if self.ancestors else None

    @property
    def root(self) -> str:
        """The first thread of the session."""
        return self.ancestors[0] if self.ancestors else self.id

    @property
    def status(self) -> Status:
        """What it is doing."""
        if self.closed:
            return Status.CLOSED
        if self.parked is not None:
            return Status.PARKED
        if self.pending or self.subscriptions or self.children or self.waiting_events:
            return Status.WAITING
        return Status.IDLE

    @property
    def live_calls(self) -> frozenset[str]:
        """The calls that may still call back."""
        if self.closed:
            return frozenset()
        return frozenset((*self.pending, *self.subscriptions, *self.expired))

    @property
    def is_free(self) -> bool:
        """Whether the model can be asked: every call it waits for is answered."""
        return all(call.detached for call in self.pending.values())


_ADAPTER = TypeAdapter(Thread)


def dump_thread(thread: Thread) -> bytes:
    """The state as bytes."""
    return _ADAPTER.dump_json(thread, exclude_defaults=True)


def load_thread(state: bytes) -> Thread:
    """The state from bytes; pydantic's ValidationError if it is none."""
    return _ADAPTER.validate_json(state)
