"""What is fuzzed: a toolset with arguments of many types."""

import asyncio

from rapkit import Context, Limits, Toolset

# Without a limit on notices, so that every one of them is looked at.
tools = Toolset("fuzzed", description="Tools that say what they were given", limits=Limits(notices=None))


@tools.tool(read_only=True)
async def echo(text: str) -> str:
    """Says it again."""
    return text


@tools.tool(read_only=True)
async def total(numbers: list[float], times: int = 1) -> float:
    """Adds up."""
    return sum(numbers) * times


@tools.tool(read_only=True)
async def picky(word: str, count: int, flags: dict[str, bool], maybe: str | None = None) -> dict[str, object]:
    """Takes a little of everything."""
    return {"word": word, "count": count, "flags": flags, "maybe": maybe}


@tools.tool(read_only=True)
def plain(ctx: Context, size: float = 0) -> str:
    """Knows who asks."""
    return f"{ctx.thread_id} {size}"


@tools.tool(read_only=True)
async def wait(seconds: float = 30) -> str:
    """Is there to be cancelled."""
    await asyncio.sleep(min(seconds, 30))
    return "waited"
