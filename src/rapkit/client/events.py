"""What `ClientThread.events` yields, one class for each kind of event."""

from dataclasses import dataclass
from typing import Any

from rapkit.client.decode import decode, decode_union, parse_json
from rapkit.client.entries import Entry
from rapkit.client.models import Authorization, OpenQuestion, Status
from rapkit.client.sse import ServerSentEvent
from rapkit.errors import InvalidAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseEvent:
    """What every event has: an `id` to continue after, or None if the event is never sent again."""

    id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryEvent(BaseEvent):
    """A new entry in the journal. The pieces of text before it are complete with it: show the entry in their place."""

    entry: Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusEvent(BaseEvent):
    """The status of the thread, first as it is and then whenever it changes; `reason` is why it is parked."""

    status: Status
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceEvent(BaseEvent):
    """A question for the user: answer it with `choose`, `answer` or `dismiss`."""

    question: OpenQuestion


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthEvent(BaseEvent):
    """A tool wants the user to open a page and authorize it."""

    authorization: Authorization


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewEvent(BaseEvent):
    """A view has this content from now on; None clears it."""

    view_type: str
    content: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaEvent(BaseEvent):
    """The next piece of what the model is saying. Best effort: the whole text comes as an entry."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetEvent(BaseEvent):
    """The pieces of text since the last entry are void: discard them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownEvent(BaseEvent):
    """An event of a kind that this version of rapkit does not know."""

    name: str
    data: Any


FeedEvent = EntryEvent | StatusEvent | ChoiceEvent | OAuthEvent | ViewEvent | DeltaEvent | ResetEvent | UnknownEvent
"""Something that happened in a thread."""


def read_event(sent: ServerSentEvent) -> FeedEvent:
    """An event from its stream; `InvalidAnswer` if it is none."""
    data = parse_json(sent.data)
    if not isinstance(data, dict):
        raise InvalidAnswer(f"The answer is not one of an agent: the data of an event {sent.name!r} is no object.")
    match sent.name:
        case "entry":
            return EntryEvent(id=sent.id, entry=decode_union(Entry, data))
        case "choice":
            return ChoiceEvent(id=sent.id, question=decode(OpenQuestion, data))
        case "oauth":
            return OAuthEvent(id=sent.id, authorization=decode(Authorization, data))
        case "status":
            return decode(StatusEvent, {**data, "id": sent.id})
        case "view":
            return decode(ViewEvent, {**data, "id": sent.id})
        case "delta":
            return decode(DeltaEvent, {**data, "id": sent.id})
        case "reset":
            return ResetEvent(id=sent.id)
    return UnknownEvent(id=sent.id, name=sent.name, data=data)
