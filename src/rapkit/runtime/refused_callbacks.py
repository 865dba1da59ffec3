"""What a callback was about that has to be refused: read from as much of it as can be read."""

from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

LOOKED_AT = 64 * 1024
"""How many bytes of a body that is too large are looked at."""


@dataclass(frozen=True, slots=True)
class RefusedCallback:
    """The fields at the top of a message that cannot be used; None for those that are not there, or no text."""

    type: str | None
    group_id: str | None
    call_id: str | None

    @classmethod
    def read(cls, beginning: bytes) -> "RefusedCallback":
        """The fields in the beginning of a message, or in a whole one with something wrong about it."""
        fields = _fields(beginning)
        type_, group_id = fields.get("type"), fields.get("group_id")
        call_id = fields.get("tool_call_id" if type_ == "subscription_event" else "id")
        return cls(*(each if isinstance(each, str) else None for each in (type_, group_id, call_id)))

    def is_of(self, thread_id: str, call_id: str) -> bool:
        """Whether it has the ids of this call."""
        return (self.group_id, self.call_id) == (thread_id, call_id)

    def may_be_of(self, thread_id: str, call_id: str) -> bool:
        """Whether it has no ids of another call."""
        return self.group_id in (None, thread_id) and self.call_id in (None, call_id)


def _fields(beginning: bytes) -> dict[str, Any]:
    try:
        found = from_json(beginning.decode(errors="replace"), allow_partial=True)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
