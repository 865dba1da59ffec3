"""What an agent answers. Fields that a newer agent adds are ignored."""

from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["idle", "running", "waiting", "parked", "closed"] | str
"""What a thread is doing: nothing; being worked on; waiting for calls, people, timers or children; stopped by itself; closed."""

Awaits = Literal["tool", "permission", "user", "time"] | str
"""What a pending call waits for: its tool, a person's permission, a person's answer, or a point in time."""


@dataclass(frozen=True, slots=True)
class AgentDetail:
    """An agent.

    `version` is that of rapkit, `store` where threads are kept, as seen from the agent's machine. `works` is whether this process works on
    threads, or only takes in what comes until it is woken. `lasting` is whether it runs for good, or ends with a command.
    """

    version: str
    model: str
    servers: list[str]
    store: str
    works: bool
    lasting: bool = True


@dataclass(frozen=True, slots=True)
class Usage:
    """What requests to the model took. `cost` is in US dollars, as far as prices are known."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class ThreadSummary:
    """A thread in a list.

    `reason` is why it is parked, `task` what the model of its parent made it for. `asks_user` is whether it waits for a person's answer or
    authorization. `created_at` is in seconds since 1970, like all times.
    """

    thread_id: str
    parent_id: str | None
    status: Status
    reason: str | None
    task: str | None
    asks_user: bool
    user_id: str | None
    created_at: float
    usage: Usage


@dataclass(frozen=True, slots=True)
class ThreadPage:
    """Some threads, the latest first. As long as there is a `next_cursor` there may be more, even after an empty page."""

    threads: list[ThreadSummary]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call that has no result yet.

    `name` is what the model calls the tool, `operation` what its server does. `display` is the call in one line of text.
    `still_running_shown` is whether the model was told that the call is still running and goes on without it. `until` is when the call is
    answered or given up by itself. `callback_problem` is why the last callback was refused, if it was.
    """

    call_id: str
    name: str
    operation: str
    server: str
    arguments: dict[str, Any]
    display: str
    made_at: float
    still_running_shown: bool
    awaits: Awaits
    until: float | None
    callback_problem: str | None


@dataclass(frozen=True, slots=True)
class ActiveSubscription:
    """A subscription: events of it may come until it ends or is cancelled."""

    call_id: str
    name: str
    arguments: dict[str, Any]
    display: str
    since: float
    callback_problem: str | None


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A question that waits for a person's answer.

    `default` is the number of the choice that stands if the question is dismissed. `in_words` is whether `ClientThread.answer` is possible.
    Two questions of the same call differ in `asked_at`.
    """

    call_id: str
    prompt: str
    choices: list[str]
    default: int | None
    in_words: bool
    asked_at: float


@dataclass(frozen=True, slots=True)
class Authorization:
    """A page that a person has to open to authorize a tool."""

    call_id: str
    auth_url: str


@dataclass(frozen=True, slots=True)
class Used:
    """How much a thread has used of something, and how much it may; None is without limit."""

    used: float
    limit: float | None


@dataclass(frozen=True, slots=True)
class ThreadBudget:
    """What a thread has used and may use: requests to the model (`slices`), tokens, US dollars."""

    slices: Used
    tokens: Used
    cost: Used


@dataclass(frozen=True, slots=True)
class MissingToolset:
    """A server whose tools the model has to do without, because it could not be reached. It is tried again when the thread wakes."""

    server: str
    reason: str


@dataclass(frozen=True, slots=True)
class ThreadDetail(ThreadSummary):
    """A thread as it is now.

    `length` is how many entries its journal has. `choices` has one question for each call that asks; the next one of the same call is asked
    when it is answered. `views` has the latest content by type. `children` are those that are not closed.
    """

    length: int
    pending_calls: list[PendingCall]
    subscriptions: list[ActiveSubscription]
    choices: list[OpenQuestion]
    oauth: list[Authorization]
    views: dict[str, Any]
    children: list[str]
    missing_toolsets: list[MissingToolset]
    budget: ThreadBudget


@dataclass(frozen=True, slots=True)
class Relative(ThreadSummary):
    """A thread with its children, the latest first, closed ones too.

    `for_event` is whether it was made for one event of a subscription. `more_children` is whether some were left out because there are too
    many; `Client.threads(parent=...)` lists all.
    """

    for_event: bool
    children: "list[Relative]"
    more_children: bool


@dataclass(frozen=True, slots=True)
class CreatedThread:
    """The thread that was created."""

    thread_id: str


@dataclass(frozen=True, slots=True)
class AcceptedMessage:
    """A message that is stored. Its entry in the journal has this id."""

    message_id: str
