"""Find out which call a malformed or oversized callback was about, from as much of it as can be read."""

import json
import re
from dataclasses import dataclass
from typing import Any

LOOKED_AT = 64 * 1024
"""How many bytes of a body that is too large are looked at."""

_OPENING = re.compile(r"\s*\{\s*")
_COLON = re.compile(r"\s*:\s*")
_COMMA = re.compile(r"\s*,\s*")
_decoder = json.JSONDecoder(strict=False)


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
    """The fields up to the first one that cannot be read, because it is cut off, nested too deep, or no JSON."""
    text = beginning.decode("utf-8-sig", errors="replace")
    fields: dict[str, Any] = {}
    at = _OPENING.match(text)
    try:
        while at is not None:
            name, end = _decoder.raw_decode(text, at.end())
            colon = _COLON.match(text, end)
            if colon is None or not isinstance(name, str):
                break
            fields[name], end = _decoder.raw_decode(text, colon.end())
            at = _COMMA.match(text, end)
    except (ValueError, RecursionError):
        pass  # those before it were read
    return fields
