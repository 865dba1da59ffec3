import asyncio
import json
from collections.abc import Callable

import pytest

from rapkit import HttpLimits, Limits, Toolset
from rapkit.server.engine import ToolsetEngine
from tests.log_records import ours
from tests.server.served_toolset import ServedToolset, exchange, failing, invocation, read_reply, serving
from tests.server.sink import PATIENCE, Sink

POSTS = ("/invoke", "/cancel_tool_call", "/close_thread")


def body_for(path: str, sink: Sink) -> bytes:
    messages = {
        "/invoke": invocation(sink.url),
        "/cancel_tool_call": {"thread_id": "t", "tool_call_id": "c"},
        "/close_thread": {"thread_id": "t"},
    }
    return json.dumps(messages[path]).encode()


async def test_a_body_that_is_json_is_taken_whatever_its_content_type(tools: Toolset, sink: Sink) -> None:
    """TRA-1"""
    async with serving(tools) as server:
        for path in POSTS:
            for kind in (None, "", "text/plain", "application/json-patch+json", "application/jsonx", "text/json"):
                reply = await server.request("POST", path, body_for(path, sink), {"Content-Type": kind})

                assert reply.status == 200, (path, kind)


async def test_a_web_page_cannot_call_a_server_without_tokens(tools: Toolset, sink: Sink) -> None:
    """TRA-3: any page may have its reader's browser POST plain text to this machine, and JSON only once we have agreed."""
    async with serving(tools) as server:
        page = {"Content-Type": "text/plain", "Origin": "https://example.com"}
        for path in POSTS:
            for headers in (page, {**page, "Origin": "null"}, {**page, "Content-Type": None}):
                reply = await server.request("POST", path, body_for(path, sink), headers)
                assert reply.status == 401, (path, headers)
            own = {**page, "Origin": server.url}
            assert (await server.request("POST", path, body_for(path, sink), own)).status == 200


async def test_a_charset_parameter_and_any_spelling_are_accepted(tools: Toolset, sink: Sink) -> None:
    """TRA-1"""
    async with serving(tools) as server:
        for path in POSTS:
            for kind in ("application/json; charset=utf-8", "application/json;charset=UTF-8", "Application/JSON ; a=b"):
                reply = await server.request("POST", path, body_for(path, sink), {"Content-Type": kind})

                assert reply.status == 200, (path, kind)


async def test_text_arrives_in_utf_8_both_ways(tools: Toolset, sink: Sink) -> None:
    """TRA-1"""
    text = "Grüße, 世界, 🌍, \u2028"
    message = invocation(sink.url, id="c1", arguments={"text": text})
    async with serving(tools) as server:
        await server.request("POST", "/invoke", json.dumps(message, ensure_ascii=False).encode())
        post = await sink.result("c1")

        assert post.message["text"] == text
        assert post.body.decode("utf-8")
        assert post.headers["content-type"] == "application/json"


async def test_what_is_not_a_json_object_in_utf_8_is_refused(tools: Toolset, sink: Sink) -> None:
    """TRA-1, INV-14"""
    good = json.dumps(invocation(sink.url, arguments={"text": "ü"}), ensure_ascii=False)
    async with serving(tools) as server:
        bodies = (
            b"",
            b"null",
            b"[]",
            b'"text"',
            b"{",
            b"\xff\xfe",
            good.encode("latin-1"),
            good.encode("utf-16"),
            b"[" * 100_000,
        )
        for body in bodies:
            for path in POSTS:
                reply = await server.request("POST", path, body)

                if path == "/invoke":
                    assert reply.status == 400, body[:40]
                    assert reply.detail
                else:
                    assert (reply.status, reply.body) == (200, b""), (path, body[:40])
        await server.quiet()

        assert sink.posts == []


@pytest.mark.parametrize("field", ["callback_url", "group_id", "id"])
@pytest.mark.parametrize("value", [..., None, "", 7, ["x"], "a\nb", "x" * 5000], ids=lambda value: repr(value)[:12])
async def test_an_invocation_nobody_could_be_answered_for_is_refused(
    tools: Toolset, sink: Sink, field: str, value: object
) -> None:
    """INV-10, INV-14"""
    async with serving(tools) as server:
        reply = await server.invoke(
            invocation(sink.url) | {field: value} if value is not ... else _without(field, sink)
        )

        assert reply.status == 400
        assert f"invocation.{field}: " in reply.detail
        assert await server.stored_calls() == 0


def _without(field: str, sink: Sink) -> dict[str, object]:
    return {key: value for key, value in invocation(sink.url).items() if key != field}


