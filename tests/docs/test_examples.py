"""Every example is a toolset that can be served."""

from pathlib import Path

import pytest

from rapkit.cli.loading import load_toolset

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_can_be_served(example: Path) -> None:
    document = load_toolset(str(example)).document("http://localhost")

    assert all(tool.description for tool in document.tools)
