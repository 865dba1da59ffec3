import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from rapkit import Limits, Toolset
from rapkit.errors import ConfigError
from rapkit.http.authentication import Callers
from rapkit.http.rate_limit import RateLimit
from rapkit.protocol import parse_invocation
from rapkit.server.endpoints.notices import NoticeEndpoint
from rapkit.server.engine import ToolsetEngine
from rapkit.server.invocation import StoredCall
from rapkit.stores import open_store
from tests.server.endpoint_server import opened
from tests.server.served_toolset import invocation, serving, until
from tests.server.sink import Sink


async def test_acknowledgements_do_not_wait_for_blocking_handlers(toolset: Callable[..., Toolset], sink: Sink) -> None:
    """INV-8: every worker is stuck in a handler that blocks its thread."""
    tools = toolset(limits=Limits(concurrency=3))
    release = threading.Event()
    started: list[int] = []

    @tools.tool
    def block(number: int) -> int:
        """Block."""
        started.append(number)
        release.wait()
        return number

    async with serving(tools) as server:
        try:
            for number in range(20):
                message = invocation(sink.url, "block", id=f"c{number}", arguments={"number": number})
                assert (await server.invoke(message)).status == 200
            await until(lambda: len(started) == 3)

            assert await server.stored_calls() == 20
            assert sink.posts == []
            assert len(started) == 3
        finally:
            release.set()
        posts = await sink.received(20)

        assert {post.message["id"]: post.text for post in posts} == {f"c{n}": str(n) for n in range(20)}


async def test_acknowledgements_do_not_wait_for_async_handlers(toolset: Callable[..., Toolset], sink: Sink) -> None:
    """INV-8, INV-18"""
    tools = toolset(limits=Limits(concurrency=2))
    release = asyncio.Event()
    running = 0
    most = 0

    @tools.tool
    async def wait() -> None:
        """Wait."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await release.wait()
        running -= 1

    async with serving(tools) as server:
        for number in range(10):
            assert (await server.invoke(invocation(sink.url, "wait", id=f"c{number}"))).status == 200
        await until(lambda: running == 2)
        assert sink.posts == []
        release.set()
        await sink.received(10)

        assert most == 2


async def test_a_crowd_that_comes_at_once_keeps_to_the_concurrency(toolset: Callable[..., Toolset], sink: Sink) -> None:
    tools = toolset(limits=Limits(concurrency=2))
    running = 0
    most = 0

    @tools.tool
    async def work() -> None:
        """Work a little."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    async with serving(tools) as server:
        crowd = [server.invoke(invocation(sink.url, "work", id=f"c{number}")) for number in range(60)]
        assert {reply.status for reply in await asyncio.gather(*crowd)} == {200}
        await sink.received(60)

    assert most == 2


async def test_an_acknowledgement_comes_before_any_handler_has_ended(
    toolset: Callable[..., Toolset], sink: Sink
) -> None:
    """INV-8: what the tool takes is no part of it; how long it is in milliseconds the benchmark tells."""
    tools = toolset(limits=Limits(concurrency=4))
    release = threading.Event()
    tools.tool(name="slow")(lambda: release.wait())

    async with serving(tools) as server:
        for number in range(15):
            assert (await server.invoke(invocation(sink.url, "slow", id=f"c{number}"))).status == 200
        assert sink.posts == []
        release.set()
        await sink.received(15)


async def test_past_the_backlog_the_caller_is_asked_to_come_back(toolset: Callable[..., Toolset], sink: Sink) -> None:
    """INV-8, INV-15, INV-17"""
    tools = toolset(limits=Limits(concurrency=1, backlog=3))
    release = asyncio.Event()
    ran: list[int] = []

    @tools.tool
    async def wait(number: int) -> None:
        """Wait."""
        await release.wait()
        ran.append(number)

    def call(number: int) -> dict[str, Any]:
        return invocation(sink.url, "wait", id=f"c{number}", arguments={"number": number})

    async with serving(tools) as server:
        accepted = [(await server.invoke(call(number))).status for number in range(3)]
        refused = await server.invoke(call(3))
        again = [(await server.invoke(call(number))).status for number in range(3)]

        assert accepted == again == [200, 200, 200]
        assert refused.status == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.detail.startswith("Too much to do right now. Send it again in ")

        release.set()
        await server.quiet()
        assert ran == [0, 1, 2]

        assert (await server.invoke(call(3))).status == 200
        await server.quiet()
        assert ran == [0, 1, 2, 3]
        assert sorted(post.message["id"] for post in sink.posts) == ["c0", "c1", "c2", "c3"]


