"""Journal entries as API documents: numbered, with their time, and without provider-specific data."""

from collections.abc import Iterable
from dataclasses import MISSING, fields
from functools import reduce
from operator import or_
from typing import Annotated, Any, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic_core import from_json

from rapkit.kernel.entries import JournalEntry, dump_entry
from rapkit.runtime.event_feed import JournalLine

_HIDDEN = "thoughts"


def document_of(line: JournalLine) -> dict[str, Any]:
    """A line as JSON."""
    document: dict[str, Any] = {"seq": line.seq, "at": line.at, **from_json(dump_entry(line.entry))}
    document.pop(_HIDDEN, None)
    return document


class _Numbered(BaseModel):
    model_config = ConfigDict(frozen=True)

    seq: int = Field(description="its number in the thread's journal, from 1")
    at: float = Field(description="when it was written, in seconds since 1970")


def _shape_of(entry: type[Any]) -> type[BaseModel]:
    """What `document_of` makes of this kind of entry."""
    types = get_type_hints(entry, include_extras=True)
    shown: dict[str, Any] = {}
    for field in fields(entry):
        if field.name == _HIDDEN:
            continue
        default: Any = field.default
        if field.default_factory is not MISSING:
            default = Field(default_factory=field.default_factory)
        elif field.name == "kind" or default is MISSING:
            default = ...
        shown[field.name] = (types[field.name], default)
    return create_model(entry.__name__, __base__=_Numbered, __doc__=entry.__doc__, **shown)


SHAPES: dict[str, type[BaseModel]] = {entry.__name__: _shape_of(entry) for entry in get_args(JournalEntry)}
"""A model for every kind of entry, made from the entry itself."""

_AnyEntry: Any = Annotated[reduce(or_, SHAPES.values()), Field(discriminator="kind")]

EntryPage: type[BaseModel] = create_model(
    "EntryPage",
    __doc__="Entries, the oldest first.",
    entries=(list[_AnyEntry], ...),
    next_cursor=(str | None, Field(description="where to go on; null if these were the last so far")),
)


def page_of(lines: Iterable[JournalLine], room: int) -> tuple[list[dict[str, Any]], int]:
    """Lines as JSON, as long as there is room for them, in bytes; and the room that is left, below 0 if the last one took more."""
    documents: list[dict[str, Any]] = []
    for line in lines:
        if room <= 0:
            break
        room -= len(dump_entry(line.entry))
        documents.append(document_of(line))
    return documents, room
