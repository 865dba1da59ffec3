"""What tools want from people, and show to people. The call stays pending; the model is not asked."""

import asyncio
import json
from pathlib import Path

import pytest

from rapkit import OAuthProvider
from rapkit.errors import ThreadError
from rapkit.kernel.entries import AuthorizationAsked, ChoiceAsked, ChoiceMadeEntry, Failed, Ignored, ViewChanged
from rapkit.kernel.limits import ThreadLimits
from rapkit.runtime.event_feed import EventName
from tests.runtime.agents import RunningAgent, ScriptedReplies, ThreadDriver, call, quick, working
from tests.runtime.examples import UNASKED, example, github_api, served
from tests.runtime.foreign_toolset import ANSWER, CANCEL, INVOKE, ForeignToolset, Invocation, listening, post_to
from tests.server.interaction.oauth.browser import Browser
from tests.server.interaction.oauth.provider_server import provider_running
from tests.server.sink import answer

AUTHORIZE = "https://provider.example/authorize?state=secret-state"


async def asked(agent: RunningAgent, stranger: ForeignToolset) -> tuple[ThreadDriver, Invocation]:
    """A thread whose call asks the user to choose."""
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()
    assert (await invocation.choice("Which?", ["red", "green", "blue"], 2, stranger.url + ANSWER)).status == 200
    await talk.until(ChoiceAsked)
    return talk, invocation


# Choices


async def test_a_question_reaches_the_user_and_the_answer_the_tool(
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies
) -> None:
    """CHO-1, TRA-1: the call stays pending, the model is not asked."""
    talk, invocation = await asked(agent, stranger)
    shown = await talk.event(EventName.CHOICE)
    assert shown.data["call_id"] == invocation.id
    assert (shown.data["prompt"], list(shown.data["choices"])) == ("Which?", ["red", "green", "blue"])
    assert shown.data["default"] == 2
    assert list((await talk.becomes("waiting")).thread.pending) == [invocation.id]

    await agent.threads.choose(talk.id, invocation.id, 1)

    (post,) = await stranger.received(ANSWER)
    assert (post.method, post.headers["content-type"]) == ("POST", "application/json")
    assert post.message == {"id": invocation.id, "selected": 1}
    look = await talk.becomes("waiting")
    assert (list(look.thread.pending), look.thread.choices) == ([invocation.id], {})
    assert len(model.questions) == 1
    await invocation.result("green it is")
    await talk.hears("heard: green it is")


async def test_a_question_that_is_dismissed_is_answered_with_its_default(
    agent: RunningAgent, stranger: ForeignToolset
) -> None:
    """CHO-1"""
    talk, invocation = await asked(agent, stranger)

    await agent.threads.choose(talk.id, invocation.id, None)

    (post,) = await stranger.received(ANSWER)
    assert post.message == {"id": invocation.id, "selected": 2}
    made = await talk.until(ChoiceMadeEntry)
    assert (made.selected, made.dismissed) == (2, True)


async def test_a_choice_that_is_none_is_refused(agent: RunningAgent, stranger: ForeignToolset) -> None:
    """CHO-1"""
    talk, invocation = await asked(agent, stranger)

    for wrong in (-1, 3):
        with pytest.raises(ThreadError, match="0 to 2"):
            await agent.threads.choose(talk.id, invocation.id, wrong)
    with pytest.raises(ThreadError):
        await agent.threads.choose(talk.id, "call_9", 0)

    await agent.threads.choose(talk.id, invocation.id, 0)
    await stranger.received(ANSWER)
    await agent.quiet()
    with pytest.raises(ThreadError):
        await agent.threads.choose(talk.id, invocation.id, 0)
    assert len(stranger.to(ANSWER)) == 1


