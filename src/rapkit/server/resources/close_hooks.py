"""Close hooks: run an author's functions when a thread is closed."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rapkit.clock import Clock
from rapkit.server.thread_pool import ThreadPool

log = logging.getLogger("rapkit.threads")


@dataclass(frozen=True, slots=True)
class ClosedThread:
    """A thread that is over: somebody closed it, or it has not called for so long that it is forgotten.

    `workspace` is its folder, if it has one, still there while the hooks run; `state` is what its calls have kept. `thread_id` is what the
    caller called it: other callers may use the same, and nothing says what is in it, so make no path of it.
    """

    thread_id: str
    caller: str
    workspace: Path | None
    state: Mapping[str, Any]


CloseHook = Callable[[ClosedThread], Awaitable[None] | None]


async def run_close_hook(
    hook: CloseHook, thread: ClosedThread, thread_pool: ThreadPool, clock: Clock, within: float
) -> None:
    """Run a hook; a plain function in a thread. Its failure is logged and ends nothing: others have to clean up too."""
    task = asyncio.current_task()
    assert task is not None
    name = getattr(hook, "__qualname__", repr(hook))
    limit = clock.timeout(within)
    try:
        async with limit:
            await _call(hook, thread, thread_pool)
    except asyncio.CancelledError:
        if task.cancelling():
            raise
        log.error("%s, run because a thread was closed, let out a cancellation of its own", name)
    except TimeoutError as error:
        if limit.expired():
            log.error("%s, run because a thread was closed, did not end within %g s", name, within)
        else:
            _failed(name, thread, error)
    except GeneratorExit:
        raise  # not the hook's: the event loop is gone
    except BaseException as error:  # noqa: BLE001 - authors raise anything, SystemExit too, and the server has other threads
        _failed(name, thread, error)


async def _call(hook: CloseHook, thread: ClosedThread, thread_pool: ThreadPool) -> None:
    if inspect.iscoroutinefunction(hook):
        await hook(thread)
        return
    told = await thread_pool.run(partial(hook, thread))
    if inspect.isawaitable(told):
        await told


def _failed(name: str, thread: ClosedThread, error: BaseException) -> None:
    log.error(
        "%s, run because a thread was closed, failed", name, exc_info=error, extra={"thread_id": thread.thread_id}
    )
