"""What a `console` block shows: commands, and what each prints."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

INTERRUPT = "^C"
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?")
_STAYS = re.compile(r"rapkit (?:serve|up)\b(?!.*--help)")


@dataclass(frozen=True)
class Command:
    """A line after `$`, with the lines below it."""

    text: str
    shown: tuple[str, ...]
    interrupted: bool = False

    @property
    def stays(self) -> bool:
        """Whether it goes on while the next commands are given, as in a terminal of its own."""
        return self.text.endswith(" &") or bool(_STAYS.match(self.text))


def commands_of(text: str) -> Iterator[Command]:
    """The commands of a block in order."""
    first, *parts = re.split(r"^\$ ", text, flags=re.MULTILINE)
    assert not first.strip(), f"a console block begins with a command: {first!r}"
    for part in parts:
        lines = part.splitlines()
        words = [lines.pop(0)]
        while words[-1].endswith("\\") and lines:
            words.append(lines.pop(0))
        interrupted = INTERRUPT in lines
        shown = tuple(line.rstrip() for line in lines if line != INTERRUPT)
        yield Command("\n".join(words), trimmed(shown), interrupted)


def trimmed(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Without the empty lines at both ends."""
    return tuple("\n".join(lines).strip("\n").split("\n")) if any(lines) else ()


def fits(shown: tuple[str, ...], printed: str, *, whole: bool = True) -> bool:
    """Whether this was printed; without `whole`, at the beginning.

    `…` is anything within a line, a line of it any lines. Any time is as good as another, and columns may be wider.
    """
    pattern = ""
    for line in shown:
        if line == "…":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += ".*?".join(re.escape(part) for part in _evened(line).split("…")) + r"[ \t]*\n"
    text = "\n".join(trimmed(tuple(_evened(line) for line in printed.splitlines()))) + "\n"
    return bool((re.fullmatch if whole else re.match)(pattern, text))


def _evened(line: str) -> str:
    return re.sub(" {2,}", "  ", _TIME.sub("<time>", line.rstrip()))
