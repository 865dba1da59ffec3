"""Getting a call to its server, and what the model is told if that fails."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from rapkit.delivery.guard import Guard
from rapkit.delivery.http_client import HttpClient
from rapkit.delivery.retry import POLICIES, PostKind, RetryPolicy
from rapkit.errors import ConfigError, ForbiddenTarget
from rapkit.kernel.entries import Answered, Ignored
from rapkit.mailbox import TakenPost
from rapkit.runtime.callback_urls import CallbackUrls
from rapkit.runtime.dispatch import Dispatch
from rapkit.runtime.engine import AgentEnvironment
from rapkit.runtime.server import Server
from rapkit.signer import Signer
from tests.runtime.agents import RunningAgent, ScriptedReplies, call, quick, working
from tests.runtime.foreign_toolset import (
    ANSWER,
    CANCEL,
    CLOSE,
    INVOKE,
    TOOLSET,
    ForeignToolset,
    Invocation,
    listening,
    tool,
)
from tests.server.sink import after, answer, reset

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TEXT = {"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]}


async def test_a_server_in_trouble_is_asked_again_with_the_very_same_call(
    agent: RunningAgent, stranger: ForeignToolset
) -> None:
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


async def test_a_server_that_is_down_gets_its_call_when_it_is_back(
    agent: RunningAgent, stranger: ForeignToolset
) -> None:
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
async def test_a_call_that_is_refused_is_not_sent_again(
    agent: RunningAgent, stranger: ForeignToolset, status: int
) -> None:
    """INV-5, INV-6: the model is told."""
    stranger.script[INVOKE] = [answer(status)]
    talk = await agent.doing(call("work"))

    said = await talk.hears("Error: The call of 'work' could not be delivered")

    assert f"answered {status}" in said.text
    assert "The server refused the call: nothing was executed." in said.text
    await agent.quiet()
    assert len(stranger.to(INVOKE)) == 1


async def test_a_refusal_after_a_lost_answer_does_not_claim_that_nothing_was_executed(
    agent: RunningAgent, stranger: ForeignToolset
) -> None:
    """INV-6: the first attempt may have been executed before its answer was lost."""
    stranger.script[INVOKE] = [reset, answer(404)]
    talk = await agent.doing(call("work"))

    said = await talk.hears("Error: The call of 'work' could not be delivered")

    assert "answered 404" in said.text
    assert "Whether the call was executed is not known." in said.text


async def test_a_call_that_cannot_be_delivered_becomes_an_error_the_model_can_reason_about(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
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
        assert "Whether the call was executed is not known." in said.text
        assert far.url in said.text


async def test_a_server_that_had_the_call_after_all_is_heard_once(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
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
            {"n": 1, "kind": f"result:{invocation.id} (the call is finished)"},
            "done after all",
        )
        assert (await invocation.result("and again")).status == 200


# The toolset has changed


async def test_a_call_that_still_fits_a_changed_toolset_is_sent_once_more(
    agent: RunningAgent, stranger: ForeignToolset
) -> None:
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
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies
) -> None:
    """DIS-10: the new endpoint and the new tools included."""
    talk = await agent.talk("hello")
    await talk.hears("hello")
    stranger.script[INVOKE] = [answer(409)]
    document = json.loads(stranger.toolset()) | {"version": "2"}
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
    agent: RunningAgent, stranger: ForeignToolset, tools: Any, reason: str
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
    assert "The server refused the call: nothing was executed." in said.text
    await agent.quiet()
    assert len(stranger.to(INVOKE)) == 1


async def test_a_server_that_says_409_twice_is_not_asked_a_third_time(
    agent: RunningAgent, stranger: ForeignToolset
) -> None:
    """DIS-10, INV-5"""
    talk = await agent.talk("hello")
    await talk.hears("hello")
    stranger.version = "2"
    stranger.otherwise[INVOKE] = answer(409)
    await talk.do(call("work"))

    said = await talk.hears("Error: The call of 'work' could not be delivered")

    assert "it refuses the call as outdated" in said.text
    assert "The server refused the call: nothing was executed." in said.text
    await agent.quiet()
    assert [post.message["toolset_version"] for post in stranger.to(INVOKE)] == ["1", "2"]


@pytest.mark.parametrize("version", ["1", None])
@pytest.mark.parametrize("discovery", [None, answer(500)])
async def test_a_409_is_not_retried_with_the_same_version(
    model: ScriptedReplies, stranger: ForeignToolset, store: str, version: str | None, discovery: Any
) -> None:
    """Item 11 · DIS-10, INV-5: whether the server still says the same version, has none, or does not answer."""
    stranger.version = version
    async with working(model, [stranger.url], store) as agent:
        talk = await agent.talk("hello")
        await talk.hears("hello")
        if discovery is not None:
            stranger.otherwise[TOOLSET] = discovery
        stranger.otherwise[INVOKE] = answer(409)
        await talk.do(call("work"))

        said = await talk.hears("Error: The call of 'work' could not be delivered")

        assert "it refuses the call as outdated, but offers no newer toolset." in said.text
        assert "The server refused the call: nothing was executed." in said.text
        await agent.quiet()
        assert len(stranger.to(INVOKE)) == 1
        assert len(stranger.to(TOOLSET)) == 2


async def test_of_two_calls_refused_as_outdated_both_are_sent_with_the_new_version(
    agent: RunningAgent, stranger: ForeignToolset
) -> None:
    """DIS-10: what counts is the version a call was sent with, not whether its refusal was the first to fetch the new toolset."""
    talk = await agent.talk("hello")
    await talk.hears("hello")
    stranger.version = "2"
    stranger.script[INVOKE] = [answer(409), answer(409)]
    await talk.do(call("work", n=1), call("work", n=2))

    posts = await stranger.received(INVOKE, 4)

    assert [post.message["toolset_version"] for post in posts] == ["1", "1", "2", "2"]
    for post in posts[2:]:
        await Invocation(post).result(f"done {post.message['arguments']['n']}")
    await talk.hears("done 2")


async def test_a_result_that_comes_with_the_409_is_the_result(agent: RunningAgent, stranger: ForeignToolset) -> None:
    """DIS-10: nothing is sent again for a call that has its answer."""
    stranger.script[INVOKE] = [answer(409)]
    stranger.before_answering = lambda invocation: invocation.result("both")
    talk = await agent.doing(call("work"))
    await talk.hears("heard: both")
    await agent.quiet()

    assert len(stranger.to(INVOKE)) == 1
    assert [each for each in await talk.all(Ignored) if "sent again" in each.reason] == []


@pytest.mark.parametrize("first", ["the result", "the acknowledgement"])
async def test_a_call_that_has_its_result_is_not_sent_again_because_its_acknowledgement_got_lost(
    model: ScriptedReplies, stranger: ForeignToolset, store: str, first: str
) -> None:
    """INV-4, INV-13: it was done, so that doing it again could only do harm."""
    answered = asyncio.Event()
    stranger.script[INVOKE] = [after(answered, answer(502))]
    soon = {**POLICIES, PostKind.INVOCATION: RetryPolicy(first=0.3, factor=1, cap=0.3, horizon=60)}
    async with working(model, [stranger.url], store, policies=soon) as agent:
        talk = await agent.doing(call("work"))
        invocation = await stranger.invoked()
        if first == "the acknowledgement":
            answered.set()
            await agent.failed_once()
        assert (await invocation.result("done")).status == 200
        await talk.hears("heard: done")
        answered.set()

        await agent.quiet()

        assert len(stranger.to(INVOKE)) == 1
        assert [each.text for each in await talk.all(Answered)] == ["done"]


# Who we are, and whom we talk to


async def test_every_request_to_a_server_carries_its_token_and_no_other(
    model: ScriptedReplies, stranger: ForeignToolset, store: str, monkeypatch: pytest.MonkeyPatch
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


async def test_a_token_that_is_missing_for_a_moment_delays_a_call_and_no_more(
    model: ScriptedReplies, stranger: ForeignToolset, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-4, TRA-3: secrets are replaced while we run, and not always in one go."""
    monkeypatch.setenv("STRANGERS_TOKEN", "first-token")
    async with working(model, [Server(stranger.url, token="env:STRANGERS_TOKEN")], store) as agent:
        talk = await agent.talk("hello")
        await talk.hears("hello")
        monkeypatch.delenv("STRANGERS_TOKEN")
        await talk.do(call("work"))
        await agent.failed_once()
        assert stranger.to(INVOKE) == []

        monkeypatch.setenv("STRANGERS_TOKEN", "second-token")

        invocation = await stranger.invoked()
        assert invocation.post.headers["authorization"] == "Bearer second-token"
        await invocation.result("delivered")
        await talk.hears("heard: delivered")


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
    agent: RunningAgent, stranger: ForeignToolset, endpoint: str, why: str
) -> None:
    """TRA-2: what a server names is a stranger's word, so it is never retried either."""
    stranger.document = json.dumps({"name": "s", "endpoint": endpoint, "tools": [tool("work")]}).encode()
    talk = await agent.doing(call("work"))

    said = await talk.hears("could not be delivered")

    assert why in said.text
    assert "/invoke" not in said.text


