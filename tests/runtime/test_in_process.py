"""Toolsets of the agent's own process: the agent reaches them directly, and nobody else reaches what is for the agent alone."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Mount, Router

from rapkit import Agent, Context, Durations, OAuthProvider, Server, Toolset
from rapkit.http.http_server import listen, serve_in_background, url_of
from rapkit.models.scripted import Scripted
from rapkit.runtime.config import Patience
from rapkit.runtime.event_feed import EventName
from tests.crash.processes import free_port
from tests.runtime.agents import RunningAgent, ScriptedReplies, call
from tests.runtime.examples import UNASKED
from tests.runtime.foreign_toolset import ForeignToolset, tool
from tests.server.served_toolset import Reply, exchange, until

TOKEN = "a-token-for-clients"


class Ops:
    """A toolset with a tool nobody should come by unasked. It notes what is done."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.wiped: list[str] = []
        self.chosen: list[str] = []
        self.tools = Toolset("ops", store=f"sqlite:///{folder}/ops.db", durations=Durations(grace=0), **options)

        @self.tools.tool(destructive=True)
        async def wipe(disk: str) -> str:
            """Wipe a disk."""
            self.wiped.append(disk)
            return f"{disk} is empty"

        @self.tools.tool(destructive=True)
        async def wipe_if(disk: str, ctx: Context) -> str:
            """Wipe a disk, if the user wants that."""
            self.chosen.append(await ctx.choose(f"Wipe {disk}?", ["Yes", "No"], default="No"))
            return f"The user said {self.chosen[-1]}"


@pytest.fixture
def ops(tmp_path: Path) -> Ops:
    return Ops(tmp_path)


@contextlib.asynccontextmanager
async def agent_with(
    model: ScriptedReplies, store: str, *servers: str | Server | Toolset, **options: Any
) -> AsyncIterator[RunningAgent]:
    patience = Patience(grace=0.5)
    options.setdefault("limits", UNASKED)
    async with Agent(model=Scripted(model), servers=servers, store=store, patience=patience, **options) as agent:
        yield RunningAgent(agent.engine, agent.engine.config.public_url)


async def request(url: str, method: str, path: str, body: bytes = b"{}") -> Reply:
    """What the agent's own port answers to somebody on this machine, with a token for its clients."""
    port = int(url.rpartition(":")[2])
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {TOKEN}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return await exchange(port, head.encode() + body)


# Whom it obeys


async def test_another_server_cannot_have_its_tools_run_by_naming_our_own_url(
    model: ScriptedReplies, store: str, stranger: ForeignToolset, ops: Ops
) -> None:
    """DIS-2, TRA-2: an endpoint is a stranger's word, and the toolset's tools may be worth more than the stranger's."""
    stranger.tools = [tool("wipe")]
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}/toolsets/ops/invoke"
    stranger.document = json.dumps({"name": "s", "endpoint": endpoint, "tools": stranger.tools}).encode()
    servers = (Server(stranger.url, prefix="s_"), ops.tools)
    async with agent_with(model, store, *servers, port=port) as agent:
        talk = await agent.doing(call("s_wipe", disk="a"))

        said = await talk.hears("could not be delivered")

        assert "answered 404" in said.text
        assert ops.wiped == []
        await talk.do(call("wipe", disk="b"))
        await talk.hears("heard: b is empty")


async def test_nor_by_the_path_of_its_mount_on_any_other_port(
    model: ScriptedReplies, store: str, stranger: ForeignToolset, ops: Ops
) -> None:
    """DIS-2, TRA-2"""
    endpoint = f"http://127.0.0.1:{free_port()}/toolsets/ops/invoke"
    stranger.document = json.dumps({"name": "s", "endpoint": endpoint, "tools": [tool("wipe")]}).encode()
    async with agent_with(model, store, Server(stranger.url, prefix="s_"), ops.tools) as agent:
        await agent.doing(call("s_wipe", disk="a"))

        await agent.failed_once()

        assert ops.wiped == []


async def test_nor_by_the_url_that_only_we_know(
    model: ScriptedReplies, store: str, stranger: ForeignToolset, ops: Ops
) -> None:
    """DIS-4: that is no endpoint."""
    document = {"name": "s", "endpoint": "toolset://ops/invoke", "tools": [tool("wipe")]}
    stranger.document = json.dumps(document).encode()
    async with agent_with(model, store, Server(stranger.url, prefix="s_"), ops.tools) as agent:
        talk = await agent.doing(call("s_wipe", disk="a"))

        await talk.hears("There is no tool 's_wipe'")

        assert ops.wiped == []


