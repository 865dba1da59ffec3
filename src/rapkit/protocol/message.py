"""The base class of all messages, and their serialisation."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict
from pydantic_core import to_json


class Message(BaseModel):
    """A RAP message: immutable, named and shaped as on the wire.

    Types are strict ("1" is no integer, 1 no boolean); unknown fields are ignored; an optional field may be null or absent,
    which mean the same. Built wrongly in Python it raises pydantic's ValidationError; the parse functions turn what a peer
    got wrong into InvalidMessage.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", hide_input_in_errors=True)

    null_is_a_value: ClassVar[bool] = False
    """Whether a required field of this message can be null, so that null must be written."""


def dump(message: Message) -> bytes:
    """The message as compact UTF-8 JSON, without the optional fields it does not have."""
    return to_json(message, exclude_none=not message.null_is_a_value)
