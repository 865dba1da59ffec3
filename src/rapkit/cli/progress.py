"""The progress of a call, as its tool reports it."""

import math
from dataclasses import dataclass

PROGRESS = "progress"
"""The type of the view that says so."""

_LONGEST_NOTE = 200
_TOO_LONG_IN_FULL = 1e15


@dataclass(frozen=True, slots=True)
class Progress:
    """So much is `done`, of a `total` if that is known, with a `note` on what is at hand. The note is untrusted text, in one line."""

    call_id: str
    done: float
    total: float | None = None
    note: str = ""

    @property
    def in_words(self) -> str:
        """`3/6 brewing`."""
        count = _number(self.done) if self.total is None else f"{_number(self.done)}/{_number(self.total)}"
        return f"{count} {self.note}".rstrip()

    def bar(self, cells: int) -> str:
        """So many cells, filled as far as the call has come; nothing, if the total is unknown."""
        if self.total is None:
            return ""
        filled = int(min(1.0, max(0.0, self.done / self.total)) * cells)
        return "█" * filled + "░" * (cells - filled)


def read_progress(content: object) -> Progress | None:
    """The content of such a view; None if it is something else: a tool may show any JSON under that name."""
    if not isinstance(content, dict) or not isinstance(call_id := content.get("call_id"), str):
        return None
    done, total, note = _amount(content.get("done")), _amount(content.get("total")), content.get("note")
    if done is None:
        return None
    in_one_line = " ".join(note.split())[:_LONGEST_NOTE] if isinstance(note, str) else ""
    return Progress(call_id, done, total if total is not None and total > 0 else None, in_one_line)


def _amount(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        amount = float(value)
    except OverflowError:
        return None
    return amount if math.isfinite(amount) else None


def _number(amount: float) -> str:
    if abs(amount) >= _TOO_LONG_IN_FULL:
        return f"{amount:.3g}"
    return f"{amount:,.0f}" if amount == int(amount) or abs(amount) >= 1000 else f"{amount:.3g}"
