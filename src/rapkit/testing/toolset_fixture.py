"""A toolset in memory, as a test fixture."""

import asyncio
import itertools
from pathlib import Path

from rapkit.server.toolset import Toolset
from rapkit.testing.activity import Activity
from rapkit.testing.call_messages import CallMessages
from rapkit.testing.callbacks import Callbacks
from rapkit.testing.clock import ManualClock
from rapkit.testing.inbox import Inbox
from rapkit.testing.served_toolset import ServedToolset
from rapkit.testing.time_advance import TimeAdvance

_OK = 200


class ToolsetFixture:
    """The server's environment, and the server in it, which can be crashed and restarted."""

    def __init__(self, tools: Toolset, patience: float, workspaces: Path) -> None:
        self.activity = Activity()
        self.clock = ManualClock(on_use=self.activity.note)
        self.inbox = Inbox(patience, self._hint)
        self.callbacks = Callbacks(self.inbox, self.activity)
        self.server = ServedToolset(tools, self.clock, self.activity, self.callbacks, workspaces)
        self.process = self.server.process
        self.timeline = TimeAdvance(self.clock, self.activity, [self.process])
        self.numbers = itertools.count(1)
        self._confirming = asyncio.Lock()

    async def notify(self, path: str, caller: str, thread_id: str, call_id: str | None = None) -> None:
        """Say that a call, or a whole thread, is not wanted any more. A notice is acknowledged even if it is lost; that is told here."""
        crashable_run, before = self.process.crashable_run, self.process.crashable_run.operations["stop"]
        notice = {"thread_id": thread_id} if call_id is None else {"thread_id": thread_id, "tool_call_id": call_id}
        reply = await self.server.requests.post(path, notice, caller)
        assert reply.status == _OK, f"The notice to {path} was refused with {reply.status}: {reply.text}"
        if crashable_run.operations["stop"] > before:
            self.inbox.release(caller, thread_id, call_id)
        elif not crashable_run.over:
            raise AssertionError(
                f"The notice to {path} was acknowledged and not acted on, because there are too many of them in a second. "
                "Give the toolset Limits(notices=None)."
            )

    async def let_confirm(self, call: CallMessages) -> None:
        """Let the clock run for as long as a generator takes to be confirmed, if it does nothing that confirms it at once."""
        tool = self.server.tools.tools.get(call.operation)
        if tool is None or tool.subscription is None or tool.subscription.confirm_after is None:
            return
        async with self._confirming:
            await self._rest_or_result(call)
            if call.result is None and not self.process.lost:
                await self.timeline.advance(tool.subscription.confirm_after)

    async def _rest_or_result(self, call: CallMessages) -> None:
        first = [
            asyncio.ensure_future(self.inbox.wait(call, "result", lambda: call.result)),
            asyncio.ensure_future(self.activity.settle()),
        ]
        try:
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in first:
                each.cancel()
            await asyncio.gather(*first, return_exceptions=True)

    async def _hint(self) -> str:
        if self.process.lost:
            return "The server is lost: `await client.crash()` starts the next one."
        return await self.timeline.hint("client.advance")
