"""What the guides list is what there is: routes, entries of the journal, built-in tools, rules, commands; and links lead somewhere."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import get_args

import click
import pytest

from rapkit.cli import rapkit
from rapkit.kernel.builtins import BUILTINS
from rapkit.kernel.entries import JournalEntry
from rapkit.models import rules
from rapkit.runtime.api.operations import OPERATIONS
from tests.docs.blocks import ROOT, blocks_of

DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), ROOT / "benchmarks" / "README.md", *sorted(DOCS.rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:\$ )?(rapkit .*?)( &)?$", re.MULTILINE)
SHELL = "&|;<>$`\\"


def links() -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for link in LINK.findall(FENCED.sub("", page.read_text())):
            if "://" not in link:
                yield page, link


def commands() -> list[str]:
    """Those that a shell would pass on as they stand; whether the others work is seen where they are run."""
    shown = [block for page in PAGES for block in blocks_of(page) if block.language in ("console", "sh")]
    lines = {found[1] for block in shown for found in COMMAND.finditer(block.text)}
    return sorted(line for line in lines if not set(SHELL) & set(line))


def anchors(page: Path) -> set[str]:
    """What GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_leads_somewhere() -> None:
    lost = []
    for page, link in links():
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(f"{page.name}: {link}")

    assert lost == []


@pytest.mark.parametrize("line", commands())
def test_a_command_can_be_given_like_that(line: str) -> None:
    _, name, *arguments = shlex.split(line, comments=True)
    group = rapkit.get_command(click.Context(rapkit), name)
    assert group is not None
    if isinstance(group, click.Group) and arguments:
        group = group.get_command(click.Context(group), arguments.pop(0))
        assert group is not None

    group.make_context(name, arguments, resilient_parsing=False)


def test_diagrams_fit_a_page_of_1300_pixels() -> None:
    drawn = [block for page in PAGES for block in blocks_of(page) if block.language == "text" and "│" in block.text]

    assert drawn
    assert [block.place for block in drawn if max(map(len, block.text.splitlines())) > 105] == []


def test_every_route_is_described() -> None:
    text = (DOCS / "howto" / "http_api.md").read_text()
    routes = [f"`{each.method} {each.path.replace('{thread_id}', '{id}')}" for each in OPERATIONS]

    assert [route for route in routes if not re.search(re.escape(route) + r"[`?]", text)] == []


def test_every_kind_of_entry_is_described_with_its_fields() -> None:
    text = (DOCS / "howto" / "http_api.md").read_text()
    table = text[text.index("## The journal") : text.index("## Idempotent requests")]
    rows: list[tuple[str, str]] = re.findall(r"^\| `(\w+)` \| (.*?) \|", table, re.MULTILINE)
    described = {kind: set(re.findall(r"`(\w+)`", re.sub(r": \[\{.*?\}\]", "", cells))) for kind, cells in rows}

    there_are = {}
    for entry in get_args(JournalEntry):
        defaults = {field.name: field.default for field in fields(entry)}
        there_are[defaults["kind"]] = set(defaults) - {"kind", "thoughts"}
    assert described == there_are


def test_every_built_in_tool_is_described_with_its_arguments() -> None:
    text = (DOCS / "howto" / "long_lived.md").read_text()
    described = dict(re.findall(r"`(\w+)\(([\w, ?]+)\)`", text[: text.index("## Child threads")]))

    assert sorted(described) == sorted(BUILTINS)
    for name, builtin in BUILTINS.items():
        schema = builtin.tool.input_schema
        arguments = [f"{each}{'' if each in schema['required'] else '?'}" for each in schema["properties"]]
        assert described[name].split(", ") == arguments


def test_every_field_of_a_rule_is_described() -> None:
    text = (DOCS / "howto" / "models.md").read_text()

    assert [field for field in rules._FIELDS if not re.search(rf"^\|.*`{field}: ", text, re.MULTILINE)] == []
