"""The entries of a thread's journal. A class is called after the `kind` of its entries."""

from dataclasses import dataclass, field
from typing import Any, Literal

from rapkit.client.decode import WHOLE
from rapkit.client.models import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseEntry:
    """What every entry has: `seq`, its number in the journal, from 1, and `at`, when it was written, in seconds since 1970."""

    seq: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UserEntry(BaseEntry):
    """A message of the user; `id` is what `ClientThread.send` returned."""

    kind: Literal["user"] = "user"
    text: str
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleEntry(BaseEntry):
    """A message of a schedule; `due` says in words when it was due."""

    kind: Literal["schedule"] = "schedule"
    schedule: str
    due: str
    text: str


@dataclass(frozen=True, slots=True)
class MadeCall:
    """A call that the model made. `provider_id` is the model provider's own id for it, `display` the call in one line of text."""

    id: str
    name: str
    arguments: dict[str, Any]
    provider_id: str = ""
    display: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantEntry(BaseEntry):
    """A reply of the model. Without `calls`, it is the answer to the user."""

    kind: Literal["assistant"] = "assistant"
    text: str = ""
    calls: list[MadeCall] = field(default_factory=list)
    model: str = ""
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class TextItem:
    """Text in a result."""

    text: str
    type: Literal["text"] = "text"


@dataclass(frozen=True, slots=True)
class ImageItem:
    """An image in a result: its `data` in base64, and its media type."""

    data: str
    mediaType: str  # noqa: N815 (the wire's name)
    type: Literal["image"] = "image"


@dataclass(frozen=True, slots=True)
class OtherItem:
    """Something in a result that this version of rapkit does not know, as it came."""

    type: str
    data: dict[str, Any] = field(metadata={WHOLE: True})


@dataclass(frozen=True, slots=True)
class DisplaySegment:
    """How a result can be shown to people.

    `content` is an object with `path` and `patch` if the type is "diff", one with `data` and `mediaType` if it is "image", and a string if
    it is "text".
    """

    type: Literal["diff", "image", "text"] | str
    content: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultEntry(BaseEntry):
    """The result of a call: `text`, or `content` for the model and `display_as` for people.

    `subscription` is whether it confirms a subscription, `late` whether the model had been told that the call is still running. `by` is
    "runtime" if no server gave the result.
    """

    kind: Literal["result"] = "result"
    call_id: str
    name: str
    text: str | None = None
    content: list[TextItem | ImageItem | OtherItem] | None = None
    display_as: list[DisplaySegment] | None = None
    subscription: bool = False
    late: bool = False
    by: Literal["tool", "runtime"] | str = "tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventEntry(BaseEntry):
    """An event of a subscription; the last one is `final`.

    Its `fate` is "shown" in this thread, "early" (kept until the subscription is confirmed) or "threaded" (given to a child thread).
    """

    kind: Literal["event"] = "event"
    call_id: str
    name: str
    text: str
    associative: bool = False
    final: bool = False
    fate: Literal["shown", "early", "threaded"] | str = "shown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedEntry(BaseEntry):
    """Early events, by the numbers of their entries, whose subscription was confirmed."""

    kind: Literal["released"] = "released"
    seqs: list[int]
    call_id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEntry(BaseEntry):
    """A child thread was created: for the event with that entry number, or by the model, with a task."""

    kind: Literal["child"] = "child"
    thread_id: str
    call_id: str
    event: int | None = None
    task: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildClosedEntry(BaseEntry):
    """A child thread was closed."""

    kind: Literal["child_closed"] = "child_closed"
    thread_id: str
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEntry(BaseEntry):
    """In a child thread: what the model of its parent created it for."""

    kind: Literal["task"] = "task"
    id: str
    parent: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentEntry(BaseEntry):
    """In a child thread: a message of its parent."""

    kind: Literal["parent"] = "parent"
    id: str
    parent: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportEntry(BaseEntry):
    """A message of a child thread; `closed` if it was its last one."""

    kind: Literal["report"] = "report"
    id: str
    thread_id: str
    text: str
    task: str = ""
    closed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BeganEntry(BaseEntry):
    """In a child thread: the event it was created for, and the call that subscribed to it in the parent."""

    kind: Literal["began"] = "began"
    parent: str
    call_id: str
    name: str
    arguments: dict[str, Any]
    text: str
    final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceEntry(BaseEntry):
    """The user was asked a question: by a tool, by the model, or whether a call may be made."""

    kind: Literal["choice"] = "choice"
    call_id: str
    prompt: str
    choices: list[str]
    default: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenEntry(BaseEntry):
    """A question is settled: the user chose, answered in words, or dismissed it; or it `expired`."""

    kind: Literal["chosen"] = "chosen"
    call_id: str
    selected: int | None = None
    dismissed: bool = False
    text: str | None = None
    expired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthEntry(BaseEntry):
    """A tool asks to be authorized. The page for that is not in the journal: see `ThreadDetail.oauth`."""

    kind: Literal["oauth"] = "oauth"
    call_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthExpiredEntry(BaseEntry):
    """A tool was not authorized in time."""

    kind: Literal["oauth_expired"] = "oauth_expired"
    call_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewEntry(BaseEntry):
    """A view has new content, or was cleared. The content is not in the journal: see `ThreadDetail.views`."""

    kind: Literal["view"] = "view"
    view_type: str
    cleared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsubscribedEntry(BaseEntry):
    """A subscription was cancelled, or ended with its final event."""

    kind: Literal["unsubscribed"] = "unsubscribed"
    call_id: str
    reason: str
    by_user: bool = False


