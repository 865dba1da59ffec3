"""Request and response models of the client API, which also describe it in /openapi.json."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from rapkit.kernel.completion import Usage
from rapkit.kernel.thread import Awaits
from rapkit.protocol.fields import Id
from rapkit.protocol.message import Message

LONGEST_TEXT = 256 * 1024
MOST_THREADS = 200
MOST_ENTRIES = 1000

Status = Literal["idle", "running", "waiting", "parked", "closed"]


def _not_blank(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("blank", "blank, but it must say something")
    return text


Said = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_TEXT), AfterValidator(_not_blank)]

# What is sent

_ASKED_AT = "the asked_at of the question that is meant; without it the one that is open, whichever that is by then"


class NewThread(Message):
    """A thread to begin."""

    text: Said | None = Field(None, description=f"a first message, of up to {LONGEST_TEXT} characters")
    user_id: Id | None = Field(None, description="the user it works for, which tools are told, up to 512 characters")


class NewMessage(Message):
    """Something said to a thread."""

    text: Said = Field(description=f"what to say, up to {LONGEST_TEXT} characters")


class Selection(Message):
    """The answer to a question."""

    selected: int | None = Field(
        description="the number of the choice, counted from 0, or null to dismiss the question, so that its default stands"
    )
    asked_at: float | None = Field(None, description=_ASKED_AT, allow_inf_nan=False)


class AnswerInWords(Message):
    """The answer to a question of the model's."""

    text: Said = Field(description=f"the answer, up to {LONGEST_TEXT} characters")
    asked_at: float | None = Field(None, description=_ASKED_AT, allow_inf_nan=False)


class MoreBudget(Message):
    """What a thread may use beyond its budget; at least one of them."""

    slices: int = Field(0, ge=0, lt=2**53, description="how much more often the model may be asked")
    tokens: int = Field(0, ge=0, lt=2**53, description="how many more tokens it may take, in and out")
    cost: float = Field(0.0, ge=0, le=1e9, description="how much more it may cost, in US dollars", allow_inf_nan=False)

    @model_validator(mode="after")
    def _grants_something(self) -> Self:
        if not (self.slices or self.tokens or self.cost):
            raise PydanticCustomError("nothing", "grants nothing, but it must grant slices, tokens or cost")
        return self


class _Query(BaseModel):
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)


class ThreadsQuery(_Query):
    """Which threads to list."""

    status: Status | None = Field(None, description="only those with this status")
    parent: Id | None = Field(None, description="only the children of this thread")
    limit: int = Field(50, ge=1, le=MOST_THREADS, description=f"how many at most, 1 to {MOST_THREADS}")
    cursor: Id | None = Field(None, description="the next_cursor of the page before")


class HistoryQuery(_Query):
    """Which entries to read."""

    cursor: int = Field(
        0, ge=0, lt=2**53, description="the next_cursor of the page before: the seq of the last entry you have"
    )
    limit: int = Field(200, ge=1, le=MOST_ENTRIES, description=f"how many at most, 1 to {MOST_ENTRIES}")


class EventsQuery(_Query):
    """Where to go on."""

    last_event_id: str | None = Field(
        None,
        description="the id of the last event you have, where the Last-Event-ID header cannot be sent; the header counts more",
    )


# What is answered

_DISPLAY = "the call for people, in one line of plain text: as the tool says it, or its name and arguments"


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True)


class AgentDetail(_Shape):
    """An agent."""

    version: str = Field(description="of rapkit")
    model: str
    servers: list[str] = Field(description="the tool servers it is configured with")
    store: str = Field(description="where its threads are kept, as it is called on the agent's machine")
    works: bool = Field(description="whether this process works on threads; else somebody has to wake it")
    lasting: bool = Field(True, description="whether it is run for good, or only as long as some command lasts")


class ThreadMade(_Shape):
    """The thread that was begun."""

    thread_id: str


class MessageTaken(_Shape):
    """A message that is in the thread's mail for good. The entry it becomes has this id."""

    message_id: str


class Taken(_Shape):
    """It is in the thread's mail for good. What becomes of it stands in the thread's history."""


