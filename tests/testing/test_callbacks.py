"""The runtime's end of the callback URLs, when it does not work."""

import asyncio

import pytest

from rapkit import Context, Toolset, testing


@pytest.fixture
def tools() -> Toolset:
    tools = Toolset("tools")

    @tools.tool
    async def hello(name: str = "you") -> str:
        """Greet."""
        return f"hello {name}"

    @tools.tool
    async def ask(ctx: Context) -> str:
        """Ask."""
        return await ctx.choose("Well?", ["Yes", "No"])

    return tools


async def test_a_callback_that_fails_is_sent_again_by_the_clock(tools: Toolset) -> None:
    """CB-3"""
    async with testing.serve(tools) as client:
        client.callbacks.fail(times=3)
        call = await client.start("hello")
        await client.settled()
        assert (client.callbacks.attempts, call.messages) == (1, [])

        await client.advance(60)

        assert (await call.result()).text == "hello you"
        assert client.callbacks.attempts == 4


async def test_a_callback_whose_answer_is_lost_comes_twice_and_counts_once(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        client.callbacks.fail(heard=True)
        call = await client.start("hello")
        assert (await call.result()).text == "hello you"

        await client.advance(60)

        assert client.callbacks.attempts == 2
        assert len(client.messages) == 1


async def test_a_callback_that_is_refused_is_not_sent_again(tools: Toolset) -> None:
    """CB-4"""
    async with testing.serve(tools) as client:
        client.callbacks.fail(status=400)
        call = await client.start("hello")

        await client.advance(7 * 24 * 3600)

        assert (client.callbacks.attempts, call.messages) == (1, [])


async def test_a_runtime_that_says_when_to_come_back_is_heeded(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        client.callbacks.fail(retry_after=500)
        call = await client.start("hello")

        await client.advance(499)
        assert client.callbacks.attempts == 1
        await client.advance(1)
        assert (await call.result()).text == "hello you"


async def test_a_runtime_that_is_down_gets_everything_when_it_is_up(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        client.callbacks.down()
        calls = [await client.start("hello", name=str(number)) for number in range(3)]
        await client.advance(3600)
        assert client.messages == []

        client.callbacks.up()
        await client.advance(3600)

        assert [(await call.result()).text for call in calls] == ["hello 0", "hello 1", "hello 2"]


async def test_a_runtime_that_is_down_for_too_long_gets_nothing(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        client.callbacks.down()
        await client.start("hello")
        await client.advance(4 * 24 * 3600)

        client.callbacks.up()
        await client.advance(4 * 24 * 3600)

        assert client.messages == []


async def test_a_callback_that_hangs_can_be_cancelled(tools: Toolset) -> None:
    """The POST that is under way is stopped before the cancellation is acknowledged (semantics 20)."""
    async with testing.serve(tools) as client:
        client.callbacks.hang()
        call = await client.start("ask")
        await client.settled()
        assert client.callbacks.attempts == 1

        cancelling = asyncio.create_task(call.cancel())
        await client.settled()
        client.callbacks.up()
        await cancelling

        assert (await call.result()).text == "Error: Cancelled."
        assert len(call.messages) == 1
