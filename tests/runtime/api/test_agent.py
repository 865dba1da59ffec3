"""Looking at the agent itself."""

from pathlib import Path

import pytest

from rapkit import Agent, Server, __version__
from rapkit.models.scripted import Scripted
from tests.runtime.api.client import Client


@pytest.mark.parametrize("works", [True, False])
async def test_an_agent_says_what_it_is_and_whether_it_works(
    works: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    servers = [Server("http://127.0.0.1:9", token="not to be told")]
    agent = Agent(model=Scripted(lambda _: ""), servers=servers, store="sqlite:///agent.db", worker=works)
    async with agent:
        reply = await Client(int(agent.engine.config.public_url.rpartition(":")[2])).get("/v1/agent")

    assert reply.json == {
        "version": __version__,
        "model": "scripted",
        "servers": ["http://127.0.0.1:9"],
        "store": f"sqlite:///{tmp_path / 'agent.db'}",  # wherever the one who asks is
        "works": works,
        "lasting": True,
    }
