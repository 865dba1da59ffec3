"""`testing.serve`: a toolset in memory, and somebody who calls it."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from rapkit import Context, Delivery, Diff, Durations, Image, ToolError, Toolset, testing
from rapkit.errors import ConfigError

TOKENS = {"alice": "alice-has-a-long-token", "bob": ["bob-has-a-long-token", "bob-had-another-token"]}
SECRET = "whsec_" + "c2VjcmV0" * 4


class Place(BaseModel):
    city: str
    height: float = 0


@pytest.fixture
def tools() -> Toolset:
    tools = Toolset("weather", description="Forecasts")

    @tools.tool(read_only=True)
    async def forecast(city: str, days: int = 3) -> str:
        """Forecast for a city."""
        return f"{city}: sunny for {days} days"

    @tools.tool
    def measure(place: Place) -> dict[str, object]:
        """Measure somewhere, in a thread."""
        if threading.current_thread() is threading.main_thread():
            raise ToolError("a plain function blocks the server.")
        return {"city": place.city, "degrees": 20 - place.height / 200}

    @tools.tool
    async def picture() -> list[object]:
        """Two pictures and a diff."""
        return [Image(b"sun"), "and", Image(b"rain", "image/gif"), Diff("sky.txt", "+cloud")]

    @tools.tool
    async def who(ctx: Context) -> dict[str, object]:
        """Who calls."""
        return {"user": ctx.user_id, "thread": ctx.thread_id, "ancestors": ctx.thread_ancestors}

    @tools.tool
    async def remember(word: str, ctx: Context) -> str:
        """Keep a word in the state, and a file in the workspace."""
        words: list[str] = [*ctx.state.get("words", []), word]
        ctx.state["words"] = words
        (ctx.workspace() / word).touch()
        return " ".join(words) + ": " + " ".join(sorted(file.name for file in ctx.workspace().iterdir()))

    return tools


async def test_a_tool_is_called_and_its_answer_returned(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        result = await client.call("forecast", city="Oslo")

        assert result.text == str(result) == "Oslo: sunny for 3 days"
        assert not result.is_error
        assert (result.content, result.display_as, result.images) == ((), (), [])


async def test_arguments_can_be_models_and_results_be_json(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        result = await client.call("measure", place=Place(city="Oslo", height=200))

        assert result.json() == {"city": "Oslo", "degrees": 19}


async def test_pictures_come_back_as_they_were(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        result = await client.call("picture")

        assert result.images == [Image(b"sun"), Image(b"rain", "image/gif")]
        assert [segment.type for segment in result.display_as] == ["image", "image", "diff"]


async def test_what_goes_wrong_is_a_result_too(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        unknown = await client.call("forecats", city="Oslo")
        wrong = await client.call("forecast", city="Oslo", days="many")

        assert unknown.is_error
        assert "There are: forecast, measure, picture, remember, who." in unknown.text
        assert wrong.is_error
        assert "days" in wrong.text


async def test_the_toolset_tells_what_it_offers(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        document = await client.toolset()

        assert document.description == "Forecasts"
        assert [tool.name for tool in document.tools] == ["forecast", "measure", "picture", "who", "remember"]


async def test_calls_come_from_another_user_and_another_thread_if_a_test_says_so(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        child = client.as_(thread_id="child", thread_ancestors=["thread_1"])
        nobody = child.as_(user_id=None)

        assert (await client.call("who")).json() == {"user": "user_1", "thread": "thread_1", "ancestors": []}
        assert (await child.call("who")).json() == {"user": "user_1", "thread": "child", "ancestors": ["thread_1"]}
        assert (await nobody.call("who")).json() == {"user": None, "thread": "child", "ancestors": ["thread_1"]}


async def test_threads_keep_their_things_until_they_are_closed(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        assert (await client.call("remember", word="a")).text == "a: a"
        assert (await client.call("remember", word="b")).text == "a b: a b"
        assert (await client.as_(thread_id="other").call("remember", word="c")).text == "c: c"

        await client.crash()
        assert (await client.call("remember", word="d")).text == "a b d: a b d"

        await client.close_thread()
        await client.settled()
        assert (await client.call("remember", word="e")).text == "e: e"


async def test_threads_that_nobody_closes_are_forgotten_in_time(tools: Toolset) -> None:
    """CLO-9"""
    tools.durations = Durations(keep_threads=3600)
    async with testing.serve(tools) as client:
        await client.call("remember", word="a")

        await client.advance(1800)
        assert (await client.call("remember", word="b")).text == "a b: a b"

        await client.advance(2 * 3600)
        assert (await client.call("remember", word="c")).text == "c: c"


async def test_nothing_is_left_behind(tools: Toolset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with testing.serve(tools) as client:
        assert (await client.call("remember", word="a")).text == "a: a"

    assert list(tmp_path.iterdir()) == []


async def test_callers_are_known_by_their_tokens() -> None:
    tools = Toolset("tools", tokens=TOKENS)

    @tools.tool
    async def remember(word: str, ctx: Context) -> list[str]:
        """Keep a word."""
        ctx.state["words"] = [*ctx.state.get("words", []), word]
        return list(ctx.state["words"])

    async with testing.serve(tools) as alice:
        bob = alice.as_(caller="bob")

        assert (await alice.call("remember", word="a")).json() == ["a"]
        assert (await bob.call("remember", word="b")).json() == ["b"]
        assert (await alice.request("POST", "/invoke", {})).status == 401
        assert (await alice.request("POST", "/invoke", {}, authenticated=True)).status == 400
        with pytest.raises(ValueError, match=r"There is no caller 'eve'\. The toolset knows: alice, bob\."):
            alice.as_(caller="eve")


async def test_callers_are_known_by_their_signatures_and_secrets_are_where_the_toolset_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    monkeypatch.setenv("TOKEN", "a-token-from-outside")
    tools = Toolset(
        "tools",
        tokens="env:TOKEN",
        caller_secrets={"signer": "env:SECRET"},
        aws_keys={"cloud": {"AKIDEXAMPLE": "env:SECRET"}},
    )

    @tools.tool
    async def hello() -> str:
        """Greet."""
        return "hello"

    async with testing.serve(tools, caller="signer") as client:
        assert (await client.call("hello")).text == "hello"
        assert (await client.as_(caller="default").call("hello")).text == "hello"
        assert (await client.as_(caller="cloud").call("hello")).text == "hello"


async def test_a_toolset_is_reached_where_it_says_it_is() -> None:
    tools = Toolset("tools", public_url="https://tools.example/weather/", tokens="a-token-nobody-guesses")

    @tools.tool
    async def ask(ctx: Context) -> str:
        """Ask."""
        return await ctx.choose("Well?", ["Yes", "No"])

    async with testing.serve(tools) as client:
        call = await client.start("ask")
        choice = await call.choice()

        assert choice.response_url.startswith("https://tools.example/weather/answer/")
        await choice.select("Yes")
        assert (await call.result()).text == "Yes"


async def test_what_the_author_opens_for_the_server_is_open_as_long_as_it_runs() -> None:
    events: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan(_tools: Toolset) -> AsyncIterator[None]:
        events.append("opened")
        try:
            async with asyncio.timeout(60):  # which has to be left by whoever entered it
                yield
        finally:
            events.append("closed")

    tools = Toolset("tools", lifespan=lifespan)

    @tools.tool
    async def look() -> str:
        """Look."""
        return " ".join(events)

    async with testing.serve(tools) as client:
        assert (await client.call("look")).text == "opened"
        await asyncio.create_task(client.restart())
        assert (await client.call("look")).text == "opened closed opened"

    assert events == ["opened", "closed"] * 2


@pytest.fixture
async def client(tools: Toolset) -> AsyncIterator[testing.Client]:
    async with testing.serve(tools) as client:
        yield client


async def test_a_client_can_be_a_fixture(client: testing.Client) -> None:
    assert (await client.call("forecast", city="Oslo")).text == "Oslo: sunny for 3 days"
    await client.crash()
    assert (await client.call("forecast", city="Bergen")).text == "Bergen: sunny for 3 days"


async def test_what_keeps_a_toolset_from_being_served_is_told() -> None:
    with pytest.raises(ConfigError, match="toolset 'empty' cannot be served"):
        async with testing.serve(Toolset("empty")):
            raise AssertionError("unreachable")


async def test_a_toolset_is_served_once_at_a_time(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        with pytest.raises(RuntimeError, match="'weather' is being served already"):
            async with testing.serve(tools):
                raise AssertionError("unreachable")
        assert (await client.call("forecast", city="Oslo")).text == "Oslo: sunny for 3 days"

    async with testing.serve(tools) as client:
        assert (await client.call("forecast", city="Oslo")).text == "Oslo: sunny for 3 days"


async def test_what_still_runs_at_the_end_is_interrupted() -> None:
    tools = Toolset("tools", durations=Durations(grace=3600))
    events: list[str] = []

    @tools.tool
    async def wait(ctx: Context) -> None:
        """Take for ever."""
        events.append("started")
        try:
            await ctx.sleep(60)
        finally:
            events.append("ended")

    async with testing.serve(tools) as client:
        await client.start("wait")
        await client.settled()
        assert events == ["started"]

    assert events == ["started", "ended"]


async def test_webhooks_are_reached_by_plain_requests() -> None:
    tools = Toolset("tools")
    heard: list[bytes] = []

    @tools.tool
    async def nothing() -> None:
        """Nothing."""

    @tools.webhook("/hooks/news", verify=lambda delivery: delivery.headers.get("x-password") == "please")
    async def news(delivery: Delivery) -> None:
        heard.append(delivery.body)

    async with testing.serve(tools) as client:
        refused = await client.request("POST", "/hooks/news", {"n": 1})
        taken = await client.request("POST", "/hooks/news", b"{}", headers={"X-Password": "please"})

        assert (refused.status, taken.status) == (401, 200)
        assert heard == [b"{}"]


async def test_a_failure_is_one_however_its_author_began_the_text() -> None:
    tools = Toolset("tools")

    @tools.tool
    def fail(text: str) -> str:
        """Fail."""
        raise ToolError(text)

    async with testing.serve(tools) as client:
        for text in ("no", "Error: no", "Error:no"):
            assert (await client.call("fail", text=text)).is_error
