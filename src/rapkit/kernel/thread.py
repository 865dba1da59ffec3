"""The state of a thread between two messages: everything but its journal."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from pydantic import TypeAdapter

from rapkit.kernel.completion import Usage


@dataclass(frozen=True, slots=True)
class EarlyEvent:
    """An event that came before its call was confirmed to be a subscription: the number of its entry, and what it said of itself."""

    seq: int
    associative: bool
    final: bool


Awaits = Literal["tool", "permission", "user", "time"]
"""Whose turn it is: a tool was sent the call; a person is asked whether it may be sent, or to answer it; or it is a matter of time."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A call that was made and is not answered.

    `name` is what the model calls the tool, `operation` what its server does. `detached` is a call the model was told is still running: its
    answer will not come in its place any more. `corrected` is one that was sent again for a newer toolset. `timeout` is how many seconds a
    tool has, from `since`; `until` is when a call that awaits the time is answered, if anything else does not come first. `display` is the
    call for people, if its tool's script can say it. `expected` is the longest time in seconds that the tool says it takes.
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
    awaits: Awaits = "tool"
    timeout: float | None = None
    since: float = 0.0
    until: float | None = None
    display: str | None = None
    expected: float | None = None


@dataclass(frozen=True, slots=True)
class Subscription:
    """A call that goes on: events of it may come. `refusing`: the thread was told that they are refused, and none has come since."""

    name: str
    arguments: dict[str, Any]
    since: float
    server: str = ""
    display: str | None = None
    refusing: bool = False


@dataclass(frozen=True, slots=True)
class Expired:
    """A call that was given up; one late answer is still taken, and what came early is kept until then."""

    name: str
    arguments: dict[str, Any]
    server: str = ""
    early: tuple[EarlyEvent, ...] = ()
    display: str | None = None


@dataclass(frozen=True, slots=True)
class OpenChoice:
    """A question to the user that a call waits for. One of our own has no server; it may have no choices: then any text answers it."""

    prompt: str
    choices: tuple[str, ...]
    default: int | None
    response_url: str = field(repr=False)
    server: str
    asked_at: float


@dataclass(frozen=True, slots=True)
class SpawnedChild:
    """A child thread the model has made, and its task.

    `closing`: we have told it to close, and wait for it to have done so. `owes_report`: it has not told us anything since it was last told
    something, and will; one that has need never say anything again.
    """

    task: str
    closing: bool = False
    owes_report: bool = True
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class Summarised:
    """How far the journal is summarised: in which line that stands, up to which line it goes, how many of those were for models."""

    seq: int
    upto: int
    shown: int


@dataclass(frozen=True, slots=True)
class Granted:
    """What a client has granted a thread beyond its budget."""

    slices: int = 0
    tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: "Granted") -> "Granted":
        return Granted(self.slices + other.slices, self.tokens + other.tokens, self.cost + other.cost)


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
    """What a thread is doing, as far as it knows itself. Only its worker knows that it is running."""

    IDLE = "idle"
    WAITING = "waiting"
    PARKED = "parked"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Thread:
    """The state of a thread.

    `ancestors` go from the root to the parent; `length` is the length of its journal, `shown` how many lines of it are for models.
    `wants_model` says that the model is to be asked next, but not before `retry_at`; a thread that is `parked` asks only if it has a time
    for that. `ended` are subscriptions that are over while events of theirs still wait for a child.

    `children` were made for events, `spawned` by the model. One of the latter has a `task`, and `owes_report` until it has told its parent
    something. `told_of_stop`: clients and relatives were told that it is parked, and why. `allowed` are tools the user need not be asked
    about again. `requests` counts completions since it last heard from outside; see `ThreadLimits`. `timers` are those of calls. `context`
    is how many tokens the last completion took, `room` how many the model takes if it has turned out to take less than it should; `summary`
    is how far the journal is summarised, `compact_after` how many lines for models there must be before that is tried again.
    `usage_of_closed` is what children took that are closed; `granted` comes on top of the thread's budget, and is negative for a child,
    which has what its parent had left. `missing_toolsets` are servers whose tools the thread has to do without, with the reason;
    `found_toolsets` are those that were missing before. `cancelled_by_close` are the calls that were live when the thread was closed, each
    with its server, if closing cancels them.
    """

    id: str
    user_id: str | None = None
    ancestors: tuple[str, ...] = ()
    inherits: Inherited | None = None
    for_event: bool = False
    task: str = ""
    owes_report: bool = False
    told_of_stop: bool = False
    length: int = 0
    shown: int = 0
    calls_made: int = 0
    children_made: int = 0
    pending: dict[str, Pending] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    expired: dict[str, Expired] = field(default_factory=dict)
    choices: dict[str, tuple[OpenChoice, ...]] = field(default_factory=dict)
    authorizing: dict[str, float] = field(default_factory=dict)
    views: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    spawned: dict[str, SpawnedChild] = field(default_factory=dict)
    allowed: tuple[str, ...] = ()
    timers: dict[str, float] = field(default_factory=dict)
    waiting_events: tuple[WaitingEvent, ...] = ()
    ended: dict[str, Subscription] = field(default_factory=dict)
    wants_model: bool = False
    retry_at: float = 0.0
    failures: int = 0
    mistakes: int = 0
    requests: int = 0
    parked: str | None = None
    closed: bool = False
    cancelled_by_close: dict[str, str] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    usage_of_closed: Usage = field(default_factory=Usage)
    granted: Granted = field(default_factory=Granted)
    context: int = 0
    summary: Summarised | None = None
    compact_after: int = 0
    room: int = 0
    missing_toolsets: dict[str, str] = field(default_factory=dict)
    found_toolsets: tuple[str, ...] = ()

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
        return Status.WAITING if self.waits else Status.IDLE

    @property
    def waits(self) -> bool:
        """Whether there is anything that could wake it besides a person."""
        owed = any(child.owes_report for child in self.spawned.values())
        return bool(self.pending or self.subscriptions or self.children or owed or self.waiting_events)

    @property
    def usage_of_all(self) -> Usage:
        """What it has taken, and its children as far as they have told."""
        return sum((child.usage for child in self.spawned.values()), self.usage + self.usage_of_closed)

    @property
    def asks_at(self) -> float | None:
        """From when on the model is to be asked, if it is."""
        if not self.wants_model or (self.parked is not None and not self.retry_at):
            return None
        return self.retry_at

    @property
    def live_calls(self) -> frozenset[str]:
        """The calls that may still call back."""
        if self.closed:
            return frozenset()
        sent = (call_id for call_id, call in self.pending.items() if call.awaits == "tool")
        return frozenset((*sent, *self.subscriptions, *self.expired))

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
