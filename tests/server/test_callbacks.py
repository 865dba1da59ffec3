"""How results reach the callback URL, through the whole server."""

import asyncio
import json
import logging
from collections.abc import Callable

import pytest
from standardwebhooks import Webhook

from rapkit import Toolset
from rapkit.errors import ConfigError
from tests.server.served_toolset import invocation, serving, until
from tests.server.sink import Sink, after, answer, reset

SECRETS = ("whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldY", "whsec_" + "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4")


async def test_a_result_is_a_json_object_posted_as_json(tools: Toolset, sink: Sink) -> None:
    """TRA-1, CB-2"""
    async with serving(tools) as server:
        await server.invoke(invocation(f"{sink.url}/cb", id="c1", arguments={"text": "hello"}))
        post = await sink.result("c1")

        assert (post.method, post.target) == ("POST", "/cb")
        assert post.headers["content-type"] == "application/json"
        assert post.message == {"type": "tool_result", "group_id": "thread_1", "id": "c1", "text": "hello"}
        assert post.webhook_id
        assert post.headers["webhook-timestamp"].isdigit()
        assert "webhook-signature" not in post.headers


@pytest.mark.parametrize(
    ("given", "arrives"),
    [
        ("", "/"),
        ("?token=a%20b&x=1&x=2", "/?token=a%20b&x=1&x=2"),
        ("/%7Euser/%2F%2f?q=%zz", "/%7Euser/%2F%2f?q=%zz"),
        ("/callback/Grüße", "/callback/Gr%C3%BC%C3%9Fe"),
        ("/invoke", "/invoke"),
        ("/" + "long" * 900, "/" + "long" * 900),
        ("/a;b=c,d!$&'()*+@:~[]|", "/a;b=c,d!$&'()*+@:~[]|"),
    ],
)
async def test_the_callback_url_is_used_as_it_was_given(tools: Toolset, sink: Sink, given: str, arrives: str) -> None:
    """CB-1"""
    async with serving(tools) as server:
        assert (await server.invoke(invocation(sink.url + given, id="c1"))).status == 200

        assert (await sink.result("c1")).target == arrives


async def test_a_server_error_is_retried_with_the_same_message(tools: Toolset, sink: Sink) -> None:
    """CB-3, CB-5"""
    sink.script = [answer(503)]
    async with serving(tools) as server:
        await server.invoke(invocation(sink.url, id="c1"))
        first, second = await sink.received(2)
        await server.quiet()

        assert first.body == second.body
        assert first.webhook_id == second.webhook_id
        assert len(sink.posts) == 2


async def test_a_broken_connection_is_retried_with_the_same_message(tools: Toolset, sink: Sink) -> None:
    """CB-3, CB-5"""
    sink.script = [reset]
    async with serving(tools) as server:
        await server.invoke(invocation(sink.url, id="c1"))
        first, second = await sink.received(2)
        await server.quiet()

        assert (first.body, first.webhook_id) == (second.body, second.webhook_id)
        assert len(sink.posts) == 2


async def test_a_receiver_that_is_away_gets_the_result_when_it_is_back(tools: Toolset, sink: Sink) -> None:
    """CB-3"""
    async with serving(tools) as server:
        await sink.down()
        await server.invoke(invocation(sink.url, id="c1"))

        async def failed_once() -> None:
            while not [outbox_row for outbox_row in await server.undelivered() if outbox_row.problem]:
                await asyncio.sleep(0.01)

        await asyncio.wait_for(failed_once(), 60)
        await sink.up()

        assert (await sink.result("c1")).text == "echo"


@pytest.mark.parametrize("status", [400, 401, 404, 408, 410, 429])
async def test_a_client_error_is_final_and_kept_for_people_to_see(tools: Toolset, sink: Sink, status: int) -> None:
    """CB-4"""
    sink.otherwise = answer(status)
    async with serving(tools) as server:
        await server.invoke(invocation(f"{sink.url}/secret-path", id="c1"))
        await sink.received(1)
        await server.quiet()
        (new_mail,) = await server.dead_letters()

        assert len(sink.posts) == 1
        assert new_mail.problem == f"{sink.url} answered {status}"
        assert (new_mail.kind, new_mail.origin, new_mail.attempts) == ("callback", sink.url, 1)
        assert "secret-path" not in repr(new_mail)


async def test_a_success_of_any_kind_is_one(tools: Toolset, sink: Sink) -> None:
    """CB-5"""
    bodies = [b"OK", b'{"ok":true}', b"Error", b"\xff" * 100_000]
    sink.script = [answer(200 + n, body=body) for n, body in enumerate(bodies)]
    async with serving(tools) as server:
        for n in range(len(bodies)):
            await server.invoke(invocation(sink.url, id=f"c{n}"))
            await sink.result(f"c{n}")
        await server.quiet()

        assert len(sink.posts) == len(bodies)
        assert await server.dead_letters() == []


async def test_a_slow_receiver_holds_up_nobody_else(tools: Toolset, sink: Sink) -> None:
    """INV-12"""
    release = asyncio.Event()
    sink.script = [after(release, answer(200))]
    async with serving(tools) as server:
        await server.invoke(invocation(sink.url, id="slow"))
        await sink.result("slow")
        for number in range(20):
            await server.invoke(invocation(sink.url, id=f"c{number}"))
        await sink.received(21)
        release.set()
        await server.quiet()

        assert len(sink.posts) == 21


async def test_messages_are_signed_with_every_secret(toolset: Callable[..., Toolset], sink: Sink) -> None:
    tools = toolset(webhook_secrets=SECRETS)
    tools.tool(name="echo")(lambda: "x")
    async with serving(tools) as server:
        await server.invoke(invocation(sink.url, id="c1"))
        post = await sink.result("c1")

        for secret in SECRETS:
            assert Webhook(secret).verify(post.body, post.headers) == json.loads(post.body)


async def test_a_webhook_secret_that_is_none_is_refused_at_once(toolset: Callable[..., Toolset]) -> None:
    """INV-11: found with the first callback, it would keep every result from being sent."""
    tools = toolset(webhook_secrets=["not-a-secret"])
    tools.tool(name="echo")(lambda: "x")

    with pytest.raises(ConfigError, match="webhook secret"):
        async with tools.lifespan():
            pass


async def test_callback_urls_are_in_no_log(tools: Toolset, sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    """CB-1: whoever has the URL can speak into the conversation."""
    caplog.set_level(logging.DEBUG)
    sink.script = [answer(500), answer(404)]
    async with serving(tools) as server:
        await server.invoke(invocation(f"{sink.url}/very-secret?token=very-secret", id="c1"))
        await sink.received(2)
        await server.quiet()

        assert "answered 404" in caplog.text
        assert "very-secret" not in caplog.text


async def test_a_callback_that_comes_before_the_acknowledgement_is_no_problem(tools: Toolset, sink: Sink) -> None:
    """CB-5: hundreds of tiny calls, each answered whenever it is ready."""
    async with serving(tools) as server:
        await asyncio.gather(*(server.invoke(invocation(sink.url, id=f"c{n}")) for n in range(100)))
        await until(lambda: len(sink.posts) >= 100)
        await server.quiet()

        assert sorted(post.message["id"] for post in sink.posts) == sorted(f"c{n}" for n in range(100))
