"""Closing a thread: it takes nothing more, and every server is told, once."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rapkit.errors import ThreadClosed
from rapkit.kernel.entries import Answered, ClosedEntry
from rapkit.kernel.limits import ThreadLimits
from rapkit.server.resources.close_hooks import ClosedThread
from tests.runtime.agents import PATIENT, RunningAgent, ScriptedReplies, call, opened, working
from tests.runtime.examples import UNASKED, example, served
from tests.runtime.foreign_toolset import CANCEL, CLOSE, INVOKE, ForeignToolset, listening, tool
from tests.server.sink import after, answer, never, reset


async def test_every_server_is_told_whether_it_was_used_or_not(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """CLO-1, TRA-1: at its base URL, wherever its endpoint is."""
    async with listening("unused") as unused, working(model, [stranger.url, f"{unused.url}/below/"], store) as agent:
        unused.otherwise["/below/.well-known/rap-toolset"] = answer(200, body=unused.toolset())
        talk = await agent.doing(call("work"))
        await (await stranger.invoked()).result()
        await talk.hears("heard: done")

        await agent.threads.close(talk.id)

        (told,) = await stranger.received(CLOSE)
        (also_told,) = await unused.received(f"/below{CLOSE}")
        assert told.message == also_told.message == {"thread_id": talk.id}
        assert told.headers["content-type"] == also_told.headers["content-type"] == "application/json"
        assert (await talk.look()).status == "closed"


async def test_a_server_nobody_ever_reached_is_told_too(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """CLO-1: what discovery found is no matter."""
    async with listening() as odd:
        odd.document = b"no toolset"
        async with working(model, [stranger.url, odd.url], store) as agent:
            talk = await agent.talk("hello")
            await talk.hears("hello")
            await agent.threads.close(talk.id)
            await odd.received(CLOSE)


@pytest.mark.parametrize("trouble", [answer(500), answer(503, "Retry-After: 0\r\n"), answer(401), reset])
async def test_a_notice_that_fails_is_not_sent_again_and_stops_no_other(
    model: ScriptedReplies, stranger: ForeignToolset, store: str, trouble: Any
) -> None:
    """CLO-2"""
    async with listening("b") as failing, listening("c") as down:
        failing.otherwise[CLOSE] = trouble
        async with working(model, [failing.url, down.url, stranger.url], store) as agent:
            talk = await agent.talk("hello")
            await talk.hears("hello")
            await down.down()

            await agent.threads.close(talk.id)

            await stranger.received(CLOSE)
            await failing.received(CLOSE)
            assert (await talk.becomes("closed")).thread.closed
            await agent.quiet()
            assert len(failing.to(CLOSE)) == len(stranger.to(CLOSE)) == 1


@pytest.mark.parametrize("how", ["cancel", "close"])
@pytest.mark.parametrize("trouble", [answer(503, "Retry-After: 0\r\n"), answer(400), reset])
async def test_a_notice_is_sent_once_and_nothing_of_it_is_kept(
    agent: RunningAgent, stranger: ForeignToolset, how: str, trouble: Any
) -> None:
    """CLO-2, CAN-1: it is neither tried again nor a dead letter that could be sent again by hand."""
    stranger.otherwise[CANCEL] = stranger.otherwise[CLOSE] = trouble
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()

    await (agent.threads.cancel(talk.id, invocation.id) if how == "cancel" else agent.threads.close(talk.id))

    await stranger.received(CANCEL)
    await agent.quiet()
    assert (len(stranger.to(CANCEL)), len(stranger.to(CLOSE))) == (1, how == "close")
    async with opened(agent.engine.config.store) as store:
        assert [await store.outbox(dead=dead) for dead in (False, True)] == [[], []]


async def test_a_notice_that_is_on_its_way_is_nobody_elses_to_send(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """CLO-2: it left the outbox before it was sent, so that whoever goes on after a crash does not send it again."""
    stranger.otherwise[CLOSE] = never
    async with working(model, [stranger.url], store) as agent:
        talk = await agent.talk("hello")
        await talk.hears("hello")
        await agent.threads.close(talk.id)
        await stranger.received(CLOSE)

        async with opened(store) as successor:
            assert await successor.outbox(dead=False) == []


async def test_closing_waits_for_no_server(model: ScriptedReplies, stranger: ForeignToolset, store: str) -> None:
    """CLO-3: and no server waits for another."""
    answered = asyncio.Event()
    async with listening("b") as slow, listening("c") as silent:
        slow.otherwise[CLOSE], silent.otherwise[CLOSE] = after(answered, answer(200)), never
        async with working(model, [slow.url, silent.url, stranger.url], store) as agent:
            talk = await agent.talk("hello")
            await talk.hears("hello")

            await agent.threads.close(talk.id)

            assert (await talk.becomes("closed")).thread.closed
            for server in (slow, silent, stranger):
                await server.received(CLOSE)
            answered.set()


async def test_a_closed_thread_takes_nothing_more(
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies
) -> None:
    """A user who writes to it is told so; closing it again does nothing."""
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()
    await agent.threads.close(talk.id)
    await talk.until(ClosedEntry)
    asked = len(model.questions)

    with pytest.raises(ThreadClosed, match="Begin a new one"):
        await talk.say("hello?")
    assert (await invocation.result("late")).status == 410
    await agent.threads.close(talk.id)

    await agent.quiet()
    assert len(model.questions) == asked
    assert len(stranger.to(CLOSE)) == 1


async def test_events_for_a_closed_thread_are_logged_and_discarded(
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies, caplog: pytest.LogCaptureFixture
) -> None:
    """SUB-18"""
    caplog.set_level("INFO")
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()
    await invocation.confirm()
    await talk.hears("heard: subscribed")
    await agent.threads.close(talk.id)
    await talk.until(ClosedEntry)
    entries = await talk.entries()

    assert (await invocation.event("news", associative=True)).status == 410
    assert (await invocation.event("news")).status == 410

    await agent.quiet()
    assert await talk.entries() == entries
    assert len(model.questions) == 2
    discarded = [record for record in caplog.records if "a callback is discarded" in record.getMessage()]
    assert [vars(record)["thread_id"] for record in discarded] == [talk.id] * 2


async def test_closing_cancels_what_is_live_at_the_server_it_went_to(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """SUB-19: every server learns of the closing, and only that one of the calls."""
    async with listening("b") as other, working(model, [stranger.url, other.url], store) as agent:
        other.tools = [tool("unrelated")]
        talk = await agent.doing(call("work"))
        subscription = await stranger.invoked()
        await subscription.confirm()
        await talk.hears("heard: subscribed")
        await talk.do(call("work"))
        pending = await stranger.invoked(2)

        await agent.threads.close(talk.id)

        told = [post.message for post in await stranger.received(CANCEL, 2)]
        assert sorted(told, key=str) == sorted(
            ({"thread_id": talk.id, "tool_call_id": each.id} for each in (subscription, pending)), key=str
        )
        await other.received(CLOSE)
        await agent.quiet()
        assert (len(stranger.to(CLOSE)), len(stranger.to(CANCEL)), other.to(CANCEL)) == (1, 2, [])


async def test_an_agent_that_is_told_to_cancels_nothing_when_a_thread_is_closed(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """SUB-19: its server learns of the closing, and does what it likes."""
    limits = ThreadLimits(cancel_on_close=False)
    async with working(model, [stranger.url], store, limits=limits) as agent:
        talk = await agent.doing(call("work"), call("other_work"))
        late = await stranger.invoked()
        await (await stranger.invoked(2)).confirm()
        await talk.until(Answered)

        await agent.threads.close(talk.id)

        await stranger.received(CLOSE)
        assert (await late.confirm()).status == 410
        await agent.quiet()
        assert stranger.to(CANCEL) == []


async def test_a_subscription_that_is_confirmed_after_the_end_is_cancelled_once(
    agent: RunningAgent, stranger: ForeignToolset
) -> None:
    """SUB-18, SUB-19: however often its server says so."""
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()
    await agent.threads.close(talk.id)
    await stranger.received(CANCEL)
    await agent.quiet()

    assert (await invocation.confirm()).status == 410

    first, second = await stranger.received(CANCEL, 2)
    assert first.message == second.message == {"thread_id": talk.id, "tool_call_id": invocation.id}
    for text in ("subscribed", "subscribed again"):
        assert (await invocation.confirm(text)).status == 410
    await agent.quiet()
    assert len(stranger.to(CANCEL)) == 2


async def test_closing_does_not_close_the_threads_of_events(stranger: ForeignToolset, store: str) -> None:
    """A child goes on, with the toolset of its session, until it is done."""
    obedient = ScriptedReplies()
    go_on = asyncio.Event()

    async def slow(question: Any) -> Any:
        reply = obedient(question)
        if reply == "heard: a storm":
            await go_on.wait()
        return reply

    async with working(slow, [stranger.url], store) as agent:
        talk = await agent.doing(call("work"))
        invocation = await stranger.invoked()
        await invocation.confirm()
        await talk.hears("heard: subscribed")
        await invocation.event("a storm")
        made = await talk.until_child()
        await agent.threads.close(talk.id)
        await talk.until(ClosedEntry)
        go_on.set()

        await agent.thread(made).hears("heard: a storm")

        closed = await stranger.received(CLOSE, 2)
        assert sorted(post.message["thread_id"] for post in closed) == [talk.id, made]  # notices have no order


async def test_a_call_that_had_not_left_when_the_thread_was_closed_never_leaves(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    stranger.script[INVOKE] = [answer(503)]
    async with working(model, [stranger.url], store, policies=PATIENT) as agent:
        talk = await agent.doing(call("work"))
        await agent.failed_once()

        await agent.threads.close(talk.id)

        await stranger.received(CLOSE)
        await agent.quiet()
        assert len(stranger.to(INVOKE)) == 1


async def test_the_shell_example_cleans_up_after_a_closed_thread(
    model: ScriptedReplies, store: str, tmp_path: Path
) -> None:
    """CLO-1: its command ends, and its folder goes."""
    tools = example("shell", tmp_path)
    closed = asyncio.Event()

    @tools.on_thread_close
    async def gone(_thread: ClosedThread) -> None:
        closed.set()

    async with served(tools) as shell, working(model, [shell], store, limits=UNASKED) as agent:
        talk = await agent.doing(call("run", command="pwd; sleep 0"))
        said = await talk.hears("heard: /")
        folder = Path(said.text.removeprefix("heard: ").strip())
        assert folder.is_dir()

        await agent.threads.close(talk.id)

        async with asyncio.timeout(60):
            await closed.wait()
            while folder.exists():
                await asyncio.sleep(0.01)
