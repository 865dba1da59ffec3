"""Callback URLs: proof of the one call they were made for, and never kept."""

import asyncio
import base64
import json
import logging
import secrets
from pathlib import Path

import pytest

from rapkit.kernel.entries import ViewChanged
from rapkit.logs import JsonLines
from rapkit.models.scripted import Scripted
from rapkit.runtime.agent import Agent
from rapkit.runtime.config import Patience
from rapkit.runtime.server import Server
from tests.runtime.agents import RunningAgent, ScriptedReplies, call, opened, working
from tests.runtime.foreign_toolset import INVOKE, ForeignToolset, Invocation, listening, post_to
from tests.server.sink import answer


def result_for(invocation: Invocation, text: str = "forged") -> bytes:
    message = {"type": "tool_result", "group_id": invocation.group_id, "id": invocation.id, "text": text}
    return json.dumps(message).encode()


def tampered(token: str) -> list[str]:
    payload, _, signature = token.partition(".")
    other = base64.urlsafe_b64encode(json.dumps(["thr_other", "call_1"]).encode()).decode().rstrip("=")
    return [
        payload,
        f"{payload}.",
        f".{signature}",
        f"{payload}.{signature[:-1]}",
        f"{payload}.{signature}A",
        f"{payload}.{signature}=",
        f"{payload}.{signature.swapcase()}",
        f"{payload}=.{signature}",
        f"{other}.{signature}",
        f"{payload}.{'A' * len(signature)}",
        "x" * 5000,
        "%00",
        "..",
    ]


async def test_a_token_that_was_changed_is_none(agent: RunningAgent, stranger: ForeignToolset) -> None:
    """CB-11"""
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()
    base = invocation.callback_url.removesuffix(invocation.token)

    for token in tampered(invocation.token):
        assert (await post_to(base + token, result_for(invocation))).status == 404, token
    assert (await post_to(base, result_for(invocation))).status == 404

    assert list((await talk.look()).thread.pending) == [invocation.id]
    await invocation.result("real")
    await talk.hears("heard: real")


async def test_whoever_guesses_is_slowed_down_and_nobody_else_is(agent: RunningAgent, stranger: ForeignToolset) -> None:
    """CB-11"""
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()

    guesses = (post_to(f"{agent.url}/callback/guess{number}", result_for(invocation)) for number in range(100))
    statuses = {reply.status for reply in await asyncio.gather(*guesses)}

    assert statuses == {404, 503}
    assert (await invocation.result("not a guess")).status == 200
    await talk.hears("heard: not a guess")


async def test_a_token_is_good_for_its_own_call_alone(agent: RunningAgent, stranger: ForeignToolset) -> None:
    """CB-11, CB-14"""
    first = await agent.doing(call("work", n=1), call("work", n=2))
    one, two = await stranger.invoked_with(n=1), await stranger.invoked_with(n=2)

    assert (await post_to(one.callback_url, result_for(two))).status == 404

    assert list((await first.look()).thread.pending) == [one.id, two.id]


async def test_a_token_of_another_agent_is_none(
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies, tmp_path: Path
) -> None:
    """CB-11: it was signed with a key that is not ours."""
    async with working(model, [stranger.url], f"sqlite:///{tmp_path}/other.db") as other:
        talk = await other.doing(call("work"))
        invocation = await stranger.invoked()
        here = invocation.callback_url.replace(other.url, agent.url)

        assert (await post_to(here, result_for(invocation))).status == 404

        await invocation.result("at home")
        await talk.hears("heard: at home")


