"""`ClientThread.ask`, the one method that is more than a request."""

import asyncio
import json
from typing import Any

import pytest

from rapkit import Client
from rapkit.errors import ThreadClosed, ThreadError, ThreadParked
from rapkit.kernel.completion import Question
from rapkit.models.errors import ModelError
from tests.client.proxy import proxied
from tests.runtime.agents import RunningAgent, call, please, working
from tests.runtime.foreign_toolset import ForeignToolset
from tests.server.sink import Behaviour, Sink, answer


async def test_the_answer_to_a_question(client: Client) -> None:
    thread = await client.create_thread("hello")

    assert await thread.ask("how are you?") == "heard: how are you?"
    assert await thread.ask("and now?") == "heard: and now?"
    assert repr(thread) == f"ClientThread({thread.id!r})"


async def test_it_waits_for_calls_and_takes_the_answer_after_them(stranger: ForeignToolset, client: Client) -> None:
    thread = await client.create_thread()
    asked = asyncio.create_task(thread.ask(please(call("work"))))
    await (await stranger.invoked()).result("42")

    assert await asked == "heard: 42"


async def test_it_survives_a_broken_line(agent: RunningAgent, stranger: ForeignToolset) -> None:
    async with proxied(agent.url) as proxy, Client(proxy.url) as client:
        thread = await client.create_thread()
        asked = asyncio.create_task(thread.ask(please(call("work"))))
        invocation = await stranger.invoked()
        await proxy.down()
        await invocation.result("42")
        await agent.quiet()
        await proxy.up()
        assert await asked == "heard: 42"


async def test_a_thread_that_is_closed_meanwhile_does_not_answer(stranger: ForeignToolset, client: Client) -> None:
    thread = await client.create_thread()
    asked = asyncio.create_task(thread.ask(please(call("work"))))
    await stranger.invoked()
    await thread.close()

    with pytest.raises(ThreadClosed, match=thread.id):
        await asked


async def test_a_thread_that_parks_says_why(store: str) -> None:
    def model(_question: Question) -> str:
        raise ModelError("The key is wrong.", retryable=False)

    async with working(model, [], store) as agent, Client(agent.url) as client:
        thread = await client.create_thread()
        with pytest.raises(ThreadParked, match="The key is wrong"):
            await thread.ask("hello")


def detail(status: str, length: int) -> Behaviour:
    nothing = ("parent_id", "reason", "task", "user_id")
    empty = ("pending_calls", "subscriptions", "choices", "oauth", "children", "missing_toolsets")
    document: dict[str, Any] = {
        **dict.fromkeys(nothing),
        **{name: [] for name in empty},
        "thread_id": "t",
        "status": status,
        "asks_user": False,
        "created_at": 1.0,
        "usage": {},
        "length": length,
        "views": {},
        "budget": {name: {"used": 0, "limit": None} for name in ("slices", "tokens", "cost")},
    }
    return answer(200, body=json.dumps(document).encode())


def stream(*entries: dict[str, Any]) -> Behaviour:
    told = [
        f"event: entry\nid: {seq}\ndata: {json.dumps({'seq': seq, 'at': 1.0, **entry})}\n\n"
        for seq, entry in enumerate(entries, 1)
    ]
    return answer(200, "Content-Type: text/event-stream\r\n", "".join(told).encode())


SENT = answer(202, body=b'{"message_id": "mine"}')
ASIDE = {"kind": "ignored", "what": "user", "reason": "It cannot be read."}
MINE = {"kind": "user", "text": "hello", "id": "mine"}
REPLY = {"kind": "assistant", "text": "Hello."}


async def test_a_message_that_is_set_aside_is_not_waited_for(sink: Sink) -> None:
    sink.script = [detail("idle", 0), SENT, stream(ASIDE), detail("idle", 1)]
    async with Client(sink.url) as client:
        with pytest.raises(ThreadError, match=r"not taken into thread t: It cannot be read\."):
            await client.thread("t").ask("hello")


async def test_another_message_that_is_set_aside_does_not_matter(sink: Sink) -> None:
    sink.script = [detail("idle", 0), SENT, stream(ASIDE, MINE, REPLY), detail("running", 1)]
    async with Client(sink.url) as client:
        assert await client.thread("t").ask("hello") == "Hello."


async def test_an_answer_to_somebody_else_is_not_taken_for_ours(sink: Sink) -> None:
    other = [{**MINE, "id": "theirs"}, {**REPLY, "text": "Not for you."}]
    calling = {"kind": "assistant", "text": "Wait.", "calls": [{"id": "c1", "name": "work", "arguments": {}}]}
    sink.script = [detail("idle", 0), SENT, stream(*other, MINE, calling, REPLY)]
    async with Client(sink.url) as client:
        assert await client.thread("t").ask("hello") == "Hello."
