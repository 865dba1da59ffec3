"""What an engine promises about calls: accepted once, run once, answered once, to the right address."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable

import pytest

from rapkit import Context, Durations, Toolset, testing
from rapkit.errors import ConfigError
from rapkit.server.invocation import call_kind
from rapkit.stores import open_store
from tests.server.served_toolset import invocation, serving, until
from tests.server.sink import Sink, listening


@pytest.fixture
def runs() -> list[str]:
    return []


@pytest.fixture
def tools(toolset: Callable[..., Toolset], runs: list[str]) -> Toolset:
    tools = toolset(version="v2")

    @tools.tool
    async def note(text: str) -> str:
        """Note it."""
        runs.append(text)
        await asyncio.sleep(0)
        return f"noted {text}"

    @tools.tool(read_only=True)
    async def echo(text: str = "echo") -> str:
        """Say it again."""
        return text

    @tools.tool
    async def wait(text: str) -> str:
        """Wait a little, then note it."""
        runs.append(text)
        await asyncio.sleep(random.uniform(0, 0.02))
        return f"noted {text}"

    return tools


async def test_what_was_acknowledged_is_in_the_store(toolset: Callable[..., Toolset], sink: Sink) -> None:
    """INV-8, INV-13: another process finds it there the moment the caller has its 200."""
    tools = toolset()
    tools.tool(name="stuck")(asyncio.Event().wait)
    store = open_store(tools.store_url)
    try:
        async with serving(tools) as server:
            for number in range(1, 11):
                assert (await server.invoke(invocation(sink.url, "stuck"))).status == 200
                assert await store.backlog(call_kind(tools.name)) == number
            await server.post("/close_thread", {"thread_id": "thread_1"})
    finally:
        await store.close()


async def test_the_same_call_sent_again_runs_once(tools: Toolset, runs: list[str], sink: Sink) -> None:
    """INV-17, CB-5: before, while and after it runs."""
    message = invocation(sink.url, "note", id="c1", arguments={"text": "x"})
    async with serving(tools) as server:
        for _ in range(3):
            assert (await server.invoke(message)).status == 200
        await sink.result("c1")
        await server.quiet()
        for _ in range(3):
            assert (await server.invoke(message)).status == 200
        await server.quiet()

        assert runs == ["x"]
        assert len(sink.posts) == 1


async def test_the_same_call_sent_by_fifty_at_once_runs_once(tools: Toolset, runs: list[str], sink: Sink) -> None:
    """INV-17, CB-5"""
    message = invocation(sink.url, "wait", id="c1", arguments={"text": "x"})
    async with serving(tools) as server:
        replies = await asyncio.gather(*(server.invoke(message) for _ in range(50)))
        await sink.result("c1")
        await server.quiet()

        assert [reply.status for reply in replies] == [200] * 50
        assert runs == ["x"]
        assert len(sink.posts) == 1


async def test_the_same_ids_with_other_contents_are_another_call_and_answered(
    tools: Toolset, runs: list[str], sink: Sink
) -> None:
    """Item 2 · INV-11, INV-17: other arguments, another operation, and an operation there is none of."""
    calls = [("note", {"text": "a"}), ("note", {"text": "b"}), ("echo", {"text": "a"}), ("nothing", {}), ("note", [])]
    async with serving(tools) as server:
        for operation, arguments in (*calls, *calls):
            assert (await server.invoke(invocation(sink.url, operation, id="c1", arguments=arguments))).status == 200
        await server.quiet()

        assert runs == ["a", "b"]
        assert {post.message["id"] for post in sink.posts} == {"c1"}
        assert sorted(post.text.split(".")[0] for post in sink.posts) == sorted(
            [
                "noted a",
                "noted b",
                "a",
                "Error: there is no operation 'nothing'",
                "Error: invocation",
            ]
        )


async def test_a_repetition_is_recognised_however_it_is_written(tools: Toolset, runs: list[str], sink: Sink) -> None:
    """Item 2 · INV-17: by values, not by bytes; the version and the call_id are no part of it."""
    head = f'{{"callback_url": "{sink.url}", "group_id": "t", "id": "c1", "operation": "note", '
    bodies = [
        head + '"arguments": {"text": "\u00fc", "extra": {"a": 1, "b": [2.0, 1e2]}}, "call_id": "first"}',
        head + '"arguments": {"extra": {"b": [2, 100], "a": 1.0}, "text": "ü"}, "call_id": "second"}',
        head + '"call_id": null, "toolset_version": "other", "arguments":{"extra":{"a":1e0,"b":[2,1E+2]},"text":"ü"}}',
    ]
    async with serving(tools) as server:
        for body in bodies:
            assert (await server.request("POST", "/invoke", body.encode())).status == 200
        await server.quiet()

        assert [post.message["call_id"] for post in sink.posts] == ["first"]


@pytest.mark.parametrize("first", [..., None, {}])
async def test_null_absent_and_empty_arguments_are_the_same_call(tools: Toolset, sink: Sink, first: object) -> None:
    """Item 2 · INV-17"""
    async with serving(tools) as server:
        for arguments in (first, ..., None, {}):
            await server.invoke(invocation(sink.url, id="c1", arguments=arguments))
        await server.quiet()

        assert [post.text for post in sink.posts] == ["echo"]


async def test_a_call_that_differs_in_id_thread_or_address_is_another(
    tools: Toolset, runs: list[str], sink: Sink
) -> None:
    """INV-12, INV-17"""
    async with serving(tools) as server:
        calls = [
            invocation(f"{sink.url}/{path}", "note", id=id, group_id=group, arguments={"text": f"{path}{group}{id}"})
            for path in "ab"
            for group in ("t", "tt")
            for id in ("c", "tc")
        ]
        for call in calls:
            await server.invoke(call)
        await server.quiet()

        assert sorted(runs) == sorted(call["arguments"]["text"] for call in calls)
        assert {
            (post.target, post.message["group_id"], post.message["id"], post.message["text"]) for post in sink.posts
        } == {("/" + t[0], c["group_id"], c["id"], "noted " + t) for c in calls for t in [c["arguments"]["text"]]}


async def test_the_call_id_is_echoed_when_there_is_one(tools: Toolset, sink: Sink) -> None:
    """CB-2"""
    async with serving(tools) as server:
        for id, call_id in (("c1", "fc_1"), ("c2", None), ("c3", ...)):
            await server.invoke(invocation(sink.url, "note", id=id, call_id=call_id, arguments={"text": "x"}))

        for id, echoed in (("c1", "fc_1"), ("c2", None), ("c3", None)):
            message = (await sink.result(id)).message
            assert (message["type"], message["group_id"], message["id"]) == ("tool_result", "thread_1", id)
            assert message.get("call_id") == echoed


async def test_hundreds_of_calls_at_once_do_not_mix(tools: Toolset, sink: Sink) -> None:
    """INV-12, CB-1, CB-2"""
    async with listening() as other, serving(tools) as server:
        sinks = [sink, other]
        calls = [
            invocation(
                f"{sinks[n % 2].url}/callback/{n}?token={n}",
                "wait" if n % 3 else "note",
                id=f"call_{n}",
                call_id=f"fc_{n}",
                group_id=f"thread_{n % 7}",
                arguments={"text": f"text {n}"},
            )
            for n in range(300)
        ]
        random.shuffle(calls)
        for start in range(0, 300, 60):
            replies = await asyncio.gather(*(server.invoke(call) for call in calls[start : start + 60]))
            assert {reply.status for reply in replies} == {200}
        await server.quiet()

        for parity, one in enumerate(sinks):
            found = {post.target: post.message for post in one.posts}
            assert len(one.posts) == len(found) == 150
            for n in range(parity, 300, 2):
                assert found[f"/callback/{n}?token={n}"] == {
                    "type": "tool_result",
                    "group_id": f"thread_{n % 7}",
                    "id": f"call_{n}",
                    "call_id": f"fc_{n}",
                    "text": f"noted text {n}",
                }


async def test_a_stale_version_is_refused_and_not_executed(tools: Toolset, runs: list[str], sink: Sink) -> None:
    """DIS-9"""
    async with serving(tools) as server:
        reply = await server.invoke(invocation(sink.url, "note", arguments={"text": "x"}, toolset_version="v1"))

        assert reply.status == 409
        assert "/.well-known/rap-toolset" in reply.detail
        assert await server.stored_calls() == 0
        await server.quiet()
        assert runs == []
        assert sink.posts == []


async def test_a_corrected_call_is_accepted_after_a_stale_one(tools: Toolset, runs: list[str], sink: Sink) -> None:
    """DIS-9"""
    message = invocation(sink.url, "note", id="c1", arguments={"text": "x"})
    async with serving(tools) as server:
        assert (await server.invoke({**message, "toolset_version": "v1"})).status == 409
        assert (await server.invoke({**message, "toolset_version": "v2"})).status == 200
        await sink.result("c1")

        assert runs == ["x"]


@pytest.mark.parametrize("version", [..., None, "v2"], ids=["absent", "null", "current"])
async def test_a_call_without_a_version_or_with_the_current_one_is_accepted(
    tools: Toolset, sink: Sink, version: object
) -> None:
    """DIS-9"""
    async with serving(tools) as server:
        message = invocation(sink.url, "note", id="c1", arguments={"text": "x"}, toolset_version=version)
        assert (await server.invoke(message)).status == 200
        assert (await sink.result("c1")).text == "noted x"


async def test_a_repetition_is_recognised_before_its_version_is_looked_at(
    toolset: Callable[..., Toolset], sink: Sink
) -> None:
    """DIS-9, INV-17: the tools changed between the call and its repetition, across a restart."""
    ran: list[str] = []
    message = invocation(sink.url, "note", id="c1", toolset_version="v1")
    for version in ("v1", "v2"):
        tools = toolset(version=version)
        tools.tool(name="note")(lambda: ran.append("x"))
        async with serving(tools) as server:
            assert (await server.invoke(message)).status == 200
            await sink.result("c1")
            assert (await server.invoke({**message, "id": f"new under {version}"})).status == (
                200 if version == "v1" else 409
            )
            await server.quiet()
    assert ran == ["x", "x"]
    assert sorted(post.message["id"] for post in sink.posts) == ["c1", "new under v1"]


async def test_a_repetition_is_recognised_for_as_long_as_was_configured(
    toolset: Callable[..., Toolset], sink: Sink
) -> None:
    """INV-17"""
    ran: list[str] = []
    tools = toolset(durations=Durations(remember_calls=0.2))
    tools.tool(name="note")(lambda: ran.append("x"))
    message = invocation(sink.url, "note", id="c1")
    async with serving(tools) as server:
        await server.invoke(message)
        await sink.received(1)
        assert ran == ["x"]

        async def sent_again() -> None:
            while len(ran) == 1:
                await server.invoke(message)
                await asyncio.sleep(0.05)

        await asyncio.wait_for(sent_again(), 60)
        await sink.received(2)


async def test_by_default_a_repetition_is_recognised_for_four_days_and_no_longer() -> None:
    """INV-17: a day longer than anything is retried."""
    ran: list[str] = []
    tools = Toolset("notes")
    tools.tool(name="note")(lambda: ran.append("x"))
    message = invocation("http://runtime.test/somewhere", "note", id="c1")
    async with testing.serve(tools) as client:
        client.callbacks.fail(10, 200)  # which is no failure: whatever comes there is acknowledged
        for seconds, times in ((0, 1), (0, 1), (4 * 24 * 3600 - 60, 1), (120, 2)):
            await client.advance(seconds)
            assert (await client.request("POST", "/invoke", message, authenticated=True)).status == 200
            await client.settled()
            assert len(ran) == times, seconds


async def test_a_forgotten_call_whose_subscription_is_still_at_work_is_answered_when_it_is_repeated(
    toolset: Callable[..., Toolset], sink: Sink
) -> None:
    """Item 2, semantics 22: past the dedup window the same ids are another call, and no call is met with silence."""
    started: list[str] = []
    tools = toolset(durations=Durations(remember_calls=0.01))

    @tools.subscription(confirm_after=0)
    async def watch(ctx: Context) -> AsyncIterator[str]:
        """Tell me what changes."""
        started.append("x")
        await ctx.sleep(3600)
        yield "never"

    message = invocation(sink.url, "watch", id="c1")
    async with serving(tools) as server:
        await server.invoke(message)
        await sink.received(1)

        async def answered_again() -> None:
            while len(sink.posts) == 1:
                await server.invoke(message)
                await asyncio.sleep(0.05)

        await asyncio.wait_for(answered_again(), 60)

    assert [(post.message["type"], post.message["subscription"]) for post in sink.posts[:2]] == [
        ("tool_result", True),
        ("tool_result", True),
    ]
    assert started == ["x"]


async def test_arguments_for_an_older_schema_work_or_come_back_as_an_error(
    toolset: Callable[..., Toolset], sink: Sink
) -> None:
    """DIS-8: between them the parameter was renamed, one was added, one got another type."""
    tools = toolset()

    @tools.tool
    def forecast(town: str, days: int = 3, *, exact: bool = False) -> str:
        """Forecast."""
        return f"{town} {days} {exact}"

    old = {
        "fits": {"town": "Oslo"},
        "renamed": {"city": "Oslo"},
        "retyped": {"town": "Oslo", "days": "3"},
        "extra": {"town": "Oslo", "units": "C"},
        "none": {},
    }
    async with serving(tools) as server:
        for id, arguments in old.items():
            assert (await server.invoke(invocation(sink.url, "forecast", id=id, arguments=arguments))).status == 200
        texts = {id: (await sink.result(id)).text for id in old}

        assert texts.pop("fits") == "Oslo 3 False"
        for id, text in texts.items():
            assert text.startswith("Error: forecast: these arguments do not fit. Correct them and call again.\n"), id
        assert "city: unknown; known are town, days, exact" in texts["renamed"]
        assert "town: missing" in texts["renamed"]
        assert "days: " in texts["retyped"]


@pytest.mark.parametrize("lease", [0.0, -1.0, float("nan"), float("inf")])
def test_a_lease_nobody_could_keep_is_refused(lease: float) -> None:
    with pytest.raises(ConfigError, match="lease is a number of seconds"):
        Durations(lease=lease)


@pytest.mark.parametrize("name", ["connect", "response"])
def test_a_runtime_that_gets_no_time_at_all_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="connect and response are numbers of seconds above 0"):
        Durations(**{name: 0.0})


async def test_a_server_goes_on_while_its_lease_is_short(toolset: Callable[..., Toolset], sink: Sink) -> None:
    """INV-17: a handler that outlasts the lease several times is not run again by the same server, nor by a second one."""
    ran: list[str] = []
    done = asyncio.Event()
    pair = [toolset(durations=Durations(lease=0.4)), toolset(durations=Durations(lease=0.4))]

    async def slow() -> None:
        ran.append("x")
        await done.wait()

    for tools in pair:
        tools.tool(idempotent=True)(slow)
    async with serving(pair[0]) as server, serving(pair[1]):
        await server.invoke(invocation(sink.url, "slow", id="c1"))
        await until(lambda: bool(ran))
        await asyncio.sleep(1.5)  # several leases: here the passing of time is what is tested
        done.set()
        await sink.result("c1")
        await server.quiet()

    assert ran == ["x"]
    assert len(sink.posts) == 1
