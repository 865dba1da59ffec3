"""A picker: choose one of several options with the arrow keys."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from rich.cells import chop_cells

from rapkit.cli.chat.block import Block, clipped, in_one_line, wrapped
from rapkit.printable import printable

Fragments = list[tuple[str, str]]

_AT = "▸"
_MOST_TITLE_LINES = 6
_SHORT_TITLE_LINES = 3  # of one that stands above, with the line that says so
_MOST_OPTIONS = 9
_NARROWEST = 10
_FEWEST_OPTION_LINES = 3


class Picker:
    """A question with options. `key` is what it is known by.

    `picked` is called with the number of the option, from 0; `said` with what was typed instead, if words will do; `dismissed` if it is,
    where that is possible. The mark is `at` one of the options; if at none, Enter takes none before the user has moved it.

    Users must be able to read what they answer: what does not fit (`is_cut`) is to be printed as a `whole` above, which `is_read_out`
    notes.
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
        self.is_read_out = False
        self._default = default
        self._at = at if options else None
        self._rows: tuple[int, list[str], list[list[str]]] | None = None

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
        """What it looks like in that much room. It is not `active` while the user types something else."""
        fit = self._fit(width, height, active)
        rows: list[tuple[str, str]] = []
        for number, line in enumerate(fit.title):
            rows.append(("class:picker.title", f"{'? ' if number == 0 else '  '}{line}"))
        for number, lines in fit.options.items():
            is_at = number == self._at and active
            mark = f"{_AT if is_at else ' '} {number + 1} "
            for line in lines:
                rows.append(("class:picker.at" if is_at else "class:picker.option", f"{mark}{line}"))
                mark = " " * len(mark)
        rows += [("class:picker.hint", f"  {line}") for line in fit.hints]
        return [part for row in rows for part in (row, ("", "\n"))][:-1]

    def is_cut(self, width: int, height: int) -> bool:
        """Whether there is not room enough to read all of the question, and of each of its options."""
        return self._fit(width, height, active=True).is_cut

    def whole(self) -> list[Block]:
        """All of it, however long that is."""
        blocks = [Block(self.title.strip(), "? ", "bold", "yellow", apart=True)]
        return blocks + [Block(option, f"  {number} ") for number, option in enumerate(self.options, start=1)]

    def _fit(self, width: int, height: int, active: bool) -> "_Fit":
        """Options first: what is asked can be read above, but what can be answered is only here."""
        title, options = self._wrapped(width)
        needed = sum(len(lines) for lines in options[:_MOST_OPTIONS])
        hints = list(wrapped(self._hint(active), width - 2))
        if min(len(title), _MOST_TITLE_LINES) + needed + len(hints) > height:
            hints = [clipped(self._hint(active), width - 2)]
        room = max(1, height - len(hints) - min(needed, _FEWEST_OPTION_LINES))
        is_cut = len(title) > min(room, _MOST_TITLE_LINES)
        if is_cut:
            kept = min(room, _SHORT_TITLE_LINES) - 1
            title = [*title[:kept], _stands_above(len(title) - kept, width - 2)]
        room = max(1, height - len(title) - len(hints))
        shown = self._shown_options(options, room)
        if len(shown) < len(options):
            room = max(1, room - 1)
            shown = self._shown_options(options, room)
            hints = [clipped(f"{len(options)} in all, more with ↑ ↓", width - 2), *hints]
        return _Fit(title, shown, hints, is_cut or any(len(lines) > room for lines in options))

    def _shown_options(self, options: list[list[str]], room: int) -> dict[int, list[str]]:
        """The lines of the option the mark is at, and of as many before it, and then behind it, as there is room for."""
        if not options:
            return {}
        at = self._at or 0
        shown = {at: _at_most(room, options[at])}
        room -= len(shown[at])
        for numbers in (range(at - 1, -1, -1), range(at + 1, len(options))):
            for number in numbers:
                if len(options[number]) > room or len(shown) == _MOST_OPTIONS:
                    break
                shown[number] = options[number]
                room -= len(options[number])
        return dict(sorted(shown.items()))

    def _wrapped(self, width: int) -> tuple[list[str], list[list[str]]]:
        """The rows of the title and of each option. They are kept: the screen is drawn again and again, and a question may be long."""
        if self._rows is None or self._rows[0] != width:
            lines = printable(self.title).strip().expandtabs(4).split("\n")
            title = [row for line in lines for row in _chopped(line, width - 2)]
            self._rows = width, title, [self._lines(number, width) for number in range(len(self.options))]
        return self._rows[1], self._rows[2]

    def _lines(self, number: int, width: int) -> list[str]:
        """An option, all of it."""
        label = in_one_line(self.options[number]) + " (default)" * (number == self._default)
        return _chopped(label, width - 6)

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


@dataclass(frozen=True, slots=True)
class _Fit:
    """What there is room for; `is_cut` if that is not all of the question, or not all of an option."""

    title: list[str]
    options: dict[int, list[str]]
    hints: list[str]
    is_cut: bool


def _stands_above(count: int, width: int) -> str:
    """That so many lines more are to be read elsewhere, in as many words as there is room for."""
    lines = "line" if count == 1 else "lines"
    signs = (f"… ({count} more {lines} above)", f"… ({count} {lines} above)", f"… ({count} above)")
    return next((sign for sign in signs if len(sign) <= width), signs[-1])


def _chopped(line: str, width: int) -> list[str]:
    """A line in rows; words that do not fit are broken, so that every row is one on the screen."""
    width = max(_NARROWEST, width)
    return [piece for row in wrapped(line, width) for piece in chop_cells(row, width) or [""]]


def _at_most(count: int, lines: list[str]) -> list[str]:
    return lines if len(lines) <= count else [*lines[: count - 1], f"{lines[count - 1][:-1]}…"]
