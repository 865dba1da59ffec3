"""Tools whose calls a test answers itself."""

from typing import Any

import pytest

from rapkit import ToolError, testing
from rapkit.kernel.entries import Answered, Happened, Ignored
from rapkit.protocol import ToolResult

RULES: list[dict[str, Any]] = [
    {"user": "pay", "calls": [{"transfer": {"amount": 5}}]},
    {"user": "watch", "calls": ["watch"]},
    {"event": "watch", "say": "News: {text}"},
    {"answer": "watch", "say": "I watch."},
    {"answer": "transfer", "say": "The bank says: {answer}"},
    {"user": "hello", "say": "Hi."},
]


async def test_calls_are_answered_by_a_text_or_a_function() -> None:
    def transfer(amount: int) -> str:
        if amount > 3:
            raise ToolError("Too much.")
        return "Done."

    async with testing.agent(model=RULES, tools=["transfer"]) as agent:
        thread = await agent.thread(user_id="u1")
        agent.tool("transfer").answer("Done.")
        assert await thread.ask("pay") == "The bank says: Done."

        agent.tool("transfer").answer(transfer)
        assert await thread.ask("pay") == "The bank says: Error: Too much."

        first, _ = agent.tool("transfer").calls
        assert (first.arguments, first.user_id, first.thread_id) == ({"amount": 5}, "u1", thread.id)


async def test_a_call_is_answered_by_hand_three_days_later_and_twice() -> None:
    """CB-8, CB-9"""
    async with testing.agent(model=RULES, tools=["transfer"]) as agent:
        thread = await agent.thread()
        await thread.send("pay")
        call = await agent.tool("transfer").call()

        await agent.advance(days=3)
        await call.result("Done.")
        assert await call.again() == 200
        assert await thread.answer() == "The bank says: Done."
        assert await call.again() == 200

        await call.result("No.")  # acknowledged and ignored: the call has its result
        await agent.settled()
        assert len(await thread.entries(Answered)) == 1


async def test_a_call_that_is_never_answered_is_interrupted_and_cancelled() -> None:
    """CAN-1"""
    bank = testing.FakeTools("bank", ["transfer"])
    async with testing.agent(model=RULES, tools=[bank]) as agent:
        thread = await agent.thread()
        await thread.send("pay")
        call = await bank.tool("transfer").call()
        assert await thread.ask("hello") == "Hi."

        await thread.cancel(call.id)
        await agent.settled()

        assert call.cancelled
        assert [notice.tool_call_id for notice in bank.cancelled] == [call.id]
        await thread.close()
        await agent.settled()
        assert bank.closed == [thread.id]


async def test_subscriptions_are_confirmed_and_events_sent() -> None:
    async with testing.agent(model=RULES, tools=["watch"]) as agent:
        thread = await agent.thread()
        await thread.send("watch")
        call = await agent.tool("watch").call()
        await call.confirm()
        assert await thread.answer() == "I watch."

        await call.event("one", associative=True)
        assert await thread.answer() == "News: one"
        assert await call.again() == 200
        await call.event("two")
        await call.event("three", associative=True, final=True)
        assert await thread.answer() == "News: three"

        assert [event.text for event in await thread.entries(Happened)] == ["one", "two", "three"]
        (child,) = await thread.children()
        await agent.settled()
        assert (await child.said())[-1] == "News: two"


async def test_an_event_of_a_call_that_turns_out_to_be_no_subscription_is_ignored() -> None:
    async with testing.agent(model=RULES, tools=["watch"]) as agent:
        thread = await agent.thread()
        await thread.send("watch")
        call = await agent.tool("watch").call()

        await call.event("early", associative=True)
        await call.result("There is nothing to watch.")
        await agent.settled()

        assert len(await thread.entries(Ignored)) == 1


async def test_people_are_asked_and_shown_things() -> None:
    """CHO-1, OAU-1, VIE-1"""
    async with testing.agent(model=RULES, tools=["transfer"]) as agent:
        thread = await agent.thread()
        await thread.send("pay")
        call = await agent.tool("transfer").call()

        await call.choose("Really?", ["Yes", "No"], default=1)
        await (await thread.choice()).select("Yes")
        assert await call.chosen() == 0
        await call.oauth("https://bank.example.com/login")
        asked = await thread.authorization()
        assert (asked.call_id, asked.url) == (call.id, "https://bank.example.com/login")
        with pytest.raises(AssertionError, match="If a fake tool has, answer its call instead"):
            await asked.approve()
        await call.view("account", [1, 2])
        assert (await thread.until(lambda look: look.views)).views == {"account": [1, 2]}
        await call.result("Done.")

        assert await thread.answer() == "The bank says: Done."


