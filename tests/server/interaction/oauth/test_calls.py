"""Calls that act for a user elsewhere, whole: a real server, a real provider, a browser, a runtime's sink (OAU-2)."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rapkit import Context, Durations, Event, OAuthProvider, Toolset, testing
from rapkit.server.interaction.questions import NewQuestion
from rapkit.server.interaction.user_interaction import UserInteraction
from tests.server.feeds import without_failures
from tests.server.interaction.oauth.browser import Browser
from tests.server.interaction.oauth.provider_server import ProviderServer, provider_running
from tests.server.served_toolset import ServedToolset, invocation, serving
from tests.server.sink import Post, Sink


@pytest.fixture
async def provider() -> AsyncIterator[ProviderServer]:
    async with provider_running() as provider:
        yield provider


@pytest.fixture
def tools(toolset: Callable[..., Toolset], provider: ProviderServer) -> Toolset:
    tools = toolset(oauth=[provider.declare("github")])

    @tools.tool(requires_auth="github")
    async def whoami(ctx: Context) -> str:
        """Who the provider says the user is."""
        token = await ctx.oauth("github")
        name = provider.owner_of(token)
        if name is None:
            token = await ctx.oauth("github", refused=token)
            name = provider.owner_of(token)
        return f"you are {name}"

    @tools.tool
    async def token(ctx: Context) -> str:
        """Tell a secret."""
        return await ctx.oauth("github")

    @tools.subscription(requires_auth="github")
    async def follow(ctx: Context) -> AsyncIterator[Event]:
        """Tell me who I am, for ever."""
        while True:
            yield Event(f"you are {provider.owner_of(await ctx.oauth('github'))}", final=True)

    return tools


async def start(server: ServedToolset, sink: Sink, operation: str = "whoami", **fields: Any) -> str:
    message = invocation(sink.url, operation, **{"user_id": "u1", **fields})
    assert (await server.invoke(message)).status == 200
    id: str = message["id"]
    return id


async def message_of(sink: Sink, kind: str, id: str) -> Post:
    """The first message of a kind for a call."""
    count = 0
    while True:
        posts = await sink.received(count)
        for post in posts:
            if post.message["type"] == kind and id in (post.message.get("id"), post.message.get("tool_call_id")):
                return post
        count = len(posts) + 1


async def consent(sink: Sink, id: str, *, user: str = "ann", allow: bool = True) -> None:
    asked = await message_of(sink, "oauth", id)
    shown = await Browser(user).authorise(asked.message["auth_url"], allow=allow)
    assert shown.status == 200


def kinds(sink: Sink, id: str) -> list[str]:
    return [
        post.message["type"] for post in sink.posts if id in (post.message.get("id"), post.message.get("tool_call_id"))
    ]


async def test_a_call_waits_for_the_users_consent_and_then_goes_on(
    tools: Toolset, sink: Sink, provider: ProviderServer
) -> None:
    async with serving(tools) as server:
        first = await start(server, sink, call_id="second id")
        asked = await message_of(sink, "oauth", first)
        assert asked.message["group_id"] == "thread_1"
        assert asked.message["call_id"] == "second id"
        await consent(sink, first)
        assert (await message_of(sink, "tool_result", first)).text == "you are ann"

        again = await start(server, sink, group_id="another thread")
        assert (await message_of(sink, "tool_result", again)).text == "you are ann"
        assert kinds(sink, first) == ["oauth", "tool_result"]
        assert kinds(sink, again) == ["tool_result"]


async def test_users_and_callers_have_tokens_of_their_own(tools: Toolset, sink: Sink, provider: ProviderServer) -> None:
    """Semantics: without a user_id the root thread stands in for the user."""
    async with serving(tools) as server:
        for user, fields in (
            ("ann", {"user_id": "u1"}),
            ("bob", {"user_id": "u2"}),
            ("eve", {"user_id": ..., "group_id": "root"}),
        ):
            call = await start(server, sink, **fields)
            await consent(sink, call, user=user)
            assert (await message_of(sink, "tool_result", call)).text == f"you are {user}"
        child = await start(server, sink, user_id=..., group_id="child", thread_ancestors=["root", "middle"])
        assert (await message_of(sink, "tool_result", child)).text == "you are eve"


async def test_one_consent_wakes_all_calls_of_the_user_that_wait_for_it(
    tools: Toolset, sink: Sink, provider: ProviderServer
) -> None:
    async with serving(tools) as server:
        calls = [await start(server, sink, group_id=f"thread {number}") for number in range(5)]
        for call in calls:
            await message_of(sink, "oauth", call)
        await consent(sink, calls[2])

        for call in calls:
            assert (await message_of(sink, "tool_result", call)).text == "you are ann"
        assert provider.token_requests == ["authorization_code"]


async def test_a_consent_that_comes_while_another_call_is_about_to_ask_wakes_that_too(
    tools: Toolset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between having looked for a token and waiting for one there is a moment in which nobody could be woken."""
    ask = UserInteraction._ask_for_consent
    waiting: list[testing.Consent] = []

    async def slow(self: UserInteraction, *about: Any) -> NewQuestion:
        asked = await ask(self, *about)
        if waiting:
            await waiting.pop().approve("t0ken")
        return asked

    monkeypatch.setattr(UserInteraction, "_ask_for_consent", slow)
    async with testing.serve(tools) as client:
        first = await client.start("token")
        waiting.append(await first.oauth())
        second = await client.start("token")

        assert (await first.result()).text == "t0ken"
        assert (await second.result()).text == "t0ken"


