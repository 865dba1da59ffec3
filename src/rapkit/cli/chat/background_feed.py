"""Run blocking work beside an event loop, and feed a thread's events into it."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from rapkit.cli.agent_api import AgentApi, StreamEvent
from rapkit.cli.chat.child_messages import told_with_last_words
from rapkit.cli.reconnecting_stream import ConnectionLost, Reconnected, ReconnectingStream
from rapkit.errors import RapkitError

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """What `work` returns, from a thread of its own.

    Not `asyncio.to_thread`: the program does not wait for the thread at its end, however long a hanging agent takes to answer.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def done(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as raised:  # noqa: BLE001 (it is raised again where it is waited for)
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits any more
            loop.call_soon_threadsafe(done, result, error)

    threading.Thread(target=run, name="chat request", daemon=True).start()
    return await future


class FeedEnded:
    """Nothing more will be heard of the thread: it is closed, or the agent does not let us, and `problem` says why."""

    def __init__(self, problem: str | None) -> None:
        self.problem = problem


class BackgroundFeed:
    """Follows a thread, in a thread of its own, and calls `told` in the event loop with everything that happens."""

    def __init__(
        self,
        api: AgentApi,
        thread_id: str,
        after: str | None,
        told: "Callable[[StreamEvent | ConnectionLost | Reconnected | FeedEnded], None]",
    ) -> None:
        self._api = api
        self._following = ReconnectingStream(api, thread_id, after)
        self._told = told
        self._loop = asyncio.get_running_loop()
        self._closed = False
        threading.Thread(target=self._run, name="chat feed", daemon=True).start()

    def close(self) -> None:
        """End it. Nothing is told from now on."""
        self._closed = True
        self._following.close()

    def _run(self) -> None:
        problem = None
        try:
            for happened in self._following:
                self._tell(told_with_last_words(self._api, happened))
        except RapkitError as error:
            problem = str(error)
        self._tell(FeedEnded(problem))

    def _tell(self, happened: StreamEvent | ConnectionLost | Reconnected | FeedEnded) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._pass_on, happened)

    def _pass_on(self, happened: StreamEvent | ConnectionLost | Reconnected | FeedEnded) -> None:
        if not self._closed:
            self._told(happened)
