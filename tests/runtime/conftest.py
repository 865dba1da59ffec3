from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.runtime.agents import Obedient, Working, working
from tests.runtime.stranger import Stranger, listening


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A file for the agent's threads."""
    return f"sqlite:///{tmp_path}/agent.db"


@pytest.fixture
def model() -> Obedient:
    return Obedient()


@pytest.fixture
async def stranger() -> AsyncIterator[Stranger]:
    async with listening() as stranger:
        yield stranger


@pytest.fixture
async def agent(model: Obedient, stranger: Stranger, store: str) -> AsyncIterator[Working]:
    """An agent with one server, the stranger."""
    async with working(model, [stranger.url], store) as agent:
        yield agent