async def test_a_denial_is_an_error_result_and_the_next_call_asks_again(
    tools: Toolset, sink: Sink, provider: ProviderServer
) -> None:
    async with serving(tools) as server:
        call = await start(server, sink)
        await consent(sink, call, allow=False)
        text = (await message_of(sink, "tool_result", call)).text
        assert text.startswith("Error: github: the user declined")
        assert kinds(sink, call) == ["oauth", "tool_result"]

        another = await start(server, sink)
        await consent(sink, another)
        assert (await message_of(sink, "tool_result", another)).text == "you are ann"


async def test_an_expired_token_is_refreshed_once_for_all_calls_that_need_it(
    tools: Toolset, sink: Sink, provider: ProviderServer
) -> None:
    """The provider takes a refresh token once, and revokes everything if it comes twice."""
    provider.expires_in = 1  # less than the margin: it is refreshed before every use that finds it so
    async with serving(tools) as server:
        call = await start(server, sink)
        await consent(sink, call)
        await message_of(sink, "tool_result", call)
        provider.expires_in = 3600
        before = provider.refreshes

        calls = [await start(server, sink, group_id=f"thread {number}") for number in range(20)]
        for each in calls:
            assert (await message_of(sink, "tool_result", each)).text == "you are ann"

        assert provider.refreshes - before <= 1
        assert not any("oauth" in kinds(sink, each) for each in calls)


async def test_a_token_the_api_refuses_is_replaced_and_the_user_asked_again_if_need_be(
    tools: Toolset, sink: Sink, provider: ProviderServer
) -> None:
    async with serving(tools) as server:
        call = await start(server, sink)
        await consent(sink, call)
        await message_of(sink, "tool_result", call)
        provider.revoke_all()

        call = await start(server, sink)
        await consent(sink, call)

        assert (await message_of(sink, "tool_result", call)).text == "you are ann"
        assert kinds(sink, call) == ["oauth", "tool_result"]


async def test_a_call_that_waits_for_consent_outlives_the_server(
    tools: Toolset, sink: Sink, provider: ProviderServer
) -> None:
    """INV-13: the redirect goes to where the server was, so it is served there again."""
    async with serving(tools) as server:
        call = await start(server, sink)
        auth_url = (await message_of(sink, "oauth", call)).message["auth_url"]
        redirect = await Browser().decide(auth_url)
    async with serving(tools) as server:
        shown = await server.get("/oauth/callback?" + redirect.partition("?")[2])
        assert shown.status == 200

        assert (await message_of(sink, "tool_result", call)).text == "you are ann"
        assert kinds(sink, call) == ["oauth", "tool_result"]


async def test_who_does_not_decide_in_time_gets_an_error_result(
    toolset: Callable[..., Toolset], sink: Sink, provider: ProviderServer
) -> None:
    tools = toolset(oauth=[provider.declare("github")], durations=Durations(authorise=0.3))

    @tools.tool
    async def act(ctx: Context) -> str:
        """Act."""
        return await ctx.oauth("github")

    async with serving(tools) as server:
        call = await start(server, sink, "act")
        text = (await message_of(sink, "tool_result", call)).text
        assert text.startswith("Error: github: nobody answered in time")
        auth_url = (await message_of(sink, "oauth", call)).message["auth_url"]
        late = await Browser().authorise(auth_url)

        assert late.status in (200, 410)
        assert kinds(sink, call) == ["oauth", "tool_result"]


async def test_cancelling_a_call_that_waits_for_consent_ends_it(
    tools: Toolset, sink: Sink, provider: ProviderServer
) -> None:
    async with serving(tools) as server:
        call = await start(server, sink)
        await message_of(sink, "oauth", call)
        assert (await server.cancel("thread_1", call)).status == 200

        assert (await message_of(sink, "tool_result", call)).text == "Error: Cancelled."


async def test_a_subscription_is_confirmed_after_consent_and_can_use_the_token(
    tools: Toolset, sink: Sink, provider: ProviderServer
) -> None:
    """SUB-2: its call is deferred, then confirmed, then events follow."""
    async with serving(tools) as server:
        call = await start(server, sink, "follow")
        await consent(sink, call)
        assert (await message_of(sink, "subscription_event", call)).text == "you are ann"

        assert kinds(sink, call) == ["oauth", "tool_result", "subscription_event"]


async def test_an_undeclared_provider_is_the_authors_mistake_and_masked(
    toolset: Callable[..., Toolset], sink: Sink
) -> None:
    tools = toolset()

    @tools.tool
    async def act(ctx: Context) -> str:
        """Act."""
        return await ctx.oauth("gitlab")

    async with serving(tools) as server:
        call = await start(server, sink, "act")

        assert (await message_of(sink, "tool_result", call)).text.startswith("Error: the tool failed unexpectedly")


async def test_a_provider_that_is_down_for_a_while_does_not_end_a_subscription() -> None:
    """SUB-2: it goes on when the provider is there again."""
    tools = Toolset("tools", oauth=[OAuthProvider.github("id", "the-secret-of-a-test")])

    @tools.subscription(requires_auth="github")
    async def feed(ctx: Context) -> AsyncIterator[Event]:
        """Tell me, now and then."""
        while True:
            await ctx.sleep(600)
            yield Event(f"with {await ctx.oauth('github')}")

    async with testing.serve(tools) as client:
        call = await client.start("feed")
        await (await call.oauth()).approve("the-first", expires_in=900)
        subscription = await call.subscribed()
        await client.advance(601)
        client.oauth.down("github")
        await client.advance(1200)  # the token has expired by now
        assert without_failures(subscription) == ["with the-first"]

        client.oauth.up("github")
        await client.advance(3600)

        assert len(without_failures(subscription)) > 1
        assert not any(event.final for event in subscription.events)
