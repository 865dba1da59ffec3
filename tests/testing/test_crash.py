"""Servers that are lost, and their successors."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

import pytest

from rapkit import Context, Event, Toolset, testing
from rapkit.delivery.http_client import HttpResponse
from rapkit.errors import DeliveryError, Fenced
from rapkit.keyring import Keyring
from rapkit.mailbox import NewBox
from rapkit.stores.sqlite import SqliteStore
from rapkit.testing.activity import Activity
from rapkit.testing.crashable_run import CrashableRun


@pytest.fixture
def events() -> list[str]:
    return []


@pytest.fixture
def tools(events: list[str]) -> Toolset:
    tools = Toolset("tools")

    @tools.tool(idempotent=True)
    async def harmless(ctx: Context) -> str:
        """Can be done twice."""
        events.append("harmless")
        await ctx.sleep(10)
        return f"done {len(events)} times"

    @tools.tool
    async def harmful(ctx: Context) -> str:
        """Cannot."""
        events.append("harmful")
        with contextlib.suppress(asyncio.CancelledError):
            await ctx.sleep(10)
        await ctx.view("last words", "of a dead server")
        return "said by a dead server"

    @tools.subscription
    async def count(ctx: Context) -> AsyncIterator[Event]:
        """Count."""
        for number in range(int(ctx.cursor or 0) + 1, 4):
            yield Event(str(number), cursor=str(number))
            await ctx.sleep(10)

    return tools


async def test_work_that_can_be_done_twice_is_done_again(tools: Toolset, events: list[str]) -> None:
    """INV-13"""
    async with testing.serve(tools) as client:
        call = await client.start("harmless")
        await client.settled()

        await client.crash()
        await client.advance(10)

        assert (await call.result()).text == "done 2 times"


async def test_work_that_cannot_is_answered_with_an_error_and_nothing_the_dead_say_is_heard(
    tools: Toolset, events: list[str]
) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("harmful")
        await client.settled()

        await client.crash()
        await client.advance(60)

        assert "it is not known whether it took effect" in (await call.result()).text
        assert events == ["harmful"]
        assert client.views == {}


async def test_subscriptions_go_on(tools: Toolset) -> None:
    """SUB-6"""
    async with testing.serve(tools) as client:
        watch = await client.subscribe("count")
        await watch.event()

        for _ in range(3):
            await client.crash()
            await client.advance(10)

        assert [event.text for event in watch.events][:3] == ["1", "2", "3"]
        assert watch.ended


async def test_a_result_that_was_on_its_way_arrives_once(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        client.callbacks.hang()
        call = await client.start("harmless")
        await client.advance(10)
        assert client.callbacks.attempts == 1

        await client.crash()
        await client.settled()
        client.callbacks.up()

        assert (await call.result()).text == "done 1 times"
        await client.settled()
        assert len(client.messages) == 1


async def test_a_restart_in_order_leaves_nothing_undone(tools: Toolset, events: list[str]) -> None:
    async with testing.serve(tools) as client:
        watch = await client.subscribe("count")
        await watch.event()

        await client.restart()
        await client.advance(60)

        assert [event.text for event in watch.events][:3] == ["1", "2", "3"]


async def test_the_dead_write_nothing_and_send_nothing() -> None:
    posts: list[str] = []

    class Poster:
        async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
            posts.append(url)
            return HttpResponse(200)

    store = SqliteStore(":memory:", Keyring.random())
    life = CrashableRun(store, Activity())
    async with life.transport(Poster()) as line:
        assert await life.store.create(NewBox("before", "box"))
        await line.post("http://before", b"", {})

        writing = asyncio.create_task(life.store.create(NewBox("meanwhile", "box")))
        await asyncio.sleep(0)
        await life.end()

        with pytest.raises(Fenced):  # it happened, and nobody hears of it
            await writing
        with pytest.raises(Fenced):
            await life.store.create(NewBox("after", "box"))
        with pytest.raises(DeliveryError):
            await line.post("http://after", b"", {})
        await life.store.close()  # as if it were its own
    assert [await store.known(id) for id in ("before", "meanwhile", "after")] == [True, True, False]
    assert posts == ["http://before"]
    await store.close()


async def test_a_server_can_be_lost_at_every_step(tools: Toolset, events: list[str]) -> None:
    """INV-11, INV-13: wherever the server is lost, a call that was acknowledged is answered once."""
    for step in range(100):
        events.clear()
        async with testing.serve(tools) as client:
            client.crash_after(step)
            try:
                call = await client.start("harmless")
            except AssertionError:
                assert step == 0  # it was not acknowledged
                continue
            await client.advance(10)
            lost = client.lost
            await client.crash()
            await client.advance(10)

            assert (await call.result()).text in ("done 1 times", "done 2 times")
        if not lost:
            break
    assert 4 < step < 100, "so many steps are in a call"


async def test_what_was_asked_for_last_can_be_done_without_anybody_knowing() -> None:
    store = SqliteStore(":memory:", Keyring.random())
    ended: list[str] = []
    life = CrashableRun(store, Activity())
    life.end_after(1, lambda: ended.append("over"), unheard=True)

    assert await life.store.create(NewBox("first", "kind"))
    assert await life.store.known("first")  # looking does not count
    with pytest.raises(Fenced):
        await life.store.create(NewBox("second", "kind"))

    assert ended == ["over"]
    assert await store.known("second")
    await store.close()
