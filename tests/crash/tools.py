"""A toolset whose handlers leave a trace on disk: which process ran which call, from when to when.

Served by the crash tests in a process of its own; the trace is `effects.log` in the folder it is started in.
"""

import asyncio
import os
import time

from rapkit import Durations, Limits, OAuthProvider, ToolError, Toolset

PROVIDER = os.environ.get("CRASH_PROVIDER", "")
"""Where users can be asked for their consent, if anywhere."""


def providers() -> list[OAuthProvider]:
    if not PROVIDER:
        return []
    return [
        OAuthProvider(
            "idp",
            authorize_url=f"{PROVIDER}/authorize",
            token_url=f"{PROVIDER}/token",
            client_id="tools-under-test",
            client_secret="env:CRASH_CLIENT_SECRET",
            scopes=["read"],
        )
    ]


tools = Toolset(
    "crash",
    durations=Durations(lease=float(os.environ.get("CRASH_LEASE", "0.5")), grace=0.3),
    limits=Limits(strangers=None),  # all users, browsers and sources of a test have one address
    oauth=providers(),
)

_trace = os.open("effects.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def note(what: str, n: int) -> None:
    os.write(_trace, f"{time.monotonic():.6f} {os.getpid()} {what} {n}\n".encode())


async def work(n: int, seconds: float) -> None:
    note("start", n)
    await asyncio.sleep(seconds)
    note("end", n)


@tools.tool(read_only=True)
async def quick(n: int, seconds: float = 0) -> str:
    """Answers at once."""
    await work(n, 0)
    return f"quick {n}"


@tools.tool(read_only=True)
async def slow(n: int, seconds: float) -> str:
    """Takes its time."""
    await work(n, seconds)
    return f"slow {n}"


@tools.tool(idempotent=True)
async def put(n: int, seconds: float) -> str:
    """May be repeated."""
    await work(n, seconds)
    return f"put {n}"


@tools.tool(destructive=True)
async def pay(n: int, seconds: float) -> str:
    """Must not be repeated."""
    await work(n, seconds)
    return f"pay {n}"


@tools.tool(read_only=True)
def block(n: int, seconds: float) -> str:
    """Blocks its thread."""
    note("start", n)
    time.sleep(seconds)
    note("end", n)
    return f"block {n}"


@tools.tool
def stamp(n: int, seconds: float) -> str:
    """Blocks its thread, and must not be repeated."""
    note("start", n)
    time.sleep(seconds)
    note("end", n)
    return f"stamp {n}"


@tools.tool(read_only=True)
async def refuse(n: int, seconds: float) -> str:
    """Says what is wrong."""
    await work(n, seconds)
    raise ToolError(f"refuse {n}")


@tools.tool(read_only=True)
async def fail(n: int, seconds: float) -> str:
    """Fails in a way its author did not foresee."""
    await work(n, seconds)
    raise ValueError(f"secret {n}")
