"""Every Python snippet of the README and the guides runs, in the order in which a reader meets them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if BLOCK.search(page.read_text())], ids=lambda page: page.name)
def test_the_snippets_of_a_page_run(page: Path) -> None:
    names: dict[str, object] = {"__name__": "snippet"}
    text = page.read_text()
    for block in BLOCK.finditer(text):
        line = text[: block.start(1)].count("\n")
        exec(compile("\n" * line + block[1], str(page), "exec"), names)
