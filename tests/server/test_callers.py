import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rapkit import Toolset
from rapkit.errors import ConfigError
from tests.server.served_toolset import ServedToolset, invocation, serving
from tests.server.sink import Sink

ANNA, ANNA_NEW, BERT = "annas-first-token", "annas-second-token", "the-token-of-bert"


@pytest.fixture
def tools(toolset: Callable[..., Toolset], sink: Sink) -> Toolset:
    tools = toolset(tokens={"anna": [ANNA, ANNA_NEW], "bert": BERT}, allow_callbacks=[sink.url])
    runs: list[str] = []

    @tools.tool
    async def wait() -> None:
        """Take for ever."""
        await asyncio.Event().wait()

    @tools.tool
    async def count() -> int:
        """How often it ran."""
        runs.append("run")
        return len(runs)

    return tools


async def test_strangers_are_refused_at_every_door(tools: Toolset, sink: Sink) -> None:
    """CLO-6, CAN-2"""
    doors: dict[str, Any] = {
        "/invoke": invocation(sink.url, "count"),
        "/close_thread": {"thread_id": "t"},
        "/cancel_tool_call": {"thread_id": "t", "tool_call_id": "c"},
    }
    strangers = (
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Bearer {ANNA}x",
        f"Bearer {ANNA[:-1]}",
        f"Basic {ANNA}",
        ANNA,
        f"Bearer {ANNA}, Bearer {BERT}",
        "Bearer \xff\xfe",
    )
    async with serving(tools) as server:
        for path in doors:
            for authorization in strangers:
                reply = await server.request("POST", path, b"{}", {"Authorization": authorization})

                assert reply.status == 401, (path, authorization)
                assert reply.headers["www-authenticate"] == "Bearer"
                assert reply.detail == "Send Authorization: Bearer with a token this server knows."
        assert await server.stored_calls() == 0


