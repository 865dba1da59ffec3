"""The runtime is stopped, or killed, in the middle of each kind of waiting, and started again on the same file."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rapkit import OAuthProvider
from rapkit.delivery.retry import POLICIES, PostKind, RetryPolicy
from rapkit.kernel.entries import (
    Answered,
    AuthorizationAsked,
    ChildEnded,
    ChoiceAsked,
    ClosedEntry,
    Happened,
    ModelSaid,
    UserSaid,
    ViewChanged,
)
from rapkit.kernel.limits import ThreadLimits
from rapkit.runtime.event_feed import EventName
from tests.runtime.agents import ScriptedReplies, ThreadDriver, call, please, working
from tests.runtime.examples import UNASKED, example, github_api, served
from tests.runtime.foreign_toolset import ANSWER, CLOSE, INVOKE, ForeignToolset
from tests.runtime.processes import agent_process, from_outside, slices_in
from tests.server.interaction.oauth.browser import Browser
from tests.server.interaction.oauth.provider_server import provider_running
from tests.server.served_toolset import until
from tests.server.sink import answer


async def test_a_pending_call_is_answered_after_the_restart(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """CB-10: and is not sent again."""
    async with working(model, [stranger.url], store) as agent:
        talk = await agent.doing(call("work", n=1), call("work", n=2))
        one, two = await stranger.invoked_with(n=1), await stranger.invoked_with(n=2)
        await one.result("before")
        await talk.until(Answered)
        await agent.quiet()

    async with working(model, [stranger.url], store, port=agent.port) as agent:
        await two.result("after")
        await agent.thread(talk.id).hears("heard: before | after")
        await agent.quiet()
    assert len(stranger.to(INVOKE)) == 2


async def test_a_call_that_was_not_delivered_leaves_after_the_restart(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """INV-4"""
    stranger.script[INVOKE] = [answer(503)]
    soon = {**POLICIES, PostKind.INVOCATION: RetryPolicy(first=0.5, factor=1, cap=0.5, horizon=60)}
    async with working(model, [stranger.url], store, policies=soon) as agent:
        talk = await agent.doing(call("work"))
        await agent.failed_once()

    async with working(model, [stranger.url], store, port=agent.port) as agent:
        await (await stranger.invoked(2)).result("delivered")
        await agent.thread(talk.id).hears("heard: delivered")
    first, second = stranger.to(INVOKE)
    assert (first.body, first.webhook_id) == (second.body, second.webhook_id)


async def test_a_question_is_answered_after_the_restart(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """CHO-1: whoever connects is shown it again."""
    async with working(model, [stranger.url], store) as agent:
        talk = await agent.doing(call("work"))
        invocation = await stranger.invoked()
        await invocation.choice("Which?", ["a", "b"], 0, stranger.url + ANSWER)
        await talk.until(ChoiceAsked)

    async with working(model, [stranger.url], store, port=agent.port) as agent:
        talk = agent.thread(talk.id)
        shown = await talk.event(EventName.CHOICE)
        assert shown.data["prompt"] == "Which?"
        await agent.threads.choose(talk.id, invocation.id, 1)
        (post,) = await stranger.received(ANSWER)
        assert post.message == {"id": invocation.id, "selected": 1}


async def test_authorisation_is_asked_for_until_the_call_is_answered(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """OAU-1"""
    async with working(model, [stranger.url], store) as agent:
        talk = await agent.doing(call("work"))
        invocation = await stranger.invoked()
        await invocation.oauth("https://provider.example/authorize")
        await talk.until(AuthorizationAsked)

    async with working(model, [stranger.url], store, port=agent.port) as agent:
        talk = agent.thread(talk.id)
        shown = await talk.event(EventName.OAUTH)
        assert shown.data["auth_url"] == "https://provider.example/authorize"
        await invocation.result("authorised")
        await talk.hears("heard: authorised")
        assert (await talk.becomes("idle")).authorizations == {}


async def test_views_are_there_after_the_restart(model: ScriptedReplies, stranger: ForeignToolset, store: str) -> None:
    """VIE-1"""
    async with working(model, [stranger.url], store) as agent:
        talk = await agent.doing(call("work"))
        invocation = await stranger.invoked()
        await invocation.view("board", {"a": 1})
        await talk.until(ViewChanged)

    async with working(model, [stranger.url], store, port=agent.port) as agent:
        talk = agent.thread(talk.id)
        assert (await talk.event(EventName.VIEW)).data == {"view_type": "board", "content": {"a": 1}}
        assert (await talk.look()).views == {"board": {"a": 1}}


async def test_subscriptions_go_on_after_the_restart(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """SUB-10, SUB-12, SUB-14: those that are confirmed, and those that have events before they are."""
    async with working(model, [stranger.url], store) as agent:
        talk = await agent.doing(call("work", n=1))
        confirmed = await stranger.invoked_with(n=1)
        await confirmed.confirm()
        await talk.hears("heard: subscribed")
        hasty = await agent.doing(call("work", n=2))
        unconfirmed = await stranger.invoked_with(n=2)
        await unconfirmed.event("early", associative=True)
        await hasty.until(Happened)

    async with working(model, [stranger.url], store, port=agent.port) as agent:
        talk, hasty = agent.thread(talk.id), agent.thread(hasty.id)
        await confirmed.event("news", associative=True, final=True)
        await talk.hears("heard: news")
        assert (await talk.look()).thread.subscriptions == {}
        await unconfirmed.confirm("now")
        await hasty.hears("early")


async def test_events_that_wait_for_a_child_get_theirs_after_the_restart(stranger: ForeignToolset, store: str) -> None:
    """SUB-13"""
    gate = asyncio.Event()

    async def slow(question: Any) -> Any:
        reply = ScriptedReplies()(question)
        if str(reply).startswith("heard: event"):
            await gate.wait()
        return reply

    limits = ThreadLimits(children=1)
    async with working(slow, [stranger.url], store, limits=limits) as agent:
        talk = await agent.doing(call("work"))
        invocation = await stranger.invoked()
        await invocation.confirm()
        await talk.hears("heard: subscribed")
        for number in range(3):
            await invocation.event(f"event {number}")
        await talk.until(Happened, 3)

    gate.set()
    async with working(slow, [stranger.url], store, port=agent.port, limits=limits) as agent:
        await agent.thread(talk.id).until(ChildEnded, 3)


async def test_a_thread_that_was_closed_stays_closed(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """SUB-18, CLO-2: and nobody is told again."""
    async with working(model, [stranger.url], store) as agent:
        talk = await agent.doing(call("work"))
        invocation = await stranger.invoked()
        await agent.threads.close(talk.id)
        await talk.until(ClosedEntry)
        await stranger.received(CLOSE)

    async with working(model, [stranger.url], store, port=agent.port) as agent:
        assert (await invocation.result("late")).status == 410
        await agent.quiet()
    assert len(stranger.to(CLOSE)) == 1


async def test_the_examples_wait_for_people_while_the_agent_is_gone(
    model: ScriptedReplies, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CHO-1, OAU-1: with a real provider, and a user with a browser."""
    async with provider_running() as provider, github_api(provider) as api:
        monkeypatch.setenv("GITHUB_API_URL", api)
        monkeypatch.setattr(OAuthProvider, "github", lambda *_, **__: provider.declare("github"))
        async with served(example("github", tmp_path)) as github, served(example("weather", tmp_path)) as weather:
            async with working(model, [github, weather], store, limits=UNASKED) as agent:
                talk = await agent.talk(user_id="ann")
                await talk.do(call("close_issue", repository="acme/api", number=7), call("evacuate", city="Oslo"))
                await talk.until(ChoiceAsked, 2)

            async with working(model, [github, weather], store, port=agent.port, limits=UNASKED) as agent:
                talk = agent.thread(talk.id)
                closing, evacuating = sorted((await talk.look()).thread.choices)
                await agent.threads.choose(talk.id, closing, 0)
                await agent.threads.choose(talk.id, evacuating, None)
                consent = await talk.event(EventName.OAUTH)
                await talk.until(Answered)

            # The user consents while nobody is there to be told.
            assert (await Browser("ann").authorise(consent.data["auth_url"])).status == 200

            async with working(model, [github, weather], store, port=agent.port, limits=UNASKED) as agent:
                talk = agent.thread(talk.id)
                await talk.hears("heard: acme/api#7 is closed. | Error: The user declined.")
                assert (await talk.becomes("idle")).authorizations == {}


