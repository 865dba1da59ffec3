import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from rapkit import Context, Toolset
from tests.server.served_toolset import invocation, serving
from tests.server.sink import Sink


async def test_a_handler_knows_whom_it_works_for(toolset: Callable[..., Toolset], sink: Sink) -> None:
    """CB-2"""
    tools = toolset()
    seen: dict[str, Any] = {}

    @tools.tool
    async def note(word: str, ctx: Context) -> None:
        """Note."""
        seen["async"] = (word, ctx.user_id, ctx.thread_id, ctx.thread_ancestors, ctx.call_id, ctx.cancelled)

    @tools.tool
    def note_in_thread(c: Context, word: str = "x") -> None:
        """Note."""
        seen["sync"] = (word, c.user_id, c.thread_id, c.thread_ancestors, c.call_id, c.cancelled)

    async with serving(tools) as server:
        more = {"group_id": "t3", "user_id": "u1", "thread_ancestors": ["t1", "t2"]}
        await server.invoke(invocation(sink.url, "note", id="c1", arguments={"word": "hi"}, **more))
        await server.invoke(invocation(sink.url, "note_in_thread", id="c2"))
        await sink.received(2)

        assert seen["async"] == ("hi", "u1", "t3", ("t1", "t2"), "c1", False)
        assert seen["sync"] == ("x", None, "thread_1", (), "c2", False)


async def test_the_model_neither_sees_nor_sets_the_context(toolset: Callable[..., Toolset], sink: Sink) -> None:
    """INV-14"""
    tools = toolset()

    @tools.tool
    def who(ctx: Context) -> str | None:
        """Who."""
        return ctx.user_id

    async with serving(tools) as server:
        manifest = (await server.get("/.well-known/rap-toolset")).json
        await server.invoke(invocation(sink.url, "who", id="c1", arguments={"ctx": {"user_id": "root"}}))

        assert "ctx" not in str(manifest)
        assert (await sink.result("c1")).text.startswith("Error: who: these arguments do not fit.")


async def test_what_a_handler_logs_carries_the_ids_of_its_call(
    toolset: Callable[..., Toolset], sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    tools = toolset()

    @tools.tool
    async def work(ctx: Context) -> None:
        """Work."""
        ctx.log.info("half %s", "way", extra={"step": 2})

    async with serving(tools) as server:
        await asyncio.gather(*(server.invoke(invocation(sink.url, "work", id=f"c{n}")) for n in range(10)))
        await sink.received(10)
        lines = [vars(each) for each in caplog.records if each.name == "rapkit.tool.work"]

        assert sorted(line["call_id"] for line in lines) == [f"c{n}" for n in range(10)]
        assert {(line["message"], line["step"], line["thread_id"]) for line in lines} == {("half way", 2, "thread_1")}