FAR = "https://tools.example.com"


class FarLine(HttpClient):
    """The way out, on which a server answers that is far away: it offers `document`."""

    document = b""

    async def get(self, url: str, headers: Mapping[str, str], *, limit: int) -> tuple[int, bytes]:
        if url.startswith(FAR):
            return 200, self.document
        return await super().get(url, headers, limit=limit)


@contextlib.asynccontextmanager
async def agent_of_far(
    model: ScriptedReplies, near: ForeignToolset, store: str, endpoint: str
) -> AsyncIterator[RunningAgent]:
    """An agent with a server on this machine, and one elsewhere that names this endpoint."""

    class Line(FarLine):
        document = json.dumps({"name": "far", "endpoint": endpoint, "tools": [tool("far_work")]}).encode()

    outside = AgentEnvironment(open_transport=Line)
    async with working(model, [near.url, FAR], store, environment=outside, policies=quick(0.2)) as agent:
        yield agent


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.8.8.8", "[::1]"])
async def test_a_server_elsewhere_that_names_an_endpoint_here_is_reported_and_offers_nothing(
    model: ScriptedReplies, stranger: ForeignToolset, store: str, host: str, caplog: pytest.LogCaptureFixture
) -> None:
    """DIS-12, TRA-2: also if another server of ours is on this machine."""
    async with agent_of_far(model, stranger, store, f"http://{host}:{stranger.port}{INVOKE}") as agent:
        talk = await agent.doing(call("far_work"))

        await talk.hears("There is no tool 'far_work'")

        problem = f"{FAR}{TOOLSET} names an endpoint on this machine, and is not on it itself."
        assert f"{FAR} offers nothing: {problem}" in caplog.text
        near, far = await agent.engine.toolsets.survey()
        assert (near.problem, far.problem) == (None, problem)
        assert stranger.to(INVOKE) == []


