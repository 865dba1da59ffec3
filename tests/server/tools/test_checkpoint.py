"""Durable progress: `ctx.checkpoint`, and when a subscription is confirmed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from rapkit import Context, Event, ToolError, Toolset, testing
from rapkit.errors import ConfigError, StoreError
from tests.server.feeds import Feed, all_of, texts
from tests.server.served_toolset import until

Make = Callable[..., Toolset]


class Source:
    """Something that changes, and a watcher that takes its state as a baseline and tells of what comes after that."""

    def __init__(self, *items: str) -> None:
        self.feed = Feed(*items)
        self.baselines = 0

    def watched_by(self, tools: Toolset, confirm_after: float | None = None) -> Toolset:
        @tools.subscription(confirm_after=confirm_after)
        async def watch(ctx: Context) -> AsyncIterator[Event]:
            """Tell me what changes."""
            if ctx.cursor is None:
                self.baselines += 1
                await ctx.checkpoint(str(len(self.feed.items)))
            async for number, text in self.feed.after(ctx.cursor):
                yield Event(text, cursor=number)

        return tools


async def test_a_baseline_survives_a_crash(toolset: Make) -> None:
    """Item 4, semantics 25: what happens between the baseline and the next start is told."""
    source = Source("old")
    async with testing.serve(source.watched_by(toolset())) as client:
        subscription = await client.subscribe("watch")
        await client.settled()
        source.feed.items.append("new")  # without a word: only the next start finds it
        await client.crash()
        await client.settled()

        assert texts(subscription) == ["new"]
        assert source.baselines == 1


async def test_a_crash_at_any_step_loses_nothing_that_comes_after_the_confirmation(toolset: Make) -> None:
    """Item 4, semantics 25: a crash before and after each commit around the checkpoint and the confirmation."""
    steps = 0
    while True:
        source = Source("old")
        async with testing.serve(source.watched_by(toolset())) as client:
            call = await client.start("watch")
            client.crash_after(steps)
            await client.settled()
            lost = client.lost
            confirmed = any(message.type == "tool_result" for message in call.messages)
            source.feed.items.append("new")
            await client.crash()
            await client.advance(600)
            subscription = await call.subscribed()
            source.feed.add("newer")
            await client.settled()

            told = texts(subscription)
            assert told in ([["new", "newer"]] if confirmed else [["new", "newer"], ["newer"]]), f"after {steps} steps"
        if not lost:
            break
        steps += 1
    assert steps > 5


async def test_the_confirmation_leaves_with_the_first_checkpoint(toolset: Make) -> None:
    tools = toolset()
    taken, stored = asyncio.Event(), asyncio.Event()

    @tools.subscription(confirm_after=None)
    async def watch(ctx: Context) -> AsyncIterator[str]:
        """Watch."""
        await taken.wait()
        await ctx.checkpoint("1")
        assert ctx.cursor == "1"
        stored.set()
        await asyncio.Event().wait()
        yield "never"

    async with testing.serve(tools) as client:
        call = await client.start("watch")
        await client.advance(3600)
        assert call.messages == []
        taken.set()
        await asyncio.wait_for(stored.wait(), 60)
        assert (await call.subscribed()).confirmation.text.startswith("Subscribed to watch.")


@pytest.mark.parametrize("after", [0, 1, 90])
async def test_without_a_checkpoint_or_event_time_confirms(toolset: Make, after: float) -> None:
    tools = toolset()

    @tools.subscription(confirm_after=after)
    async def wait() -> AsyncIterator[str]:
        """Wait."""
        await asyncio.Event().wait()
        yield "never"

    async with testing.serve(tools) as client:
        call = await client.start("wait")
        if after:
            await client.advance(after - 0.5)
            assert call.messages == []
            await client.advance(0.5)
        await client.settled()
        assert [message.type for message in call.messages] == ["tool_result"]
        await call.subscribed()


async def test_a_generator_that_ends_at_once_is_confirmed_and_ends(toolset: Make) -> None:
    tools = toolset()

    @tools.subscription(confirm_after=None)
    async def nothing() -> AsyncIterator[str]:
        """Say nothing."""
        for each in list[str]():
            yield each

    async with testing.serve(tools) as client:
        assert await all_of(await client.subscribe("nothing")) == ["The subscription has ended."]


@pytest.mark.parametrize("plain", [True, False])
async def test_an_exception_before_the_confirmation_is_the_result_of_the_call(toolset: Make, plain: bool) -> None:
    """Items 4 and 5, INV-16: a generator that always raises is not confirmed."""
    tools = toolset()

    @tools.subscription
    async def watch(ctx: Context) -> AsyncIterator[str]:
        """Watch."""
        ctx.state["seen"] = True
        if plain:
            raise ToolError("there is no such repository.")
        yield str(1 / len(ctx.thread_ancestors))

    @tools.tool
    async def state(ctx: Context) -> dict[str, object]:
        """Look."""
        return dict(ctx.state)

    async with testing.serve(tools) as client:
        call = await client.start("watch")
        result = await call.result()
        await client.advance(3600)

        assert len(call.messages) == 1
        assert not call.messages[0].model_dump().get("subscription")
        if plain:
            assert result.text == "Error: there is no such repository."
        else:
            assert result.text.startswith("Error: the tool failed unexpectedly (reference ")
            assert "division" not in result.text
        assert (await client.call("state")).text == "{}"


async def test_a_crash_before_the_confirmation_starts_the_generator_again_a_few_times(toolset: Make) -> None:
    """Item 4, semantics 25: whatever its annotations."""
    tools = toolset()
    runs = 0

    @tools.subscription(confirm_after=None, destructive=True)
    async def watch() -> AsyncIterator[str]:
        """Watch."""
        nonlocal runs
        runs += 1
        await asyncio.Event().wait()
        yield "never"

    async with testing.serve(tools) as client:
        call = await client.start("watch")
        for _ in range(3):
            await client.settled()
            await client.crash()
        result = await call.result()

        assert (
            result.text == "Error: watch was interrupted 3 times before it was subscribed, and given up. Tell the user."
        )
        assert runs == 3
        assert not call.messages[0].model_dump().get("subscription")


async def test_a_subscription_that_is_cancelled_before_its_confirmation_is_a_cancelled_call(toolset: Make) -> None:
    """Item 4: CAN-4, the call ends in one result."""
    tools = toolset()
    ended = asyncio.Event()

    @tools.subscription(confirm_after=None)
    async def watch() -> AsyncIterator[str]:
        """Watch."""
        try:
            await asyncio.Event().wait()
            yield "never"
        finally:
            ended.set()

    async with testing.serve(tools) as client:
        call = await client.start("watch")
        await client.settled()
        await call.cancel()
        result = await call.result()
        await asyncio.wait_for(ended.wait(), 60)
        await client.advance(3600)

        assert result.text == "Error: Cancelled."
        assert len(call.messages) == 1


async def test_a_checkpoint_raises_once_the_subscription_is_cancelled(toolset: Make) -> None:
    """Item 4, semantics 25: also if the generator ignores that it was interrupted."""
    tools = toolset()
    outcome: list[str] = []

    @tools.subscription
    async def watch(ctx: Context) -> AsyncIterator[str]:
        """Watch."""
        yield "a"
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            try:
                await ctx.checkpoint("too late")
            except StoreError as error:
                outcome.append(type(error).__name__)
            raise

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("watch")
        await client.settled()
        await subscription.cancel()
        await until(lambda: bool(outcome))
        assert outcome == ["Fenced"]


async def test_a_subscription_may_ask_until_it_is_confirmed(toolset: Make) -> None:
    """Item 4, semantics 25: the wait does not confirm it, and after the answer it runs again from the top."""
    tools = toolset()
    runs = 0

    @tools.subscription
    async def watch(ctx: Context) -> AsyncIterator[str]:
        """Watch."""
        nonlocal runs
        runs += 1
        which = await ctx.choose("Which one?", ["main", "next"])
        await ctx.checkpoint(which)
        yield which

    async with testing.serve(tools) as client:
        call = await client.start("watch")
        choice = await call.choice()
        await client.advance(600)
        await client.crash()
        await client.advance(600)
        assert [message.type for message in call.messages] == ["user_choice"]
        await choice.select("next")
        assert await all_of(await call.subscribed()) == ["next", "The subscription has ended."]
        assert runs == 2


async def test_a_question_that_expires_before_the_confirmation_fails_the_call(toolset: Make) -> None:
    tools = toolset()

    @tools.subscription
    async def watch(ctx: Context) -> AsyncIterator[str]:
        """Watch."""
        yield await ctx.choose("Which one?", ["main", "next"], expires_in=60)

    async with testing.serve(tools) as client:
        call = await client.start("watch")
        await call.choice()
        await client.advance(61)
        result = await call.result()
        assert result.text.startswith("Error: 'Which one?': nobody answered in time.")


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf")])
def test_confirm_after_is_a_time(toolset: Make, wrong: float) -> None:
    with pytest.raises(ConfigError, match="confirm_after is a number of seconds from 0 on, or None"):

        @toolset().subscription(confirm_after=wrong)
        async def watch() -> AsyncIterator[str]:
            """Watch."""
            yield "a"


async def test_a_topic_function_can_store_how_far_it_is(toolset: Make) -> None:
    tools = toolset()
    cursors: list[str | None] = []

    @tools.subscription(topic="news")
    async def news(payload: str, ctx: Context) -> str:
        """Tell me."""
        cursors.append(ctx.cursor)
        await ctx.checkpoint(payload)
        return payload

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("news")
        await tools.emit("news", "a")
        await client.settled()
        await client.crash()
        await tools.emit("news", "b")
        await client.settled()
        assert texts(subscription) == ["a", "b"]
        assert cursors == [None, "a"]


# Tools


async def test_a_tool_that_has_stored_a_checkpoint_goes_on_after_a_crash(toolset: Make) -> None:
    """Item 4, semantics 23: whatever its annotations; what it did to the state until then is kept with it."""
    tools = toolset()
    done: list[int] = []
    claimed_box = asyncio.Event()

    @tools.tool(destructive=True)
    async def migrate(ctx: Context) -> str:
        """Migrate."""
        for number in range(int(ctx.cursor or 0), 4):
            done.append(number)
            ctx.state["done"] = number + 1
            await ctx.checkpoint(str(number + 1))
            if number == 1 and not claimed_box.is_set():
                await asyncio.Event().wait()
        return f"Migrated {ctx.state['done']}."

    async with testing.serve(tools) as client:
        call = await client.start("migrate")
        await client.settled()
        claimed_box.set()
        await client.crash()

        assert (await call.result()).text == "Migrated 4."
        assert done == [0, 1, 2, 3]


async def test_a_tool_that_gets_nowhere_after_its_checkpoint_is_given_up(toolset: Make) -> None:
    """semantics 23: runs count from the last progress on."""
    tools = toolset()
    runs = 0

    @tools.tool
    async def migrate(ctx: Context) -> str:
        """Migrate."""
        nonlocal runs
        runs += 1
        await ctx.checkpoint(str(min(runs, 4)))
        await asyncio.Event().wait()
        return "never"

    async with testing.serve(tools) as client:
        call = await client.start("migrate")
        for _ in range(6):
            await client.settled()
            await client.crash()

        assert (await call.result()).text == "Error: migrate was interrupted 3 times and given up. Tell the user."
        assert runs == 6


async def test_a_tool_without_a_checkpoint_is_answered_as_before(toolset: Make) -> None:
    tools = toolset()

    @tools.tool
    async def migrate(ctx: Context) -> str:
        """Migrate."""
        await asyncio.Event().wait()
        await ctx.checkpoint("1")
        return "never"

    async with testing.serve(tools) as client:
        call = await client.start("migrate")
        await client.settled()
        await client.crash()
        assert "it is not known whether it took effect" in (await call.result()).text


async def test_a_tool_with_a_checkpoint_goes_on_after_a_restart_in_order(toolset: Make) -> None:
    tools = toolset()
    tools.durations = type(tools.durations)(grace=0.05)
    released = False

    @tools.tool
    async def migrate(ctx: Context) -> str:
        """Migrate."""
        if not released:
            await ctx.checkpoint("half")
            await asyncio.Event().wait()
        return f"went on after {ctx.cursor}"

    async with testing.serve(tools) as client:
        call = await client.start("migrate")
        await client.settled()
        released = True
        await client.restart()
        assert (await call.result()).text == "went on after half"


@pytest.mark.parametrize("value", [1, None, ["a"], b"a"])
async def test_a_checkpoint_is_a_text(toolset: Make, value: object) -> None:
    tools = toolset()

    @tools.tool
    async def migrate(ctx: Context) -> str:
        """Migrate."""
        with pytest.raises(TypeError, match="A cursor is a str"):
            await ctx.checkpoint(value)  # type: ignore[arg-type]
        return "refused"

    async with testing.serve(tools) as client:
        assert (await client.call("migrate")).text == "refused"


async def test_a_generator_that_is_confirmed_before_it_asks_says_what_its_author_can_do(toolset: Make) -> None:
    """Items 4 and 6: time confirms it while it works, and then the user cannot be asked any more."""
    tools = toolset()

    @tools.subscription
    async def watch(ctx: Context) -> AsyncIterator[str]:
        """Tell me what changes."""
        await ctx.sleep(2)
        yield await ctx.choose("Which?", ["this", "that"])

    async with testing.serve(tools) as client:
        subscription = await client.subscribe("watch")
        await client.advance(2)

        (text,) = texts(subscription)
        assert "confirm_after=None" in text


@pytest.mark.parametrize("method", ["checkpoint", "view", "progress", "sleep"])
async def test_what_has_to_be_awaited_raises_in_a_plain_function(
    toolset: Make, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    """It cannot await, so nothing would be stored or shown."""
    tools = toolset()
    arguments: dict[str, list[Any]] = {"checkpoint": ["1"], "view": ["v", 1], "progress": [1], "sleep": [0]}

    @tools.tool
    def plain(ctx: Context) -> str:
        """Work."""
        getattr(ctx, method)(*arguments[method])
        return "done"

    @tools.subscription(confirm_after=None)
    def watch(ctx: Context) -> Iterator[str]:
        """Watch."""
        getattr(ctx, method)(*arguments[method])
        yield "something"

    async with testing.serve(tools) as client:
        for name in ("plain", "watch"):
            assert (await client.call(name)).text.startswith("Error: the tool failed unexpectedly (reference ")

    errors = [str(record.exc_info[1]) for record in caplog.records if record.exc_info and record.name == "rapkit.calls"]
    assert errors == [
        f"ctx.{method} must be awaited, which {name!r} cannot do: it is a plain function. "
        f"Make it an 'async def', and write 'await ctx.{method}(...)'."
        for name in ("plain", "watch")
    ]
