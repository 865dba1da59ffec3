"""From an accepted invocation to its one result: validated, executed, answered, whatever the handler does."""

import asyncio
import json
import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from rapkit import Context, Diff, Image, Limits, ToolError, Toolset, testing
from rapkit.errors import StoreBusy
from rapkit.mailbox import Claim, Commit, NewBox, NewMail, TakenPost
from rapkit.protocol import parse_invocation
from rapkit.server.calls.handler_run import HandlerRun
from rapkit.server.invocation import StoredCall, call_kind
from rapkit.stores import open_store
from rapkit.stores.sqlite import SqliteStore
from tests.log_records import ours
from tests.server.served_toolset import ServedToolset, failing, invocation, serving, until
from tests.server.sink import Sink

MASKED = "Error: the tool failed unexpectedly (reference "
PIXEL = b"\x89PNG\r\n"


async def text_of(server: ServedToolset, sink: Sink, operation: str, **fields: Any) -> str:
    message = invocation(sink.url, operation, **fields)
    assert (await server.invoke(message)).status == 200
    return (await sink.result(message["id"])).text


async def test_an_unknown_operation_is_acknowledged_and_answered_with_what_there_is(tools: Toolset, sink: Sink) -> None:
    """INV-9, INV-10, CB-6"""
    async with serving(tools) as server:
        text = await text_of(server, sink, "no_such")

        assert text == "Error: there is no operation 'no_such'. There are: echo."


async def test_arguments_that_do_not_fit_are_acknowledged_and_answered(
    toolset: Callable[..., Toolset], sink: Sink
) -> None:
    """INV-9, INV-10, INV-14, CB-6: and the handler is not called."""
    called: list[str] = []
    tools = toolset()

    @tools.tool
    def order(amount: int, item: str) -> None:
        """Order."""
        called.append(item)

    wrong: list[object] = [
        {},
        {"amount": "3", "item": "x"},
        {"amount": True, "item": "x"},
        {"amount": 1.5, "item": "x"},
        {"amount": 10**400, "item": None},
        {"amount": 3, "item": ["x"]},
        {"amount": 3, "item": "x", "__class__": "y"},
    ]
    async with serving(tools) as server:
        for arguments in wrong:
            text = await text_of(server, sink, "order", arguments=arguments)

            assert text.startswith("Error: "), arguments
            assert "Correct them and call again." in text or "arguments" in text, text
        assert called == []


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"operation": ...}, "invocation.operation: missing; it is the name of the tool to run"),
        ({"operation": 7}, "invocation.operation: a number, must be a string"),
        ({"operation": ""}, "invocation.operation: empty"),
        ({"operation": "a\u0000b"}, "invocation.operation: has a control character"),
        ({"arguments": [1]}, "invocation.arguments: an array, must be an object"),
        ({"arguments": "{}"}, "invocation.arguments: a string, must be an object"),
    ],
    ids=lambda value: json.dumps(value, default=str)[:40] if isinstance(value, dict) else "",
)
async def test_a_malformed_invocation_that_can_be_answered_is_answered(
    tools: Toolset, sink: Sink, fields: dict[str, Any], problem: str
) -> None:
    """INV-10, INV-14, CB-6"""
    message = {**invocation(sink.url, id="c1"), **fields}
    message = {key: value for key, value in message.items() if value is not ...}
    async with serving(tools) as server:
        assert (await server.invoke(message)).status == 200
        post = await sink.result("c1")

        assert post.text.startswith(f"Error: {problem}")
        assert post.message["group_id"] == "thread_1"


async def test_unknown_fields_and_nulls_are_no_problem(tools: Toolset, sink: Sink) -> None:
    """INV-14"""
    async with serving(tools) as server:
        extra = {"future": {"x": 1}, "call_id": None, "thread_ancestors": None, "user_id": None}

        assert await text_of(server, sink, "echo", **extra) == "echo"


async def test_the_acknowledgement_comes_before_the_validation_s_outcome(tools: Toolset, sink: Sink) -> None:
    """INV-9: a call that cannot work is acknowledged just like one that can."""
    async with serving(tools) as server:
        good = await server.invoke(invocation(sink.url))
        bad = await server.invoke(invocation(sink.url, "no_such", arguments=7))

        assert (good.status, good.body) == (bad.status, bad.body) == (200, b"")


