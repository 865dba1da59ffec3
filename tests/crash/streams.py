"""What holds for subscriptions: confirmed first, then every event once and in order, then one end; and silence after a cancellation."""

from collections.abc import Iterator

from tests.crash.history import Delivery, Emission, History, Stream

_ENDS = {
    "count": None,
    "count_slowly": None,
    "count_plainly": "The subscription has ended.",
    "count_out": "Error: that is all",
}
"""How the tools that count end: with the last number, or with an event of its own."""
_LOSSES_FOR_AN_EVENT = 3


def account_streams(history: History) -> Iterator[str]:
    for stream in history.unended():
        yield f"{stream.call.name} was acknowledged, and neither ended nor was cancelled (SUB-6)"
    for stream in history.streams:
        messages = history.messages(stream.call)
        yield from _after_the_cancellation(history, stream)
        if not messages:
            continue
        confirmation, *events = messages
        yield from _confirmed(history, stream, confirmation, events)
        yield from _misaddressed(stream, events)
        yield from _after_final(stream, events)
        if stream.topic is None:
            yield from _miscounted(stream, events)
        else:
            yield from _misreported(history, stream, confirmation, events)


def _confirmed(history: History, stream: Stream, confirmation: Delivery, events: list[Delivery]) -> Iterator[str]:
    call, message = stream.call, confirmation.message
    found = (confirmation.type, message.get("group_id"), message.get("id"), message.get("call_id"))
    if found != ("tool_result", call.group_id, call.id, call.call_id):
        yield f"{call.name} began with {found} instead of its confirmation (SUB-2)"
    elif message.get("subscription"):
        if call.id not in confirmation.text:
            yield f"{call.name} was confirmed without its id: {confirmation.text!r} (SUB-2)"
    else:
        cancelled = stream.cancelled_at is not None and confirmation.text == "Error: Cancelled."
        if not cancelled and not history.may_be_given_up(stream.at, confirmation):
            yield f"{call.name} was refused: {confirmation.text!r}"
        if events:
            yield f"{call.name} was refused, and got {len(events)} events"


def _misaddressed(stream: Stream, events: list[Delivery]) -> Iterator[str]:
    call = stream.call
    for event in events:
        found = (event.type, event.message.get("group_id"), event.message.get("tool_call_id"))
        if found != ("subscription_event", call.group_id, call.id):
            yield f"{call.name} got a message with {found} (SUB-3)"


def _after_final(stream: Stream, events: list[Delivery]) -> Iterator[str]:
    if any(event.message.get("final") for event in events[:-1]):
        yield f"{stream.call.name} got something after its final event (SUB-4): {_texts(events)}"


def _miscounted(stream: Stream, events: list[Delivery]) -> Iterator[str]:
    end = _ENDS[stream.call.tool]
    expected = [str(number) for number in range(1, stream.last + 1)] + ([] if end is None else [end])
    if _texts(events) != expected[: len(events)]:
        yield f"{stream.call.name} did not count from 1 to {stream.last}: {_texts(events)}"
    elif events and bool(events[-1].message.get("final")) != (len(events) == len(expected)):
        yield f"{stream.call.name} ended too early, or did not say that it ended: {_texts(events)}"


def _misreported(history: History, stream: Stream, confirmation: Delivery, events: list[Delivery]) -> Iterator[str]:
    emissions = [emission for emission in history.emissions if emission.topic == stream.topic]
    before = [
        each.number for each in emissions if each.acknowledged_at is not None and each.acknowledged_at < stream.at
    ]
    after = [each.number for each in emissions if each.at > confirmation.at]
    numbers = [int(event.text) for event in events]
    if numbers != sorted(set(numbers)):
        yield f"{stream.call.name} heard things twice, or not in order: {numbers}"
        return
    if not numbers:
        return
    if before and numbers[0] <= max(before):
        yield f"{stream.call.name} heard of {numbers[0]}, which was before it subscribed"
    if bool(events[-1].message.get("final")) != emissions[numbers[-1]].last:
        yield f"{stream.call.name} ended too early, or did not say that it ended: {numbers}"
    for number in sorted(set(range(min([*after, numbers[0]]), numbers[-1])) - set(numbers)):
        yield from _missed(history, stream, events, emissions, number)


def _missed(
    history: History, stream: Stream, events: list[Delivery], emissions: list[Emission], number: int
) -> Iterator[str]:
    """One that takes the server down three times is set aside, and a server that is killed says nothing about why."""
    sent = emissions[number].at
    heard = next((event.at for event in events if int(event.text) > number), float("inf"))
    if history.deaths_between(sent, heard, "server") < _LOSSES_FOR_AN_EVENT:
        yield f"{stream.call.name} missed {number}: {_texts(events)}"


def _after_the_cancellation(history: History, stream: Stream) -> Iterator[str]:
    """Nothing is sent after a cancellation was answered (SUB-5).

    The POST that was in the hands of the HTTP client by then cannot be called back for certain, so one message may still arrive after the
    mark. It was begun before, and nothing follows it.
    """
    if stream.silent_from is None:
        return
    mark = min(history.places.get(stream.mark, ()), default=len(history.deliveries))
    late = 0
    for place in history.places.get(stream.call.path, ()):
        delivery = history.deliveries[place]
        if delivery.type == "tool_result" and delivery.text == "Error: Cancelled.":
            continue
        late += place > mark
        if delivery.began > stream.silent_from or late > 1:
            yield f"{stream.call.name} was cancelled, and got {delivery.text!r} after that (SUB-5)"


def _texts(events: list[Delivery]) -> list[str]:
    return [event.text for event in events]
