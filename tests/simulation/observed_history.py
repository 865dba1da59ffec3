"""What happened to one thread, step by step, as an observer sees it who stands beside the runtime, the network and the database."""

import asyncio
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from typing import Any

from pydantic_core import from_json


class Did(StrEnum):
    """A step."""

    # The runtime, to the server; ACKNOWLEDGED and REFUSED come from a server that lives
    ASKED = "asks"
    ACKNOWLEDGED = "is acknowledged"
    REFUSED = "is refused"
    UNANSWERED = "gets no answer"
    # The server, in its store
    COMMITTED = "committed"
    FENCED = "could not commit"
    # The server, to the runtime
    BEGUN = "POST begun"
    ARRIVED = "POST arrived"
    ANSWERED = "POST answered"
    LOST = "POST lost"
    ABORTED = "POST aborted"
    # The server itself
    DIED = "server died"
    STOPPED = "server stops"
    STARTED = "server started"


class Kind(StrEnum):
    """What a message of the server's is."""

    CONFIRMATION = "confirmation"
    RESULT = "result"
    QUESTION = "question"
    EVENT = "event"
    FINAL = "final event"
    VIEW = "view"


@dataclass(eq=False)
class Message:
    """What the server wants to tell about a call. `committed` is the number of the step in which it became a fact."""

    id: str
    thread: str
    call: str
    kind: Kind
    text: str
    body: dict[str, Any] = field(repr=False)
    committed: int = -1
    posts: "list[Post]" = field(default_factory=list, repr=False)

    @classmethod
    def read(cls, id: str, url: str, body: bytes) -> "Message":
        """The message in a POST; the URL says which call it is about, whatever the body says."""
        found: dict[str, Any] = from_json(body)
        thread, call = url.removeprefix("http://").split("/", 1)
        text = found.get("text") or found.get("prompt") or ""
        return cls(id, thread.partition(".")[0], call, _kind(found), text, found)

    @property
    def taken(self) -> bool:
        """Whether the runtime has taken it."""
        return any(post.status == 200 and post.arrived is not None for post in self.posts)

    @property
    def delivered(self) -> bool:
        """Whether the runtime has said what it thinks of it, and not that it is to come again."""
        return any(post.arrived is not None and post.status < 500 for post in self.posts)

    def __str__(self) -> str:
        """For a reader."""
        return f"{self.kind} {self.text!r} …{self.id[-4:]}"


@dataclass(eq=False)
class Post:
    """An attempt to deliver a message; `status` is what the runtime answers if it arrives. Numbers are those of steps."""

    message: Message
    status: int
    begun: int
    arrived: int | None = None
    answered: int | None = None
    aborted: int | None = None


def _kind(body: dict[str, Any]) -> Kind:
    match body.get("type"):
        case "tool_result":
            return Kind.CONFIRMATION if body.get("subscription") else Kind.RESULT
        case "subscription_event":
            return Kind.FINAL if body.get("final") else Kind.EVENT
        case "user_choice":
            return Kind.QUESTION
        case "view_update":
            return Kind.VIEW
    raise AssertionError(f"nobody expects such a message: {body}")


@dataclass(frozen=True, slots=True)
class Step:
    """One step; `what` is what it was about."""

    number: int
    at: float
    did: Did
    what: str
    call: str | None
    more: str

    def __str__(self) -> str:
        """For a reader."""
        return f"{self.number:4d}  {self.at:9.4f}  {self.call or '':7} {self.what} {self.did} {self.more}".rstrip()


@dataclass(eq=False, slots=True)
class Exchange:
    """Something the runtime has asked of the server; `more` is which, if there are several. Numbers are those of steps."""

    what: str
    call: str | None
    more: object
    asked: int
    answered: int | None = None
    status: int | None = None

    @property
    def acknowledged(self) -> int | None:
        """When it was acknowledged, if it was."""
        return self.answered if self.status == 200 else None


@dataclass(eq=False, slots=True)
class _Waiter:
    did: Did
    what: str
    call: str
    future: "asyncio.Future[None]"


class ObservedHistory:
    """The steps of one thread, and all that was to be told about its calls."""

    def __init__(self, thread: str) -> None:
        self.thread = thread
        self.steps: list[Step] = []
        self.messages: list[Message] = []
        self.exchanges: list[Exchange] = []
        self._waiters: list[_Waiter] = []
        self._numbers = count()

    def note(self, did: Did, what: str, call: str | None = None, more: str = "") -> int:
        """One more step; says its number."""
        number = next(self._numbers)
        self.steps.append(Step(number, asyncio.get_running_loop().time(), did, what, call, more))
        for waiter in [one for one in self._waiters if (one.did, one.what, one.call) == (did, what, call)]:
            if not waiter.future.done():
                waiter.future.set_result(None)
        return number

    async def until(self, did: Did, what: str, call: str, patience: float) -> None:
        """Return when that happens, but in any case after so many seconds."""
        waiter = _Waiter(did, what, call, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(patience):
                await waiter.future
        except TimeoutError:
            pass
        finally:
            self._waiters.remove(waiter)

    @property
    def signature(self) -> int:
        """The same for two threads to which the same happened in the same order."""
        return hash(tuple((step.did, step.what, step.call) for step in self.steps))

    def __str__(self) -> str:
        """For a reader."""
        return "\n".join(map(str, self.steps))
