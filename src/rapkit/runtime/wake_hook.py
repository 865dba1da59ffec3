"""The wake hook: call the author's `on_accept` when the agent has something to do.

An agent without a worker only receives. This hook tells what wakes it, another process or a serverless platform, when to do so.
"""

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Awaitable, Callable

from rapkit.work import background

_MOST_AT_ONCE = 32
_PATIENCE = 60.0
_PATIENCE_AT_THE_END = 1.0

OnAccept = Callable[[str], Awaitable[None] | None]
"""What is called when a thread has got something to do, with its id; with "" when the time of something has come.

A plain function is called in a thread of its own, so that it may take its time.
"""

log = logging.getLogger("rapkit.doorbell")


class WakeHook:
    """Calls the user's function in the background. Best effort: the work is in the store, whether the hook succeeds or not.

    `rung` counts the calls.
    """

    def __init__(self, on_accept: OnAccept | None) -> None:
        self._on_accept = on_accept
        self.rung = 0
        self._calls: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._room = asyncio.Semaphore(_MOST_AT_ONCE)
        self._context = contextvars.copy_context()

    def trigger(self, thread_id: str) -> None:
        """Have the function called, after this returns. While it is being called for this thread, it is called once more, not several."""
        if self._on_accept is None:
            return
        self.rung += 1
        if thread_id in self._calls:
            self._again.add(thread_id)
            return
        # In a context of its own: what a request has set must not leak into the hook.
        self._calls[thread_id] = asyncio.create_task(self._trigger(thread_id), context=self._context.copy())

    async def _trigger(self, thread_id: str) -> None:
        try:
            async with self._room:
                await self._call(thread_id)
                while thread_id in self._again:
                    self._again.discard(thread_id)
                    await self._call(thread_id)
        finally:
            self._again.discard(thread_id)
            del self._calls[thread_id]

    async def _call(self, thread_id: str) -> None:
        assert self._on_accept is not None
        try:
            async with asyncio.timeout(_PATIENCE):
                if inspect.iscoroutinefunction(self._on_accept):
                    await self._on_accept(thread_id)
                else:
                    called = await asyncio.to_thread(self._on_accept, thread_id)
                    if inspect.isawaitable(called):
                        await called
        except Exception as error:
            # Errors of the user's function must not disturb the agent: the message is safe, and the hook is called again.
            log.error("on_accept failed: %r", error, exc_info=error, extra={"thread_id": thread_id or None})

    async def close(self) -> None:
        """Let calls under way end, for a moment."""
        if self._calls:
            await asyncio.wait(set(self._calls.values()), timeout=_PATIENCE_AT_THE_END)
        await background.end(*self._calls.values())