async def test_a_crowd_at_once_cannot_exceed_the_backlog(toolset: Callable[..., Toolset], sink: Sink) -> None:
    """INV-15"""
    tools = toolset(limits=Limits(concurrency=1, backlog=5))
    release = asyncio.Event()
    tools.tool(name="wait")(release.wait)
    async with serving(tools) as server:
        crowd = [server.invoke(invocation(sink.url, "wait", id=f"c{number}")) for number in range(40)]
        statuses = [reply.status for reply in await asyncio.gather(*crowd)]

        assert sorted(statuses) == [200] * 5 + [503] * 35
        release.set()
        await server.quiet()
        assert len(sink.posts) == 5


async def test_calls_that_were_cancelled_make_room(toolset: Callable[..., Toolset], sink: Sink) -> None:
    """CAN-3"""
    tools = toolset(limits=Limits(concurrency=2, backlog=2))
    tools.tool(name="wait")(asyncio.Event().wait)
    async with serving(tools) as server:
        for id in ("c1", "c2"):
            await server.invoke(invocation(sink.url, "wait", id=id))
        assert (await server.invoke(invocation(sink.url, "wait", id="c3"))).status == 503

        await server.cancel("thread_1", "c1")
        await sink.result("c1")
        assert (await server.invoke(invocation(sink.url, "wait", id="c3"))).status == 200
        await server.post("/close_thread", {"thread_id": "thread_1"})


async def test_each_caller_has_a_rate_of_its_own(toolset: Callable[..., Toolset], sink: Sink) -> None:
    """INV-15"""
    anna, bert = "the-token-of-anna", "the-token-of-bert"
    tools = toolset(tokens={"anna": anna, "bert": bert}, allow_callbacks=[sink.url], limits=Limits(rate=2))
    ran: list[str] = []
    tools.tool(name="note")(lambda: ran.append("x"))
    async with serving(tools) as server:
        crowd = [server.invoke(invocation(sink.url, "note"), anna) for _ in range(10)]
        replies = await asyncio.gather(*crowd)
        refused = [reply for reply in replies if reply.status == 503]

        assert {reply.status for reply in replies} == {200, 503}
        assert all(reply.headers["retry-after"] == "1" for reply in refused)
        assert (await server.invoke(invocation(sink.url, "note"), bert)).status == 200
        await server.quiet()
        assert len(ran) == 10 - len(refused) + 1


async def test_one_caller_cannot_have_every_place_nor_all_of_the_backlog(
    toolset: Callable[..., Toolset], sink: Sink
) -> None:
    anna, bert = "the-token-of-anna", "the-token-of-bert"
    limits = Limits(concurrency=16, backlog=80)
    tools = toolset(tokens={"anna": anna, "bert": bert}, allow_callbacks=[sink.url], limits=limits)
    release = asyncio.Event()
    running = 0

    @tools.tool
    async def wait() -> None:
        """Wait."""
        nonlocal running
        running += 1
        await release.wait()

    tools.tool(name="greet")(lambda: "Hello.")
    async with serving(tools) as server:
        replies = [(await server.invoke(invocation(sink.url, "wait", id=f"a{n}"), anna)).status for n in range(80)]
        assert replies == [200] * 70 + [503] * 10
        await until(lambda: running == 14)

        # More than there are places left, so that some of them are found in the store, behind those of the other caller.
        assert [(await server.invoke(invocation(sink.url, "greet", id=f"b{n}"), bert)).status for n in range(5)] == [
            200
        ] * 5
        posts = await sink.received(5)
        assert {post.message["id"] for post in posts} == {f"b{n}" for n in range(5)}
        assert running == 14
        release.set()
        await sink.received(75)


async def test_the_calls_of_one_caller_that_wait_in_the_store_do_not_keep_another_s_from_running(
    toolset: Callable[..., Toolset], sink: Sink, tmp_path: Path
) -> None:
    """Thousands were accepted from one caller before those of the other, and the server was started again."""
    tokens = {"anna": "the-token-of-anna", "bert": "the-token-of-bert"}
    tools = toolset(tokens=tokens, allow_callbacks=[sink.url], limits=Limits(concurrency=16))
    release = asyncio.Event()

    @tools.tool
    async def wait() -> None:
        """Wait."""
        await release.wait()

    tools.tool(name="greet")(lambda: "Hello.")
    store = open_store(f"sqlite:///{tmp_path}/tools.db")
    for caller, operation, count in (("anna", "wait", 5000), ("bert", "greet", 3)):
        bodies = [json.dumps(invocation(sink.url, operation, id=f"{caller}{n}")).encode() for n in range(count)]
        calls = [StoredCall(tools.name, caller, parse_invocation(body), body) for body in bodies]
        await asyncio.gather(*(store.create(call.to_box()) for call in calls))
    await store.close()

    async with serving(tools):
        posts = await sink.received(3)

        assert {post.message["id"] for post in posts} == {"bert0", "bert1", "bert2"}


