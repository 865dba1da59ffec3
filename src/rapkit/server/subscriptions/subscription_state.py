"""The stored state of a subscription."""

import json
from dataclasses import dataclass, fields, replace
from typing import Any

from rapkit.mailbox import NewBox
from rapkit.protocol import Invocation
from rapkit.server.invocation import StoredCall, digest, subscription_kind


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """The state of a subscription, stored in its box.

    `confirmed`: whether the call was answered; until then nothing is known of the subscription outside. `topic`: where its events come
    from, if not from a generator. `cursor`: of the last checkpoint, or the last event that has one. `mark`: the pace it has reached.
    `batch`: texts that wait to be sent as one event, `batch_associative` or not. `failures`: exceptions since the last event. `losses`:
    servers lost since. `excused`: attempts on the box's account that were no losses. `missed_at`: since when its function is not there.
    `retry_at`: not before then what failed is tried again, whatever comes meanwhile.
    `failing_since`: when the outage began that it is in. `told`: whether the thread knows of that outage.
    `ended`: its final event is on its way.
    """

    call: StoredCall
    topic: str | None = None
    cursor: str | None = None
    mark: float = 0.0
    batch: tuple[str, ...] = ()
    batch_associative: bool = False
    failures: int = 0
    losses: int = 0
    excused: int = 0
    missed_at: float | None = None
    retry_at: float = 0.0
    ended: bool = False
    confirmed: bool = True
    failing_since: float | None = None
    told: bool = False

    @property
    def message(self) -> Invocation:
        """The invocation that subscribed."""
        assert isinstance(self.call.message, Invocation), "anything else is not confirmed"
        return self.call.message

    @property
    def box_id(self) -> str:
        """The id of its box, and of the lane of all it sends. It follows from the call's, so that a call makes one subscription."""
        return digest("s", self.call.box_id)

    def to_box(self) -> NewBox:
        """The box to keep it in. Its parent and name are the call's, so that a cancellation of the call finds it."""
        return NewBox(
            id=self.box_id,
            kind=subscription_kind(self.call.toolset),
            state=self.to_state(),
            parent=self.call.thread_key,
            name=self.call.message.id,
        )

    def record_progress(self) -> "SubscriptionState":
        """The same without the troubles of the past."""
        return replace(
            self, failures=0, losses=0, excused=0, missed_at=None, retry_at=0.0, failing_since=None, told=False
        )

    def to_state(self) -> bytes:
        """All of it as bytes."""
        told = {name: value for name in _NAMES if (value := getattr(self, name)) != _DEFAULTS[name]}
        return json.dumps(told, separators=(",", ":")).encode() + b"\n" + self.call.to_state()

    @classmethod
    def from_state(cls, toolset: str, state: bytes) -> "SubscriptionState":
        """Read what `to_state` wrote; `InvalidMessage`, `ValueError` or `TypeError` if it is something else."""
        told, _, rest = state.partition(b"\n")
        call = StoredCall.from_state(toolset, rest)
        if not isinstance(call.message, Invocation):
            raise ValueError(call.message.problem)
        found: dict[str, Any] = json.loads(told)
        found["batch"] = tuple(found.get("batch", ()))
        return cls(call, **found)


_DEFAULTS = {field.name: field.default for field in fields(SubscriptionState) if field.name != "call"}
_NAMES = tuple(_DEFAULTS)