async def test_a_callback_url_we_would_not_dial_is_refused_without_being_repeated(
    toolset: Callable[..., Toolset], caplog: pytest.LogCaptureFixture
) -> None:
    """INV-10, INV-14; whoever runs the server is told, because a runtime need not read why."""
    tools = toolset(tokens="a-token-of-some-length")
    tools.tool(name="echo")(lambda: "x")
    urls = (
        "ftp://example.com/secret",
        "file:///etc/passwd",
        "http://127.0.0.1:9/secret",
        "http://2130706433/secret",
        "http://[::1]/secret",
        "https://169.254.169.254/secret",
        "https://10.0.0.1/secret",
        "https://user:pass@example.com/secret",
        "http://example.com/secret",
        "https://localhost/secret",
        "/relative/secret",
    )
    async with serving(tools) as server:
        for url in urls:
            reply = await server.invoke(invocation(url), token="a-token-of-some-length")

            assert reply.status == 400, url
            assert "callback_url" in reply.detail
            assert "secret" not in reply.detail
        assert await server.stored_calls() == 0
    told = [record.getMessage() for record in ours(caplog) if record.levelname == "WARNING"]
    assert any("https://10.0.0.1" in each for each in told)
    assert all("callback_url" in each and "secret" not in each for each in told)


async def test_targets_the_author_allowed_are_called_back(toolset: Callable[..., Toolset], sink: Sink) -> None:
    tools = toolset(tokens="a-token-of-some-length", allow_callbacks=[sink.url])
    tools.tool(name="echo")(lambda: "x")
    async with serving(tools) as server:
        allowed = await server.invoke(invocation(sink.url, id="c1"), token="a-token-of-some-length")
        neighbour = await server.invoke(invocation("http://127.0.0.1:1/"), token="a-token-of-some-length")

        assert (allowed.status, neighbour.status) == (200, 400)
        assert (await sink.result("c1")).text == "x"


async def test_notices_that_are_none_are_answered_and_do_nothing(tools: Toolset, sink: Sink) -> None:
    """Item 8 · CLO-4, CLO-7, CAN-2"""
    begun = asyncio.Event()

    @tools.tool
    async def wait() -> None:
        """Take for ever."""
        begun.set()
        await asyncio.Event().wait()

    async with serving(tools) as server:
        await server.invoke(invocation(sink.url, "wait", id="c1"))
        await begun.wait()
        unusable: list[object] = [None, "", 7, [], {"$ne": ""}, "a\0b", "x" * 513]
        for id in unusable:
            for reply in (
                await server.post("/close_thread", {"thread_id": id}),
                await server.cancel("thread_1", id),
                await server.cancel(id, "c1"),
            ):
                assert (reply.status, reply.body) == (200, b""), id
        assert await server.stored_calls() == 1

        await server.cancel("thread_1", "c1")
        assert (await sink.result("c1")).text == "Error: Cancelled."


@pytest.mark.parametrize("field", ["id", "group_id"])
async def test_ids_of_invocations_have_512_characters_at_most(tools: Toolset, sink: Sink, field: str) -> None:
    """INV-14"""
    async with serving(tools) as server:
        assert (await server.invoke(invocation(sink.url, **{field: "ü" * 512}))).status == 200
        refused = await server.invoke(invocation(sink.url, **{field: "ü" * 513}))

        assert refused.status == 400
        assert refused.detail.startswith(f"invocation.{field}: longer than 512 characters")
        assert len(await sink.received(1)) == 1


async def test_an_operation_that_is_too_long_comes_back_as_an_error_result(tools: Toolset, sink: Sink) -> None:
    """INV-10, INV-14"""
    async with serving(tools) as server:
        assert (await server.invoke(invocation(sink.url, "x" * 513, id="c1"))).status == 200
        post = await sink.result("c1")

        assert post.text.startswith("Error: invocation.operation")
        assert "longer than 512 characters" in post.text
        assert "xxx" not in post.text


@pytest.mark.parametrize("field", ["call_id", "user_id", "toolset_version", "thread_ancestors"])
@pytest.mark.parametrize("value", ["x" * 513, {}, False], ids=["long", "object", "boolean"])
async def test_an_unusable_optional_field_is_ignored(tools: Toolset, sink: Sink, field: str, value: object) -> None:
    """Item 12 · INV-14"""
    async with serving(tools) as server:
        assert (await server.invoke(invocation(sink.url, **{"id": "c1", field: value}))).status == 200
        post = await sink.result("c1")

        assert post.text == "echo"
        assert post.message.get("call_id") is None


async def test_ids_of_notices_have_512_characters_at_most(tools: Toolset, caplog: pytest.LogCaptureFixture) -> None:
    """CLO-7, CAN-2"""
    async with serving(tools) as server:
        for length, understood in ((512, True), (513, False)):
            caplog.clear()
            long = "x" * length
            await server.post("/close_thread", {"thread_id": long})
            await server.cancel(long, "c")
            await server.cancel("t", long)
            told = [each for each in ours(caplog) if "a notice was not acted on" in each.getMessage()]
            assert len(told) == (0 if understood else 3)


