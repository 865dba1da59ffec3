from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rapkit import Toolset


@pytest.fixture
def toolset(tmp_path: Path) -> Callable[..., Toolset]:
    """Make a toolset that keeps its calls in a file of the test's own."""

    def make(name: str = "tools", **options: Any) -> Toolset:
        return Toolset(name, **{"store": f"sqlite:///{tmp_path}/{name}.db", **options})

    return make


@pytest.fixture
def tools(toolset: Callable[..., Toolset]) -> Toolset:
    """A toolset with one tool that says what it was told."""
    tools = toolset()

    @tools.tool(read_only=True)
    async def echo(text: str = "echo") -> str:
        """Say it again."""
        return text

    return tools
