"""`Event`: what a subscription sends to its thread."""

from collections.abc import Iterator
from dataclasses import dataclass

from rapkit.server.tools.checkpoint import checked_cursor
from rapkit.server.tools.content import Image
from rapkit.server.tools.output import BadResult, to_output


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a subscription.

    `text` is a text, or data that is sent as JSON text. `cursor` is a text by which the source can be asked to go on after this event: it
    is kept together with the event, and is what `ctx.cursor` says from then on, also after a restart; None keeps the one before.
    `associative` events belong into the subscribing thread itself; None is what the subscription says. A `final` event is the last one.
    """

    text: object
    cursor: str | None = None
    associative: bool | None = None
    final: bool = False

    def __post_init__(self) -> None:
        """Refuse a cursor that would come back as something else."""
        if self.cursor is not None:
            checked_cursor(self.cursor)


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An event as it is sent: in words, and with nothing left to be decided."""

    text: str
    cursor: str | None
    associative: bool
    final: bool


def to_occurrences(value: object, associative: bool) -> list[Occurrence]:
    """The events in what an author yielded or returned: None is no event, a list is several. `BadResult` if one cannot be sent."""
    return [_occurrence(each, associative) for each in _each(value)]


def _each(value: object) -> Iterator[object]:
    if isinstance(value, list | tuple):
        for each in value:
            yield from _each(each)
    elif value is not None:
        yield value


def _occurrence(value: object, associative: bool) -> Occurrence:
    event = value if isinstance(value, Event) else Event(value)
    inline = associative if event.associative is None else bool(event.associative)
    return Occurrence(_words(event.text), event.cursor, inline, bool(event.final))


def _words(text: object) -> str:
    if text is None:
        return ""
    if isinstance(text, Image):
        raise BadResult("an event is text and cannot carry a picture. This is a mistake in the tool, so tell the user.")
    return to_output(text).text
