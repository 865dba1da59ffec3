"""What happened in a crash test, as pure data. What must never have happened is said in `account.py` and what it gathers.

Times are `time.monotonic()`, which all processes of one machine share. Deliveries are in the order of the sink's log.
"""

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import Any

SLACK = 0.05
UNKNOWN = "not known whether it took effect"
GIVEN_UP = "interrupted 3 times and given up"
_MOST_RUNS = 3


@dataclass(frozen=True, slots=True)
class Call:
    """An invocation; `n` is its number, by which the handler and the callback URL know it."""

    n: int
    tool: str
    seconds: float
    group_id: str
    id: str
    call_id: str | None = None
    user_id: str | None = None

    @property
    def path(self) -> str:
        return f"/cb/{self.n}"

    @property
    def name(self) -> str:
        return f"call {self.n} ({self.tool}, {self.group_id}/{self.id})"


@dataclass(frozen=True, slots=True)
class Sent:
    """A call that was sent at least once; `cancelled_at` is when somebody began to cancel it."""

    call: Call
    at: float
    acknowledged: bool
    cancelled_at: float | None = None


@dataclass(frozen=True, slots=True)
class Stream:
    """A subscription: to a generator that counts to `last`, or to a topic.

    `cancelled_at` is when somebody began to cancel it, `silent_from` when that was answered with 200.
    """

    call: Call
    at: float
    acknowledged: bool
    last: int = 0
    topic: str | None = None
    cancelled_at: float | None = None
    silent_from: float | None = None

    @property
    def mark(self) -> str:
        """The path of the line in the sink's log that was written after the cancellation was answered."""
        return f"/mark/{self.call.n}"


@dataclass(frozen=True, slots=True)
class Emission:
    """Something a source told us about a topic, sent from a time on, and acknowledged at another. The `last` of them end subscriptions."""

    topic: str
    number: int
    at: float
    acknowledged_at: float | None = None
    last: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """A user's answer to a call's question, sent from a time on. `statuses` are those of all attempts, None for no answer at all."""

    n: int
    question: int
    selected: int
    at: float
    statuses: tuple[int | None, ...] = ()
    first: bool = True


@dataclass(frozen=True, slots=True)
class Consent:
    """What a user did at the provider because of a call: from when on, and with which code they came back, if they agreed.

    `exchanged` is when the code was presented to the provider, `used` when a token that was given for it was first seen there, `page` the
    last one our server showed the user.
    """

    n: int
    at: float
    user: str
    code: str | None = None
    exchanged: tuple[float, ...] = ()
    used: float | None = None
    page: int | None = None


@dataclass(frozen=True)
class Delivery:
    """A callback that reached the sink. It was sent between `began` and `at`."""

    at: float
    path: str
    id: str
    body: str
    answer: str = "200"
    began: float = float("inf")

    def __post_init__(self) -> None:
        if self.began > self.at:
            object.__setattr__(self, "began", self.at)

    @property
    def accepted(self) -> bool:
        """Whether the sender was told that it arrived, if sink and sender lived that long."""
        return self.answer in ("200", "slow")

    @cached_property
    def message(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def type(self) -> str:
        return str(self.message.get("type"))

    @property
    def text(self) -> str:
        return str(self.message.get("text"))


@dataclass(frozen=True, slots=True)
class Effect:
    """A handler's trace: it started, it stopped, it came past its questions, it did what it was to do."""

    at: float
    pid: int
    what: str
    n: int


@dataclass(frozen=True, slots=True)
class Orphan:
    """A process that was alive when the result of the call it was started for had arrived."""

    n: int
    pid: int


@dataclass(frozen=True, slots=True)
class Death:
    """A process that was killed, told to stop or made to stand still; `at` is before it felt anything."""

    at: float
    pid: int
    who: str = "server"


@dataclass(frozen=True)
class History:
    sent: tuple[Sent, ...] = ()
    deliveries: tuple[Delivery, ...] = ()
    effects: tuple[Effect, ...] = ()
    deaths: tuple[Death, ...] = ()
    streams: tuple[Stream, ...] = ()
    emissions: tuple[Emission, ...] = ()
    answers: tuple[Answer, ...] = ()
    consents: tuple[Consent, ...] = ()
    orphans: tuple[Orphan, ...] = ()

    def deaths_between(self, start: float, end: float, *who: str) -> int:
        return sum(1 for death in self.deaths if start - SLACK <= death.at <= end + SLACK and death.who in who)

    def may_be_unknown(self, at: float, result: Delivery) -> bool:
        """Whether it says that nobody knows what became of a call that was sent at a time, and a server died that can explain it."""
        return UNKNOWN in result.text and self.deaths_between(at, result.at, "server") >= 1

    def may_be_given_up(self, at: float, result: Delivery) -> bool:
        """Whether it says that a call that was sent at a time was given up, and enough servers died to explain it."""
        return GIVEN_UP in result.text and self.deaths_between(at, result.at, "server") >= _MOST_RUNS

    @property
    def calls(self) -> list[Call]:
        """All that was sent."""
        return [sent.call for sent in self.sent] + [stream.call for stream in self.streams]

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """Where in the log something came to a path."""
        found: dict[str, list[int]] = defaultdict(list)
        for place, delivery in enumerate(self.deliveries):
            found[delivery.path].append(place)
        return dict(found)

    @cached_property
    def by_path(self) -> dict[str, list[Delivery]]:
        return {path: [self.deliveries[place] for place in places] for path, places in self.places.items()}

    @cached_property
    def traces(self) -> Counter[tuple[int, str]]:
        """How often what was noted for a call."""
        return Counter((effect.n, effect.what) for effect in self.effects)

    def messages(self, call: Call) -> list[Delivery]:
        """What a call was told, in order, without retransmissions."""
        found: dict[str, Delivery] = {}
        for delivery in self.by_path.get(call.path, []):
            found.setdefault(delivery.id, delivery)
        return list(found.values())

    def results(self, call: Call) -> list[Delivery]:
        return [delivery for delivery in self.messages(call) if delivery.type == "tool_result"]

    def accepted(self, call: Call, wanted: str) -> list[Delivery]:
        """The messages of a type that came for a call, with the sender's knowledge."""
        return [each for each in self.by_path.get(call.path, []) if each.accepted and each.type == wanted]

    def unanswered(self) -> list[Sent]:
        """Acknowledged calls whose result nobody has accepted yet."""
        return [sent for sent in self.sent if sent.acknowledged and not self.accepted(sent.call, "tool_result")]

    def unended(self) -> list[Stream]:
        """Acknowledged subscriptions that nobody has cancelled, and whose end nobody has accepted yet."""
        return [stream for stream in self.streams if stream.acknowledged and not self._has_ended(stream)]

    def _has_ended(self, stream: Stream) -> bool:
        final = any(each.message.get("final") for each in self.accepted(stream.call, "subscription_event"))
        refused = any(not each.message.get("subscription") for each in self.accepted(stream.call, "tool_result"))
        return stream.silent_from is not None or final or refused