async def test_whoever_runs_the_server_hears_of_a_wrong_token(tools: Toolset, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(tools) as server:
        await server.post("/close_thread", {"thread_id": "t"}, f"{ANNA}x")

    (said,) = [each for each in caplog.records if "401" in each.message]
    assert said.message == "a request was refused with 401: its token is not known here"
    assert vars(said)["address"] == "127.0.0.1"
    assert ANNA not in caplog.text


async def test_an_unauthenticated_notice_cleans_nothing_up(tools: Toolset, sink: Sink) -> None:
    """CLO-6"""
    async with serving(tools) as server:
        await server.invoke(invocation(sink.url, "wait", id="c1", group_id="t"), ANNA)

        assert (await server.post("/close_thread", {"thread_id": "t"})).status == 401
        assert (await server.cancel("t", "c1")).status == 401
        assert (await server.cancel("t", "c1", "a-token-nobody-has")).status == 401

        assert await server.stored_calls() == 1
        assert sink.posts == []
        await server.cancel("t", "c1", ANNA)


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR"])
async def test_the_scheme_may_be_written_in_any_case(tools: Toolset, sink: Sink, scheme: str) -> None:
    async with serving(tools) as server:
        body = b'{"thread_id": "t"}'
        reply = await server.request("POST", "/close_thread", body, {"Authorization": f"{scheme} {ANNA}"})

        assert reply.status == 200


async def test_discovery_and_health_need_no_token(tools: Toolset) -> None:
    async with serving(tools) as server:
        for path in ("/.well-known/rap-toolset", "/healthz", "/readyz"):
            assert (await server.get(path)).status == 200


async def test_two_tokens_of_one_name_are_one_caller(tools: Toolset, sink: Sink) -> None:
    """INV-17: a token can be rotated without losing anything."""
    async with serving(tools) as server:
        counted, waiting = invocation(sink.url, "count", id="c1"), invocation(sink.url, "wait", id="c2", group_id="t")
        for token in (ANNA, ANNA_NEW):
            assert (await server.invoke(counted, token)).status == 200
        await server.invoke(waiting, ANNA)
        assert (await server.cancel("t", "c2", ANNA_NEW)).status == 200
        await server.quiet()

        assert [post.text for post in sink.posts if post.message["id"] == "c1"] == ["1"]
        assert (await sink.result("c2")).text == "Error: Cancelled."


async def test_two_callers_may_use_the_same_ids(tools: Toolset, sink: Sink) -> None:
    """INV-12, INV-17"""
    async with serving(tools) as server:
        message = invocation(sink.url, "count", id="c1")
        for token in (ANNA, BERT):
            assert (await server.invoke(message, token)).status == 200
        await server.quiet()

        assert sorted(post.text for post in sink.posts) == ["1", "2"]


async def test_a_caller_cannot_touch_what_is_another_s(tools: Toolset, sink: Sink) -> None:
    """CLO-6, CAN-2"""
    async with serving(tools) as server:
        await server.invoke(invocation(sink.url, "wait", id="c1", group_id="t"), ANNA)

        assert (await server.cancel("t", "c1", BERT)).status == 200
        assert (await server.post("/close_thread", {"thread_id": "t"}, BERT)).status == 200
        await server.invoke(invocation(sink.url, "count", id="c9"), BERT)
        await sink.result("c9")

        assert len(sink.posts) == 1
        assert await server.stored_calls() == 1
        await server.cancel("t", "c1", ANNA)
        assert (await sink.result("c1")).text == "Error: Cancelled."


async def test_another_s_cancellation_does_not_wait_for_a_call_of_mine(tools: Toolset, sink: Sink) -> None:
    """CAN-2"""
    async with serving(tools) as server:
        await server.cancel("thread_1", "c1", BERT)
        await server.invoke(invocation(sink.url, "count", id="c1"), ANNA)

        assert (await sink.result("c1")).text == "1"


async def test_without_tokens_this_machine_may_call_and_no_other(
    toolset: Callable[..., Toolset], sink: Sink, tools: Toolset
) -> None:
    tools = toolset("open")
    tools.tool(name="echo")(lambda: "x")
    async with serving(tools) as server:
        for host in (f"127.0.0.1:{server.port}", "localhost", "LOCALHOST:80", "[::1]:8000", "127.0.0.2"):
            assert (await close_thread(server, Host=host)) == 200, host
        for host in ("evil.example", "127.0.0.1.evil.example", "", "localhost.evil.example:80", "10.0.0.1"):
            reply = await server.request("POST", "/close_thread", b'{"thread_id": "t"}', {"Host": host})

            assert reply.status == 401, host
            assert reply.detail.startswith("No token is configured, so only callers on this machine are served")
        assert (await close_thread(server, **{"X-Forwarded-For": "203.0.113.9"})) == 401
        assert (await close_thread(server, Authorization="Bearer whatever-they-like")) == 200


async def close_thread(server: ServedToolset, **headers: str | None) -> int:
    return (await server.request("POST", "/close_thread", b'{"thread_id": "t"}', headers)).status


@pytest.mark.parametrize(
    "tokens",
    [
        "short",
        "",
        "with a blank in the middle",
        "non-ascii-tökens-here",
        {"a": ["long-enough-as-it-is", "short"]},
        {"": "long-enough-as-it-is"},
        {"a name": "long-enough-as-it-is"},
        {"n" * 65: "long-enough-as-it-is"},
        {"a": []},
        {"a": "long-enough-as-it-is", "b": ["another-that-is-long", "long-enough-as-it-is"]},
        "env:RAPKIT_NO_SUCH_VARIABLE",
        "file:/no/such/file",
    ],
    ids=str,
)
async def test_a_token_that_cannot_be_one_is_refused_before_anything_is_served(
    toolset: Callable[..., Toolset], tokens: Any
) -> None:
    tools = toolset(tokens=tokens)
    tools.tool(name="echo")(lambda: "x")

    with pytest.raises(ConfigError) as refused:
        async with tools.lifespan():
            pass
    assert "long-enough" not in str(refused.value)


async def test_a_token_can_come_from_a_variable_or_a_file(
    toolset: Callable[..., Toolset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLS_TOKEN", ANNA)
    (tmp_path / "token").write_text(BERT + "\n")
    tools = toolset(tokens={"anna": "env:TOOLS_TOKEN", "bert": f"file:{tmp_path}/token"})
    tools.tool(name="echo")(lambda: "x")
    async with serving(tools) as server:
        for token, status in ((ANNA, 200), (BERT, 200), ("env:TOOLS_TOKEN", 401)):
            assert (await server.post("/close_thread", {"thread_id": "t"}, token)).status == status
