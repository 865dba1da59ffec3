"""From events to messages: in which words, in what company, and not before when. Pure."""

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
    """The way out of one subscription. `largest` is how many bytes a message may have."""

    def __init__(self, traits: SubscriptionTraits, largest: int) -> None:
        self._batches = traits.batch
        self._pace = EventRate(traits.rate)
        self._largest = largest

    def send(
        self, standing: SubscriptionState, events: Sequence[Occurrence], now: float
    ) -> tuple[SubscriptionState, list[EventMessage]]:
        """How the subscription stands after these events, and what leaves. What comes after a final one is nothing any more (SUB-4)."""
        standing = self._sane(standing, now)
        departures: list[EventMessage] = []
        for event in events:
            standing = replace(standing, cursor=standing.cursor if event.cursor is None else event.cursor)
            if event.final:
                standing, flushed = self._flush(standing, now)
                standing, last = self._leave(standing, event.text, event.associative, now, final=True)
                return replace(standing, ended=True), [*departures, *flushed, last]
            if self._batches:
                standing, left = self._collect(standing, event, now)
            else:
                standing, left = self._flush(standing, now)  # from when it was told to batch
                standing, one = self._leave(standing, event.text, event.associative, now)
                left.append(one)
            departures += left
        return standing, departures

    def flush(self, standing: SubscriptionState, now: float) -> tuple[SubscriptionState, list[EventMessage]]:
        """Let the batch leave, if there is one."""
        return self._flush(self._sane(standing, now), now)

    def flush_at(self, standing: SubscriptionState, now: float) -> float | None:
        """When the batch is to leave, if there is one."""
        return self._pace.opens(self._sane(standing, now).mark, now) if standing.batch else None

    def _sane(self, standing: SubscriptionState, now: float) -> SubscriptionState:
        return replace(standing, mark=self._pace.sane(standing.mark, now))

    def _flush(self, standing: SubscriptionState, now: float) -> tuple[SubscriptionState, list[EventMessage]]:
        if not standing.batch:
            return standing, []
        text = "\n".join(standing.batch)
        standing, departure = self._leave(replace(standing, batch=()), text, standing.batch_associative, now)
        return standing, [departure]

    def _collect(
        self, standing: SubscriptionState, event: Occurrence, now: float
    ) -> tuple[SubscriptionState, list[EventMessage]]:
        departures: list[EventMessage] = []
        if standing.batch and not self._has_room(standing, event):
            standing, departures = self._flush(standing, now)
        standing = replace(standing, batch=(*standing.batch, event.text), batch_associative=event.associative)
        if self._pace.opens(standing.mark, now) <= now:
            standing, flushed = self._flush(standing, now)
            departures += flushed
        return standing, departures

    def _has_room(self, standing: SubscriptionState, event: Occurrence) -> bool:
        size = sum(len(text) + 1 for text in standing.batch) + len(event.text)
        fits = size <= min(_LARGEST_BATCH, self._largest // 8) and len(standing.batch) < _MOST_IN_A_BATCH
        return fits and standing.batch_associative == event.associative

    def _leave(
        self, standing: SubscriptionState, text: str, associative: bool, now: float, *, final: bool = False
    ) -> tuple[SubscriptionState, EventMessage]:
        at = self._pace.opens(standing.mark, now)
        standing = replace(standing, mark=self._pace.advance(standing.mark, now))
        body = self._body(standing, text, associative, final)
        return standing, EventMessage(body, at if at > now else None, final)

    def _body(self, standing: SubscriptionState, text: str, associative: bool, final: bool) -> bytes:
        message = standing.message
        event = SubscriptionEvent(
            group_id=message.group_id, tool_call_id=message.id, text=text, associative=associative, final=final
        )
        body = dump(event)
        if len(body) <= self._largest:
            return body
        told = f"Error: an event has {len(body):,} bytes, and {self._largest:,} can be sent."
        return dump(event.model_copy(update={"text": told}))