class ThreadSummary(_Shape):
    """A thread in a list."""

    thread_id: str
    parent_id: str | None
    status: Status
    reason: str | None = Field(description="why it is parked")
    task: str | None = Field(description="what it was made for, if the model of another thread has made it")
    asks_user: bool = Field(description="whether something in it waits for the user")
    user_id: str | None
    created_at: float = Field(description="seconds since 1970")
    usage: Usage


class ThreadPage(_Shape):
    """Threads, the latest first. As long as there is a next_cursor there may be more, even after an empty page."""

    threads: list[ThreadSummary]
    next_cursor: str | None


_CALLBACK_PROBLEM = (
    "why a callback of it was refused, if the last one was: it was not signed with its server's `webhook_secret`"
)


class PendingCall(_Shape):
    """A call that is not answered."""

    call_id: str
    name: str = Field(description="what the model calls the tool")
    operation: str = Field(description="what its server calls it")
    server: str
    arguments: dict[str, Any]
    display: str = Field(description=_DISPLAY)
    made_at: float
    still_running_shown: bool = Field(description="whether the model was told that it is still running")
    awaits: Awaits = Field(
        description="whose turn it is: the tool's; that of the user, whose permission is needed or whose answer; the time's"
    )
    until: float | None = Field(description="when it is answered by itself, or given up, if ever")
    callback_problem: str | None = Field(description=_CALLBACK_PROBLEM)


class ActiveSubscription(_Shape):
    """A call that goes on: events of it may come."""

    call_id: str
    name: str
    arguments: dict[str, Any]
    display: str = Field(description=_DISPLAY)
    since: float
    callback_problem: str | None = Field(description=_CALLBACK_PROBLEM)


class OpenQuestion(_Shape):
    """The question a call waits for."""

    call_id: str
    prompt: str
    choices: list[str]
    default: int | None = Field(description="the choice that stands if the question is dismissed, if there is one")
    in_words: bool = Field(description="whether it can be answered in words")
    asked_at: float


class Authorization(_Shape):
    """Where the user authorises a tool."""

    call_id: str
    auth_url: str


class Used(_Shape):
    """How much of something a thread has used, and how much it may; null is without end."""

    used: float
    limit: float | None


class ThreadBudget(_Shape):
    """What a thread has used and may use."""

    slices: Used
    tokens: Used
    cost: Used


class MissingToolset(_Shape):
    """A server whose tools are missing in a thread. It is asked again when the thread wakes."""

    server: str
    reason: str = Field(description="why it could not be asked what it offers")


class ThreadDetail(ThreadSummary):
    """A thread as it is now."""

    length: int = Field(description="how many entries its journal has: the seq of the last one")
    pending_calls: list[PendingCall]
    subscriptions: list[ActiveSubscription]
    choices: list[OpenQuestion] = Field(
        description="one for each call that asks; the next one comes when it is answered"
    )
    oauth: list[Authorization]
    views: dict[str, Any] = Field(description="the latest content of each view, by its type")
    children: list[str] = Field(description="the children that are not closed")
    missing_toolsets: list[MissingToolset] = Field(description="servers whose tools the model had to do without last")
    budget: ThreadBudget


class Relative(ThreadSummary):
    """A thread in its family."""

    for_event: bool = Field(description="whether it was made for one event")
    children: "list[Relative]" = Field(description="its children, the latest first, closed ones too")
    more_children: bool = Field(description="whether it has children that are not shown, because there are too many")


class Problem(_Shape):
    """What went wrong and what to do (RFC 9457)."""

    type: Literal["about:blank"] = "about:blank"
    title: str
    status: int
    detail: str


# What a stream of events carries


class StatusEvent(_Shape):
    """The thread's status has changed, or this is the beginning of the stream."""

    status: Status
    reason: str | None


class ViewEvent(_Shape):
    """A view has new content; this is the latest, or null if the view was cleared."""

    view_type: str
    content: Any


class DeltaEvent(_Shape):
    """The next piece of what the model is saying."""

    text: str


class ResetEvent(_Shape):
    """The pieces since the last entry are void."""
