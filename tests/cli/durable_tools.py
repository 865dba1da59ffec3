"""A toolset whose calls last until they are cancelled, and leave a file when they are."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from rapkit import Toolset

tools = Toolset("lasting")


@tools.subscription
async def watch(ended: str) -> AsyncIterator[str]:
    """Tick.

    Args:
        ended: The file that is made when it ends.
    """
    try:
        while True:
            yield "tick"
            await asyncio.sleep(0.05)
    finally:
        Path(ended).touch()


@tools.tool(long_running=True)
async def sleep(started: str, ended: str) -> str:
    """Sleep for an hour.

    Args:
        started: The file that is made once it sleeps.
        ended: The file that is made when it ends.
    """
    try:
        Path(started).touch()
        await asyncio.sleep(3600)
    finally:
        Path(ended).touch()
    return "awake"
