"""A toolset at work with nothing around it but a test."""

import itertools
from pathlib import Path

from rapkit.server.toolset import Toolset
from rapkit.testing.activity import Activity
from rapkit.testing.callbacks import Callbacks
from rapkit.testing.clock import ManualClock
from rapkit.testing.inbox import Inbox
from rapkit.testing.served import Served
from rapkit.testing.timeline import Timeline

_OK = 200


class Stage:
    """The server's surroundings, and the server in them, which can be lost and started again."""

    def __init__(self, tools: Toolset, patience: float, workspaces: Path) -> None:
        self.activity = Activity()
        self.clock = ManualClock(on_use=self.activity.note)
        self.inbox = Inbox(patience, self._hint)
        self.callbacks = Callbacks(self.inbox, self.activity)
        self.server = Served(tools, self.clock, self.activity, self.callbacks, workspaces)
        self.process = self.server.process
        self.timeline = Timeline(self.clock, self.activity, [self.process])
        self.numbers = itertools.count(1)

    async def notify(self, path: str, caller: str, thread_id: str, call_id: str | None = None) -> None:
        """Say that a call, or a whole thread, is not wanted any more. A notice is acknowledged even if it is lost; that is told here."""
        life, before = self.process.life, self.process.life.operations["stop"]
        notice = {"thread_id": thread_id} if call_id is None else {"thread_id": thread_id, "tool_call_id": call_id}
        reply = await self.server.requests.post(path, notice, caller)
        assert reply.status == _OK, f"The notice to {path} was refused with {reply.status}: {reply.text}"
        if life.operations["stop"] > before:
            self.inbox.release(caller, thread_id, call_id)
        elif not life.over:
            raise AssertionError(
                f"The notice to {path} was acknowledged and not acted on, because there are too many of them in a second. "
                "Give the toolset Limits(notices=None)."
            )

    async def _hint(self) -> str:
        if self.process.lost:
            return "The server is lost: `await client.crash()` starts the next one."
        return await self.timeline.hint("client.advance")