def test_the_rate_of_invocations_is_limited_by_default_far_above_what_a_runtime_sends() -> None:
    """Item 14 · INV-15"""
    rate = Limits().rate
    assert rate is not None
    assert rate >= 5000


async def test_past_their_rate_notices_are_answered_and_not_acted_on() -> None:
    """CLO-8, CAN-2: whatever we say, they are not sent again."""
    now = 100.0
    notices = RateLimit(4, lambda: now)
    heeded: list[str] = []

    async def heed(_engine: ToolsetEngine, caller: str, _body: bytes) -> None:
        heeded.append(caller)

    callers = Callers({"anna": "the-token-of-anna", "bert": "the-token-of-bert"})
    endpoint = NoticeEndpoint(heed, lambda: cast("ToolsetEngine", None), callers, Limits(body=1000), notices)
    async with opened({"/close_thread": endpoint, "/cancel_tool_call": endpoint}) as doors:

        async def send(path: str, name: str) -> tuple[int, bytes]:
            reply = await doors.post(path, b"{}", {"Authorization": f"Bearer the-token-of-{name}"})
            return reply.status, reply.body

        for path in ("/close_thread", "/cancel_tool_call"):
            assert [await send(path, "anna") for _ in range(5)] == [(200, b"")] * 5
        assert heeded == ["anna"] * 4

        assert await send("/close_thread", "bert") == (200, b"")
        assert heeded == ["anna"] * 4 + ["bert"]

        now += 0.25
        assert await send("/close_thread", "anna") == (200, b"")
        assert heeded == ["anna"] * 4 + ["bert", "anna"]
        assert await send("/close_thread", "nobody") != (200, b"")


async def test_a_toolset_s_notices_are_limited_for_each_caller(toolset: Callable[..., Toolset], sink: Sink) -> None:
    """CLO-8, CAN-2"""
    anna, bert = "the-token-of-anna", "the-token-of-bert"
    tokens = {"anna": anna, "bert": bert}
    # So slow that no second notice comes due while the test runs.
    tools = toolset(tokens=tokens, allow_callbacks=[sink.url], limits=Limits(notices=0.0001))
    release = asyncio.Event()

    @tools.tool
    async def wait() -> str:
        """Wait."""
        await release.wait()
        return "not cancelled"

    async with serving(tools) as server:
        for id, token in (("a1", anna), ("a2", anna), ("b1", bert)):
            await server.invoke(invocation(sink.url, "wait", id=id, group_id="t"), token)
        for id in ("unknown", "a1"):
            assert (await server.cancel("t", id, anna)).status == 200
        assert (await server.post("/close_thread", {"thread_id": "t"}, anna)).status == 200
        assert (await server.cancel("t", "b1", bert)).status == 200
        assert (await sink.result("b1")).text == "Error: Cancelled."

        release.set()
        assert (await sink.result("a1")).text == "not cancelled"
        assert (await sink.result("a2")).text == "not cancelled"


async def test_a_stranger_s_notices_do_not_use_up_what_callers_may_send() -> None:
    """CLO-6, CLO-8"""
    heeded: list[str] = []

    async def heed(_engine: ToolsetEngine, caller: str, _body: bytes) -> None:
        heeded.append(caller)

    callers = Callers({"anna": "the-token-of-anna"})
    endpoint = NoticeEndpoint(
        heed, lambda: cast("ToolsetEngine", None), callers, Limits(body=1000), RateLimit(1, lambda: 0.0)
    )
    async with opened({"/": endpoint}) as doors:
        for _ in range(5):
            assert (await doors.post("/", b"{}")).status == 401
        assert (await doors.post("/", b"{}", {"Authorization": "Bearer the-token-of-anna"})).status == 200

    assert heeded == ["anna"]


@pytest.mark.parametrize(
    "limits",
    [
        {"concurrency": 0},
        {"backlog": 0},
        {"rate": 0.0},
        {"rate": -1.0},
        {"notices": 0},
        {"notices": float("nan")},
        {"strangers": 0},
        {"strangers": -0.5},
        {"body": 0},
        {"result": 0},
    ],
    ids=str,
)
def test_limits_nothing_could_pass_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(limits))):
        Limits(**limits)


def test_notices_and_strangers_are_limited_unless_somebody_says_otherwise() -> None:
    """CLO-8"""
    assert (Limits().notices, Limits().strangers) == (1000, 20)
    assert Limits(notices=None, strangers=None).notices is None


def test_a_server_has_ten_thousand_subscriptions_unless_it_is_given_another_limit() -> None:
    """A default that is never reached would be none."""
    assert Limits().subscriptions == 10_000


def test_no_message_may_be_larger_than_the_mail_that_is_read_at_once() -> None:
    with pytest.raises(ConfigError, match=r"body is 2000 bytes and mail 1999: .* raise mail to 2000 or more"):
        Limits(body=2000, mail=1999)
    Limits(body=2000, mail=2000)
