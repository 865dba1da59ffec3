"""A block of the chat's output: text, a leading mark, and wrapping to a width."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from rapkit.printable import printable

_NARROWEST = 10
_UNBREAKING = r"\u00a0\u2007\u202f"  # spaces that are a part of a word: "10 km"
_WORD = re.compile(rf"[^\S{_UNBREAKING}]*[\S{_UNBREAKING}]+")


@dataclass(frozen=True, slots=True)
class Block:
    """Text that stands together, in one style. `apart`: after an empty line. `whole`: never broken, so that a URL can be copied.

    The text may be untrusted: only what can be printed is left of it.
    """

    text: str
    mark: str = ""
    style: str = ""
    mark_style: str | None = None
    apart: bool = False
    whole: bool = False

    def lines(self, width: int) -> Iterator[Text]:
        """The block for a screen of this width; what follows its first line is as far to the right as that is."""
        indent = cell_len(self.mark)
        for number, line in enumerate(self._broken(width - indent)):
            mark = self.mark if number == 0 else " " * indent
            yield Text.assemble(
                (mark, self.style if self.mark_style is None else self.mark_style), (line, self.style), end=""
            )

    def _broken(self, width: int) -> Iterator[str]:
        for line in printable(self.text).expandtabs(4).split("\n"):
            if self.whole:
                yield line
            else:
                yield from wrapped(line, width)


def wrapped(line: str, width: int) -> Iterator[str]:
    """A line in lines of at most this width. Words are never broken, not even those that do not fit: terminals do that by themselves."""
    width = max(width, _NARROWEST)
    current = ""
    for word in _WORD.findall(line.rstrip()):
        if current and cell_len(current + word) > width:
            yield current
            current = word.lstrip()
        else:
            current += word
    yield current


def in_one_line(text: str) -> str:
    """A text that may have had more lines."""
    return " ".join(printable(text).splitlines()).replace("\t", " ").strip()


def clipped(text: str, width: int) -> str:
    """One line of a text, with a `…` where it does not fit."""
    line = in_one_line(text)
    if cell_len(line) <= width:
        return line
    while line and cell_len(line) > width - 1:
        line = line[: -max(1, (cell_len(line) - width) // 2)]
    return line + "…" if width > 0 else ""


def plain(blocks: Iterable[Block], width: int) -> str:
    """Blocks as they look without colours."""
    lines: list[str] = []
    for block in blocks:
        if block.apart and lines:
            lines.append("")
        lines += [line.plain for line in block.lines(width)]
    return "\n".join(lines)