# Killed


async def test_everything_that_waits_survives_a_kill(stranger: ForeignToolset, store: str, tmp_path: Path) -> None:
    """RUN-8, CB-10, CHO-1, OAU-1, VIE-1, SUB-10, SUB-14, RUN-6: with real processes, and `kill -9`."""
    process = agent_process("agent", tmp_path, store, [stranger.url])
    try:
        process.start()
        await process.ready()
        async with from_outside(store) as threads:
            talks = [ThreadDriver(threads, await threads.create(text=please(call("work", n=n)))) for n in range(6)]
            plain, chatty, choosing, consenting, listening_, hasty = talks
            calls = [await stranger.invoked_with(n=n) for n in range(6)]
            await chatty.say("well?")
            await chatty.hears("well?")
            await calls[2].choice("Which?", ["a", "b"], 0, stranger.url + ANSWER)
            await choosing.until(ChoiceAsked)
            await calls[3].oauth("https://provider.example/authorize")
            await calls[3].view("board", [1])
            await consenting.until(ViewChanged)
            await calls[4].confirm()
            await listening_.hears("heard: subscribed")
            await calls[5].event("early", associative=True)
            await hasty.until(Happened)

            await process.kill()
            process.start()
            await process.ready()

            await calls[0].result("plain")
            await plain.hears("heard: plain")
            await calls[1].result("late")
            await chatty.hears("heard: late")
            await threads.choose(choosing.id, calls[2].id, 1)
            assert (await stranger.received(ANSWER))[0].message == {"id": calls[2].id, "selected": 1}
            look = await consenting.look()
            assert look.authorizations == {calls[3].id: "https://provider.example/authorize"}
            assert look.views == {"board": [1]}
            await calls[4].event("news", associative=True, final=True)
            await listening_.hears("heard: news")
            await calls[5].confirm("now")
            await hasty.hears("early")
            for talk, invocation in ((plain, calls[0]), (chatty, calls[1]), (listening_, calls[4]), (hasty, calls[5])):
                assert [each.call_id for each in await talk.all(Answered)] == [invocation.id]
    finally:
        process.clean_up()
    assert len(stranger.to(INVOKE)) == 6


async def test_a_kill_while_the_model_is_asked_loses_nothing_and_says_nothing_twice(
    stranger: ForeignToolset, store: str, tmp_path: Path
) -> None:
    """RUN-4, RUN-8: the message was written down before; the model is asked again, its calls are made once."""
    process = agent_process("agent", tmp_path, store, [stranger.url])
    ledger = tmp_path / "ledger"
    try:
        process.start()
        await process.ready()
        async with from_outside(store) as threads:
            talk = ThreadDriver(threads, await threads.create(text=please(call("work", word="block"))))
            await until(lambda: len(slices_in(ledger)) == 1)
            assert len(await talk.all(UserSaid)) == 1

            await process.kill()
            ledger.with_suffix(".release").touch()
            process.start()

            invocation = await stranger.invoked()
            await invocation.result("once")
            await talk.hears("heard: once")
            assert [what for _, what, _ in slices_in(ledger)] == ["asked", "asked", "replied", "asked", "replied"]
            assert len(await talk.all(ModelSaid)) == 2
            assert len(await talk.all(UserSaid)) == 1
    finally:
        process.clean_up()
    assert len(stranger.to(INVOKE)) == 1
