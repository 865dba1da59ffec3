"""The user is answered while a call is pending, and its result comes in context."""

from rapkit.kernel.entries import Answered, Happened, ModelSaid
from rapkit.kernel.limits import ThreadLimits
from rapkit.kernel.projection import STILL_RUNNING
from tests.runtime.agents import RunningAgent, ScriptedReplies, call, working
from tests.runtime.foreign_toolset import CANCEL, ForeignToolset, tool


async def test_the_user_is_answered_while_a_call_takes_days(
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies
) -> None:
    """RUN-6: the model sees that the call is still running, and later its result, in the order in which it all was."""
    talk = await agent.doing(call("work", report="climate"))
    invocation = await stranger.invoked()

    await talk.say("how is it going?")

    await talk.hears(f"heard: {STILL_RUNNING} | how is it going?")
    assert list((await talk.becomes("waiting")).thread.pending) == [invocation.id]
    assert (await invocation.result("warmer")).status == 200
    await talk.hears("heard: warmer")
    assert model.shown() == [
        ("work", {"report": "climate"}, STILL_RUNNING),
        ("work", {"report": "climate", "kind": f"result:{invocation.id} (the call is finished)"}, "warmer"),
    ]
    assert [type(each).__name__ for each in await talk.entries()] == [
        "UserSaid",
        "ModelSaid",
        "UserSaid",
        "ModelSaid",
        "Answered",
        "ModelSaid",
    ]


async def test_nothing_is_cancelled_by_talking(agent: RunningAgent, stranger: ForeignToolset) -> None:
    """RUN-6"""
    talk = await agent.doing(call("work"))
    await stranger.invoked()

    for number in range(3):
        await talk.say(f"message {number}")
        await talk.hears(f"message {number}")

    await agent.quiet()
    assert stranger.to(CANCEL) == []
    assert len((await talk.look()).thread.pending) == 1


async def test_what_was_answered_before_the_interruption_stays_in_its_place(
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies
) -> None:
    """RUN-6: with several calls, some are answered and some are not."""
    talk = await agent.doing(call("work", n=1), call("work", n=2))
    one, two = await stranger.invoked_with(n=1), await stranger.invoked_with(n=2)
    await two.result("second")
    await talk.until(Answered)

    await talk.say("well?")
    await talk.hears(f"heard: {STILL_RUNNING} | second | well?")
    await one.result("first")

    await talk.hears("heard: first")
    assert [text for _, _, text in model.shown()] == [STILL_RUNNING, "second", "first"]


async def test_new_calls_can_be_made_while_an_old_one_is_running(
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies
) -> None:
    """RUN-6: the old one does not hold up the new ones."""
    talk = await agent.doing(call("work", n=1))
    old = await stranger.invoked_with(n=1)
    await talk.do(call("work", n=2))
    new = await stranger.invoked_with(n=2)

    await new.result("new")
    await talk.hears("heard: new")
    await old.result("old")

    await talk.hears("heard: old")
    assert [text for _, _, text in model.shown()] == [STILL_RUNNING, "new", "old"]


async def test_a_late_confirmation_is_told_as_one_and_its_events_come(
    agent: RunningAgent, stranger: ForeignToolset, model: ScriptedReplies
) -> None:
    """RUN-6, SUB-10"""
    talk = await agent.doing(call("work"))
    invocation = await stranger.invoked()
    await talk.say("well?")
    await talk.hears("well?")

    await invocation.confirm("subscribed at last")
    await talk.hears("heard: subscribed at last")
    await invocation.event("news", associative=True)

    await talk.hears("heard: news")
    await talk.until(Happened)
    kinds = [arguments.get("kind") for _, arguments, _ in model.shown()]
    assert kinds == [
        None,
        f"result:{invocation.id} (subscription is active)",
        f"interrupt:{invocation.id} (subscription remains active)",
    ]


async def test_a_late_result_finds_its_thread_after_a_restart(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """RUN-6"""
    async with working(model, [stranger.url], store) as agent:
        talk = await agent.doing(call("work"))
        invocation = await stranger.invoked()
        await talk.say("well?")
        await talk.hears("well?")

    async with working(model, [stranger.url], store, port=agent.port) as agent:
        talk = agent.thread(talk.id)
        await invocation.result("three days later")
        await talk.hears("heard: three days later")
        assert [each.late for each in await talk.all(Answered)] == [True]


async def test_an_agent_can_be_told_to_cancel_what_is_interrupted(
    model: ScriptedReplies, stranger: ForeignToolset, store: str
) -> None:
    """CAN-1"""
    limits = ThreadLimits(cancel_on_interrupt=True)
    async with working(model, [stranger.url], store, limits=limits) as agent:
        talk = await agent.doing(call("work"))
        invocation = await stranger.invoked()
        await talk.say("never mind")

        await talk.hears("heard: Error: Cancelled. The user cancelled this call. | never mind")

        (notice,) = await stranger.received(CANCEL)
        assert notice.message["tool_call_id"] == invocation.id
        assert (await invocation.result("too late")).status == 410
        assert len(await talk.all(ModelSaid)) == 2


async def test_the_model_is_told_how_long_a_running_call_is_expected_to_take(
    agent: RunningAgent, stranger: ForeignToolset
) -> None:
    """Item 15 · INV-20: and the call has at least twice that, were there a time-out."""
    stranger.tools = [tool("work", annotations={"x-rapkit-expected-seconds": [120, 600]})]
    talk = await agent.doing(call("work"))
    await stranger.invoked()

    await talk.say("how is it going?")

    await talk.hears(f"heard: {STILL_RUNNING} It is expected to take up to 10 min. | how is it going?")
