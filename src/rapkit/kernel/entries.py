"""The entries of a thread's journal. The journal is append-only; the projection turns it into what a model is shown."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from rapkit.kernel.completion import Usage
from rapkit.protocol import ContentItem, DisplaySegment


@dataclass(frozen=True, slots=True)
class UserSaid:
    """A message of the user's; `id` is the one under which it was sent."""

    text: str
    id: str = ""
    kind: Literal["user"] = "user"


@dataclass(frozen=True, slots=True)
class WokenUp:
    """A schedule's message, and when it was due, in words."""

    schedule: str
    due: str
    text: str
    kind: Literal["schedule"] = "schedule"


@dataclass(frozen=True, slots=True)
class MadeCall:
    """A call as the model made it, under the id it has on the wire. `provider_id` is the provider's own.

    `display` is the call for people, in one line, if its tool's script can say it; models are never shown that.
    """

    id: str
    name: str
    arguments: dict[str, Any]
    provider_id: str = ""
    display: str | None = None


@dataclass(frozen=True, slots=True)
class ModelSaid:
    """A reply of the model."""

    text: str = ""
    calls: tuple[MadeCall, ...] = ()
    thoughts: tuple[Any, ...] = ()
    model: str = ""
    usage: Usage = field(default_factory=Usage)
    kind: Literal["assistant"] = "assistant"


@dataclass(frozen=True, slots=True)
class Answered:
    """A call's answer. `late` if the model had been told that the call is still running; `by` the runtime if no server gave it."""

    call_id: str
    name: str
    text: str | None = None
    content: tuple[ContentItem, ...] | None = None
    display_as: tuple[DisplaySegment, ...] | None = None
    subscription: bool = False
    late: bool = False
    by: Literal["tool", "runtime"] = "tool"
    kind: Literal["result"] = "result"


EventFate = Literal["shown", "early", "threaded"]


@dataclass(frozen=True, slots=True)
class Happened:
    """An event of a subscription: shown in this thread, kept until its call is confirmed, or given to a child thread."""

    call_id: str
    name: str
    text: str
    associative: bool = False
    final: bool = False
    fate: EventFate = "shown"
    kind: Literal["event"] = "event"


@dataclass(frozen=True, slots=True)
class Released:
    """Early events, by the numbers of their entries, whose call was confirmed: they are shown here."""

    seqs: tuple[int, ...]
    call_id: str
    name: str
    kind: Literal["released"] = "released"


@dataclass(frozen=True, slots=True)
class ChildMade:
    """A child thread was made: for an event, given by the number of its entry, or by the model, with a task."""

    thread_id: str
    call_id: str
    event: int | None = None
    task: str | None = None
    kind: Literal["child"] = "child"


@dataclass(frozen=True, slots=True)
class ChildEnded:
    """A child thread was closed."""

    thread_id: str
    by: str = ""
    kind: Literal["child_closed"] = "child_closed"


@dataclass(frozen=True, slots=True)
class Tasked:
    """What this child thread was made for; `id` is what the model is shown it under."""

    id: str
    parent: str
    text: str
    kind: Literal["task"] = "task"


@dataclass(frozen=True, slots=True)
class ParentSaid:
    """What the parent said to this child thread; `id` is what the model is shown it under."""

    id: str
    parent: str
    text: str
    kind: Literal["parent"] = "parent"


@dataclass(frozen=True, slots=True)
class Reported:
    """What a child thread said to this one; `id` is what the model is shown it under. `closed` if it was its last word."""

    id: str
    thread_id: str
    text: str
    task: str = ""
    closed: bool = False
    kind: Literal["report"] = "report"


@dataclass(frozen=True, slots=True)
class Began:
    """The event a child thread was made for, with the call that subscribed to it in the parent."""

    parent: str
    call_id: str
    name: str
    arguments: dict[str, Any]
    text: str
    final: bool = False
    kind: Literal["began"] = "began"


@dataclass(frozen=True, slots=True)
class ChoiceAsked:
    """A tool asks the user to choose; or the model asks, or whether a call may be made. Without choices any text answers it."""

    call_id: str
    prompt: str
    choices: tuple[str, ...]
    default: int | None = None
    kind: Literal["choice"] = "choice"


@dataclass(frozen=True, slots=True)
class ChoiceMadeEntry:
    """The user chose, or answered in words, or dismissed the question, so that the default stands. `expired`: nobody did in time."""

    call_id: str
    selected: int | None = None
    dismissed: bool = False
    text: str | None = None
    expired: bool = False
    kind: Literal["chosen"] = "chosen"


