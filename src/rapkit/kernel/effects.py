"""Effects: what the runtime has to do after a step was stored."""

from dataclasses import dataclass
from typing import Any

from rapkit.kernel.entries import JournalEntry
from rapkit.kernel.incoming import Incoming
from rapkit.kernel.thread import Thread


@dataclass(frozen=True, slots=True)
class Invoke:
    """Send a pending call to its server."""

    call_id: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Do not send a call's invocation if it has not left yet."""

    call_id: str


@dataclass(frozen=True, slots=True)
class TellCancelled:
    """Tell every server that a call was cancelled, or only the `server` that is named; once (CAN-1)."""

    call_id: str
    server: str = ""


@dataclass(frozen=True, slots=True)
class TellClosed:
    """Tell every server that the thread was closed, once (CLO-1)."""


@dataclass(frozen=True, slots=True)
class MakeChild:
    """Make a child thread for the event with this number in our journal; `arguments` are those of the call that subscribed to it."""

    child: Thread
    event: int
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Spawn:
    """Make a child thread with a task."""

    child: Thread
    task: str


@dataclass(frozen=True, slots=True)
class Write:
    """Put something into the mail of a relative: the parent, or a child. `once` names it, so that it is there once."""

    thread_id: str
    message: Incoming
    once: str


@dataclass(frozen=True, slots=True)
class SendChoice:
    """Send the user's choice to the tool that asked."""

    call_id: str
    server: str
    response_url: str
    selected: int


@dataclass(frozen=True, slots=True)
class ShowAuthorization:
    """Show the user where to authorise a tool, until it is hidden."""

    call_id: str
    auth_url: str


@dataclass(frozen=True, slots=True)
class HideAuthorization:
    """Forget where to authorise a tool."""

    call_id: str


@dataclass(frozen=True, slots=True)
class ShowView:
    """Show the latest content of a view."""

    view_type: str
    content: object


@dataclass(frozen=True, slots=True)
class ClearView:
    """Show a view no more."""

    view_type: str


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Wake the thread at a time; None takes the timer away."""

    key: str
    at: float | None


Effect = (
    Invoke
    | Withdraw
    | TellCancelled
    | TellClosed
    | MakeChild
    | Spawn
    | Write
    | SendChoice
    | ShowAuthorization
    | HideAuthorization
    | ShowView
    | ClearView
    | SetTimer
)


@dataclass(frozen=True, slots=True)
class Step:
    """The thread after something happened, the lines to be appended to its journal, and what is to be done once both are stored.

    Whether the model is to be asked next is part of the thread, because that must outlive a crash.
    """

    thread: Thread
    entries: tuple[JournalEntry, ...] = ()
    effects: tuple[Effect, ...] = ()
