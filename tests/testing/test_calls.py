"""Calls that take a while: they ask people, send events, and are cancelled."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rapkit import Context, Event, OAuthProvider, ToolError, Toolset, testing

GITHUB = OAuthProvider.github(client_id="us", client_secret="env:NO_TEST_NEEDS_IT", scopes=["repo"])


@pytest.fixture
def tools() -> Toolset:
    tools = Toolset("tools", oauth=[GITHUB])

    @tools.tool(destructive=True)
    async def evacuate(city: str, ctx: Context) -> str:
        """Order everyone out."""
        if await ctx.choose(f"Really evacuate {city}?", ["Yes", "No"], default="No") == "No":
            raise ToolError("The user declined.")
        return f"{city} is empty"

    @tools.tool
    async def issues(ctx: Context, refused: str | None = None) -> str:
        """List issues."""
        return f"with {await ctx.oauth('github', refused=refused)}"

    @tools.tool
    async def wait(ctx: Context) -> None:
        """Take for ever."""
        await asyncio.Event().wait()

    @tools.subscription
    async def count(up_to: int, ctx: Context) -> AsyncIterator[Event]:
        """Count, once a minute."""
        for number in range(int(ctx.cursor or 0) + 1, up_to + 1):
            await ctx.sleep(60)
            yield Event(str(number), cursor=str(number), associative=True)

    @tools.subscription(topic="news/{about}")
    async def news(about: str, payload: dict[str, str]) -> str | None:
        """Tell what is new."""
        return payload.get("headline")

    @tools.subscription(requires_auth="github")
    async def stars(ctx: Context) -> AsyncIterator[str]:
        """Tell of stars."""
        yield f"a star, with {await ctx.oauth('github')}"

    return tools


async def test_a_question_is_answered_with_one_of_its_choices(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("evacuate", city="Oslo")
        choice = await call.choice()

        assert (choice.prompt, choice.choices, choice.default) == ("Really evacuate Oslo?", ("Yes", "No"), "No")
        await choice.select("Yes")
        assert (await call.result()).text == "Oslo is empty"


async def test_a_question_is_answered_by_number_or_dismissed(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        by_number = await client.start("evacuate", city="Oslo")
        dismissed = await client.start("evacuate", city="Bergen")

        await (await by_number.choice()).select(0)
        await (await dismissed.choice()).dismiss()

        assert (await by_number.result()).text == "Oslo is empty"
        assert (await dismissed.result()).text == "Error: The user declined."


async def test_questions_find_their_calls(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        cities = [f"city {number}" for number in range(30)]
        calls = await asyncio.gather(*(client.start("evacuate", city=city) for city in cities))

        async def answer(call: testing.Call) -> tuple[str, str]:
            choice = await call.choice()
            await choice.select("Yes")
            return choice.prompt, (await call.result()).text

        answered = await asyncio.gather(*map(answer, calls))

        assert answered == [(f"Really evacuate {city}?", f"{city} is empty") for city in cities]


async def test_an_answer_that_is_none_of_the_choices_is_told_to_the_test(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        choice = await (await client.start("evacuate", city="Oslo")).choice()

        with pytest.raises(AssertionError, match="'Really evacuate Oslo\\?' cannot be answered with 'Maybe'"):
            await choice.select("Maybe")


async def test_an_answer_the_server_refuses_is_told_to_the_test(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("evacuate", city="Oslo")
        choice = await call.choice()
        await call.cancel()
        await call.result()

        with pytest.raises(AssertionError, match=r"was refused with 410: .*This question is not open"):
            await choice.select("Yes")
        assert (await choice.answer(0)).status == 410


async def test_the_user_authorises_the_server_once(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("issues")
        consent = await call.oauth()

        assert (consent.provider, consent.scopes) == ("github", ("repo",))
        assert consent.url.startswith("https://github.com/login/oauth/authorize?")
        await consent.approve(token="t0k3n")

        assert (await call.result()).text == "with t0k3n"
        assert (await client.as_(thread_id="another").call("issues")).text == "with t0k3n"


async def test_the_user_denies(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("issues")

        await (await call.oauth()).deny()

        assert (await call.result()).text == "Error: github: the user declined."


async def test_another_user_is_asked_for_themselves(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("issues")
        await (await call.oauth()).approve(token="ours")
        theirs = await client.as_(user_id="user_2").start("issues")

        await (await theirs.oauth()).approve(token="theirs")

        assert (await call.result()).text == "with ours"
        assert (await theirs.result()).text == "with theirs"


async def test_a_token_that_expires_is_refreshed_until_it_is_revoked(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("issues")
        await (await call.oauth()).approve(expires_in=3600)
        assert (await call.result()).text == "with token-1"

        await client.advance(3600)
        assert (await client.call("issues")).text == "with token-2"
        assert (await client.call("issues", refused="token-2")).text == "with token-3"

        client.oauth.revoke("github")
        assert (await client.call("issues")).text == "with token-3"
        await client.advance(3600)
        call = await client.start("issues")
        await (await call.oauth()).approve()
        assert (await call.result()).text == "with token-4"


async def test_a_provider_can_be_down(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("issues")
        client.oauth.down("github")
        await (await call.oauth()).approve()
        assert (await call.result()).text == (
            "Error: github: no token was given: it is down for a test. Try again later."
        )

        client.oauth.up("github")
        call = await client.start("issues")
        await (await call.oauth()).approve()
        assert (await call.result()).text == "with token-2"


async def test_a_user_can_come_back_with_anything(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("issues")
        consent = await call.oauth()

        assert (await consent.come_back(state="forged", code="code-1")).status == 400
        await consent.approve()
        assert (await consent.come_back(code="code-1")).status == 410
        assert (await call.result()).text == "with token-1"


async def test_a_code_is_worth_nothing_to_another_flow(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        ours = await client.start("issues")
        theirs = await client.as_(user_id="user_2").start("issues")
        code = client.oauth.grant(client.oauth.inquiry((await theirs.oauth()).url), token="theirs")

        assert (await (await ours.oauth()).come_back(code=code)).status == 200

        assert (await ours.result()).text == (
            "Error: github: the provider did not accept the user's authorisation. Call again to ask them anew."
        )


async def test_events_come_when_the_clock_is_advanced(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        watch = await client.subscribe("count", up_to=3)
        assert watch.confirmation.text == f"Subscribed to count. The id of the subscription is {watch.id}."

        await client.advance(60)
        event = await watch.event()
        assert (event.text, event.associative, event.final) == ("1", True, False)

        await client.advance(600)
        assert [event.text async for event in watch] == ["2", "3", "The subscription has ended."]
        assert watch.ended
        assert [event.text for event in watch.events] == ["1", "2", "3", "The subscription has ended."]


async def test_events_are_emitted_by_the_test(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        watch = await client.subscribe("news", about="weather")

        await tools.emit("news/weather", {"headline": "Rain"}, id="1")
        await tools.emit("news/weather", {"headline": "Rain"}, id="1")
        await tools.emit("news/weather", {"weather": "nothing new"}, id="2")
        await tools.emit("news/sports", {"headline": "Goal"}, id="3")
        await tools.emit("news/weather", {"headline": "Sun"}, id="4")

        assert [(await watch.event()).text, (await watch.event()).text] == ["Rain", "Sun"]
        await client.settled()
        assert len(watch.events) == 2


async def test_a_subscription_that_is_cancelled_is_silent(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        watch = await client.subscribe("count", up_to=3)
        await client.advance(60)

        await watch.cancel()
        await client.advance(600)

        assert [event.text for event in watch.events] == ["1"]


async def test_a_subscription_that_needs_consent_is_confirmed_after_it(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("stars")
        await (await call.oauth()).approve(token="t0k3n")

        watch = await call.subscribed()

        assert (await watch.event()).text == "a star, with t0k3n"


async def test_a_call_that_is_cancelled_says_so(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("wait")

        await call.cancel()

        assert (await call.result()).text == "Error: Cancelled."


async def test_closing_a_thread_ends_all_that_is_its(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        other = client.as_(thread_id="other")
        call = await client.start("wait")
        watch = await client.subscribe("count", up_to=3)
        others = await other.subscribe("count", up_to=1)

        await client.close_thread()

        assert (await call.result()).text == "Error: Cancelled."
        await client.advance(600)
        assert watch.events == []
        assert [event.text for event in others.events] == ["1", "The subscription has ended."]


async def test_everything_that_came_is_kept_in_order(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("evacuate", city="Oslo")
        await (await call.choice()).select("Yes")
        await call.result()
        await client.subscribe("news", about="weather")

        assert [message.type for message in client.messages] == ["user_choice", "tool_result", "tool_result"]
        assert call.messages == client.messages[:2]
