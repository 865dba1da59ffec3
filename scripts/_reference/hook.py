"""What mkdocs is told besides mkdocs.yml: pages that are made from the code, and where links go that leave the folder docs.

On the repository's host a guide links to any file of the repository by its relative path. In the site such a link goes to the page that the
file has become, or to a copy of its text.
"""

import ast
import os
import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from scripts._reference.commands import cli_page
from scripts._reference.coverage import coverage_page
from scripts._reference.http_api import http_api_page
from scripts._reference.markdown import table
from scripts._reference.python_names import python_page
from scripts._reference.settings import config_page
from scripts._reference.wire import protocol_page

ROOT = Path(__file__).parents[2]

REFERENCE: dict[str, Callable[[], str]] = {
    "reference/cli.md": cli_page,
    "reference/config.md": config_page,
    "reference/http_api.md": http_api_page,
    "reference/python.md": python_page,
    "reference/protocol.md": protocol_page,
    "reference/coverage.md": coverage_page,
}
"""Pages that are made anew for every build."""

_CONTENTS = "reference/index.md"
"""It names them by their titles; only in the site is there something to link to."""

ELSEWHERE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks.md",
}
"""Pages of the repository that are not in docs, and where they are in the site."""

_EXAMPLES = "examples.md"
_HOMES = {
    **ELSEWHERE,
    "README.md": "index.md",
    "docs": "index.md",
    "benchmarks": "benchmarks.md",
    "examples": _EXAMPLES,
}
_ORIGINS = {site: origin for origin, site in ELSEWHERE.items()} | {_EXAMPLES: "examples.md"}
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, and those from elsewhere."""
    for name, made in REFERENCE.items():
        files.append(File.generated(config, name, content=made()))
    for origin, name in ELSEWHERE.items():
        files.append(File.generated(config, name, content=(ROOT / origin).read_text()))
    files.append(File.generated(config, _EXAMPLES, content=_examples()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links that leave the docs lead somewhere in the site."""
    name = page.file.src_uri
    if name == _CONTENTS:
        markdown = _with_links(markdown, files)
    origin = _ORIGINS.get(name, f"docs/{name}")

    def follow(link: "re.Match[str]") -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), link[1]))
        target = _HOMES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if target is None:
            target = _copy(path, config, files)
        if target is None:
            return link[0]  # mkdocs complains of it
        return os.path.relpath(target, posixpath.dirname(name) or ".") + (link[2] or "")

    parts = _FENCED.split(markdown)
    return "".join(part if number % 2 else _LINK.sub(follow, part) for number, part in enumerate(parts))


def _with_links(contents: str, files: Files) -> str:
    for each in REFERENCE:
        made = files.get_file_from_path(each)
        title = made.content_string.partition("\n")[0].removeprefix("# ") if made else ""
        contents = contents.replace(f"| {title} |", f"| [{title}]({posixpath.basename(each)}) |", 1)
    return contents


def _copy(path: str, config: MkDocsConfig, files: Files) -> str | None:
    """A file of the repository as text that every browser shows; None if there is no such file."""
    name = f"source/{path}.txt"
    if files.get_file_from_path(name) is None:
        if path.startswith("..") or not (ROOT / path).is_file():
            return None
        files.append(File.generated(config, name, content=(ROOT / path).read_text()))
    return name


def _examples() -> str:
    rows = []
    for file in sorted((ROOT / "examples").glob("*.py")):
        about = ast.get_docstring(ast.parse(file.read_text())) or ""
        rows.append((f"[{file.name}](examples/{file.name})", about.partition("\n\n")[0]))
    return "# Examples\n\nTool servers to start from. Run one with `rapkit serve examples/weather.py`.\n\n" + table(
        ("file", ""), rows
    )
