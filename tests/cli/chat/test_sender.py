"""Sending what was said, through failures."""

import asyncio
from collections.abc import Mapping
from typing import Any

from rapkit.cli.agent_api import AgentApi, AgentRefused, AgentUnreachable
from rapkit.cli.chat.displayed_thread import DisplayedThread
from rapkit.cli.chat.sender import Sender


class Failing(AgentApi):
    """An agent that fails in these ways, one request after the other, before it works. None is none. It notes what it was sent."""

    def __init__(self, *failures: Exception | None) -> None:
        super().__init__("http://127.0.0.1:1")
        self._failures = list(failures)
        self.sent: list[tuple[str, Any, str | None]] = []

    def post(
        self, path: str, body: Mapping[str, Any] | None = None, *, key: str | None = None, patience: float = 0.0
    ) -> Any:
        self.sent.append((path, body, key))
        if self._failures and (failure := self._failures.pop(0)):
            raise failure
        return {"thread_id": "thr_1", "message_id": "msg_1"}


async def said(api: Failing, to: DisplayedThread, *texts: str) -> tuple[Sender, list[str]]:
    """Say this, until nothing is left to be sent; and what was refused."""
    refused: list[str] = []
    done = asyncio.Event()

    def changed() -> None:
        if sender.unsent.next() is None:
            done.set()

    sender = Sender(
        api, "u1", begun=lambda _: None, refused=lambda message, _: refused.append(message.text), changed=changed
    )
    for text in texts:
        sender.say(to, text)
    running = asyncio.create_task(sender.run())
    await asyncio.wait_for(done.wait(), 60)
    running.cancel()
    return sender, refused


async def test_the_same_is_sent_again_under_the_same_key() -> None:
    """So that it arrives once, even if only the answer was lost."""
    api = Failing(AgentUnreachable("gone"), AgentUnreachable("gone"), None, AgentUnreachable("gone"))
    thread = DisplayedThread()
    sender, refused = await said(api, thread, "one", "two")

    first, again, once_more, second, second_again = api.sent
    assert first == again == once_more == ("threads", {"text": "one", "user_id": "u1"}, first[2])
    assert second == second_again == ("threads/thr_1/messages", {"text": "two"}, second[2])
    assert first[2] is not None
    assert second[2] is not None
    assert first[2] != second[2]
    assert thread.id == "thr_1"
    assert thread.away_since is None
    assert (sender.unsent.not_stored, refused) == ([], [])


async def test_what_is_refused_is_not_sent_again() -> None:
    api = Failing(AgentRefused(409, "It is closed."))
    _, refused = await said(api, DisplayedThread("t"), "one", "two")
    assert refused == ["one"]
    assert [body["text"] for _, body, _ in api.sent] == ["one", "two"]
