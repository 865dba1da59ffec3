"""Runtimes and tool servers are killed while people talk to the agent; nothing that was acknowledged is lost, and nothing happens twice.

A run that failed is repeated, as far as processes can be, with `CRASH_SEED=... scripts/test tests/crash/runtime`.
"""

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from tests.crash.processes import Process
from tests.crash.runtime.arena import Arena, Setting

MOST_DOWN = 2
SHORT = os.environ.get("RAPKIT_SOAK") == "short"


async def kill_at_random(arena: Arena, times: int) -> None:
    """One after the other, whoever is up; each comes back after a while, perhaps when another has gone."""
    coming_back: set[asyncio.Task[None]] = set()
    for _ in range(times):
        await arena.some_time(0.1, 0.9)
        while sum(not task.done() for task in coming_back) >= MOST_DOWN:
            await asyncio.sleep(0.02)
        victim = arena.random.choice([process for process in arena.processes if process.running])
        await victim.kill()
        coming_back.add(asyncio.create_task(come_back(arena, victim)))
    await asyncio.gather(*coming_back)


async def come_back(arena: Arena, process: Process) -> None:
    await arena.some_time(0.0, 0.5)
    process.start()
    with contextlib.suppress(AssertionError):  # it was killed again before it was ready
        await process.ready()


async def test_thirty_kills_of_runtimes_and_tool_servers_lose_nothing_and_repeat_nothing(
    tmp_path: Path, seed: int
) -> None:
    async with Arena(tmp_path, seed) as arena:
        async with arena.under_load():
            await kill_at_random(arena, 30)
        await arena.settle(patience=60)


async def test_a_runtime_that_stood_still_too_long_comes_back_and_changes_nothing(tmp_path: Path, seed: int) -> None:
    async with Arena(tmp_path, seed, Setting(conversations=15, slowest=0.6)) as arena:
        _, frozen = arena.runtimes
        async with arena.under_load():
            await arena.some_time(2.0, 3.0)
            await frozen.pause_beside(arena.path)
            # The other takes over what it had; clients that wait for it give up and go to the other.
            await arena.some_time(4.0, 4.5)
            frozen.resume()
            await arena.some_time(1.0, 1.5)
        await arena.settle(patience=60)


@pytest.mark.soak
async def test_many_kills_of_runtimes_and_tool_servers_lose_nothing_and_repeat_nothing(
    tmp_path: Path, seed: int
) -> None:
    async with Arena(tmp_path, seed, Setting(conversations=60)) as arena:
        async with arena.under_load():
            await kill_at_random(arena, 60 if SHORT else 600)
        await arena.settle(patience=120)
