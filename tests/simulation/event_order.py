"""Whether the events of a subscription are those that its script says: in order, without a gap, without a repetition."""

from collections.abc import Iterator, Sequence

from tests.simulation.observed_history import Exchange, Kind, Message
from tests.simulation.scenario import Emit, Part

_RETURNED = "The subscription has ended."
_REFUSED = "Error: it does not want to"
_FAILED = " failed unexpectedly (reference "
_NOT_HANDLED = " could not handle an event (reference "


def number_breaches(
    part: Part, events: Sequence[Message], emits: Sequence[Exchange], confirmation: Message | None, interrupted: bool
) -> Iterator[str]:
    """What is wrong with the events that were heard."""
    lines = [line for event in events for line in _lines(part, event)]
    failures = [line for line in lines if _FAILED in line]
    if failures and "break" not in part.script:
        yield f"SUB-21: it told {failures}, and never failed"
    told = [_NOT_HANDLED if _NOT_HANDLED in line else line for line in lines if line not in failures]
    if part.operation == "topical":
        assert confirmation is not None
        yield from _topical(part, told, emits, confirmation.committed, interrupted)
    elif part.operation == "restless":
        yield from _restless(part, told, interrupted)
    else:
        yield from _numbered(part, told, interrupted)


def _lines(part: Part, event: Message) -> list[str]:
    if event.kind is Kind.FINAL:
        return [event.text]
    return event.text.split("\n") if part.operation == "batched" else [event.text]


def _end(word: str, final: str) -> list[str]:
    return {"final": [final], "return": [_RETURNED], "refuse": [_REFUSED]}.get(word, [])


def _numbered(part: Part, told: list[str], interrupted: bool) -> Iterator[str]:
    """With cursors: exactly what is in the script; if it was interrupted, the beginning of that."""
    events = sum({"event": 1, "pair": 2}.get(word, 0) for word in part.script)
    expected = [*map(str, range(1, events + 1)), *_end(part.script[-1], "end")]
    if told != (expected[: len(told)] if interrupted else expected):
        yield f"semantics 25: it told {told}, and should have told {'the beginning of ' * interrupted}{expected}"


def _restless(part: Part, told: list[str], interrupted: bool) -> Iterator[str]:
    """Without: it begins anew, any number of times, but never in the middle."""
    events = sum(word in ("event", "pair") for word in part.script)
    end = _end(part.script[-1], _RETURNED)
    numbers = [tuple(map(int, text.split("/"))) for text in told if text not in end]
    for before, after in zip([(0, 0), *numbers], numbers, strict=False):
        follows = after == (before[0], before[1] + 1) or (after[0] > before[0] and after[1] == 1)
        if not follows:
            yield f"semantics 25: after {before} it told {after}"
    if interrupted:
        return
    last = numbers[-1][1] if numbers else 0
    if told[len(numbers) :] != end or (last != events and events):
        yield f"SUB-6: it told {told}, and should have told {events} events and {end} in the end"


def _topical(
    part: Part, told: list[str], emits: Sequence[Exchange], confirmed: int, interrupted: bool
) -> Iterator[str]:
    """What was emitted after it was confirmed is told, once and in order; what was emitted before may be, if it was in time."""
    position = 0
    for number, emit in enumerate(part.emits, start=1):
        tried = [each for each in emits if each.more == number]
        texts = _texts(number, emit)
        heard = told[position : position + len(texts)]
        cut_off = interrupted and position + len(heard) == len(told)
        if heard == texts or (heard == texts[: len(heard)] and cut_off):
            position += len(heard)
            if heard == texts and emit.does in ("final", "refuse"):
                break
        elif tried and tried[0].asked > confirmed and not (interrupted and position == len(told)):
            yield f"{number} was emitted after the subscription was confirmed, and not told: {told} of {part.emits}"
            return
    if position < len(told):
        yield f"it told {told}, which does not follow from {part.emits}"


def _texts(number: int, emit: Emit) -> list[str]:
    match emit.does:
        case "nothing":
            return []
        case "break":
            return [_NOT_HANDLED]
        case "two":
            return [f"{number}a", f"{number}b"]
        case "refuse":
            return [_REFUSED]
    return [f"{number}"]