async def test_invocations_are_refused_and_come_again() -> None:
    """INV-4"""
    bank = testing.FakeTools("bank", ["transfer"])
    bank.tool("transfer").answer("Done.")
    async with testing.agent(model=RULES, tools=[bank]) as agent:
        bank.fail(2)
        thread = await agent.thread()
        await thread.send("pay")
        await agent.advance(minutes=1)
        assert await thread.answer() == "The bank says: Done."

        bank.fail(status=422)
        await thread.send("pay")
        assert "422" in await thread.answer()


async def test_a_toolset_that_changes_is_asked_again() -> None:
    """DIS-10"""
    bank = testing.FakeTools("bank", ["transfer"], version="1")
    bank.tool("transfer").answer("Done.")
    async with testing.agent(model=RULES, tools=[bank]) as agent:
        thread = await agent.thread()
        await thread.ask("hello")

        bank.version = "2"

        assert await thread.ask("pay") == "The bank says: Done."


async def test_arguments_are_checked_against_a_schema() -> None:
    bank = testing.FakeTools("bank")
    bank.tool("transfer", description="Pay.", schema={"type": "object", "properties": {"amount": {"maximum": 3}}})
    async with testing.agent(model=RULES, tools=[bank]) as agent:
        assert "The arguments do not fit" in await (await agent.thread()).ask("pay")
        assert bank.tool("transfer").calls == []
        assert "Pay." in [tool.description for tool in agent.model.questions[0].tools]


async def test_answers_are_sent_again_until_the_agent_has_them() -> None:
    async with testing.agent(model=RULES, tools=["transfer"]) as agent:
        agent.tool("transfer").answer("Done.")
        agent.network.down("agent")
        thread = await agent.thread()
        await thread.send("pay")
        await agent.advance(minutes=5)
        agent.network.up("agent")
        await agent.advance(minutes=5)

        assert await thread.answer() == "The bank says: Done."


async def test_a_message_that_does_not_get_through_says_so() -> None:
    async with testing.agent(model=RULES, tools=["transfer"]) as agent:
        thread = await agent.thread()
        await thread.send("pay")
        call = await agent.tool("transfer").call()
        agent.network.down("agent")

        assert await call.send(ToolResult(group_id=call.thread_id, id=call.id, text="Done.")) == 599
        with pytest.raises(AssertionError, match="The agent answered 599"):
            await call.result("Done.")


async def test_a_call_that_does_not_come_is_told_with_what_came() -> None:
    async with testing.agent(model=RULES, tools=["transfer", "watch"], patience=0.5) as agent:
        await (await agent.thread()).send("pay")

        with pytest.raises(AssertionError, match=r"(?s)'watch' was not called within 0.5 s.*'transfer' \(c1_"):
            await agent.tool("watch").call()
        call = await agent.tool("transfer").call()
        with pytest.raises(AssertionError, match="No answer of the user came"):
            await call.chosen()


async def test_what_is_wrong_in_the_tests_own_tool_fails_the_test() -> None:
    def transfer(amount: int) -> str:
        raise AssertionError(f"{amount} is too much")

    async with testing.agent(model=RULES, tools=["transfer"]) as agent:
        agent.tool("transfer").answer(transfer)
        with pytest.raises(AssertionError, match="5 is too much"):
            await (await agent.thread()).ask("pay")


async def test_fake_tools_are_made_for_one_test() -> None:
    bank = testing.FakeTools("bank", ["transfer"])
    bank.tool("transfer").answer("Done.")
    async with testing.agent(model=RULES, tools=[bank]) as agent:
        await (await agent.thread()).ask("pay")

    with pytest.raises(RuntimeError, match="Make new ones for each test"):
        async with testing.agent(model=RULES, tools=[bank]):
            pass


async def test_fake_tools_without_an_agent_say_so() -> None:
    with pytest.raises(RuntimeError, match="No agent uses the fake tools 'bank' yet"):
        await testing.FakeTools("bank", ["transfer"]).tool("transfer").call()