@dataclass(frozen=True, slots=True)
class AuthorizationAsked:
    """A tool asks the user to authorise it. Where is shown elsewhere, as long as it is needed (OAU-1)."""

    call_id: str
    kind: Literal["oauth"] = "oauth"


@dataclass(frozen=True, slots=True)
class AuthorizationExpired:
    """Where to authorise a tool is shown no more: it was long enough."""

    call_id: str
    kind: Literal["oauth_expired"] = "oauth_expired"


@dataclass(frozen=True, slots=True)
class ViewChanged:
    """A view of the thread has new content, or is `cleared`; the latest is kept elsewhere (VIE-1)."""

    view_type: str
    cleared: bool = False
    kind: Literal["view"] = "view"


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """A subscription was cancelled, or ended with its final event."""

    call_id: str
    reason: str
    by_user: bool = False
    kind: Literal["unsubscribed"] = "unsubscribed"


@dataclass(frozen=True, slots=True)
class LiveCall:
    """A call that goes on: one that is still running, or an active subscription."""

    id: str
    name: str
    arguments: dict[str, Any]
    subscription: bool = False


@dataclass(frozen=True, slots=True)
class Summary:
    """What was said up to a line of this journal, that one included, and in all that the thread inherits.

    `live` are calls from before that line that went on then: the model is shown them as they are. `children` are the open child threads
    it had made, with their tasks.
    """

    text: str
    upto: int
    live: tuple[LiveCall, ...] = ()
    children: dict[str, str] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    kind: Literal["summary"] = "summary"


@dataclass(frozen=True, slots=True)
class GrantedEntry:
    """Somebody has granted the thread more than its budget."""

    slices: int = 0
    tokens: int = 0
    cost: float = 0.0
    kind: Literal["granted"] = "granted"


@dataclass(frozen=True, slots=True)
class ToolsetMissing:
    """The tools of a server are missing, and why: it could not be asked what it offers, and nothing is known of it from before."""

    server: str
    reason: str
    kind: Literal["toolset_missing"] = "toolset_missing"


@dataclass(frozen=True, slots=True)
class ToolsetFound:
    """The tools of a server that were missing are offered now."""

    server: str
    kind: Literal["toolset_found"] = "toolset_found"


@dataclass(frozen=True, slots=True)
class Failed:
    """Something went wrong that a person should know of, and the model need not."""

    text: str
    kind: Literal["error"] = "error"


@dataclass(frozen=True, slots=True)
class ParkedEntry:
    """The thread stopped by itself. A new message revives it."""

    reason: str
    kind: Literal["parked"] = "parked"


@dataclass(frozen=True, slots=True)
class ClosedEntry:
    """The thread was closed."""

    by: str
    kind: Literal["closed"] = "closed"


@dataclass(frozen=True, slots=True)
class Ignored:
    """Something was accepted and has no effect, and why. `seqs` are the entries of events that were kept, and will never be shown."""

    what: str
    reason: str
    call_id: str | None = None
    seqs: tuple[int, ...] = ()
    kind: Literal["ignored"] = "ignored"


JournalEntry = (
    UserSaid
    | WokenUp
    | ModelSaid
    | Answered
    | Happened
    | Released
    | ChildMade
    | ChildEnded
    | Tasked
    | ParentSaid
    | Reported
    | Began
    | ChoiceAsked
    | ChoiceMadeEntry
    | AuthorizationAsked
    | AuthorizationExpired
    | ViewChanged
    | Unsubscribed
    | Summary
    | GrantedEntry
    | ToolsetMissing
    | ToolsetFound
    | Failed
    | ParkedEntry
    | ClosedEntry
    | Ignored
)

SHOWN = frozenset(
    (
        "user",
        "schedule",
        "assistant",
        "result",
        "event",
        "released",
        "began",
        "task",
        "parent",
        "report",
        "unsubscribed",
    )
)
"""The kinds of lines that a model may be shown something of."""

_ADAPTER: TypeAdapter[JournalEntry] = TypeAdapter(Annotated[JournalEntry, Field(discriminator="kind")])


def dump_entry(entry: JournalEntry) -> bytes:
    """A line as bytes."""
    return _ADAPTER.dump_json(entry, exclude_none=True)


def load_entry(body: bytes) -> JournalEntry:
    """A line from bytes; pydantic's ValidationError if it is none."""
    return _ADAPTER.validate_json(body)
