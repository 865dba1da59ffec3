"""Getting a call to its server, and what the model is told if that fails."""

import json
from typing import Any

import pytest

from rapkit.errors import ConfigError
from rapkit.kernel.entries import Answered, Ignored
from rapkit.runtime.server import Server
from tests.runtime.agents import Obedient, Working, call, quick, working
from tests.runtime.stranger import ANSWER, CANCEL, CLOSE, INVOKE, TOOLSET, Invocation, Stranger, listening, tool
from tests.server.sink import answer, reset

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TEXT = {"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]}


async def test_a_server_in_trouble_is_asked_again_with_the_very_same_call(agent: Working, stranger: Stranger) -> None:
    """INV-4: 5xx and broken connections; the message id says that it is the same."""
    stranger.script[INVOKE] = [answer(503), reset, answer(500), answer(302, "Location: /elsewhere\r\n")]
    talk = await agent.doing(call("work"))

    posts = await stranger.received(INVOKE, 5)
    await Invocation(posts[-1]).result("at last")

    await talk.hears("heard: at last")
    await agent.quiet()
    assert len({post.body for post in stranger.to(INVOKE)}) == 1
    assert len({post.webhook_id for post in stranger.to(INVOKE)}) == 1
    assert stranger.to("/elsewhere") == []


async def test_a_server_that_is_down_gets_its_call_when_it_is_back(agent: Working, stranger: Stranger) -> None:
    """INV-4"""
    talk = await agent.talk("hello")
    await talk.hears("hello")  # its toolset is known
    await stranger.down()
    await talk.do(call("work"))
    await talk.becomes("waiting")

    await stranger.up()

    await (await stranger.invoked()).result("back again")
    await talk.hears("heard: back again")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 410, 413, 422, 429])
async def test_a_call_that_is_refused_is_not_sent_again(agent: Working, stranger: Stranger, status: int) -> None:
    """INV-5, INV-6: the model is told."""
    stranger.script[INVOKE] = [answer(status)]
    talk = await agent.doing(call("work"))

    said = await talk.hears("Error: The call of 'work' could not be delivered")

    assert f"answered {status}" in said.text
    await agent.quiet()
    assert len(stranger.to(INVOKE)) == 1


async def test_a_call_that_cannot_be_delivered_becomes_an_error_the_model_can_reason_about(
    model: Obedient, stranger: Stranger, store: str
) -> None:
    """INV-6: the other calls of the same reply are not touched by it."""
    async with listening("far") as far, working(model, [stranger.url, far.url], store, policies=quick(0.1)) as agent:
        talk = await agent.talk("hello")
        await talk.hears("hello")
        await far.down()
        await talk.do(call("far"), call("work"))
        await (await stranger.invoked()).result("near")

        said = await talk.hears("near")

        assert "Error: The call of 'far' could not be delivered: " in said.text
        assert "Whether it had any effect is not known." in said.text
        assert far.url in said.text


async def test_a_server_that_had_the_call_after_all_is_heard_once(
    model: Obedient, stranger: Stranger, store: str
) -> None:
    """INV-6: it was given up, its server answers all the same, and the model is told that."""
    stranger.otherwise[INVOKE] = reset
    async with working(model, [stranger.url], store, policies=quick(0.1)) as agent:
        talk = await agent.doing(call("work", n=1))
        await talk.hears("could not be delivered")
        invocation = await stranger.invoked()

        assert (await invocation.result("done after all")).status == 200

        await talk.hears("heard: done after all")
        assert model.shown()[-1] == (
            "work",
            {"n": 1, "kind": "result:call_1 (the call is finished)"},
            "done after all",
        )
        assert (await invocation.result("and again")).status == 404


# The toolset has changed


async def test_a_call_that_still_fits_a_changed_toolset_is_sent_once_more(agent: Working, stranger: Stranger) -> None:
    """DIS-10"""
    stranger.tools = [tool("work", NUMBER)]
    talk = await agent.talk("hello")
    await talk.hears("hello")
    stranger.version, stranger.tools = "2", [tool("work", NUMBER), tool("more_work")]
    stranger.script[INVOKE] = [answer(409)]
    await talk.do(call("work", n=1))

    second = await stranger.invoked(2)
    await second.result("corrected")

    await talk.hears("heard: corrected")
    await agent.quiet()
    first, second = (Invocation(post) for post in stranger.to(INVOKE))
    assert (first.message["toolset_version"], second.message["toolset_version"]) == ("1", "2")
    assert {**first.message, "toolset_version": "2"} == second.message
    assert len(stranger.to(TOOLSET)) == 2
    assert [each.text for each in await talk.all(Answered)] == ["corrected"]


async def test_after_a_change_the_session_uses_the_new_toolset(
    agent: Working, stranger: Stranger, model: Obedient
) -> None:
    """DIS-10: the new endpoint and the new tools included."""
    talk = await agent.talk("hello")
    await talk.hears("hello")
    stranger.script[INVOKE] = [answer(409)]
    document = json.loads(stranger.toolset())
    document["endpoint"] = f"{stranger.url}/moved"
    document["tools"].append(tool("brand_new"))
    stranger.document = json.dumps(document).encode()
    await talk.do(call("work"))

    (post,) = await stranger.received("/moved")
    await Invocation(post).result("moved")

    await talk.hears("heard: moved")
    assert "brand_new" in [each.name for each in model.last.tools]


