"""`ask` when the message cannot be taken, and what can be said at all."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from rapkit import Agent
from rapkit.errors import ThreadError
from rapkit.kernel.completion import Question
from rapkit.kernel.incoming import Incoming
from rapkit.mailbox import NewMail
from rapkit.models.scripted import Scripted
from rapkit.runtime import mail_codec, thread_commands
from rapkit.runtime.thread_commands import ThreadCommands
from tests.server.sink import PATIENCE

LOST = "this one is lost"


def answer(question: Question) -> str:
    return f"I heard: {' '.join(getattr(question.conversation[-1], 'texts', ()))}"


def spoiled(thread_id: str, message: Incoming, *, dedup: str | None = None) -> NewMail:
    """A letter; nobody can read it if it says that it is lost."""
    written = mail_codec.encode_mail(thread_id, message, dedup=dedup)
    return replace(written, body=b"{") if getattr(message, "text", None) == LOST else written


@pytest.fixture
async def agent(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Agent]:
    monkeypatch.setattr(thread_commands, "encode_mail", spoiled)
    async with Agent(model=Scripted(answer), store="sqlite:///:memory:") as agent:
        yield agent


async def test_who_asks_what_is_set_aside_is_told_why_no_answer_comes(agent: Agent) -> None:
    thread = await agent.thread()

    async with asyncio.timeout(PATIENCE):
        with pytest.raises(ThreadError, match="cannot be read"):
            await thread.ask(LOST)
        assert await thread.ask("hello") == "I heard: hello"


async def test_who_asks_gets_an_answer_although_another_message_is_set_aside(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = await agent.thread()
    send = ThreadCommands.send

    async def send_behind_another(self: ThreadCommands, thread_id: str, text: str, key: str | None = None) -> str:
        await send(self, thread_id, LOST)
        return await send(self, thread_id, text, key)

    monkeypatch.setattr(ThreadCommands, "send", send_behind_another)

    async with asyncio.timeout(PATIENCE):
        assert await thread.ask("hello") == "I heard: hello"


@pytest.mark.parametrize(
    ("text", "says"), [("", "empty"), (" \n", "empty"), ("a\ud800", "character 2 is half of a surrogate pair")]
)
async def test_what_is_no_text_cannot_be_said(agent: Agent, text: str, says: str) -> None:
    thread = await agent.thread()

    for say in (thread.send, thread.ask):
        with pytest.raises(ThreadError, match=says):
            await say(text)
    with pytest.raises(ThreadError, match=says):
        await agent.engine.threads.create(text=text)
    assert (await thread.look()).thread.length == 0


@pytest.mark.parametrize(
    ("user_id", "says"),
    [
        ("", "1 to 512 characters"),
        ("x" * 513, "1 to 512 characters"),
        ("a\nb", "no control characters"),
        ("\x7f", "no control characters"),
        ("\x85", "no control characters"),
        ("\ud800", "surrogate"),
    ],
)
async def test_a_user_id_that_tools_could_not_be_told_is_refused(agent: Agent, user_id: str, says: str) -> None:
    with pytest.raises(ThreadError, match=says):
        await agent.thread(user_id=user_id)


@pytest.mark.parametrize("user_id", ["x" * 512, "Zoë 😀", "a/b c"])
async def test_a_user_id_is_any_other_text(agent: Agent, user_id: str) -> None:
    thread = await agent.thread(user_id=user_id)

    assert (await thread.look()).thread.user_id == user_id