@pytest.mark.parametrize("nest", [("[", "]"), ('{"a":', "}")], ids=["arrays", "objects"])
async def test_hostile_nesting_is_refused_wherever_it_is(tools: Toolset, sink: Sink, nest: tuple[str, str]) -> None:
    """INV-14, CLO-7: in a field nobody reads, in an id, closed or left open."""
    opening, closing = nest
    async with serving(tools) as server:
        for path in POSTS:
            good = body_for(path, sink).decode().removesuffix("}")
            for depth in (1_000, 40_000):
                for deep in (opening * depth + "1" + closing * depth, opening * depth):
                    for field in ("unknown", "id", "thread_id", "callback_url"):
                        reply = await server.request("POST", path, f'{good}, "{field}": {deep}}}'.encode())

                        if path == "/invoke":
                            assert reply.status == 400, (depth, field)
                            assert "not JSON in UTF-8: recursion limit exceeded" in reply.detail
                        else:
                            assert (reply.status, reply.body) == (200, b""), (path, depth, field)
        assert await server.stored_calls() == 0
        assert (await server.get("/readyz")).status == 200


@pytest.mark.parametrize("depth", [64, 65, 150])
async def test_arguments_nest_64_levels_deep_at_most(tools: Toolset, sink: Sink, depth: int) -> None:
    """INV-10, INV-14: past it the call is answered, because it still says where to."""
    arguments: object = "text"
    for _ in range(depth - 1):
        arguments = [arguments]
    async with serving(tools) as server:
        message = invocation(sink.url, id="c1", arguments={"text": arguments}, unknown=arguments)
        assert (await server.invoke(message)).status == 200
        text = (await sink.result("c1")).text

        assert text.startswith("Error: ")
        assert ("nested deeper than 64 levels" in text) == (depth > 64)


async def test_a_body_past_the_limit_is_refused(toolset: Callable[..., Toolset], sink: Sink) -> None:
    """INV-14"""
    tools = toolset(limits=Limits(body=2000))
    tools.tool(_echo)
    fits = json.dumps(invocation(sink.url, "_echo", id="c1", arguments={"text": "x"}))
    fits += " " * (2000 - len(fits))
    async with serving(tools) as server:
        exactly = await server.request("POST", "/invoke", fits.encode())
        one_more = await server.request("POST", "/invoke", fits.encode() + b" ")

        assert (exactly.status, one_more.status) == (200, 413)
        assert one_more.detail == "A message may have at most 2000 bytes."
        for path in ("/cancel_tool_call", "/close_thread"):
            assert (await server.request("POST", path, b" " * 2001)).status == 200


def _echo(text: str) -> str:
    return text