@pytest.mark.parametrize(
    ("tools", "reason"),
    [
        ([tool("work", TEXT)], "The arguments do not fit any more"),
        ([tool("other_work")], "It is not offered any more."),
    ],
)
async def test_a_call_that_fits_no_more_becomes_an_error(
    agent: Working, stranger: Stranger, tools: Any, reason: str
) -> None:
    """DIS-10"""
    stranger.tools = [tool("work", NUMBER)]
    talk = await agent.talk("hello")
    await talk.hears("hello")
    stranger.version, stranger.tools = "2", tools
    stranger.script[INVOKE] = [answer(409)]
    await talk.do(call("work", n=1))

    said = await talk.hears("Error: The tool 'work' has changed.")

    assert reason in said.text
    await agent.quiet()
    assert len(stranger.to(INVOKE)) == 1


async def test_a_server_that_says_409_twice_is_not_asked_a_third_time(agent: Working, stranger: Stranger) -> None:
    """DIS-10, INV-5"""
    stranger.otherwise[INVOKE] = answer(409)
    talk = await agent.doing(call("work"))

    said = await talk.hears("Error: The call of 'work' could not be delivered")

    assert "says that we know an old toolset, again" in said.text
    await agent.quiet()
    assert len(stranger.to(INVOKE)) == 2


async def test_a_409_whose_toolset_cannot_be_fetched_is_tried_as_it_was(agent: Working, stranger: Stranger) -> None:
    """DIS-10, DIS-7: what was known is used, and the server says again what it thinks of that."""
    talk = await agent.talk("hello")
    await talk.hears("hello")
    stranger.otherwise[TOOLSET] = answer(500)
    stranger.script[INVOKE] = [answer(409)]
    await talk.do(call("work"))

    await (await stranger.invoked(2)).result("it took it")

    await talk.hears("heard: it took it")


async def test_a_result_that_comes_with_the_409_is_the_result(agent: Working, stranger: Stranger) -> None:
    """DIS-10: nothing is sent again for a call that has its answer."""
    stranger.script[INVOKE] = [answer(409)]
    stranger.before_answering = lambda invocation: invocation.result("both")
    talk = await agent.doing(call("work"))
    await talk.hears("heard: both")
    await agent.quiet()

    assert len(stranger.to(INVOKE)) == 1
    assert [each for each in await talk.all(Ignored) if "sent again" in each.reason] == []


# Who we are, and whom we talk to


async def test_every_request_to_a_server_carries_its_token_and_no_other(
    model: Obedient, stranger: Stranger, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRA-3: read when it is needed, so that a new one is used at once."""
    monkeypatch.setenv("STRANGERS_TOKEN", "first-token")
    async with listening("elsewhere") as other:
        servers = [Server(stranger.url, token="env:STRANGERS_TOKEN"), Server(other.url)]
        async with working(model, servers, store) as agent:
            talk = await agent.doing(call("work"))
            invocation = await stranger.invoked()
            monkeypatch.setenv("STRANGERS_TOKEN", "second-token")
            await invocation.choice("Really?", ["Yes", "No"], 1, stranger.url + ANSWER)
            await talk.becomes("waiting")
            await agent.threads.choose(talk.id, invocation.id, 0)
            await stranger.received(ANSWER)
            await agent.threads.cancel(talk.id, invocation.id)
            await agent.threads.close(talk.id)
            await stranger.received(CLOSE)
            await other.received(CLOSE)

            tokens = {post.target: post.headers["authorization"] for post in stranger.posts}
            assert tokens == {
                TOOLSET: "Bearer first-token",
                INVOKE: "Bearer first-token",
                ANSWER: "Bearer second-token",
                CANCEL: "Bearer second-token",
                CLOSE: "Bearer second-token",
            }
            assert [post for post in other.posts if "authorization" in post.headers] == []


def test_plain_http_to_another_machine_has_to_be_allowed() -> None:
    """TRA-2"""
    with pytest.raises(ConfigError, match="allow_http"):
        Server("http://tools.example.com")
    assert Server("http://tools.example.com", allow_http=True).base == "http://tools.example.com"
    assert Server("https://tools.example.com").base == "https://tools.example.com"
    assert Server("http://127.0.0.1:8001").is_local


@pytest.mark.parametrize(
    ("endpoint", "why"),
    [
        ("http://93.184.215.14/invoke", "plain http"),
        ("http://169.254.169.254/latest/meta-data", "metadata"),
        ("https://10.0.0.7/invoke", "private"),
    ],
)
async def test_an_endpoint_on_another_machine_is_not_dialled_in_plain_http_nor_in_private_networks(
    agent: Working, stranger: Stranger, endpoint: str, why: str
) -> None:
    """TRA-2: what a server names is a stranger's word, so it is never retried either."""
    stranger.document = json.dumps({"name": "s", "endpoint": endpoint, "tools": [tool("work")]}).encode()
    talk = await agent.doing(call("work"))

    said = await talk.hears("could not be delivered")

    assert why in said.text
    assert "/invoke" not in said.text
