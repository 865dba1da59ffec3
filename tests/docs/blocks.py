"""The fenced blocks of the README and the guides."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>.+?) -->\n+)?"
    r'^```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)
_FENCE = re.compile(r"^[ >]*(?:```|~~~)", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """What stands between two fences."""

    page: Path
    line: int
    language: str
    title: str | None
    text: str
    not_run: str | None
    """Why it is shown only, if it is."""

    @property
    def place(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


def name_of(page: Path) -> str:
    """A page, as tests are named after it."""
    return str(page.relative_to(ROOT)) if page.is_relative_to(ROOT) else page.name


def blocks_of(page: Path) -> list[Block]:
    """A page's blocks in order. A fence that is not one of a block's is a mistake: its block would go unchecked."""
    text = page.read_text()
    found = list(_blocks(page, text))
    fences = len(_FENCE.findall(text))
    assert fences == 2 * len(found), f"{name_of(page)}: a fence is indented, not closed, or says more than title=…"
    return found


def _blocks(page: Path, text: str) -> Iterator[Block]:
    for each in _BLOCK.finditer(text):
        line = text.count("\n", 0, each.start("text"))
        yield Block(page, line, each["language"], each["title"], each["text"], each["reason"])
