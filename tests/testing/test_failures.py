"""What a test is told when something does not come, or should not have come."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from rapkit import Context, Event, Limits, Toolset, testing
from rapkit.testing.call_messages import CallMessages
from rapkit.testing.inbox import Inbox

SOON = 0.05


@pytest.fixture
def tools() -> Toolset:
    tools = Toolset("tools")

    @tools.tool
    async def ask(ctx: Context) -> str:
        """Ask."""
        await ctx.view("map", {"zoom": 3})
        return await ctx.choose("Well?", ["Yes", "No"])

    @tools.tool
    async def nap(ctx: Context) -> None:
        """Sleep."""
        await ctx.sleep(90)

    @tools.tool
    async def wait() -> None:
        """Take for ever."""
        await asyncio.Event().wait()

    @tools.subscription
    async def two() -> AsyncIterator[Event]:
        """Two events."""
        yield Event("one")
        yield Event("two", final=True)

    return tools


async def test_a_result_that_does_not_come_is_told_with_what_came_instead(tools: Toolset) -> None:
    async with testing.serve(tools, patience=SOON) as client:
        call = await client.start("ask")
        await client.settled()

        with pytest.raises(AssertionError) as failure:
            await call.result()

        first, *sent, last = str(failure.value).split("\n")
        assert first == f"'ask' ({call.id} in thread_1) has sent no result within 0.05 s. It has sent:"
        # Neither waits for the other.
        assert sorted(sent) == ["  question 'Well?' with the choices 'Yes', 'No'", "  view 'map': \"{'zoom': 3}\""]
        assert last == "By the clock something is due in 3600 s: `await client.advance(3600)` lets it happen."


async def test_a_handler_that_waits_for_the_clock_is_told_of(tools: Toolset) -> None:
    async with testing.serve(tools, patience=SOON) as client:
        call = await client.start("nap")
        await client.settled()

        with pytest.raises(AssertionError) as failure:
            await call.result()

        assert str(failure.value).endswith(
            "has sent no result within 0.05 s. It has sent:\n"
            "  nothing\n"
            "By the clock something is due in 90 s: `await client.advance(90)` lets it happen."
        )


async def test_a_callback_that_waits_for_its_next_attempt_is_told_of(tools: Toolset) -> None:
    async with testing.serve(tools, patience=SOON) as client:
        client.callbacks.fail(2)  # the view and the question
        call = await client.start("ask")
        await client.settled()

        with pytest.raises(AssertionError, match=r"something is due in (0\.\d+|1) s"):
            await call.choice()


async def test_a_question_a_consent_or_an_event_that_does_not_come_is_told(tools: Toolset) -> None:
    async with testing.serve(tools, patience=SOON) as client:
        call, subscribing = await client.start("wait"), await client.start("two")
        await client.settled()
        watch = await subscribing.subscribed()
        assert [event.text async for event in watch] == ["one", "two"]

        with pytest.raises(AssertionError, match="has sent no question within"):
            await call.choice()
        with pytest.raises(AssertionError, match="has sent no request to authorise the server within"):
            await call.oauth()
        with pytest.raises(
            AssertionError, match=r"no \(more\) events within 0\.05 s(.|\n)*  event 'one'\n  final event 'two'\n"
        ):
            await watch.event()


async def test_a_question_is_taken_once(tools: Toolset) -> None:
    async with testing.serve(tools, patience=SOON) as client:
        call = await client.start("ask")
        await client.settled()
        await call.choice()

        with pytest.raises(AssertionError, match="has sent no question"):
            await call.choice()


async def test_a_tool_that_is_no_subscription_is_told(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        with pytest.raises(
            AssertionError, match=r"is no subscription\. It was answered: \"Error: there is no operation"
        ):
            await client.subscribe("three")


async def test_a_call_that_is_not_accepted_is_told(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        client.crash_after(0)

        with pytest.raises(
            AssertionError, match=r"'ask' \(call_1 in thread_1\) was not accepted: 503 .*could not be stored"
        ):
            await client.start("ask")
        await client.crash()
        await (await client.start("ask")).choice()


async def test_what_a_lost_server_does_not_send_is_told(tools: Toolset) -> None:
    async with testing.serve(tools, patience=SOON) as client:
        call = await client.start("nap")
        await client.settled()
        client.crash_after(0)
        await client.advance(90)

        with pytest.raises(AssertionError, match="The server is lost"):
            await call.result()


async def test_a_notice_that_is_not_acted_on_is_told() -> None:
    """CLO-8: past its limit a server acknowledges notices and does nothing, and a test would wait in vain."""
    tools = Toolset("tools", limits=Limits(notices=1))

    @tools.tool
    async def wait() -> None:
        """Take for ever."""
        await asyncio.Event().wait()

    async with testing.serve(tools) as client:
        call = await client.start("wait")
        await call.cancel()
        with pytest.raises(AssertionError, match=r"not acted on.*Limits\(notices=None\)"):
            await client.close_thread()


async def test_a_notice_to_a_lost_server_is_lost(tools: Toolset) -> None:
    async with testing.serve(tools) as client:
        call = await client.start("nap")
        await client.settled()
        client.crash_after(0)
        await call.cancel()

        await client.crash()
        assert "not known" in (await call.result()).text


# What no server of ours sends is sent by hand.

RESULT = {"type": "tool_result", "group_id": "t1", "id": "c1", "text": "done"}
CONFIRMED = {**RESULT, "subscription": True}
EVENT = {"type": "subscription_event", "group_id": "t1", "tool_call_id": "c1", "text": "news"}
CHOICE = {
    "type": "user_choice",
    "group_id": "t1",
    "id": "c1",
    "prompt": "Well?",
    "choices": ["Yes"],
    "default": 0,
    "response_url": "http://127.0.0.1/answer",
}
VIEW = {"type": "view_update", "group_id": "t1", "view_type": "map", "content": None}

Take = Callable[[Mapping[str, object]], int]


@pytest.fixture
def inbox() -> Inbox:
    async def hint() -> str:
        return "Try something else."

    return Inbox(SOON, hint)


@pytest.fixture
def call() -> CallMessages:
    return CallMessages("tool", "c1", "t1", "local")


@pytest.fixture
def take(inbox: Inbox, call: CallMessages) -> Take:
    url = inbox.expect(call)
    numbers = iter(range(100))
    return lambda message: inbox.take(url, str(next(numbers)), json.dumps(message).encode())


@pytest.mark.parametrize(
    ("before", "message", "objection"),
    [
        ([], {**RESULT, "id": "c2"}, "ids of another call"),
        ([], {**RESULT, "group_id": "t2"}, "ids of another call"),
        ([], {**VIEW, "group_id": "t2"}, "ids of another call"),
        ([CONFIRMED], {**EVENT, "tool_call_id": "c2"}, "ids of another call"),
        ([], {**RESULT, "call_id": "f1"}, "does not echo the call_id"),
        ([RESULT], RESULT, "Nothing may follow the end"),
        ([CONFIRMED, {**EVENT, "final": True}], EVENT, "Nothing may follow the end"),
        ([CONFIRMED], RESULT, "is answered already"),
        ([CONFIRMED], CHOICE, "nobody can be asked any more"),
        ([], EVENT, "not confirmed yet"),
        ([], {**RESULT, "text": 7}, "is no message"),
    ],
)
async def test_what_must_not_be_sent_makes_the_test_fail(
    inbox: Inbox,
    call: CallMessages,
    take: Take,
    before: list[dict[str, object]],
    message: dict[str, object],
    objection: str,
) -> None:
    assert [take(each) for each in before] == [200] * len(before)
    inbox.complain()

    assert take(message) in (400, 404)
    with pytest.raises(AssertionError, match=objection):
        await inbox.wait(call, "anything", lambda: None)
    inbox.complain()  # it was told once, and that is enough
    assert len(call.messages) == len(before)


async def test_what_is_sent_after_a_cancellation_makes_the_test_fail(
    inbox: Inbox, call: CallMessages, take: Take
) -> None:
    """SUB-5"""
    take(CONFIRMED)
    take(EVENT)
    inbox.release("local", "t1", "c1")

    assert take(EVENT) == 404
    with pytest.raises(AssertionError, match="sent after the cancellation was acknowledged"):
        inbox.complain()


async def test_a_cancelled_call_may_still_be_answered(inbox: Inbox, call: CallMessages, take: Take) -> None:
    inbox.release("local", "t1")

    for message in (VIEW, CHOICE):
        assert take(message) == 404
        with pytest.raises(AssertionError, match="sent after the cancellation"):
            inbox.complain()
    assert take(RESULT) == 200  # the call may have ended before, and this be on its way


async def test_a_cancelled_call_may_not_become_a_subscription(inbox: Inbox, call: CallMessages, take: Take) -> None:
    inbox.release("local", "t1")

    assert take(CONFIRMED) == 404
    with pytest.raises(AssertionError, match="sent after the cancellation"):
        inbox.complain()


async def test_other_calls_are_not_meant(inbox: Inbox, call: CallMessages, take: Take) -> None:
    inbox.release("local", "t2")
    inbox.release("somebody", "t1")
    inbox.release("local", "t1", "c2")

    assert take(CHOICE) == 200
    inbox.complain()


async def test_a_message_that_comes_twice_is_one(inbox: Inbox, call: CallMessages) -> None:
    url = inbox.expect(call)
    body = json.dumps(RESULT).encode()

    assert inbox.take(url, "msg_1", body) == inbox.take(url, "msg_1", body) == 200
    inbox.complain()
    assert (len(inbox.messages), inbox.repeated) == (1, 1)


async def test_what_nobody_has_waited_for_is_told_at_the_end(tools: Toolset) -> None:
    with pytest.raises(AssertionError, match="never given away"):
        async with testing.serve(tools) as client:
            client._fixture.inbox.take("http://runtime.test/elsewhere", "msg_1", b"{}")


async def test_a_message_to_an_unknown_url_makes_the_test_fail(inbox: Inbox) -> None:
    assert inbox.take("http://runtime.test/elsewhere", "msg_1", b"{}") == 404
    with pytest.raises(AssertionError, match="never given away"):
        inbox.complain()
