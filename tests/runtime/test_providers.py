"""A whole agent with the real SDKs of providers: what a thread goes through is never refused, and comes back as it was said."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rapkit.kernel.entries import ModelSaid
from rapkit.models import open_model
from rapkit.runtime.event_feed import EventName
from tests.models.anthropic_server import AnthropicServer
from tests.models.openai_server import OpenAIServer
from tests.models.replies import BreakOff, Call, Fail, ProviderServer, Say
from tests.runtime.agents import RunningAgent, working
from tests.runtime.foreign_toolset import ForeignToolset

NAMES = ["openai:gpt-5-mini", "openai-chat:gpt-4o", "anthropic:claude-haiku-5-5"]


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    named: str = request.param
    return named


@pytest.fixture
async def provider(name: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ProviderServer]:
    async with AnthropicServer() if name.startswith("anthropic") else OpenAIServer() as server:
        for variable, value in server.env.items():
            monkeypatch.setenv(variable, value)
        yield server
        assert server.refusals == [], "a strict provider refused what it was sent"


@pytest.fixture
async def agent(
    name: str, provider: ProviderServer, stranger: ForeignToolset, tmp_path: Path
) -> AsyncIterator[RunningAgent]:
    async with working(open_model(name), [stranger.url], f"sqlite:///{tmp_path}/agent.db") as agent:
        yield agent


async def test_calls_in_parallel_are_answered_together(
    agent: RunningAgent, provider: ProviderServer, stranger: ForeignToolset
) -> None:
    provider.replies.append(Say("Let me see.", calls=(Call("work", {"n": 1}), Call("work", {"n": 2}))))
    provider.replies.append(Say("Both are done."))
    talk = await agent.talk("Do two things.")

    one, two = await stranger.invoked_with(n=1), await stranger.invoked_with(n=2)
    await two.result("second")
    await one.result("first")

    said = await talk.hears("Both are done.")
    assert said.model
    assert len(provider.requests) == 2
    usage = (await talk.look()).thread.usage
    assert (usage.requests, usage.input_tokens, usage.output_tokens) == (2, 20, 10)


async def test_an_interruption_and_a_late_result_are_understood(
    agent: RunningAgent, provider: ProviderServer, stranger: ForeignToolset
) -> None:
    """RUN-6 with a provider that refuses unanswered calls and answers that stand alone."""
    provider.replies.append(Say(calls=(Call("work", {"n": 1}), Call("work", {"n": 2}))))
    provider.replies.append(Say("Still at it."))
    provider.replies.append(Say("One is done."))
    provider.replies.append(Say("Now both are."))
    talk = await agent.talk("Do two things.")
    one, two = await stranger.invoked_with(n=1), await stranger.invoked_with(n=2)

    await talk.say("How is it going?")
    await talk.hears("Still at it.")
    await one.result("first")
    await talk.hears("One is done.")
    await two.result("second")

    await talk.hears("Now both are.")


async def test_events_are_understood_inline_and_in_a_child(
    agent: RunningAgent, provider: ProviderServer, stranger: ForeignToolset
) -> None:
    """SUB-12, SUB-13, SUB-20 with a strict provider."""
    provider.replies.append(Say(calls=(Call("work", {"n": 1}),)))
    for text in ("Subscribed.", "I saw line 1.", "A child saw the alarm."):
        provider.replies.append(Say(text))
    talk = await agent.talk("Watch it.")
    invocation = await stranger.invoked_with(n=1)

    await invocation.result("watching", subscription=True)
    await talk.hears("Subscribed.")
    await invocation.event("line 1", associative=True)
    await talk.hears("I saw line 1.")
    await invocation.event("alarm")

    child = agent.thread(await talk.until_child())
    await child.hears("A child saw the alarm.")


async def test_text_is_streamed_to_whoever_looks(agent: RunningAgent, provider: ProviderServer) -> None:
    provider.replies.append(Say("A text of several words."))
    talk = await agent.talk()
    pieces: list[str] = []
    async with contextlib.aclosing(agent.threads.follow(talk.id)) as events:
        async for event in events:
            if event.name is EventName.STATUS and event.data["status"] == "idle" and not pieces:
                await talk.say("Speak.")
            if event.name is EventName.DELTA:
                pieces.append(event.data["text"])
            if event.line is not None and isinstance(event.line.entry, ModelSaid):
                break

    assert len(pieces) > 1
    assert "".join(pieces) == "A text of several words."


@pytest.mark.parametrize("failure", [Fail(500), Fail(429, headers={"retry-after": "0"}), BreakOff(Say("Half a"))])
async def test_a_provider_that_fails_once_is_asked_again(
    agent: RunningAgent, provider: ProviderServer, failure: Fail | BreakOff
) -> None:
    """RUN-4: what the user said is kept, the error is shown, and the answer comes."""
    provider.replies.append(failure)
    provider.replies.append(Say("Here I am."))

    talk = await agent.talk("Are you there?")

    await talk.hears("Here I am.")
    assert [entry.kind for entry in await talk.entries()] == ["user", "error", "assistant"]


async def test_a_provider_that_refuses_parks_the_thread_and_a_message_revives_it(
    agent: RunningAgent, provider: ProviderServer
) -> None:
    """RUN-4"""
    provider.replies.append(Fail(403, "Your account is closed."))
    provider.replies.append(Say("Welcome back."))
    talk = await agent.talk("Are you there?")

    look = await talk.becomes("parked")

    assert "Your account is closed." in (look.thread.parked or "")
    await talk.say("And now?")
    await talk.hears("Welcome back.")
