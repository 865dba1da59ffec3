"""The toolset that two servers offer to the runtime under test, with a trace on disk of which process ran which call.

Served as `tests.crash.runtime.tools:tools`; the trace is `$CRASH_NAME.jsonl` in the folder it is started in.
"""

import asyncio
import os
from collections.abc import AsyncIterator

from rapkit import Context, Durations, Event, Limits, ToolError, Toolset
from rapkit.delivery.outbox_sender import OutboxSender
from rapkit.delivery.retry import POLICIES, PostKind, RetryPolicy
from tests.crash.runtime.trace import Trace

NAME = os.environ.get("CRASH_NAME", "tools")
CHOICES = ("Yes", "No")

# As patient as ever, but not as slow: a runtime that is killed all the time is up again in a second.
_QUICKLY = RetryPolicy(first=0.2, factor=1.5, cap=1.0, horizon=600)
_defaults = OutboxSender.__init__.__kwdefaults__
assert _defaults is not None
_defaults["policies"] = {**POLICIES, PostKind.CALLBACK: _QUICKLY, PostKind.FINAL: _QUICKLY}

tools = Toolset(
    NAME,
    durations=Durations(lease=float(os.environ.get("CRASH_LEASE", "1.0")), grace=0.3, answer=12.0),
    limits=Limits(strangers=None),
)

_trace = Trace(f"{NAME}.jsonl")


def note(what: str, key: str, ctx: Context) -> None:
    _trace.write(what=what, key=key, thread=ctx.thread_id, call=ctx.call_id)


async def work(key: str, seconds: float, ctx: Context) -> None:
    note("start", key, ctx)
    await asyncio.sleep(seconds)
    note("end", key, ctx)


@tools.tool(idempotent=True)
async def put(key: str, seconds: float, ctx: Context) -> str:
    """May be repeated."""
    await work(key, seconds, ctx)
    return f"put {key}"


@tools.tool(destructive=True)
async def pay(key: str, seconds: float, ctx: Context) -> str:
    """Must not be repeated."""
    await work(key, seconds, ctx)
    return f"pay {key}"


@tools.tool(read_only=True)
async def refuse(key: str, seconds: float, ctx: Context) -> str:
    """Says what is wrong."""
    await work(key, seconds, ctx)
    raise ToolError(f"refuse {key}")


@tools.tool(idempotent=True)
async def chain(key: str, left: int, ctx: Context) -> str:
    """The model calls it again as long as something is left."""
    await work(key, 0.02, ctx)
    return f"chain {key} {left}"


@tools.tool(destructive=True)
async def hold(key: str, ctx: Context) -> str:
    """Takes so long that somebody will cancel it."""
    await work(key, 5.0, ctx)
    return f"hold {key}"


@tools.tool(destructive=True)
async def wipe(key: str, ctx: Context) -> str:
    """The user is asked first."""
    await work(key, 0.02, ctx)
    return f"wipe {key}"


@tools.tool(idempotent=True)
async def late(key: str, seconds: float, ctx: Context) -> str:
    """The runtime may give it up before it answers."""
    await work(key, seconds, ctx)
    return f"late {key}"


@tools.tool(idempotent=True)
async def paint(key: str, ctx: Context) -> str:
    """Shows something."""
    await ctx.view(f"view {key}", {"key": key})
    await work(key, 0.05, ctx)
    return f"paint {key}"


@tools.tool
async def ask(key: str, ctx: Context) -> str:
    """Asks the user."""
    label = await ctx.choose(question(key), CHOICES, default="No")
    await work(key, 0.02, ctx)
    return f"ask {key} {label}"


def question(key: str) -> str:
    return f"Shall we, {key}?"


@tools.subscription(rate=None, associative=True)
async def count(key: str, last: int, pause: float, ctx: Context) -> AsyncIterator[Event]:
    """Counts into the thread itself; the last number is final."""
    async for event in numbers(key, last, pause, ctx):
        yield event


@tools.subscription(rate=None)
async def apart(key: str, last: int, pause: float, ctx: Context) -> AsyncIterator[Event]:
    """Counts, each number into a thread of its own; the last is final."""
    async for event in numbers(key, last, pause, ctx):
        yield event


async def numbers(key: str, last: int, pause: float, ctx: Context) -> AsyncIterator[Event]:
    for number in range(int(ctx.cursor or 0) + 1, last + 1):
        await asyncio.sleep(pause)
        yield Event(f"{key}/{number}", cursor=str(number), final=number == last)
