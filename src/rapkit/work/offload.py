"""Process large messages in a thread instead of on the event loop.

To parse, digest or write 15 MB takes tens of milliseconds each. On the loop these add up to a pause for everything else; in a thread they
do not, because others get their turn between them. It is one thread for all: parsing keeps the interpreter's lock, and the loop would wait
for several threads longer than for one. For small messages a thread costs more than it saves.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

LARGE = 256 * 1024
"""Bytes from which on a message is worked on in a thread."""

_THREAD = ThreadPoolExecutor(1, thread_name_prefix="rapkit-large")


async def offload(size: int, work: Callable[P, T], *given: P.args, **options: P.kwargs) -> T:
    """Call a function that processes so many bytes; in a thread if they are many."""
    if size < LARGE:
        return work(*given, **options)
    return await asyncio.get_running_loop().run_in_executor(_THREAD, partial(work, *given, **options))