async def test_a_token_outlives_a_restart_and_ends_with_its_call(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """CB-11, CB-12: its lifetime is that of the call, however long that is; a replay after it has no effect."""
    async with working(model, [stranger.url], store) as agent:
        talk = await agent.doing(call("work"))
        invocation = await stranger.invoked()
        await agent.quiet()

    async with working(model, [stranger.url], store, port=agent.port) as agent:
        talk = agent.thread(talk.id)
        assert (await invocation.result("after the restart")).status == 200
        await talk.hears("heard: after the restart")
        entries = await talk.entries()

        assert (await invocation.result("after the restart")).status == 200  # a repetition, and known as one
        assert (await invocation.result("something else")).status == 200  # and ignored
        assert (await invocation.event("news")).status == 410
        assert (await invocation.oauth("https://example.com/authorize")).status == 410
        assert (await invocation.view("board", 1)).status == 200  # views go on as long as the thread

        await agent.quiet()
        assert await talk.entries() == [*entries, ViewChanged("board")]


async def test_keys_can_be_changed_while_calls_are_pending(
    model: ScriptedReplies, stranger: ForeignToolset, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CB-11: what the old key signed is believed as long as that key is there; what is new is signed with the new one."""
    old, new = (secrets.token_urlsafe(32) for _ in range(2))
    monkeypatch.setenv("RAPKIT_SECRET_KEY", old)
    async with working(model, [stranger.url], store) as agent:
        first = await agent.doing(call("work", n=1))
        await agent.doing(call("work", n=2))
        one, two = await stranger.invoked_with(n=1), await stranger.invoked_with(n=2)
        await agent.quiet()

    monkeypatch.setenv("RAPKIT_SECRET_KEY", f"{new},{old}")
    async with working(model, [stranger.url], store, port=agent.port) as agent:
        assert (await one.result("old key")).status == 200
        await agent.thread(first.id).hears("heard: old key")
        third = await agent.doing(call("work", n=3))
        three = await stranger.invoked_with(n=3)
        await agent.quiet()

    monkeypatch.setenv("RAPKIT_SECRET_KEY", new)
    async with working(model, [stranger.url], store, port=agent.port) as agent:
        assert (await two.result("too old a key")).status == 404
        assert (await three.result("new key")).status == 200
        await agent.thread(third.id).hears("heard: new key")


async def test_a_call_that_is_sent_again_keeps_its_url_whatever_keys_have_come(
    model: ScriptedReplies, stranger: ForeignToolset, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CB-11, INV-13: a server tells a repetition by the URL, and would do it all again under another one."""
    old, new = (secrets.token_urlsafe(32) for _ in range(2))
    monkeypatch.setenv("RAPKIT_SECRET_KEY", old)
    stranger.otherwise[INVOKE] = answer(503)
    async with working(model, [stranger.url], store) as agent:
        first = await agent.doing(call("work", n=1))
        await agent.failed_once()
    sent = len(stranger.to(INVOKE))

    monkeypatch.setenv("RAPKIT_SECRET_KEY", f"{new},{old}")
    del stranger.otherwise[INVOKE]
    async with working(model, [stranger.url], store, port=agent.port) as agent:
        again = await stranger.invoked(sent + 1)
        assert {post.message["callback_url"] for post in stranger.to(INVOKE)} == {again.callback_url}
        assert (await again.result("once")).status == 200
        await agent.thread(first.id).hears("heard: once")
        second = await agent.doing(call("work", n=2))
        later = await stranger.invoked_with(n=2)
        await agent.quiet()

    monkeypatch.setenv("RAPKIT_SECRET_KEY", new)
    async with working(model, [stranger.url], store, port=agent.port) as agent:
        assert (await later.result("signed anew")).status == 200
        await agent.thread(second.id).hears("heard: signed anew")


async def test_a_call_that_is_sent_again_keeps_its_url_wherever_we_are_reached_now(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """CB-11, INV-13: its server may have it already, and would do it twice under two URLs."""
    stranger.otherwise[INVOKE] = answer(503)
    async with working(model, [stranger.url], store) as agent:
        talk = await agent.doing(call("work"))
        await agent.failed_once()
    sent = len(stranger.to(INVOKE))
    del stranger.otherwise[INVOKE]

    async with working(model, [stranger.url], store) as moved:
        again = await stranger.invoked(sent + 1)
        assert len({post.body for post in stranger.to(INVOKE)}) == 1
        forwarded = again.callback_url.replace(agent.url, moved.url)
        assert (await post_to(forwarded, result_for(again, "forwarded"))).status == 200
        await moved.thread(talk.id).hears("heard: forwarded")


async def test_no_token_is_ever_stored_or_logged(
    model: ScriptedReplies, store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """CB-11, TRA-3: whoever gets the file or the log can answer no call and be nobody; retries, refusals and failures included."""
    caplog.set_level(logging.DEBUG)
    async with listening("work") as friend, listening("gone") as gone:
        servers = [Server(friend.url, token="bearer-of-ours"), Server(gone.url, token="another-bearer")]
        async with Agent(model=Scripted(model), servers=servers, store=store, patience=Patience(grace=1.0)) as whole:
            agent = RunningAgent(whole.engine, whole.engine.config.public_url)
            talk = await agent.doing(call("work", n=1), call("gone"))
            first, lost = await friend.invoked(), await gone.invoked()
            await gone.down()
            await first.choice("Really?", ["Yes"], 0, f"{friend.url}/answer")
            await first.confirm()
            await first.event("happened", associative=True)
            await first.event("happened elsewhere")
            await first.call_back({"type": "nonsense"})
            await post_to(first.callback_url, result_for(lost))
            await agent.threads.cancel(talk.id, lost.id)
            await talk.hears("happened")
            await talk.do(call("work", n=2), call("gone"))  # stays in the outbox, for a server that is down
            second = await friend.invoked_with(n=2)

    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    logged = "\n".join(map(JsonLines().format, caplog.records))
    assert first.group_id.encode() in kept
    assert first.group_id in logged
    for secret in (first.token, lost.token, second.token, "bearer-of-ours", "another-bearer"):
        signature = secret.rpartition(".")[2]
        assert signature.encode() not in kept
        assert signature not in logged
    assert "/callback/" not in logged


async def test_not_even_who_has_the_keys_finds_a_token_in_the_store(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """CB-11, TRA-3: a call that waits to be sent again holds neither its callback URL nor who we are."""
    stranger.otherwise[INVOKE] = answer(503)
    async with working(model, [Server(stranger.url, token="bearer-of-ours")], store) as agent:
        talk = await agent.doing(call("work"))
        invocation = await stranger.invoked()
        await agent.failed_once()

    async with opened(store) as other_process:
        await other_process.renew("other")
        while not (taken := await other_process.take("other", 10)):
            await asyncio.sleep(0.01)
        box = await other_process.box(talk.id)
        assert box is not None
        journal = [entry.body for entry in await other_process.entries(talk.id)]
        records = [each.body for kind in ("live", "session") for each in await other_process.records(talk.id, kind)]
    kept = b"".join((box.state, *journal, *records, *(one.outgoing.body for one in taken)))
    assert b'"operation":"work"' in kept
    signature = invocation.token.rpartition(".")[2]
    assert signature.encode() not in kept
    assert b"bearer-of-ours" not in kept
