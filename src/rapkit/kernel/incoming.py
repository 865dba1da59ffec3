"""The messages that a thread can receive from outside."""

from dataclasses import dataclass, field
from typing import Any

from rapkit.kernel.completion import Usage
from rapkit.protocol import OAuthRequest, SubscriptionEvent, ToolResult, UserChoice, ViewUpdate


@dataclass(frozen=True, slots=True)
class UserMessage:
    """The user writes."""

    text: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class CloseThread:
    """Close the thread; `by` says who does, in words."""

    by: str = "the user"


@dataclass(frozen=True, slots=True)
class CancelCall:
    """The user wants a call, or a subscription, cancelled."""

    call_id: str


@dataclass(frozen=True, slots=True)
class ChooseFor:
    """The user's choice for a call; None dismisses the question.

    `asked_at` says which question is meant, if the call asks several one after the other. For a call that waits for permission, `problem`
    is why it cannot be made any more, if it cannot: it is found out before the kernel sees it.
    """

    call_id: str
    selected: int | None
    asked_at: float | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class AnswerFor:
    """The user's answer, in words, to a question the model has asked."""

    call_id: str
    text: str
    asked_at: float | None = None


@dataclass(frozen=True, slots=True)
class WakeUp:
    """What a schedule has to say, and when that was due, in words."""

    schedule: str
    due: str
    text: str


@dataclass(frozen=True, slots=True)
class Grant:
    """Grant the thread more than its budget; an empty grant only lets it resume if it can."""

    slices: int = 0
    tokens: int = 0
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class Correction:
    """What a toolset that was fetched again says about a call: what is wrong with it now, if anything is."""

    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Undelivered:
    """An invocation was not delivered and is not retried.

    `refused`: the server answered the only attempt with a 4xx, so the call was not executed. Otherwise that is unknown.

    `stale`: the server refused it because of `version`, the toolset version it was sent with (409). The runtime fetches the toolset again
    before the kernel sees the message: `correction` is what the new one says about the call; without one there is no newer toolset.
    """

    call_id: str
    problem: str
    correction: Correction | None = None
    refused: bool = False
    stale: bool = False
    version: str | None = None


@dataclass(frozen=True, slots=True)
class AnswerUndelivered:
    """The user's choice did not get to the tool that asked."""

    call_id: str
    problem: str


@dataclass(frozen=True, slots=True)
class EventForChild:
    """The event a child thread was made for; always the first thing that happens to it."""

    parent: str
    call_id: str
    name: str
    arguments: dict[str, Any]
    text: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """What a child thread was made for by its parent's model; always the first thing that happens to it."""

    parent: str
    text: str


@dataclass(frozen=True, slots=True)
class ParentMessage:
    """The parent's model says something to this child thread."""

    parent: str
    text: str


@dataclass(frozen=True, slots=True)
class ChildReport:
    """A child thread says something to this one; `usage` is what it and its own children have taken so far."""

    thread_id: str
    text: str
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class ChildClosed:
    """A child thread was closed, and by whom; perhaps with a last report. `usage` is what it and its own children have taken."""

    thread_id: str
    by: str = ""
    report: str | None = None
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class TimerDue:
    """A timer the thread had set."""

    key: str


@dataclass(frozen=True, slots=True)
class SetAside:
    """A message that could not be processed and never will be. `what` is its type; `call_id` the call it was for, if any."""

    what: str
    reason: str
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class CallbackRefused:
    """A message of a call was refused for good, and why. `what` is its type, or "" if that could not be read."""

    call_id: str
    reason: str
    what: str = ""


Incoming = (
    UserMessage
    | ToolResult
    | SubscriptionEvent
    | OAuthRequest
    | UserChoice
    | ViewUpdate
    | CloseThread
    | CancelCall
    | ChooseFor
    | AnswerFor
    | WakeUp
    | Grant
    | Undelivered
    | AnswerUndelivered
    | EventForChild
    | Task
    | ParentMessage
    | ChildReport
    | ChildClosed
    | TimerDue
    | SetAside
    | CallbackRefused
)
