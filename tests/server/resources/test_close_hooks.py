"""A closed thread, whole: its calls and subscriptions end, what is kept for it goes, and only what is its own."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rapkit import ClosedThread, Context, Durations, Event, OAuthProvider, Toolset, testing

DAY = 24 * 3600.0


class House:
    """A toolset whose threads leave things lying around, and what was told when they were closed."""

    def __init__(self) -> None:
        self.closed: list[tuple[str, dict[str, object], list[str]]] = []
        self.folders: list[Path] = []
        self.busy = asyncio.Event()
        self.tools = Toolset("house", tokens={"one": "a" * 20, "two": "b" * 20}, allow_callbacks=["127.0.0.1"])
        tools = self.tools

        @tools.tool
        async def leave(thing: str, ctx: Context) -> str:
            """Leave something."""
            ctx.state[thing] = ctx.thread_id
            (ctx.workspace() / thing).write_text(thing)
            self.folders.append(ctx.workspace())
            return ", ".join(sorted(file.name for file in ctx.workspace().iterdir())) + f"; {sorted(ctx.state)}"

        @tools.tool
        async def linger(ctx: Context) -> str:
            """Stay for ever."""
            self.busy.set()
            await asyncio.Event().wait()
            return "never"

        @tools.subscription
        async def tick(ctx: Context) -> AsyncIterator[Event]:
            """Tick."""
            while True:
                await ctx.sleep(60)
                yield Event("tick")

        @tools.on_thread_close
        async def note(thread: ClosedThread) -> None:
            names = sorted(file.name for file in thread.workspace.iterdir()) if thread.workspace else []
            self.closed.append((thread.thread_id, dict(thread.state), names))


@pytest.fixture
def house() -> House:
    return House()


async def test_closing_a_thread_ends_its_calls_and_clears_up_after_it(house: House) -> None:
    """CLO-5, CLO-10, semantics 27: running handlers, subscriptions, workspace, state; the hooks see what is about to go."""
    async with testing.serve(house.tools) as client:
        await client.call("leave", thing="an umbrella")
        lingering = await client.start("linger")
        ticking = await client.subscribe("tick")
        await house.busy.wait()

        await client.close_thread()
        assert (await lingering.result()).text == "Error: Cancelled."
        await client.settled()
        assert house.closed == [("thread_1", {"an umbrella": "thread_1"}, ["an umbrella"])]
        assert not house.folders[0].exists()
        await client.advance(300)
        assert ticking.events == []

        await client.close_thread()  # repeats are harmless
        await client.settled()
        assert len(house.closed) == 1


async def test_a_closed_thread_that_calls_again_begins_anew(house: House) -> None:
    """CLO-11: notices and invocations come in any order."""
    async with testing.serve(house.tools) as client:
        await client.close_thread()
        assert (await client.call("leave", thing="a hat")).text == "a hat; ['a hat']"
        await client.close_thread()
        await client.settled()
        assert (await client.call("leave", thing="a coat")).text == "a coat; ['a coat']"


async def test_others_keep_theirs(house: House) -> None:
    """Semantics 26: the same thread id of another caller is another thread."""
    async with testing.serve(house.tools, caller="one") as client:
        other, sibling = client.as_(caller="two"), client.as_(thread_id="thread_2")
        for who in (client, other, sibling):
            await who.call("leave", thing="a book")
        await client.close_thread()
        await client.settled()

        assert len(house.closed) == 1
        for who in (other, sibling):
            assert (await who.call("leave", thing="a pen")).text == "a book, a pen; ['a book', 'a pen']"


async def test_a_thread_that_is_never_closed_is_forgotten_in_the_end(house: House) -> None:
    """CLO-9: thirty days after its last call."""
    async with testing.serve(house.tools) as client:
        await client.call("leave", thing="a glove")
        await client.advance(20 * DAY)
        await client.call("leave", thing="a scarf")
        await client.advance(20 * DAY)
        assert house.closed == []
        assert house.folders[0].exists()

        await client.advance(11 * DAY)
        await client.settled()
        assert [thread for thread, _, _ in house.closed] == ["thread_1"]
        assert not house.folders[0].exists()


async def test_what_was_to_be_cleared_up_when_the_server_was_lost_is_cleared_up_by_the_next(house: House) -> None:
    """CLO-5: the hooks may hear of it twice."""
    async with testing.serve(house.tools) as client:
        await client.call("leave", thing="a key")
        await client.close_thread()
        await client.crash()
        await client.settled()

        assert {thread for thread, _, _ in house.closed} == {"thread_1"}
        assert not house.folders[0].exists()


async def test_an_event_after_the_closing_reaches_nobody() -> None:
    """SUB-5, CLO-5"""
    tools = Toolset("news", durations=Durations(keep_threads=DAY))

    @tools.subscription(topic="news/{about}")
    async def news(about: str, payload: str) -> str:
        """Tell me."""
        return payload

    async with testing.serve(tools) as client:
        mine = await client.subscribe("news", about="rain")
        theirs = await client.as_(thread_id="thread_2").subscribe("news", about="rain")
        await tools.emit("news/rain", "it rains")
        await mine.event()
        await client.close_thread()
        await tools.emit("news/rain", "it pours")

        await theirs.event()
        assert (await theirs.event()).text == "it pours"
        await client.settled()
        assert len(mine.events) == 1


async def test_what_is_kept_for_a_user_nobody_named_goes_with_the_thread_that_stood_in_for_them() -> None:
    """CLO-5: and what is kept for others stays."""
    tools = Toolset("tools", oauth=[OAuthProvider.github("id", "the-secret-of-a-test")])

    @tools.tool
    async def token(ctx: Context) -> str:
        """Tell."""
        return await ctx.oauth("github")

    @tools.tool
    async def ask(ctx: Context) -> str:
        """Ask."""
        return await ctx.choose("Well?", ["Yes", "No"], remember="user")

    async with testing.serve(tools) as client:
        nobody = client.as_(user_id=None, thread_id="anonymous")
        child = client.as_(user_id=None, thread_id="child", thread_ancestors=["anonymous"])
        others = [client.as_(user_id=None, thread_id="other"), client.as_(thread_id="anonymous")]
        for each in (nobody, *others):
            call = await each.start("token")
            await (await call.oauth()).approve("a-token")
            await call.result()
            call = await each.start("ask")
            await (await call.choice()).select("No")
            await call.result()

        await child.close_thread()
        assert (await nobody.call("token")).text == "a-token"
        assert (await nobody.call("ask")).text == "No"

        await nobody.close_thread()
        for each in (nobody, child):
            assert (await (await each.start("token")).oauth()).provider == "github"
            assert (await (await each.start("ask")).choice()).prompt == "Well?"
        for each in others:
            assert (await each.call("token")).text == "a-token"
            assert (await each.call("ask")).text == "No"