async def test_an_answer_is_retried_and_the_user_told_if_it_never_arrives(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """CHO-1: the call is as pending as it was."""
    async with working(model, [stranger.url], store, policies=quick(0.3)) as agent:
        talk, invocation = await asked(agent, stranger)
        stranger.script[ANSWER] = [answer(503), answer(200)]
        await agent.threads.choose(talk.id, invocation.id, 0)
        await stranger.received(ANSWER, 2)

        assert (await invocation.choice("And now?", ["a", "b"], 0, f"{stranger.url}/gone")).status == 200
        await talk.until(ChoiceAsked, 2)
        stranger.otherwise["/gone"] = answer(410)
        await agent.threads.choose(talk.id, invocation.id, 1)

        failed = await talk.until(Failed)
        assert failed.text.startswith("Your choice could not be delivered to the tool that asked: ")
        assert list((await talk.look()).thread.pending) == [invocation.id]


async def test_questions_end_with_their_call(agent: RunningAgent, stranger: ForeignToolset) -> None:
    """CHO-1"""
    talk, invocation = await asked(agent, stranger)

    await invocation.result("never mind")

    await talk.hears("heard: never mind")
    assert (await talk.becomes("idle")).thread.choices == {}
    with pytest.raises(ThreadError):
        await agent.threads.choose(talk.id, invocation.id, 0)


@pytest.mark.parametrize(
    "url",
    ["https://example.com/collect", "http://10.0.0.1/", "http://169.254.169.254/latest", "a port of this machine"],
)
async def test_answers_go_to_the_server_that_asked_and_nowhere_else(
    agent: RunningAgent, stranger: ForeignToolset, caplog: pytest.LogCaptureFixture, url: str
) -> None:
    """CHO-1: a server cannot have us POST to third parties. The call ends: nobody will ever answer it."""
    async with listening() as bystander:
        talk = await agent.doing(call("work"))
        invocation = await stranger.invoked()

        await invocation.choice("Trick?", ["Yes"], 0, url if "://" in url else bystander.url + ANSWER)

        reason = "its response_url is none of the tool server's own"
        said = await talk.hears("Error: The tool asked the user a question, but it cannot be answered")
        assert reason in said.text
        (notice,) = await stranger.received(CANCEL)
        assert notice.message["tool_call_id"] == invocation.id
        look = await talk.becomes("idle")
        assert (look.thread.choices, look.thread.pending) == ({}, {})
        assert f"a user_choice is refused: {reason}" in caplog.text
        assert await talk.all(ChoiceAsked) == []
        assert bystander.posts == []


async def test_an_answer_may_go_to_where_the_tool_is_invoked(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """CHO-1, DIS-2: the endpoint is the server's own place too, wherever it says that is."""
    async with listening("work") as elsewhere, working(model, [stranger.url], store) as agent:
        stranger.document = elsewhere.toolset()
        talk = await agent.doing(call("work"))
        invocation = await elsewhere.invoked()
        await invocation.choice("Which?", ["red", "green"], 0, elsewhere.url + ANSWER)
        await talk.until(ChoiceAsked)

        await agent.threads.choose(talk.id, invocation.id, 1)

        (post,) = await elsewhere.received(ANSWER)
        assert post.message == {"id": invocation.id, "selected": 1}
        await invocation.result("green it is")
        await talk.hears("heard: green it is")
        assert stranger.to(ANSWER) == []


async def test_the_weather_example_evacuates_only_if_the_user_says_so(
    model: ScriptedReplies, store: str, tmp_path: Path
) -> None:
    """CHO-1"""
    async with (
        served(example("weather", tmp_path)) as weather,
        working(model, [weather], store, limits=UNASKED) as agent,
    ):
        for selected, told in ((0, "heard: Everyone is leaving Oslo."), (None, "heard: Error: The user declined.")):
            talk = await agent.doing(call("evacuate", city="Oslo"))
            question = await talk.event(EventName.CHOICE)
            assert question.data["prompt"] == "Really evacuate Oslo?"
            await agent.threads.choose(talk.id, question.data["call_id"], selected)
            await talk.hears(told)


# Authorisation


async def test_where_to_authorise_is_shown_and_forgotten_when_the_call_is_answered(
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies, tmp_path: Path
) -> None:
    """OAU-1: the call stays pending, nothing is invoked again, and the URL is not kept longer than needed."""
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()

    assert (await invocation.oauth(AUTHORIZE)).status == 200

    shown = await talk.event(EventName.OAUTH)
    assert shown.data == {"call_id": invocation.id, "auth_url": AUTHORIZE}
    look = await talk.becomes("waiting")
    assert look.authorizations == {invocation.id: AUTHORIZE}
    assert list(look.thread.pending) == [invocation.id]
    await agent.quiet()
    assert len(stranger.to(INVOKE)) == len(model.questions) == 1

    await invocation.result("authorised, and done")

    await talk.hears("heard: authorised, and done")
    look = await talk.becomes("idle")
    assert look.authorizations == {}
    assert len(stranger.to(INVOKE)) == 1
    assert "secret-state" not in str(await talk.entries())
    assert "secret-state" not in str(model.questions)


@pytest.mark.parametrize("how", ["cancelled", "closed"])
async def test_where_to_authorise_is_forgotten_with_the_call(
    agent: RunningAgent, stranger: ForeignToolset, how: str
) -> None:
    """OAU-1"""
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()
    await invocation.oauth(AUTHORIZE)
    await talk.until(AuthorizationAsked)

    await (agent.threads.cancel(talk.id, invocation.id) if how == "cancelled" else agent.threads.close(talk.id))

    await talk.becomes("idle" if how == "cancelled" else "closed")
    assert (await talk.look()).authorizations == {}


async def test_where_to_authorise_is_replaced_by_a_newer_place(agent: RunningAgent, stranger: ForeignToolset) -> None:
    """OAU-1"""
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()
    await invocation.oauth(AUTHORIZE)
    await invocation.oauth("https://provider.example/again")

    await talk.until(AuthorizationAsked, 2)

    assert (await talk.look()).authorizations == {invocation.id: "https://provider.example/again"}


async def test_the_github_example_asks_for_consent_once(
    model: ScriptedReplies, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OAU-1: with a real provider, and a user with a browser."""
    async with provider_running() as provider, github_api(provider) as api:
        monkeypatch.setenv("GITHUB_API_URL", api)
        monkeypatch.setattr(OAuthProvider, "github", lambda *_, **__: provider.declare("github"))
        async with served(example("github", tmp_path)) as github, working(model, [github], store) as agent:
            talk = await agent.talk(user_id="ann")
            await talk.do(call("my_issues"))
            shown = await talk.event(EventName.OAUTH)

            assert (await Browser("ann").authorise(shown.data["auth_url"])).status == 200

            await talk.hears("ann/api#7: It rains")
            assert (await talk.becomes("idle")).authorizations == {}
            await talk.do(call("my_issues"))
            await talk.until_answers(2)
            assert len(await talk.all(AuthorizationAsked)) == 1


# Views


async def test_the_latest_content_of_a_view_is_shown_untouched(
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies
) -> None:
    """VIE-1: it is pushed to whoever looks, replayed to whoever comes, and replaced by what is newer."""
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()
    content = {"rows": [1, 2.5, None, True], "text": "Grüße </script>", "deep": {"a": [[]]}}

    assert (await invocation.view("board", "first")).status == 200
    await talk.until(ViewChanged)
    assert (await invocation.view("board", content)).status == 200
    assert (await invocation.view("other", 0)).status == 200
    await talk.until(ViewChanged, 3)

    assert (await talk.look()).views == {"board": content, "other": 0}
    shown = await talk.event(EventName.VIEW)
    assert shown.data == {"view_type": "board", "content": content}
    assert list((await talk.look()).thread.pending) == [invocation.id]
    assert len(model.questions) == 1


async def test_whoever_looks_on_is_told_of_a_view_as_it_comes(agent: RunningAgent, stranger: ForeignToolset) -> None:
    """VIE-1"""
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()
    looking = asyncio.create_task(talk.event(EventName.VIEW))
    await asyncio.sleep(0)

    await invocation.view("board", [1, 2, 3])

    assert (await looking).data == {"view_type": "board", "content": [1, 2, 3]}


async def test_a_view_for_a_thread_nobody_knows_is_refused(agent: RunningAgent, stranger: ForeignToolset) -> None:
    """VIE-1: or for one that is closed, or another than the URL's."""
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()
    message = {"type": "view_update", "group_id": "thr_nobody", "view_type": "board", "content": 1}
    assert (await invocation.call_back(message)).status == 404
    assert (await post_to(f"{agent.url}/callback/nonsense", json.dumps(message).encode())).status == 404

    await agent.threads.close(talk.id)
    await talk.becomes("closed")

    assert (await invocation.view("board", 1)).status == 410
    assert (await talk.look()).views == {}


async def test_a_thread_has_so_many_views(model: ScriptedReplies, stranger: ForeignToolset, store: str) -> None:
    """VIE-1: strangers choose their names."""
    async with working(model, [stranger.url], store, limits=ThreadLimits(views=2)) as agent:
        talk = await agent.doing(call("work"))
        invocation = await stranger.invoked()
        for number in range(3):
            await invocation.view(f"view {number}", number)
        await invocation.view("view 0", "new")

        await talk.until(Ignored)
        await talk.until(ViewChanged, 3)
        assert (await talk.look()).views == {"view 0": "new", "view 1": 1}
