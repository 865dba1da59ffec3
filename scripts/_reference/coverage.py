"""reference/coverage.md: every obligation of the protocol, and the tests that show it.

The obligations are in docs/requirements.yaml. A test shows one if its id stands in it or in the comment above it; an id anywhere else in a
file of tests is for the whole file.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import yaml

from scripts._reference.markdown import plain, table

ROOT = Path(__file__).parents[2]
LEVELS = ("MUST", "SHOULD", "MAY", "ours")

_HEAD = """# Protocol coverage

Every requirement of the Reactive Agent Protocol, the side it applies to, and the tests that cover it, generated from
[requirements.yaml](../requirements.yaml) and the ids in the tests. `ours` marks guarantees of rapkit beyond the protocol.

"""


@dataclass(frozen=True)
class Obligation:
    """Something that the protocol asks for. `why_not` says why no test shows it, if none has to."""

    id: str
    section: str
    level: Literal["MUST", "SHOULD", "MAY", "ours"]
    who: Literal["server", "runtime", "both"]
    say: str
    why_not: str | None = None


@dataclass(frozen=True, order=True)
class Mention:
    """Where tests name an obligation: in a test, or with an empty name in what a whole file is about."""

    file: str
    test: str
    id: str


@cache
def obligations() -> tuple[Obligation, ...]:
    """All of them, in the order of the list."""
    sections = yaml.safe_load((ROOT / "docs" / "requirements.yaml").read_text())
    return tuple(
        Obligation(id, section, **said) for section, entries in sections.items() for id, said in entries.items()
    )


@cache
def mentions() -> frozenset[Mention]:
    """What the files of tests name, each once a test."""
    prefixes = "|".join(sorted({each.id.partition("-")[0] for each in obligations()}))
    pattern = re.compile(rf"\b({prefixes})-(\d+)(?:\.\.(\d+))?\b")
    found = set()
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        text = file.read_text()
        tests = list(_tests(text))
        for number, line in enumerate(text.splitlines(), 1):
            for match in pattern.finditer(line):
                test = next((name for name, lines in tests if number in lines), "")
                for each in range(int(match[2]), int(match[3] or match[2]) + 1):
                    found.add(Mention(file.relative_to(ROOT).as_posix(), test, f"{match[1]}-{each}"))
    return frozenset(found)


def coverage_page() -> str:
    """The page."""
    asked = obligations()
    shown: dict[str, list[Mention]] = {each.id: [] for each in asked}
    for mention in sorted(mentions()):
        shown.get(mention.id, []).append(mention)
    parts = [_HEAD, _summary(asked, shown)]
    section = ""
    for each in asked:
        if each.section != section:
            section = each.section
            parts.append(f"## {section}\n\n")
        parts.append(f"### {each.id}\n\n**{each.level}** · {_WHO[each.who]}  \n{plain(each.say)}\n\n")
        parts.append(_tests_of(each, shown[each.id]))
    return "".join(parts)


_WHO = {"server": "tool server", "runtime": "runtime", "both": "both sides"}


def _summary(asked: Sequence[Obligation], shown: dict[str, list[Mention]]) -> str:
    rows = []
    for level in LEVELS:
        ids = [each.id for each in asked if each.level == level]
        missing = [id for id in ids if not shown[id]]
        rows.append(
            (level, str(len(ids)), str(len(ids) - len(missing)), ", ".join(f"[{id}](#{id.lower()})" for id in missing))
        )
    return table(("level", "requirements", "covered by tests", "not covered"), rows)


def _tests_of(obligation: Obligation, mentioned: list[Mention]) -> str:
    if not mentioned:
        return f"No test covers it. {plain(obligation.why_not or 'It has not been given a reason yet.')}\n\n"
    lines = [f"    - [{_sentence(each)}]({_address(each)}) `{each.file}`" for each in mentioned]
    number = f"{len(mentioned)} tests" if len(mentioned) > 1 else "1 test"
    return f'??? success "{number}"\n\n' + "\n".join(lines) + "\n\n"


def _sentence(mention: Mention) -> str:
    return mention.test.removeprefix("test_").replace("_", " ") if mention.test else "what the file is about"


def _address(mention: Mention) -> str:
    # Browsers go to the text after ":~:text=", in a file that has no anchors.
    there = f"#:~:text={quote(mention.test)}" if mention.test else ""
    return f"../../{mention.file}{there}"


def _tests(text: str) -> Iterator[tuple[str, range]]:
    """Tests with their lines, and those of the comment above each."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            while first > 1 and lines[first - 2].lstrip().startswith("#"):
                first -= 1
            yield node.name, range(first, (node.end_lineno or node.lineno) + 1)
