"""Background tasks of a process: start one, report its failure, end it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

log = logging.getLogger("rapkit.background")


def start(work: Callable[[], Awaitable[None]], what: str) -> "asyncio.Task[None]":
    """Start a background task, which runs until it is ended; a failure is logged."""
    return asyncio.create_task(_run(work, what))


async def _run(work: Callable[[], Awaitable[None]], what: str) -> None:
    try:
        await work()
    except asyncio.CancelledError:
        raise
    except BaseException:  # only to say so: the task ends with it, and readiness is lost
        log.critical("%s has failed; restart the process", what, exc_info=True)
        raise


async def end(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
