"""Choosing one of several things with the arrow keys."""

from collections.abc import Callable, Hashable, Sequence

from rapkit.cli.chat.block import clipped, wrapped
from rapkit.cli.remote import printable

Fragments = list[tuple[str, str]]

_AT = "▸"
_MOST_TITLE_LINES = 6
_MOST_OPTIONS = 9


class Picker:
    """A question with options. `key` is what it is known by.

    `picked` is called with the number of the option, from 0; `said` with what was typed instead, if words will do; `dismissed` if it is,
    where that is possible. The mark is `at` one of the options; if at none, Enter takes none before the user has moved it.
    """

    def __init__(
        self,
        key: Hashable,
        title: str,
        options: Sequence[str],
        picked: Callable[[int], None],
        *,
        at: int | None = 0,
        default: int | None = None,
        said: Callable[[str], None] | None = None,
        dismissed: Callable[[], None] | None = None,
    ) -> None:
        self.key = key
        self.title = title
        self.options = options
        self.picked = picked
        self.said = said
        self.dismissed = dismissed
        self._default = default
        self._at = at if options else None

    def move(self, by: int) -> None:
        """Go up or down; from the last to the first."""
        if self._at is not None:
            self._at = (self._at + by) % len(self.options)
        elif self.options:
            self._at = 0 if by > 0 else len(self.options) - 1

    def move_to(self, number: int) -> None:
        """Go to the option with this number, counted from 1, if there is one."""
        if 1 <= number <= len(self.options):
            self._at = number - 1

    def pick(self) -> bool:
        """Take the option the mark is at; False if it is at none."""
        if self._at is None:
            return False
        self.picked(self._at)
        return True

    def fragments(self, width: int, *, active: bool) -> Fragments:
        """What it looks like. It is not `active` while the user types something else."""
        title = [row for line in printable(self.title).split("\n") for row in wrapped(line, width - 2)]
        rows: list[tuple[str, str]] = []
        for number, line in enumerate(title[:_MOST_TITLE_LINES]):
            rows.append(("class:picker.title", f"{'? ' if number == 0 else '  '}{line}"))
        first = min(max(0, (self._at or 0) - _MOST_OPTIONS + 1), max(0, len(self.options) - _MOST_OPTIONS))
        for number in range(first, min(first + _MOST_OPTIONS, len(self.options))):
            mark = _AT if number == self._at and active else " "
            default = " (default)" if number == self._default else ""
            label = clipped(self.options[number], width - 6 - len(default))
            style = "class:picker.at" if number == self._at and active else "class:picker.option"
            rows.append((style, f"{mark} {number + 1} {label}{default}"))
        if len(self.options) > _MOST_OPTIONS:
            rows.append(("class:picker.hint", f"  {len(self.options)} in all, more with ↑ ↓"))
        hints = wrapped(self._hint(active), width - 2)
        rows += [("class:picker.hint", f"  {line}") for line in hints]
        return [part for row in rows for part in (row, ("", "\n"))][:-1]

    def _hint(self, active: bool) -> str:
        if not active:
            return "Enter sends your words as the answer." if self.said else "Clear your line to choose."
        hints = ["↑ ↓ or a number, Enter chooses"] if self.options else []
        if self.said:
            hints.append("or type an answer" if self.options else "Type your answer")
        if self.dismissed:
            hints += ["Esc: later", "Ctrl-X dismisses it"]
        else:
            hints.append("Esc: none")
        return " · ".join(hints)