async def test_over_http_there_is_only_what_is_for_strangers(
    model: ScriptedReplies, store: str, tmp_path: Path
) -> None:
    """TRA-3: not even a client of the agent's may call a tool past the agent."""
    provider = OAuthProvider.github("id", "secret")
    ops = Ops(tmp_path, oauth=[provider])

    @ops.tools.webhook("/hooks/disks", verify=lambda *_: True)
    async def disks(_payload: object) -> None:
        """What the disks say."""

    async with agent_with(model, store, ops.tools, tokens={"me": TOKEN}) as agent:
        for path in ("/invoke", "/cancel_tool_call", "/close_thread"):
            assert (await request(agent.url, "POST", f"/toolsets/ops{path}")).status == 404, path
            assert (await request(agent.url, "POST", f"/toolsets/ops/{path}")).status == 404, path
        for path in ("/metrics", "/.well-known/rap-toolset"):
            assert (await request(agent.url, "GET", f"/toolsets/ops{path}")).status == 404, path

        assert (await request(agent.url, "GET", "/toolsets/ops/healthz")).status == 200
        redirect = await request(agent.url, "GET", "/toolsets/ops/oauth/callback?state=none&code=none")
        assert redirect.status == 400
        assert (await request(agent.url, "POST", "/toolsets/ops/hooks/disks")).status == 200
        answered = await request(agent.url, "POST", "/toolsets/ops/answer/none", b'{"id": "c", "selected": 0}')
        assert (answered.status, b"question" in answered.body) == (404, True)


# How it is reached


async def test_it_is_reached_whatever_our_public_url_is(model: ScriptedReplies, store: str, ops: Ops) -> None:
    """The way to it does not lead through the proxy in front of us, which may not even let us in."""
    url = "https://agent.invalid/agent"
    async with agent_with(model, store, ops.tools, public_url=url, tokens={"me": TOKEN}) as agent:
        await agent.doing(call("wipe", disk="a"))

        await until(lambda: ops.wiped == ["a"])

        (finding,) = await agent.engine.toolsets.survey()
        assert finding.problem is None


async def test_it_answers_below_the_path_we_are_mounted_at(model: ScriptedReplies, store: str, ops: Ops) -> None:
    """CB-1, CHO-1"""
    with listen("127.0.0.1", 0) as listener:
        url = url_of("127.0.0.1", listener).replace("127.0.0.1", "localhost") + "/agent"
        agent = Agent(
            model=Scripted(model),
            servers=[ops.tools],
            store=store,
            public_url=url,
            patience=Patience(grace=0.5),
            limits=UNASKED,
        )
        async with agent.lifespan(), serve_in_background(Router([Mount("/agent", agent.app)]), listener):
            talk = await RunningAgent(agent.engine, url).doing(call("wipe_if", disk="a"))
            question = await talk.event(EventName.CHOICE)
            await agent.engine.threads.choose(talk.id, question.data["call_id"], 0)

            await talk.hears("heard: The user said Yes")


@pytest.mark.parametrize("tokens", [TOKEN, {"a": TOKEN}, {"a": [TOKEN, "an-older-token-of-the-same"]}])
async def test_one_that_wants_a_token_gets_its_own(
    model: ScriptedReplies, store: str, tmp_path: Path, tokens: Any
) -> None:
    """TRA-3"""
    ops = Ops(tmp_path, tokens=tokens)
    async with agent_with(model, store, ops.tools) as agent:
        talk = await agent.doing(call("wipe", disk="a"))

        await talk.hears("heard: a is empty")


async def test_what_it_asked_before_a_restart_can_be_answered_when_we_listen_elsewhere(
    model: ScriptedReplies, store: str, tmp_path: Path
) -> None:
    """CHO-1: the answer does not have to go to the port we had."""
    async with agent_with(model, store, Ops(tmp_path).tools, port=free_port()) as agent:
        talk = await agent.doing(call("wipe_if", disk="a"))
        question = await talk.event(EventName.CHOICE)

    ops = Ops(tmp_path)
    async with agent_with(model, store, ops.tools, port=free_port()) as agent:
        await agent.threads.choose(talk.id, question.data["call_id"], 0)

        await until(lambda: ops.chosen == ["Yes"])


async def test_it_is_told_when_a_thread_is_closed(model: ScriptedReplies, store: str, tmp_path: Path) -> None:
    """CLO-1: although nobody else could tell it."""
    ops = Ops(tmp_path)
    closed = asyncio.Event()

    @ops.tools.on_thread_close
    async def note(_thread: object) -> None:
        """Note it."""
        closed.set()

    async with agent_with(model, store, ops.tools) as agent:
        talk = await agent.doing(call("wipe", disk="a"))
        await talk.hears("heard: a is empty")
        await agent.threads.close(talk.id)

        async with asyncio.timeout(60):
            await closed.wait()
