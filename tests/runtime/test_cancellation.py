"""Cancelling calls and subscriptions, by the user and by the model."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rapkit.errors import ThreadError
from rapkit.kernel.entries import Answered, Unsubscribed
from tests.runtime.agents import PATIENT, RunningAgent, ScriptedReplies, call, working
from tests.runtime.examples import UNASKED, example, served
from tests.runtime.foreign_toolset import CANCEL, INVOKE, ForeignToolset, listening
from tests.server.sink import after, answer, never, reset


async def test_a_call_the_user_cancels_ends_for_the_model_at_once(
    agent: RunningAgent, stranger: ForeignToolset
) -> None:
    """CAN-1"""
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()

    await agent.threads.cancel(talk.id, invocation.id)

    await talk.hears("heard: Error: Cancelled. The user cancelled this call.")
    (notice,) = await stranger.received(CANCEL)
    assert notice.headers["content-type"] == "application/json"
    assert notice.message == {"thread_id": talk.id, "tool_call_id": invocation.id}
    assert (await talk.becomes("idle")).thread.pending == {}


async def test_every_server_is_told_once_and_nobody_waits_for_them(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """CAN-1, TRA-1: those that never had the call, too; whatever they answer."""
    async with listening("b") as refusing, listening("c") as broken, listening("d") as silent, listening("e") as fine:
        refusing.otherwise[CANCEL], broken.otherwise[CANCEL], silent.otherwise[CANCEL] = answer(500), reset, never
        servers = [each.url for each in (refusing, broken, silent, fine, stranger)]
        async with working(model, servers, store) as agent:
            talk = await agent.doing(call("work"))
            invocation = await stranger.invoked()

            await agent.threads.cancel(talk.id, invocation.id)

            await talk.hears("Error: Cancelled.")
            for server in (refusing, broken, silent, fine, stranger):
                await server.received(CANCEL)
        for server in (refusing, broken, silent, fine, stranger):
            assert len(server.to(CANCEL)) == 1


async def test_the_result_of_a_cancelled_call_is_ignored(
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies
) -> None:
    """CAN-4: it is expected to come, and an ordinary answer to it."""
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()
    await agent.threads.cancel(talk.id, invocation.id)
    await talk.hears("Error: Cancelled.")
    asked = len(model.questions)

    reply = await invocation.result("finished just now")

    assert reply.status == 410
    assert "was cancelled" in reply.detail
    await agent.quiet()
    assert len(await talk.all(Answered)) == 1
    assert len(model.questions) == asked


async def test_a_result_that_came_while_the_model_cancelled_is_ignored_too(
    stranger: ForeignToolset, store: str
) -> None:
    """CAN-4"""
    obedient = ScriptedReplies()

    async def slow(question: Any) -> Any:
        reply = obedient(question)
        if "cancel_tool_call" in str(question.conversation[-1]):
            assert (await (await stranger.invoked()).result("in between")).status == 200
        return reply

    async with working(slow, [stranger.url], store) as agent:
        talk = await agent.doing(call("work"))
        invocation = await stranger.invoked()
        await talk.do(call("cancel_tool_call", tool_call_id=invocation.id))

        await talk.hears(f"heard: The call {invocation.id} is cancelled. Its result will not come.")
        await agent.quiet()
        assert "in between" not in [each.text for each in await talk.all(Answered)]
        (ignored,) = [each for each in await talk.entries() if each.kind == "ignored"]
        assert (ignored.what, ignored.call_id) == ("tool_result", invocation.id)


async def test_the_model_cancels_a_running_call(agent: RunningAgent, stranger: ForeignToolset) -> None:
    """CAN-1"""
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()

    await talk.do(call("cancel_tool_call", tool_call_id=invocation.id))

    await talk.hears(f"The call {invocation.id} is cancelled.")
    (notice,) = await stranger.received(CANCEL)
    assert notice.message["tool_call_id"] == invocation.id
    assert (await talk.becomes("idle")).thread.pending == {}


async def test_the_user_cancels_a_subscription(
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies
) -> None:
    """CAN-1, SUB-15"""
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()
    await invocation.confirm()
    await talk.hears("heard: subscribed")

    await agent.threads.cancel(talk.id, invocation.id)

    assert (await talk.until(Unsubscribed)).reason == "cancelled by the user"
    assert (await talk.becomes("idle")).thread.subscriptions == {}
    await stranger.received(CANCEL)
    assert (await invocation.event("more")).status == 410
    await agent.quiet()
    assert len(model.questions) == 2


async def test_a_call_that_has_not_left_yet_never_leaves(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """CAN-1"""
    stranger.script[INVOKE] = [answer(503)]
    async with working(model, [stranger.url], store, policies=PATIENT) as agent:
        talk = await agent.doing(call("work"))
        await agent.failed_once()

        await agent.threads.cancel(talk.id, (await stranger.invoked()).id)

        await talk.hears("Error: Cancelled.")
        await agent.quiet()
        assert len(stranger.to(INVOKE)) == 1


async def test_a_call_that_is_cancelled_while_it_is_being_sent_is_not_sent_again(
    agent: RunningAgent, stranger: ForeignToolset
) -> None:
    """CAN-1"""
    answered = asyncio.Event()
    stranger.script[INVOKE] = [after(answered, answer(503))]
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()

    await agent.threads.cancel(talk.id, invocation.id)
    await talk.hears("Error: Cancelled.")
    answered.set()

    await agent.quiet()
    assert len(stranger.to(INVOKE)) == 1


async def test_a_call_that_is_cancelled_while_it_is_being_sent_stays_cancelled(
    agent: RunningAgent, stranger: ForeignToolset
) -> None:
    """CAN-4: whatever is answered then."""
    answered = asyncio.Event()
    stranger.script[INVOKE] = [after(answered, answer(400))]
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()

    await agent.threads.cancel(talk.id, invocation.id)
    await talk.hears("Error: Cancelled.")
    answered.set()

    await agent.quiet()
    assert len(await talk.all(Answered)) == 1


async def test_what_is_not_running_cannot_be_cancelled(agent: RunningAgent, stranger: ForeignToolset) -> None:
    talk = await agent.doing(call("work"))
    await stranger.invoked()

    with pytest.raises(ThreadError, match="'call_9' is no pending call or active subscription"):
        await agent.threads.cancel(talk.id, "call_9")


async def test_the_shell_example_ends_what_was_cancelled(model: ScriptedReplies, store: str, tmp_path: Path) -> None:
    """CAN-1: the command, and the subscription to another."""
    begun = tmp_path / "begun"
    async with served(example("shell", tmp_path)) as shell, working(model, [shell], store, limits=UNASKED) as agent:
        talk = await agent.doing(call("run", command=f"touch {begun}; sleep 1000"))
        while not begun.exists():
            await asyncio.sleep(0.01)
        (running,) = (await talk.look()).thread.pending
        await agent.threads.cancel(talk.id, running)
        await talk.hears("Error: Cancelled.")

        await talk.do(call("follow", command="sleep 1000"))
        await talk.hears("$ sleep 1000")
        (followed,) = (await talk.look()).thread.subscriptions
        await talk.do(call("cancel_subscription", tool_call_id=followed))
        await talk.hears(f"The subscription {followed} is cancelled.")
        assert (await talk.becomes("idle")).thread.subscriptions == {}
