"""An agent that receives and one that wakes it, and whether they agree on where that is."""

import logging
from pathlib import Path

import pytest

from rapkit import Agent
from rapkit.errors import ConfigError
from rapkit.models.scripted import Scripted


def agent(store: Path, port: int) -> Agent:
    model = Scripted(lambda _question: "Hello.")
    return Agent(model=model, store=f"sqlite:///{store}", public_url=f"http://127.0.0.1:{port}", worker=False)


@pytest.mark.parametrize("port", [8701, 8702], ids=["the same place", "another place"])
async def test_a_wake_says_so_if_tools_would_call_back_where_nobody_listens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, port: int
) -> None:
    async with agent(tmp_path / "agent.db", 8701).lifespan():
        pass

    with caplog.at_level(logging.WARNING):
        await agent(tmp_path / "agent.db", port).wake()

    assert ("receives at http://127.0.0.1:8701" in caplog.text) == (port != 8701)


def test_what_cannot_be_called_is_no_doorbell() -> None:
    with pytest.raises(ConfigError, match=r"on_accept is 'rapkit wake'\. Make it a function"):
        Agent(model=Scripted(lambda _question: "Hello."), on_accept="rapkit wake")  # type: ignore[arg-type]
