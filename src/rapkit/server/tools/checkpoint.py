"""Checkpoints of a call or a subscription: stored by `ctx.checkpoint`, returned by `ctx.cursor` after a restart."""

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The last value a tool has stored, and how many runs of the call had begun by then: only those since then had no progress."""

    cursor: str
    runs: int

    def to_line(self) -> bytes:
        """As one line."""
        return json.dumps([self.cursor, self.runs]).encode()

    @classmethod
    def from_line(cls, line: bytes) -> "Checkpoint | None":
        """Read what `to_line` wrote; an empty line is none."""
        return cls(*json.loads(line)) if line else None


def checked_cursor(value: object) -> str:
    """The value, if it can be a cursor; `TypeError` if it would come back as something else."""
    if type(value) is not str:
        raise TypeError(
            f"A cursor is a str, not {type(value).__name__}: write str(...) or json.dumps(...), "
            "and turn ctx.cursor back where you need it."
        )
    return value
