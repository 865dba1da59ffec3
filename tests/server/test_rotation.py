"""Keys are rotated without losing what is stored: questions, tokens, subscriptions, and the URLs that were given away."""

import secrets
from collections.abc import AsyncIterator, Callable
from urllib.parse import urlsplit

import pytest

from rapkit import Context, Event, Toolset
from rapkit.errors import StoreError
from tests.server.interaction.oauth.browser import Browser
from tests.server.interaction.oauth.provider_server import provider_running
from tests.server.interaction.oauth.test_calls import message_of
from tests.server.served_toolset import invocation, serving, until
from tests.server.sink import Sink


async def test_a_new_key_in_front_of_the_old_one_loses_nothing(
    toolset: Callable[..., Toolset], sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    go_on: list[bool] = []
    async with provider_running() as provider:
        tools = toolset(oauth=[provider.declare("github")])

        @tools.tool
        async def ask(ctx: Context) -> str:
            """Ask."""
            return await ctx.choose("Which?", ["left", "right"], remember="user")

        @tools.tool
        async def act(ctx: Context) -> str:
            """Act."""
            return str(provider.owner_of(await ctx.oauth("github")))

        @tools.subscription
        async def count(ctx: Context) -> AsyncIterator[Event]:
            """Count."""
            while True:
                await until(lambda: len(go_on) > int(ctx.cursor or 0))
                yield Event(f"after {ctx.cursor}", cursor=str(int(ctx.cursor or 0) + 1))

        async def start(operation: str) -> str:
            message = invocation(sink.url, operation, user_id="u1")
            assert (await server.invoke(message)).status == 200
            return str(message["id"])

        monkeypatch.setenv("RAPKIT_SECRET_KEY", old)
        async with serving(tools) as server:
            asked, consented, waiting, counting = [await start(each) for each in ("ask", "act", "act", "count")]
            response_url = (await message_of(sink, "user_choice", asked)).message["response_url"]
            auth_url = (await message_of(sink, "oauth", consented)).message["auth_url"]
            redirect = urlsplit(await Browser().decide(auth_url))
            await message_of(sink, "oauth", waiting)
            go_on.append(True)
            assert (await message_of(sink, "subscription_event", counting)).text == "after None"

        monkeypatch.setenv("RAPKIT_SECRET_KEY", f"{new},{old}")
        async with serving(tools) as server:
            answered = await server.post(urlsplit(response_url).path, {"id": asked, "selected": 1})
            assert answered.status == 200
            assert (await message_of(sink, "tool_result", asked)).text == "right"
            assert (await server.get(f"{redirect.path}?{redirect.query}")).status == 200
            for call in (consented, waiting):
                assert (await message_of(sink, "tool_result", call)).text == "ann"
            go_on.append(True)
            await until(lambda: any(post.message.get("text") == "after 1" for post in sink.posts))
            for again, told in (("ask", "right"), ("act", "ann")):
                assert (await message_of(sink, "tool_result", await start(again))).text == told

    monkeypatch.setenv("RAPKIT_SECRET_KEY", secrets.token_urlsafe(32))
    with pytest.raises(StoreError, match="sealed with another key"):
        async with tools.lifespan():
            pass
