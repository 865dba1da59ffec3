"""Turn events into messages: batch and rate-limit them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rapkit.protocol import SubscriptionEvent, dump
from rapkit.server.subscriptions.event import Occurrence
from rapkit.server.subscriptions.subscription_state import SubscriptionState
from rapkit.server.tools.event_rate import EventRate
from rapkit.server.tools.tool import SubscriptionTraits

_MOST_IN_A_BATCH = 1000
_LARGEST_BATCH = 64 * 1024


@dataclass(frozen=True, slots=True)
class EventMessage:
    """A message that leaves, at once or not before a time. Nothing follows a `final` one."""

    body: bytes
    not_before: float | None
    final: bool


class EventBatcher:
    """Batches and rate-limits the events of one subscription. `largest` is how many bytes a message may have."""

    def __init__(self, traits: SubscriptionTraits, largest: int) -> None:
        self._batches = traits.batch
        self._pace = EventRate(traits.rate)
        self._largest = largest

    def send(
        self, sub_state: SubscriptionState, events: Sequence[Occurrence], now: float
    ) -> tuple[SubscriptionState, list[EventMessage]]:
        """How the subscription stands after these events, and what leaves. What comes after a final one is nothing any more (SUB-4)."""
        sub_state = self._sane(sub_state, now)
        messages: list[EventMessage] = []
        for event in events:
            sub_state = replace(sub_state, cursor=sub_state.cursor if event.cursor is None else event.cursor)
            if event.final:
                sub_state, flushed = self._flush(sub_state, now)
                sub_state, last = self._leave(sub_state, event.text, event.associative, now, final=True)
                return replace(sub_state, ended=True), [*messages, *flushed, last]
            if self._batches:
                sub_state, left = self._collect(sub_state, event, now)
            else:
                sub_state, left = self._flush(sub_state, now)  # from when it was told to batch
                sub_state, one = self._leave(sub_state, event.text, event.associative, now)
                left.append(one)
            messages += left
        return sub_state, messages

    def flush(self, sub_state: SubscriptionState, now: float) -> tuple[SubscriptionState, list[EventMessage]]:
        """Let the batch leave, if there is one."""
        return self._flush(self._sane(sub_state, now), now)

    def flush_at(self, sub_state: SubscriptionState, now: float) -> float | None:
        """When the batch is to leave, if there is one."""
        return self._pace.opens(self._sane(sub_state, now).mark, now) if sub_state.batch else None

    def _sane(self, sub_state: SubscriptionState, now: float) -> SubscriptionState:
        return replace(sub_state, mark=self._pace.sane(sub_state.mark, now))

    def _flush(self, sub_state: SubscriptionState, now: float) -> tuple[SubscriptionState, list[EventMessage]]:
        if not sub_state.batch:
            return sub_state, []
        text = "\n".join(sub_state.batch)
        sub_state, event_message = self._leave(replace(sub_state, batch=()), text, sub_state.batch_associative, now)
        return sub_state, [event_message]

    def _collect(
        self, sub_state: SubscriptionState, event: Occurrence, now: float
    ) -> tuple[SubscriptionState, list[EventMessage]]:
        messages: list[EventMessage] = []
        if sub_state.batch and not self._has_room(sub_state, event):
            sub_state, messages = self._flush(sub_state, now)
        sub_state = replace(sub_state, batch=(*sub_state.batch, event.text), batch_associative=event.associative)
        if self._pace.opens(sub_state.mark, now) <= now:
            sub_state, flushed = self._flush(sub_state, now)
            messages += flushed
        return sub_state, messages

    def _has_room(self, sub_state: SubscriptionState, event: Occurrence) -> bool:
        size = sum(len(text) + 1 for text in sub_state.batch) + len(event.text)
        fits = size <= min(_LARGEST_BATCH, self._largest // 8) and len(sub_state.batch) < _MOST_IN_A_BATCH
        return fits and sub_state.batch_associative == event.associative

    def _leave(
        self, sub_state: SubscriptionState, text: str, associative: bool, now: float, *, final: bool = False
    ) -> tuple[SubscriptionState, EventMessage]:
        at = self._pace.opens(sub_state.mark, now)
        sub_state = replace(sub_state, mark=self._pace.advance(sub_state.mark, now))
        body = self._body(sub_state, text, associative, final)
        return sub_state, EventMessage(body, at if at > now else None, final)

    def _body(self, sub_state: SubscriptionState, text: str, associative: bool, final: bool) -> bytes:
        message = sub_state.message
        event = SubscriptionEvent(
            group_id=message.group_id, tool_call_id=message.id, text=text, associative=associative, final=final
        )
        body = dump(event)
        if len(body) <= self._largest:
            return body
        told = f"Error: an event has {len(body):,} bytes, and {self._largest:,} can be sent."
        return dump(event.model_copy(update={"text": told}))
