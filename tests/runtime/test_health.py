"""Whether an agent is alive, and ready."""

import asyncio
from typing import Any

import pytest

from rapkit.delivery.outbox_sender import OutboxSender
from rapkit.runtime.thread_runner import ThreadRunner
from tests.runtime.agents import RunningAgent, ScriptedReplies, working
from tests.runtime.foreign_toolset import ForeignToolset
from tests.runtime.test_metrics import get
from tests.server.served_toolset import failing


async def statuses(agent: RunningAgent) -> tuple[int, int]:
    """Whether it is alive, whether it is ready."""
    return (await get(agent, "/healthz")).status, (await get(agent, "/readyz")).status


async def until_ready(agent: RunningAgent, ready: bool) -> None:
    """It is found at the next renewal of the lease."""
    async with asyncio.timeout(60):
        while (await get(agent, "/readyz")).json["ready"] is not ready:
            await asyncio.sleep(0.1)


async def test_an_agent_at_work_is_alive_and_ready(agent: RunningAgent) -> None:
    assert await statuses(agent) == (200, 200)
    assert (await get(agent, "/readyz")).json == {"ready": True}


async def test_an_agent_whose_store_cannot_be_written_is_alive_and_not_ready(agent: RunningAgent, store: str) -> None:
    with failing(store, "UPDATE", "workers"):
        await until_ready(agent, False)
        assert await statuses(agent) == (200, 503)
        assert "cannot be written" in (await get(agent, "/readyz")).json["reason"]

    await until_ready(agent, True)


@pytest.mark.parametrize("who", [ThreadRunner, OutboxSender], ids=["thread runner", "outbox sender"])
async def test_an_agent_without_its_thread_runner_or_its_outbox_sender_is_not_ready(
    model: ScriptedReplies, stranger: ForeignToolset, store: str, monkeypatch: pytest.MonkeyPatch, who: type[Any]
) -> None:
    """Something went wrong that nobody thought of: it is said, and whoever looks after the process can start it again."""
    died = asyncio.Event()

    async def run(_self: object) -> None:
        died.set()
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr(who, "run", run)
    async with working(model, [stranger.url], store) as agent:
        await died.wait()

        assert await statuses(agent) == (200, 503)


async def test_an_agent_that_is_about_to_stop_is_alive_and_not_ready(agent: RunningAgent) -> None:
    """What the first signal does, before anything is closed: whoever sends it requests is to send them elsewhere."""
    agent.engine.broadcast.end()

    assert await statuses(agent) == (200, 503)
