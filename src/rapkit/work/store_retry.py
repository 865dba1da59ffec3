"""Retry a store operation until it succeeds."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rapkit.errors import Fenced, StoreError, WrongKey

_PAUSE_BEFORE_TRYING_AGAIN = 0.5
_LONGEST_PAUSE = 15.0

T = TypeVar("T")

log = logging.getLogger("rapkit.store")


async def retry_store_operation(operation: Callable[[], Awaitable[T]]) -> T:
    """What an operation on the store gives, however often it takes. For what can be repeated; `Fenced` and `WrongKey` are let through."""
    pause = _PAUSE_BEFORE_TRYING_AGAIN
    while True:
        try:
            return await operation()
        except (Fenced, WrongKey):
            raise
        except StoreError as error:
            # Giving up here would have work done again, or reported as lost.
            log.error("the store fails, and is asked again: %s", error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
