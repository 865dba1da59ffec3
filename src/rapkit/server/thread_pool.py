"""A thread pool for handlers that are plain functions.

The standard pool joins its threads when the interpreter exits, so one handler that sleeps for an hour would keep a stopped server alive
for an hour. These are daemons: what they were doing is in the store, and is dealt with after the restart.
"""

import asyncio
import contextvars
import logging
import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

_PAUSE_WITHOUT_THREADS = 0.25

log = logging.getLogger("rapkit.server")


class _PoolTask(NamedTuple):
    function: Callable[[], Any]
    context: contextvars.Context
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Any]"


class ThreadPool:
    """Runs functions on daemon threads: as many as are needed at once, each used again."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_PoolTask | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0

    async def run(self, function: Callable[[], T]) -> T:
        """The function's result. It waits for a thread if the system has none to give.

        If the caller is cancelled the function goes on; nothing can stop a thread.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        while not self._idle.acquire(blocking=False) and not self._start():
            await asyncio.sleep(_PAUSE_WITHOUT_THREADS)
        self._jobs.put(_PoolTask(function, contextvars.copy_context(), loop, future))
        return await future

    def _start(self) -> bool:
        try:
            threading.Thread(target=self._work, name=f"rapkit-tool-{self._started + 1}", daemon=True).start()
        except RuntimeError as error:
            # The system's limit; a thread of ours, or of another program, may end soon.
            log.warning("a tool waits for a thread: %s", error)
            return False
        self._started += 1
        return True

    def close(self) -> None:
        """End idle threads; busy ones end after their function."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                result, error = job.context.run(job.function), None
            except BaseException as raised:  # noqa: BLE001 - it belongs to the caller that awaits the job
                result, error = None, raised
            self._idle.release()  # before the result is known: the next caller is to find this thread, not start another
            try:
                job.loop.call_soon_threadsafe(_resolve, job.future, result, error)
            except RuntimeError:
                return  # the loop is closed: the server has stopped
            del job, result, error


def _resolve(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if isinstance(error, StopIteration):
        # A future cannot carry it; PEP 479 turns it into this for coroutines too.
        error = RuntimeError("the function raised StopIteration")
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
