from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.runtime.agent_runs import AgentRun, lived, ways
from tests.runtime.agents import RunningAgent, ScriptedReplies, working
from tests.runtime.foreign_toolset import ForeignToolset, listening


@pytest.fixture(autouse=True)
def life(request: pytest.FixtureRequest) -> Iterator[AgentRun]:
    """How agents live in this test."""
    with lived(getattr(request, "param", AgentRun.WORKING)) as life:
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
def model() -> ScriptedReplies:
    return ScriptedReplies()


@pytest.fixture
async def stranger() -> AsyncIterator[ForeignToolset]:
    async with listening() as stranger:
        yield stranger


@pytest.fixture
async def agent(model: ScriptedReplies, stranger: ForeignToolset, store: str) -> AsyncIterator[RunningAgent]:
    """An agent with one server, the stranger."""
    async with working(model, [stranger.url], store) as agent:
        yield agent
