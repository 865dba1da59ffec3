"""The site is built without a warning, has all of the reference, and takes nothing from elsewhere."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args
from urllib.parse import unquote, urlsplit

import click
import pytest
from scripts._reference.hook import REFERENCE

import rapkit as public
from rapkit import client, testing
from rapkit.cli import rapkit
from rapkit.kernel.entries import JournalEntry
from rapkit.protocol.schemas import MODELS
from rapkit.runtime.api.operations import OPERATIONS
from rapkit.settings.keys import TABLES, VARIABLES
from tests.docs.blocks import ROOT

LOADING = {"script", "img", "iframe", "source", "video", "audio", "embed"}


@dataclass
class Read(HTMLParser):
    """What a page links to, what it loads, and the places in it."""

    text: str
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    places: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        said = dict(attributes)
        self.places |= {value for name, value in attributes if name in ("id", "name") and value}
        address = said.get("src") or said.get("href")
        if address and (tag in LOADING or (tag == "link" and said.get("rel") not in ("next", "prev", "canonical"))):
            self.loads.append(address)
        elif address and tag == "a":
            self.links.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as scripts/docs builds it."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)

    assert built.returncode == 0, built.stderr + built.stdout
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Read]:
    return {page: Read(page.read_text()) for page in sorted(site.rglob("*.html"))}


def words(site: Path, page: str) -> str:
    """What a reader sees of a page of the reference."""
    return re.sub(r"<[^>]+>", "", (site / page).read_text()).replace("&lt;", "<").replace("&quot;", '"')


def test_scripts_docs_builds_it() -> None:
    assert "python -m mkdocs build --strict" in (ROOT / "scripts" / "docs").read_text()
    assert os.access(ROOT / "scripts" / "docs", os.X_OK)


def test_nothing_is_left_in_the_source_tree(site: Path) -> None:
    assert [name for name in REFERENCE if (ROOT / "docs" / name).exists()] == []
    assert [name for name in REFERENCE if not (site / name).with_suffix(".html").exists()] == []


def test_the_contents_of_the_reference_lead_to_all_of_it(site: Path, pages: dict[Path, Read]) -> None:
    links = pages[site / "reference" / "index.html"].links

    assert [
        name for name in REFERENCE if links.count(Path(name).with_suffix(".html").name) < 2
    ] == []  # the first is the menu's


def test_a_page_has_the_same_title_in_the_menu_and_on_the_page(site: Path) -> None:
    menu = re.search(
        r'<nav class="md-nav md-nav--primary".*?</nav>\s*</div>', (site / "index.html").read_text(), re.DOTALL
    )
    assert menu is not None
    entries: list[tuple[str, str]] = re.findall(
        r'<a href="([^"#]+)" class="md-nav__link[^"]*">\s*<span class="md-ellipsis">(.*?)</span>', menu[0], re.DOTALL
    )
    titles = {page: re.search(r"<h1[^>]*>(.*?)(?:<a |</h1>)", (site / page).read_text()) for page, _ in entries}

    assert len(entries) > 25
    assert [
        (page, said.strip()) for page, said in entries if (title := titles[page]) is None or title[1] != said.strip()
    ] == []


def test_search_works_without_a_server(site: Path, pages: dict[Path, Read]) -> None:
    assert (site / "search" / "search_index.js").read_text().startswith("var __index = {")
    assert [
        page.name for page, read in pages.items() if not any("iframe-worker.js" in each for each in read.loads)
    ] == []


def test_every_link_of_the_site_leads_somewhere(site: Path, pages: dict[Path, Read]) -> None:
    lost = [
        f"{page.relative_to(site)}: {link}"
        for page, read in pages.items()
        if page.name != "404.html"  # it is served from anywhere, so its links are from the root
        for link in dict.fromkeys(read.links + read.loads)
        if not urlsplit(link).scheme and not leads_somewhere(page, link, pages)
    ]

    assert lost == []


def leads_somewhere(page: Path, link: str, pages: dict[Path, Read]) -> bool:
    address = urlsplit(link)
    target = (page.parent / unquote(address.path)).resolve() if address.path else page
    target = target / "index.html" if target.is_dir() else target
    place = unquote(address.fragment)
    if not target.exists() or not place:
        return target.exists()
    if target in pages:
        return place in pages[target].places
    return place.removeprefix(":~:text=") in target.read_text()


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Read]) -> None:
    foreign = re.compile(r"(?:https?:)?//")

    assert [(page.name, each) for page, read in pages.items() for each in read.loads if foreign.match(each)] == []
    for sheet in site.rglob("*.css"):
        assert re.findall(r"url\([\"']?(?:https?:)?//[^)]*|@import[^;]*", sheet.read_text()) == []


def commands(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(f"{path} {name}", below)


def test_the_reference_has_every_command_and_option(site: Path) -> None:
    text = words(site, "reference/cli.html")

    for path, command in commands("rapkit", rapkit):
        assert f"\n{path} [OPTIONS]" in text
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert max(option.opts, key=len) in text, path


def test_the_reference_has_every_route_entry_and_event(site: Path) -> None:
    text = words(site, "reference/http_api.html")

    for operation in OPERATIONS:
        assert f"{operation.method} {operation.path}" in text
        assert operation.summary in text
    assert [entry for entry in get_args(JournalEntry) if entry.__name__ not in text] == []
    for event in ("entry", "status", "choice", "oauth", "view", "delta", "reset"):
        assert f"\n{event}\n" in text


def test_the_reference_has_every_setting(site: Path) -> None:
    text = words(site, "reference/config.html")

    for table in TABLES:
        assert table.title in text
        assert [key.name for key in table.keys if f"\n{key.name}\n" not in text] == []
    assert [each.name for each in VARIABLES if each.name not in text] == []


def test_the_reference_has_every_message_with_its_fields(site: Path) -> None:
    text = words(site, "reference/protocol.html")

    for name, model in MODELS.items():
        assert name in text
        assert [
            field.alias or each for each, field in model.model_fields.items() if (field.alias or each) not in text
        ] == []


def test_the_reference_has_every_public_name(site: Path) -> None:
    text = words(site, "reference/python.html")

    assert [name for name in public.__all__ if f"rapkit.{name}" not in text] == []
    assert [name for name in client.__all__ if f"rapkit.client.{name}" not in text] == []
    assert [name for name in testing.__all__ if f"rapkit.testing.{name}" not in text] == []
