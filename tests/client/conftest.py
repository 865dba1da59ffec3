from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rapkit import Client
from tests.interop.conftest import Up
from tests.interop.processes import OurRuntime
from tests.runtime.agent_runs import AgentRun, lived
from tests.runtime.agents import RunningAgent, ScriptedReplies, working
from tests.runtime.foreign_toolset import ForeignToolset
from tests.runtime.foreign_toolset import listening as stranger_listening


@pytest.fixture(autouse=True)
def _working_agents() -> Iterator[None]:
    with lived(AgentRun.WORKING):
        yield


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/agent.db"


@pytest.fixture
async def stranger() -> AsyncIterator[ForeignToolset]:
    """A tool server."""
    async with stranger_listening() as stranger:
        yield stranger


@pytest.fixture
async def agent(stranger: ForeignToolset, store: str) -> AsyncIterator[RunningAgent]:
    """A real agent on a real socket, with one tool server. Its model makes the calls that a message asks for."""
    async with working(ScriptedReplies(), [stranger.url], store) as agent:
        yield agent


@pytest.fixture
async def client(agent: RunningAgent) -> AsyncIterator[Client]:
    """A client of that agent."""
    async with Client(agent.url) as client:
        yield client


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """Run `rapkit up` in a process of its own, with a scripted model."""
    processes: list[OurRuntime] = []

    def start(plan: str) -> OurRuntime:
        folder = tmp_path / f"agent-{len(processes)}"
        folder.mkdir()
        process = OurRuntime(folder, plan, [])
        processes.append(process)
        process.start()
        return process

    yield start
    for process in processes:
        process.kill()
