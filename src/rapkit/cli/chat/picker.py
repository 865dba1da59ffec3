"""Choosing one of several things with the arrow keys."""

from collections.abc import Callable, Hashable, Sequence

from rich.cells import chop_cells

from rapkit.cli.chat.block import in_one_line, wrapped
from rapkit.cli.remote import printable

Fragments = list[tuple[str, str]]

_AT = "▸"
_MOST_TITLE_LINES = 6
_MOST_OPTIONS = 9
_NARROWEST = 10
_FEWEST_OPTION_LINES = 3
_BESIDE_THE_OPTIONS = 8  # hints, the typed line, the toolbar


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

    def fragments(self, width: int, height: int, *, active: bool) -> Fragments:
        """What it looks like on a screen of that size. It is not `active` while the user types something else."""
        title = [row for line in printable(self.title).split("\n") for row in wrapped(line, width - 2)]
        rows: list[tuple[str, str]] = []
        for number, line in enumerate(title[:_MOST_TITLE_LINES]):
            rows.append(("class:picker.title", f"{'? ' if number == 0 else '  '}{line}"))
        shown = self._shown_options(width, max(_FEWEST_OPTION_LINES, height - len(rows) - _BESIDE_THE_OPTIONS))
        for number, lines in shown.items():
            is_at = number == self._at and active
            mark = f"{_AT if is_at else ' '} {number + 1} "
            for line in lines:
                rows.append(("class:picker.at" if is_at else "class:picker.option", f"{mark}{line}"))
                mark = " " * len(mark)
        if len(shown) < len(self.options):
            rows.append(("class:picker.hint", f"  {len(self.options)} in all, more with ↑ ↓"))
        hints = wrapped(self._hint(active), width - 2)
        rows += [("class:picker.hint", f"  {line}") for line in hints]
        return [part for row in rows for part in (row, ("", "\n"))][:-1]

    def _shown_options(self, width: int, room: int) -> dict[int, list[str]]:
        """The lines of the option the mark is at, and of as many before it, and then behind it, as there is room for."""
        if not self.options:
            return {}
        at = self._at or 0
        shown = {at: _at_most(room, self._lines(at, width))}
        room -= len(shown[at])
        for numbers in (range(at - 1, -1, -1), range(at + 1, len(self.options))):
            for number in numbers:
                lines = self._lines(number, width)
                if len(lines) > room or len(shown) == _MOST_OPTIONS:
                    break
                shown[number] = lines
                room -= len(lines)
        return dict(sorted(shown.items()))

    def _lines(self, number: int, width: int) -> list[str]:
        """An option, all of it."""
        label = in_one_line(self.options[number]) + " (default)" * (number == self._default)
        room = max(_NARROWEST, width - 6)
        return [piece for row in wrapped(label, room) for piece in chop_cells(row, room) or [""]]

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


def _at_most(count: int, lines: list[str]) -> list[str]:
    return lines if len(lines) <= count else [*lines[: count - 1], f"{lines[count - 1][:-1]}…"]
