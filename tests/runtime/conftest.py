from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.runtime.agent_runs import Life, lived, ways
from tests.runtime.agents import Obedient, Working, working
from tests.runtime.foreign_toolset import Stranger, listening


@pytest.fixture(autouse=True)
def life(request: pytest.FixtureRequest) -> Iterator[Life]:
    """How agents live in this test."""
    with lived(getattr(request, "param", Life.WORKING)) as life:
        yield life


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Scenarios are lived both ways."""
    if len(lives := ways(metafunc)) > 1:
        metafunc.parametrize("life", lives, indirect=True, ids=str)


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