async def test_arguments_are_data_and_never_code(tools: Toolset, sink: Sink) -> None:
    """INV-14"""
    evil = "'; DROP TABLE boxes; -- ../../etc/passwd {{7*7}} $(id) %s\u2028<script>"
    async with serving(tools) as server:
        ids = {"id": evil, "group_id": evil, "call_id": evil, "user_id": evil}

        assert await text_of(server, sink, "echo", arguments={"text": evil}, **ids) == evil
        assert (await server.cancel(evil, evil)).status == 200
        assert (await server.post("/close_thread", {"thread_id": evil})).status == 200
        assert await text_of(server, sink, "echo") == "echo"


async def test_an_unexpected_failure_is_told_to_the_log_and_not_to_the_caller(
    toolset: Callable[..., Toolset], sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    """INV-11, INV-16, CB-6"""
    tools = toolset()

    @tools.tool
    async def leak() -> None:
        """Leak."""
        raise ValueError(f"password=hunter2 in {__file__}")

    @tools.tool
    def leak_in_a_thread() -> None:
        """Leak."""
        raise OSError(2, "hunter2", __file__)

    async with serving(tools) as server:
        for operation in ("leak", "leak_in_a_thread"):
            caplog.clear()
            text = await text_of(server, sink, operation, id=operation)

            assert text.startswith(MASKED)
            assert text.endswith("). Try again or tell the user.")
            for secret in ("hunter2", __file__, "Traceback", "Error(", "line "):
                assert secret not in text
            reference = text.removeprefix(MASKED).split(")")[0]
            (record,) = [each for each in ours(caplog) if each.levelno == logging.ERROR]
            assert vars(record)["reference"] == reference
            assert (vars(record)["operation"], vars(record)["call_id"]) == (operation, operation)
            assert "hunter2" in caplog.text
            assert "Traceback" in caplog.text


async def test_a_tool_error_speaks_for_itself(toolset: Callable[..., Toolset], sink: Sink) -> None:
    """CB-6"""
    tools = toolset()

    @tools.tool
    def refuse(words: str) -> None:
        """Refuse."""
        raise ToolError(words)

    async with serving(tools) as server:
        for words, text in (
            ("No such city. Try Oslo.", "Error: No such city. Try Oslo."),
            ("Error: already said", "Error: already said"),
            ("", "Error: the tool failed without saying why. Try again or tell the user."),
        ):
            assert await text_of(server, sink, "refuse", arguments={"words": words}) == text


def _exit() -> None:
    sys.exit(3)


def _raise(error: BaseException) -> Callable[[], None]:
    def raising() -> None:
        raise error

    return raising


ODD_EXITS: dict[str, Callable[[], None]] = {
    "sys_exit": _exit,
    "keyboard": _raise(KeyboardInterrupt()),
    "stop_iteration": _raise(StopIteration(1)),
    "stop_async_iteration": _raise(StopAsyncIteration()),
    "cancelled": _raise(asyncio.CancelledError()),
    "timeout": _raise(TimeoutError()),
    "group": _raise(BaseExceptionGroup("several", [SystemExit(1), KeyboardInterrupt()])),
    "base": _raise(type("Mine", (BaseException,), {})()),
    "recursion": _raise(RecursionError()),
    "memory": _raise(MemoryError()),
}


@pytest.mark.parametrize("how", ["async", "sync"])
@pytest.mark.parametrize("what", ODD_EXITS)
async def test_whatever_a_handler_raises_ends_its_call_and_nothing_else(
    toolset: Callable[..., Toolset], sink: Sink, how: str, what: str
) -> None:
    """INV-11, INV-16, CB-5"""
    tools = toolset()
    tools.tool(name="fine")(lambda: "fine")
    if how == "sync":
        tools.tool(name="odd")(lambda: ODD_EXITS[what]())
    else:

        async def odd() -> None:
            ODD_EXITS[what]()

        tools.tool(odd)
    async with serving(tools) as server:
        text = await text_of(server, sink, "odd")
        assert text.startswith(MASKED)

        assert await text_of(server, sink, "fine") == "fine"
        await server.quiet()
        assert len(sink.posts) == 2


class Unprintable:
    def __repr__(self) -> str:
        raise ValueError("no")


def _endless() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


@pytest.mark.parametrize(
    "value",
    [object(), Unprintable(), b"bytes", _endless(), open, Image(b"", "image/png"), Image(PIXEL, "picture")],
    ids=lambda value: type(value).__name__,
)
async def test_a_result_no_message_can_carry_becomes_an_error_result(
    toolset: Callable[..., Toolset], sink: Sink, value: object
) -> None:
    """INV-11"""
    tools = toolset()
    tools.tool(name="odd")(lambda: value)
    async with serving(tools) as server:
        text = await text_of(server, sink, "odd")
        await server.quiet()

        assert text.startswith("Error: ")
        assert "tell the user" in text
        assert len(sink.posts) == 1


async def test_what_a_handler_returns_is_what_is_told(toolset: Callable[..., Toolset], sink: Sink) -> None:
    """CB-2"""
    tools = toolset()
    returned: dict[str, tuple[object, str]] = {
        "nothing": (None, "Done."),
        "empty": ("", ""),
        "number": (7, "7"),
        "data": ({"a": [1, None]}, '{"a":[1,null]}'),
        "surrogate": ("\ud800x", "?x"),
        "nan": ([float("nan"), 1.0], "[null,1.0]"),
        "long": ("x" * 300_000, "x" * 300_000),
        "diff": (Diff("a.txt", "+1"), "+1"),
    }
    for name, (value, _) in returned.items():
        _register(tools, name, value)
    async with serving(tools) as server:
        for name, (_, text) in returned.items():
            assert await text_of(server, sink, name) == text, name


def _register(tools: Toolset, name: str, value: object) -> None:
    tools.tool(name=name)(lambda: value)


async def test_pictures_travel_as_content(toolset: Callable[..., Toolset], sink: Sink) -> None:
    tools = toolset()
    _register(tools, "look", ["Look:", Image(PIXEL)])
    async with serving(tools) as server:
        await server.invoke(invocation(sink.url, "look", id="c1"))
        message = (await sink.result("c1")).message

        assert message["content"][0] == {"type": "text", "text": "Look:"}
        assert message["content"][1]["mediaType"] == "image/png"
        assert message["display_as"][0]["type"] == "image"


@pytest.mark.parametrize("how", ["async", "sync"])
async def test_a_handler_past_its_time_is_stopped_and_frees_its_place(
    toolset: Callable[..., Toolset], sink: Sink, how: str
) -> None:
    """INV-11, INV-18"""
    tools = toolset(limits=Limits(concurrency=1))
    release = threading.Event()
    tools.tool(name="fine")(lambda: "fine")
    if how == "sync":
        tools.tool(name="slow", timeout=0.05)(lambda: release.wait())
    else:
        tools.tool(name="slow", timeout=0.05)(asyncio.Event().wait)
    async with serving(tools) as server:
        try:
            text = await text_of(server, sink, "slow")
            assert text.startswith("Error: slow did not finish within 0.05 s")
            assert ("was stopped" in text) == (how == "async")
            assert ("may still take effect" in text) == (how == "sync")
            assert await text_of(server, sink, "fine") == "fine"
            await server.quiet()
            assert len(sink.posts) == 2
        finally:
            release.set()


async def test_a_handler_within_its_time_is_left_alone(toolset: Callable[..., Toolset], sink: Sink) -> None:
    """INV-18"""
    tools = toolset()
    tools.tool(name="quick", timeout=30)(lambda: "done")
    async with serving(tools) as server:
        assert await text_of(server, sink, "quick") == "done"


async def test_a_result_is_kept_until_the_store_takes_it(toolset: Callable[..., Toolset], sink: Sink) -> None:
    """INV-11, INV-17: the disk fails while the handler runs; it recovers, and nothing is done twice."""
    tools = toolset()
    ran: list[str] = []
    release = asyncio.Event()

    @tools.tool
    async def pay() -> str:
        """Pay."""
        ran.append("x")
        await release.wait()
        return "paid"

    async with serving(tools) as server:
        await server.invoke(invocation(sink.url, "pay", id="c1"))
        await until(lambda: ran == ["x"])
        with failing(tools.store_url, "INSERT", "outbox"):
            release.set()
            await asyncio.sleep(0.2)
            assert sink.posts == []
        assert (await sink.result("c1")).text == "paid"
        await server.quiet()

        assert ran == ["x"]
        assert len(sink.posts) == 1


async def test_every_call_is_in_the_log(tools: Toolset, sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rapkit")
    async with serving(tools) as server:
        await text_of(server, sink, "echo", id="c1")
        await text_of(server, sink, "no_such", id="c2")
        lines = {vars(each)["call_id"]: vars(each) for each in ours(caplog) if each.message == "call finished"}

        assert [lines[id]["outcome"] for id in ("c1", "c2")] == ["ok", "error"]
        assert lines["c1"]["operation"] == "echo"
        assert (lines["c1"]["thread_id"], lines["c1"]["caller"]) == ("thread_1", "local")


async def test_no_handler_can_end_the_process(toolset: Callable[..., Toolset], sink: Sink) -> None:
    """INV-11: many at once, among calls that are fine."""
    tools = toolset()
    tools.tool(name="leave")(_exit)
    tools.tool(name="fine")(lambda: os.getpid())
    async with serving(tools) as server:
        calls = [invocation(sink.url, ("leave", "fine")[n % 2], id=f"c{n}") for n in range(40)]
        await asyncio.gather(*(server.invoke(call) for call in calls))
        await server.quiet()

        assert len(sink.posts) == 40
        assert sum(post.text == str(os.getpid()) for post in sink.posts) == 20


async def test_a_result_too_large_to_be_sent_is_an_error_that_says_so(
    toolset: Callable[..., Toolset], sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    """INV-11"""
    caplog.set_level(logging.INFO, "rapkit.calls")
    tools = toolset(limits=Limits(result=1000))
    tools.tool(name="much")(lambda: "x" * 5000)
    tools.tool(name="little")(lambda: "x" * 500)
    async with serving(tools) as server:
        assert await text_of(server, sink, "little", id="c1") == "x" * 500
        text = await text_of(server, sink, "much", id="c2")
        await server.quiet()

    assert text.startswith("Error: the result has 5,")
    assert text.endswith("1,000 can be sent. Ask for less.")
    finished = [record.__dict__ for record in caplog.records if record.getMessage() == "call finished"]
    assert [(line["operation"], line["outcome"]) for line in finished] == [("little", "ok"), ("much", "error")]


async def test_toolsets_that_share_a_store_answer_their_own_calls(
    toolset: Callable[..., Toolset], tmp_path: Path, sink: Sink
) -> None:
    """INV-12"""
    store = f"sqlite:///{tmp_path}/shared.db"
    one, two = (toolset(name, store=store, limits=Limits(concurrency=1)) for name in ("one", "two"))
    one.tool(name="first")(lambda: "one")
    two.tool(name="second")(lambda: "two")
    async with serving(one) as first, serving(two) as second:
        for number in range(20):
            await first.invoke(invocation(sink.url, "first", id=f"c{number}"))
            await second.invoke(invocation(sink.url, "second", id=f"c{number}"))
        posts = await sink.received(40)

    assert sorted(post.text for post in posts) == ["one"] * 20 + ["two"] * 20


async def test_a_stored_call_that_cannot_be_read_holds_nobody_up(
    tools: Toolset, sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tools.store_url)
    assert await store.create(NewBox("unreadable", call_kind(tools.name), b"local\nnot an invocation"))
    await store.close()

    async with serving(tools) as server:
        assert await text_of(server, sink, "echo") == "echo"
        await until(lambda: "cannot be read and is put off" in caplog.text)
        assert (await server.get("/readyz")).status == 200


async def test_a_call_whose_answers_cannot_be_written_down_is_begun_when_they_can(
    tools: Toolset, sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    """INV-11: a failing store delays a call, and never leaves it in nobody's hands."""

    @tools.tool
    async def ask(ctx: Context) -> str:
        """Ask."""
        return await ctx.choose("Which?", ["left", "right"])

    async with serving(tools) as server:
        message = invocation(sink.url, "ask")
        await server.invoke(message)
        question = (await sink.result(message["id"])).message
        with failing(tools.store_url, "INSERT", "records"):
            answer = {"id": message["id"], "selected": 1}
            assert (await server.post(urlsplit(question["response_url"]).path, answer)).status == 200
            await until(lambda: "a call cannot be begun" in caplog.text)
        posts = await sink.received(2)

        assert posts[1].text == "right"


async def test_a_stored_call_that_cannot_be_put_off_either_does_not_strand_those_claimed_with_it(
    tools: Toolset, sink: Sink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """INV-11"""
    store = open_store(tools.store_url)
    assert await store.create(NewBox("unreadable", call_kind(tools.name), b"garbage"))
    for number in range(5):
        body = json.dumps(invocation(sink.url, id=f"c{number}")).encode()
        assert await store.create(StoredCall(tools.name, "local", parse_invocation(body), body).to_box())
    await store.close()
    commit = SqliteStore.commit

    async def fail_on_it(store: SqliteStore, claim: Claim, what: Commit, sender: str | None = None) -> list[TakenPost]:
        if claim.box.id == "unreadable":
            raise StoreBusy("Another process keeps it locked.")
        return await commit(store, claim, what, sender)

    monkeypatch.setattr(SqliteStore, "commit", fail_on_it)
    async with serving(tools):
        posts = await sink.received(5)

    assert sorted(post.message["id"] for post in posts) == [f"c{number}" for number in range(5)]
    assert "it could not be put off" in caplog.text


async def test_a_stored_call_that_cannot_be_read_is_put_off_once_even_if_it_has_mail(
    tools: Toolset, sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    """Its letter stays unread, and is no reason to look at the call again before its time."""
    store = open_store(tools.store_url)
    assert await store.create(NewBox("unreadable", call_kind(tools.name), b"garbage"))
    await store.accept(NewMail("unreadable", "answer", b"{}"))
    await store.close()

    async with serving(tools) as server:
        await until(lambda: "cannot be read and is put off" in caplog.text)
        for _ in range(10):
            assert await text_of(server, sink, "echo") == "echo"

    assert caplog.text.count("cannot be read and is put off") == 1


@pytest.mark.parametrize("times", [1, 1000])
async def test_a_call_that_the_server_itself_fails_on_is_tried_again_and_answered_in_the_end(
    toolset: Callable[..., Toolset], sink: Sink, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """INV-11, INV-17: never left in nobody's hands, and not tried for ever."""
    monkeypatch.setattr("rapkit.server.calls.call_runner._PAUSE_AFTER_FAILURE", 0)
    tools = toolset()
    failures = 0
    context = HandlerRun.context

    @tools.tool(read_only=True)
    async def read(ctx: Context) -> str:
        """Read."""
        return "done"

    async def fail(visit: HandlerRun) -> Context:
        nonlocal failures
        failures += 1
        if failures <= times:
            raise RuntimeError("a mistake of ours")
        return await context(visit)

    monkeypatch.setattr(HandlerRun, "context", fail)
    async with serving(tools) as server:
        text = await text_of(server, sink, "read")
        await server.quiet()

    assert text == ("done" if times == 1 else "Error: read was interrupted 3 times and given up. Tell the user.")
    assert failures == (2 if times == 1 else 3)
    assert len(sink.posts) == 1


@pytest.mark.parametrize(
    "error", [OSError(24, "Too many open files"), RuntimeError("can't start new thread")], ids=repr
)
async def test_a_call_whose_leftovers_cannot_be_ended_is_answered_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """INV-11, INV-17"""
    tools = Toolset("tools")
    runs: list[str] = []

    @tools.tool(read_only=True)
    async def run(ctx: Context) -> str:
        """Run a program, for ever the first time."""
        runs.append("run")
        if len(runs) > 1:
            return "done"
        await ctx.run(["sleep", "1000"])
        return "never"

    async def fail(_tokens: object) -> bool:
        raise error

    async with testing.serve(tools) as client:
        call = await client.start("run")
        await until(lambda: runs == ["run"])
        await client.settled()
        monkeypatch.setattr("rapkit.server.services.kill_leftovers", fail)
        await client.crash()

        assert (await call.result()).text == "done"
        assert "may still run" in caplog.text


async def test_a_handler_that_cancels_itself_has_failed_and_does_not_run_again(sink: Sink, tools: Toolset) -> None:
    """INV-11: not even one that may be repeated."""
    runs: list[str] = []

    @tools.tool(read_only=True)
    async def odd(ctx: Context) -> str:
        """Do what old timeouts do."""
        runs.append("run")
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(10)
        return "never"

    async with serving(tools) as server:
        text = await text_of(server, sink, "odd")
        await server.quiet()

    assert text.startswith(MASKED)
    assert runs == ["run"]
    assert len(sink.posts) == 1


async def test_a_generator_exit_of_the_handlers_own_is_a_failure_like_any_other(tools: Toolset, sink: Sink) -> None:
    """INV-11"""

    @tools.tool
    async def leave() -> str:
        """Leave."""
        raise GeneratorExit

    async with serving(tools) as server:
        assert (await text_of(server, sink, "leave")).startswith(MASKED)