@pytest.mark.parametrize(
    "host", ["127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0.0.0.0", "[::ffff:127.0.0.1]", "localhost.", "[::]"]
)
async def test_nor_is_it_reached_by_another_spelling(
    model: ScriptedReplies, stranger: ForeignToolset, store: str, host: str
) -> None:
    """TRA-2"""
    async with agent_of_far(model, stranger, store, f"http://{host}:{stranger.port}{INVOKE}") as agent:
        talk = await agent.doing(call("far_work"))

        await talk.until(Answered)

        await talk.becomes("idle")
        assert stranger.to(INVOKE) == []


async def test_what_a_server_elsewhere_had_us_send_here_is_not_sent() -> None:
    """TRA-2: whatever became of the checks before, and whenever it was put into the outbox."""
    callback_urls = CallbackUrls("https://agent.example.com", Signer([b"k" * 32]))
    dispatch = Dispatch([Server(FAR), Server("http://127.0.0.1:1")], callback_urls, Guard(loopback=True))

    async def prepare(server: str, url: str) -> object:
        outgoing = dispatch.choice("thr_1", "call_1", server, url, 0)
        return await dispatch.prepare(TakenPost(outgoing, seq=1, epoch=1, attempts=1, age=0.0))

    for url in ("http://127.0.0.1:9/answer", "http://localhost/answer", "http://[::1]:9/answer"):
        with pytest.raises(ForbiddenTarget, match=f"{FAR} is not on this machine, and may not have us call"):
            await prepare(FAR, url)
        assert await prepare("http://127.0.0.1:1", url)
    assert await prepare(FAR, f"{FAR}/answer")