def chunked(server: ServedToolset, *chunks: bytes, end: bool = True) -> bytes:
    head = (
        f"POST /invoke HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )
    body = b"".join(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n" for chunk in chunks)
    return head.encode() + body + (b"0\r\n\r\n" if end else b"")


async def test_a_chunked_body_is_read_and_limited_too(toolset: Callable[..., Toolset], sink: Sink) -> None:
    """INV-14"""
    tools = toolset(limits=Limits(body=2000))
    tools.tool(_echo)
    message = json.dumps(invocation(sink.url, "_echo", id="c1", arguments={"text": "in pieces"})).encode()
    async with serving(tools) as server:
        good = await exchange(server.port, chunked(server, *(message[i : i + 7] for i in range(0, len(message), 7))))
        large = await exchange(server.port, chunked(server, *[b" " * 500] * 5))
        endless = await exchange(server.port, chunked(server, *[b" " * 500] * 5, end=False))

        assert [good.status, large.status, endless.status] == [200, 413, 413]
        assert (await sink.result("c1")).text == "in pieces"


@pytest.mark.parametrize("sent", [b"", b'{"operation": "echo", '], ids=["nothing", "half"])
async def test_a_body_that_does_not_come_is_given_up(toolset: Callable[..., Toolset], sent: bytes) -> None:
    tools = toolset(limits=Limits(http=HttpLimits(body_pause_seconds=0.1)))
    tools.tool(_echo)
    async with serving(tools) as server:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            head = (
                f"POST /invoke HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
                "Content-Type: application/json\r\nContent-Length: 500\r\n\r\n"
            )
            writer.write(head.encode() + sent)
            reply = await read_reply(reader)
            writer.close()

        assert reply.status == 503  # what is slow once may be fast the next time, and after a 4xx there is none
        assert reply.detail == "The body came too slowly. Send it again in 5 s."
        assert await server.stored_calls() == 0


async def test_a_sender_that_hangs_up_in_the_middle_leaves_nothing_behind(tools: Toolset) -> None:
    async with serving(tools) as server:
        for _ in range(5):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            head = f"POST /invoke HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
            writer.write(head.encode() + b'Content-Length: 500\r\n\r\n{"operation"')
            await writer.drain()
            writer.transport.abort()

        assert (await server.get("/readyz")).status == 200
        assert await server.stored_calls() == 0


async def test_what_cannot_be_stored_is_not_accepted_and_not_executed(tools: Toolset, sink: Sink) -> None:
    """INV-8, INV-11: the acknowledgement says that it is durable."""
    async with serving(tools) as server:
        with failing(tools.store_url, "INSERT", "boxes"):
            refused = await server.invoke(message := invocation(sink.url, id="c1"))
            assert refused.status == 503
            assert int(refused.headers["retry-after"]) >= 1
            assert refused.detail == "The message could not be stored. Send it again in 5 s."
        await server.quiet()
        assert sink.posts == []

        assert (await server.invoke(message)).status == 200
        await sink.result("c1")
        await server.quiet()

        assert len(sink.posts) == 1


async def test_a_notice_that_cannot_be_heeded_gets_200_all_the_same(
    tools: Toolset, caplog: pytest.LogCaptureFixture
) -> None:
    """CLO-4, CAN-2: it is never sent again, so there is nothing to ask for."""
    async with serving(tools) as server:
        with failing(tools.store_url, "INSERT", "seen"):
            assert (await server.cancel("t", "c")).status == 200

    assert "could not be stored" in caplog.text


async def test_a_notice_the_server_fails_on_gets_200_all_the_same(
    tools: Toolset, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Item 8 · CLO-4, CAN-2: a mistake of ours in the cleanup is not the sender's business."""

    async def fail(*_: object) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(ToolsetEngine, "close_thread", fail)
    monkeypatch.setattr(ToolsetEngine, "cancel", fail)
    async with serving(tools) as server:
        for reply in (await server.cancel("t", "c"), await server.post("/close_thread", {"thread_id": "t"})):
            assert (reply.status, reply.body) == (200, b"")

    assert "the server failed" in caplog.text


async def test_no_answer_has_a_body_that_tells_something(tools: Toolset, sink: Sink) -> None:
    """CLO-4, CAN-2"""
    async with serving(tools) as server:
        for path in POSTS:
            reply = await server.request("POST", path, body_for(path, sink))

            assert (reply.status, reply.body) == (200, b"")


async def test_a_cancellation_sent_to_close_a_thread_closes_nothing(tools: Toolset, sink: Sink) -> None:
    """CLO-4, CLO-5: who has overheard a signed one cannot make more of it. What only looks like one is none."""
    begun = asyncio.Event()

    @tools.tool
    async def wait() -> None:
        """Take for ever."""
        begun.set()
        await asyncio.Event().wait()

    async with serving(tools) as server:
        await server.invoke(invocation(sink.url, "wait", id="c1"))
        await begun.wait()
        for body in (
            b'{"thread_id": "thread_1", "tool_call_id": "c9"}',
            rb'{"tool\u005fcall_id":"c9","thread_id":"thread_1"}',
        ):
            assert (await server.request("POST", "/close_thread", body)).status == 200
        assert await server.stored_calls() == 1

        assert (await server.post("/close_thread", {"thread_id": "tool_call_id"})).status == 200
        assert (await server.post("/close_thread", {"thread_id": "thread_1", "tool_call_id": None})).status == 200
        assert (await sink.result("c1")).text == "Error: Cancelled."


@pytest.mark.parametrize(
    ("callback_url", "why", "advised"),
    [
        ("http://127.0.0.1:9/very-secret", "http://127.0.0.1:9 leads to 127.0.0.1, which is loopback.", True),
        ("http://agent.example/very-secret", "http://agent.example:80 speaks plain http", True),
        ("https://very-secret@agent.example/", "The URL has a user name or password in it", False),
    ],
    ids=["loopback", "plain http", "no URL for it"],
)
async def test_a_callback_url_we_do_not_dial_is_refused_with_how_to_allow_it(
    toolset: Callable[..., Toolset],
    callback_url: str,
    why: str,
    advised: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The runtime need not read our answer, so it is in our log as well."""
    tools = toolset(tokens="a-token-of-some-length")
    tools.tool(name="echo")(lambda: "x")
    async with serving(tools) as server:
        reply = await server.invoke(invocation(callback_url), "a-token-of-some-length")

    (said,) = [each.message for each in ours(caplog) if each.name == "rapkit.http"]
    assert reply.status == 400
    assert said == f"a call was refused: {reply.detail}"
    assert reply.detail.startswith(f"callback_url: {why}")
    assert ("rapkit serve --allow-callback, or Toolset(allow_callbacks=...)" in said) == advised
    assert "very-secret" not in caplog.text
