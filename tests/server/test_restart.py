"""What is stopped in the middle, and started again on the same file."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable

import pytest

from rapkit import Durations, Limits, Toolset
from rapkit.server.invocation import call_kind
from rapkit.stores import open_store
from tests.server.served_toolset import failing, invocation, serving, until
from tests.server.sink import Sink, after, answer, never

UNKNOWN = (
    "Error: the server was interrupted while pay ran, and it is not known whether it took effect. "
    "Find out before you call it again."
)


class Shop:
    """The same tools, started several times on one file. Handlers wait until `open`, and note when they run."""

    def __init__(self, make: Callable[..., Toolset]) -> None:
        self._make = make
        self.open = asyncio.Event()
        self.ran: list[str] = []

    async def ran_times(self, times: int) -> None:
        await until(lambda: len(self.ran) == times)

    def tools(self, grace: float = 0, concurrency: int = 256, lease: float = 6) -> Toolset:
        durations = Durations(grace=grace, lease=lease)
        tools = self._make(durations=durations, limits=Limits(concurrency=concurrency))

        async def work(name: str) -> str:
            self.ran.append(name)
            await self.open.wait()
            return f"{name} done"

        @tools.tool(read_only=True)
        async def look() -> str:
            """Look."""
            return await work("look")

        @tools.tool(idempotent=True)
        async def put() -> str:
            """Put."""
            return await work("put")

        @tools.tool
        async def pay() -> str:
            """Pay."""
            return await work("pay")

        return tools


@pytest.fixture
def shop(toolset: Callable[..., Toolset]) -> Shop:
    return Shop(toolset)


async def test_interrupted_calls_run_again_if_that_does_no_harm_and_are_reported_otherwise(
    shop: Shop, sink: Sink
) -> None:
    """INV-13, INV-11, CB-5"""
    async with serving(shop.tools()) as server:
        for operation in ("look", "put", "pay"):
            await server.invoke(invocation(sink.url, operation, id=operation))
        await until(lambda: len(shop.ran) == 3)
    assert sink.posts == []

    shop.open.set()
    async with serving(shop.tools()) as server:
        await sink.received(3)
        await server.quiet()

    assert {post.message["id"]: post.text for post in sink.posts} == {
        "look": "look done",
        "put": "put done",
        "pay": UNKNOWN,
    }
    assert sorted(shop.ran) == ["look", "look", "pay", "put", "put"]
    assert len(sink.posts) == 3


async def test_a_call_that_was_accepted_and_never_started_runs_after_the_restart(shop: Shop, sink: Sink) -> None:
    """INV-13"""
    async with serving(shop.tools(concurrency=1)) as server:
        await server.invoke(invocation(sink.url, "look", id="first"))
        await until(lambda: shop.ran == ["look"])
        for number in range(5):
            await server.invoke(invocation(sink.url, "pay", id=f"c{number}"))
    assert shop.ran == ["look"]

    shop.open.set()
    async with serving(shop.tools()) as server:
        await sink.received(6)
        await server.quiet()

    assert sorted(post.text for post in sink.posts) == ["look done", *["pay done"] * 5]


@pytest.mark.parametrize(
    ("operation", "lost", "text"),
    [
        ("look", 1, "look done"),
        ("put", 2, "put done"),
        ("put", 3, "Error: put was interrupted 3 times and given up. Tell the user."),
        ("pay", 1, UNKNOWN),
    ],
)
async def test_a_call_whose_server_was_lost_runs_again_a_few_times_if_that_does_no_harm(
    shop: Shop, sink: Sink, operation: str, lost: int, text: str
) -> None:
    """INV-13, INV-11: whoever ran it is gone without a word, as after kill -9."""
    tools = shop.tools(concurrency=1)
    async with serving(tools) as server:
        await server.invoke(invocation(sink.url, "look", id="first"))
        await shop.ran_times(1)
        await server.invoke(invocation(sink.url, operation, id="c1"))
    store = open_store(tools.store_url)
    for number in range(lost):
        await store.renew(f"lost {number}")
        assert await store.claim(f"lost {number}", call_kind(tools.name), 10)
        await store.retire(f"lost {number}")
    await store.close()

    shop.open.set()
    async with serving(shop.tools()) as server:
        assert (await sink.result("c1")).text == text


async def test_many_restarts_in_a_row_lose_nothing_and_say_nothing_twice(shop: Shop, sink: Sink) -> None:
    """INV-13, CB-5: stopped whenever, also in the middle of fetching work."""
    shop.open.set()
    sent: set[str] = set()
    for turn in range(15):
        async with serving(shop.tools()) as server:
            for number in range(8):
                message = invocation(sink.url, ("look", "pay")[number % 2], id=f"c{turn}.{number}")
                assert (await server.invoke(message)).status == 200
                sent.add(message["id"])
            await asyncio.sleep(0.003 * (turn % 4))
    async with serving(shop.tools()) as server:
        await server.quiet()

    results: dict[str, set[str]] = {}
    for post in sink.posts:
        results.setdefault(post.message["id"], set()).add(post.webhook_id)
    assert set(results) == sent
    # A POST may be repeated when its answer was lost in the stop; a second result may not exist.
    assert {len(ids) for ids in results.values()} == {1}


async def test_a_call_nobody_began_is_not_reported_as_interrupted(shop: Shop, sink: Sink) -> None:
    """INV-13: however the stop falls between claiming calls and starting them, what never ran is not said to be lost."""
    shop.open.set()
    for turn in range(20):
        async with serving(shop.tools(grace=5)) as server:
            await asyncio.gather(*(server.invoke(invocation(sink.url, "pay", id=f"c{turn}.{n}")) for n in range(6)))
    async with serving(shop.tools()) as server:
        await server.quiet()

    assert {post.text for post in sink.posts} == {"pay done"}
    assert len(shop.ran) == 120


async def test_results_that_could_not_be_delivered_are_delivered_after_the_restart(shop: Shop, sink: Sink) -> None:
    """INV-13, CB-3"""
    shop.open.set()
    await sink.down()
    async with serving(shop.tools()) as server:
        for operation in ("look", "pay"):
            await server.invoke(invocation(sink.url, operation, id=operation))

        async def ended() -> None:
            while len(await server.undelivered()) < 2:
                await asyncio.sleep(0.01)

        await asyncio.wait_for(ended(), 60)
    await sink.up()
    async with serving(shop.tools()) as server:
        await sink.received(2)
        await server.quiet()

    assert sorted(post.text for post in sink.posts) == ["look done", "pay done"]
    assert sorted(shop.ran) == ["look", "pay"]


async def test_a_delivery_cut_off_by_the_stop_is_repeated_as_the_same_message(shop: Shop, sink: Sink) -> None:
    """INV-13, CB-5"""
    shop.open.set()
    sink.script = [never]
    async with serving(shop.tools()) as server:
        await server.invoke(invocation(sink.url, "pay", id="c1"))
        await sink.received(1)
    async with serving(shop.tools()) as server:
        first, second = await sink.received(2)
        await server.quiet()

    assert (first.body, first.webhook_id) == (second.body, second.webhook_id)
    assert len(sink.posts) == 2
    assert shop.ran == ["pay"]


async def test_a_repetition_is_recognised_after_a_restart(shop: Shop, sink: Sink) -> None:
    """INV-17"""
    shop.open.set()
    message = invocation(sink.url, "pay", id="c1")
    for _ in range(3):
        async with serving(shop.tools()) as server:
            assert (await server.invoke(message)).status == 200
            await sink.result("c1")
            await server.quiet()

    assert shop.ran == ["pay"]
    assert len(sink.posts) == 1


async def test_a_cancellation_outlives_a_restart(shop: Shop, sink: Sink) -> None:
    """CAN-2"""
    shop.open.set()
    async with serving(shop.tools()) as server:
        await server.cancel("thread_1", "c1")
    async with serving(shop.tools()) as server:
        await server.invoke(invocation(sink.url, "pay", id="c1"))
        assert (await sink.result("c1")).text == "Error: Cancelled."

    assert shop.ran == []


async def test_a_call_whose_tool_is_gone_after_the_restart_is_answered(
    toolset: Callable[..., Toolset], shop: Shop, sink: Sink
) -> None:
    """INV-11, DIS-8"""
    async with serving(shop.tools()) as server:
        await server.invoke(invocation(sink.url, "look", id="c1"))
        await until(lambda: shop.ran == ["look"])
    changed = toolset()
    changed.tool(name="peek")(lambda: "x")
    async with serving(changed) as server:
        assert (await sink.result("c1")).text == "Error: there is no operation 'look'. There are: peek."


async def test_running_handlers_may_end_within_the_grace(shop: Shop, sink: Sink) -> None:
    """INV-13: a clean stop; the result is delivered before the server is gone."""
    async with serving(shop.tools(grace=10)) as server:
        await server.invoke(invocation(sink.url, "pay", id="c1"))
        await until(lambda: shop.ran == ["pay"])
        asyncio.get_running_loop().call_later(0.5, shop.open.set)

    assert [post.text for post in sink.posts] == ["pay done"]


async def test_what_is_queued_is_delivered_before_the_server_is_gone(shop: Shop, sink: Sink) -> None:
    """INV-13: more than may be under way to one receiver at once."""
    shop.open.set()
    release = asyncio.Event()
    sink.otherwise = after(release, answer(200))
    async with serving(shop.tools(grace=10)) as server:
        for _ in range(4):
            await asyncio.gather(*(server.invoke(invocation(sink.url, "pay")) for _ in range(50)))
        asyncio.get_running_loop().call_later(0.5, release.set)

    assert await server.undelivered() == []
    assert len(sink.posts) == 200


async def test_a_thread_that_cannot_be_stopped_does_not_hold_up_the_stop(
    toolset: Callable[..., Toolset], sink: Sink
) -> None:
    release = threading.Event()
    tools = toolset(durations=Durations(grace=0))
    tools.tool(name="block")(lambda: release.wait())
    try:
        started = time.monotonic()
        async with serving(tools) as server:
            await server.invoke(invocation(sink.url, "block", id="c1"))
            await asyncio.sleep(0.05)
        assert time.monotonic() - started < 5
    finally:
        release.set()


async def test_a_store_that_fails_does_not_keep_the_server_from_stopping(
    shop: Shop, sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    """INV-11: and what it could not write down is found out after the next start."""
    tools = shop.tools(lease=0.4)
    with contextlib.ExitStack() as stack:
        async with asyncio.timeout(10), serving(tools) as server:
            await server.invoke(invocation(sink.url, "pay", id="c1"))
            await shop.ran_times(1)
            stack.enter_context(failing(tools.store_url, "UPDATE", "boxes"))
        assert "cannot give a call back" in caplog.text
    async with serving(shop.tools(lease=0.4)) as server:
        assert (await sink.result("c1")).text == UNKNOWN


async def test_a_call_interrupted_again_and_again_by_clean_stops_still_ends(shop: Shop, sink: Sink) -> None:
    """INV-13, INV-18"""
    for times in range(1, 6):
        async with serving(shop.tools()) as server:
            await server.invoke(invocation(sink.url, "look", id="c1"))
            await shop.ran_times(times)
    shop.open.set()
    async with serving(shop.tools()) as server:
        assert (await sink.result("c1")).text == "look done"
        await server.quiet()

    assert len(sink.posts) == 1