@dataclass(frozen=True, slots=True)
class LiveCall:
    """A call that was under way when a summary was made, or an active subscription."""

    id: str
    name: str
    arguments: dict[str, Any]
    subscription: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryEntry(BaseEntry):
    """What the model is shown in place of all entries up to number `upto`; `live` and `children` were under way then."""

    kind: Literal["summary"] = "summary"
    text: str
    upto: int
    live: list[LiveCall] = field(default_factory=list)
    children: dict[str, str] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantedEntry(BaseEntry):
    """The thread was granted more than its budget."""

    kind: Literal["granted"] = "granted"
    slices: int = 0
    tokens: int = 0
    cost: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsetMissingEntry(BaseEntry):
    """The tools of a server are missing, because it could not be reached."""

    kind: Literal["toolset_missing"] = "toolset_missing"
    server: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsetFoundEntry(BaseEntry):
    """The tools of a server that were missing are available."""

    kind: Literal["toolset_found"] = "toolset_found"
    server: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorEntry(BaseEntry):
    """Something failed that the model is not told of, such as the model itself."""

    kind: Literal["error"] = "error"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedEntry(BaseEntry):
    """The thread stopped by itself. A new message revives it."""

    kind: Literal["parked"] = "parked"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedEntry(BaseEntry):
    """The thread was closed."""

    kind: Literal["closed"] = "closed"
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredEntry(BaseEntry):
    """Something was accepted and has no effect, and why. `seqs` are the entries of events that will never be shown."""

    kind: Literal["ignored"] = "ignored"
    what: str
    reason: str
    call_id: str | None = None
    seqs: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownEntry(BaseEntry):
    """An entry of a kind that this version of rapkit does not know; `data` is all of it."""

    kind: str
    data: dict[str, Any] = field(metadata={WHOLE: True})


Entry = (
    UserEntry
    | ScheduleEntry
    | AssistantEntry
    | ResultEntry
    | EventEntry
    | ReleasedEntry
    | ChildEntry
    | ChildClosedEntry
    | TaskEntry
    | ParentEntry
    | ReportEntry
    | BeganEntry
    | ChoiceEntry
    | ChosenEntry
    | OAuthEntry
    | OAuthExpiredEntry
    | ViewEntry
    | UnsubscribedEntry
    | SummaryEntry
    | GrantedEntry
    | ToolsetMissingEntry
    | ToolsetFoundEntry
    | ErrorEntry
    | ParkedEntry
    | ClosedEntry
    | IgnoredEntry
    | UnknownEntry
)
"""One entry of a journal."""


@dataclass(frozen=True, slots=True)
class EntryPage:
    """Some entries, the oldest first. `next_cursor` is where to continue, or None if these were the last so far."""

    entries: list[Entry]
    next_cursor: str | None
