"""Pieces of Markdown."""

import re
from collections.abc import Iterable, Sequence
from inspect import cleandoc

_SPECIAL = re.compile(r"([\\*_<>\[\]])")


def plain(text: str) -> str:
    """Text that says what it says; what stands in backticks is left as it is."""
    parts = text.split("`")
    return "`".join(part if number % 2 else _SPECIAL.sub(r"\\\1", part) for number, part in enumerate(parts))


def code(text: str) -> str:
    """Text as code."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}" if text else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table without the columns that are empty; nothing if there are no rows."""
    rows = [[_cell(each) for each in row] for row in rows]
    kept = [number for number in range(len(head)) if any(row[number] for row in rows)]
    lines = [
        [head[number] for number in kept],
        ["---"] * len(kept),
        *([row[number] for number in kept] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n\n" if rows else ""


def _cell(text: str) -> str:
    parts = " ".join(text.split()).split("`")
    return "`".join(part if number % 2 else part.replace("|", "\\|") for number, part in enumerate(parts))


def paragraphs(text: str) -> str:
    """Prose of a docstring or a help text. A paragraph of code, or one that begins with click's backspace, stays as it is."""
    written = []
    for each in re.split(r"\n\s*\n", cleandoc(text)):
        if each.startswith("\b") or "\n    " in each:
            written.append(f"```text\n{each.lstrip(chr(8)).strip(chr(10))}\n```")
        else:
            written.append(plain(" ".join(each.split())))
    return "\n\n".join(written) + "\n\n"
