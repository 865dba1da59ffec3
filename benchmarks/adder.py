"""The toolset that is measured: one tool that does next to nothing, and two that take their time."""

import asyncio
import time

from rapkit import Toolset

tools = Toolset("adder", description="Adds numbers")


@tools.tool(read_only=True)
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@tools.tool(read_only=True)
async def nap(seconds: float) -> str:
    """Wait, and let others work meanwhile."""
    await asyncio.sleep(seconds)
    return "awake"


@tools.tool(read_only=True)
def doze(seconds: float) -> str:
    """Wait, and keep a thread while doing so."""
    time.sleep(seconds)
    return "awake"
