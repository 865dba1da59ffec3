"""Servers are killed while they work; nothing that was acknowledged is lost, done twice or answered twice.

A run that failed is repeated, as far as processes can be, with `CRASH_SEED=... scripts/test tests/crash`.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.crash.crash_run import CrashRun, Setting
from tests.crash.processes import Process

SHORT = os.environ.get("RAPKIT_SOAK") == "short"
KILLS = 20 if SHORT else 200
SECONDS = 45 if SHORT else 600


async def at_random(arena: CrashRun) -> None:
    await arena.some_time(0.1, 2.0)
    await arena.server.kill()


async def while_acknowledgements_are_in_flight(arena: CrashRun) -> None:
    killing: list[asyncio.Task[None]] = []
    burst = asyncio.create_task(arena.load.burst(64, lambda: killing.append(asyncio.create_task(arena.server.kill()))))
    while not killing:
        await asyncio.sleep(0.001)
    await killing[0]
    arena.server.start()
    await burst


async def during_an_orderly_stop(arena: CrashRun) -> None:
    await arena.some_time(0.1, 0.5)
    arena.server.terminate()
    await arena.some_time(0.0, 0.5)
    if arena.server.running:
        await arena.server.kill()


async def again_and_again_while_it_starts(arena: CrashRun) -> None:
    await arena.some_time(0.1, 0.5)
    await arena.server.kill()
    for _ in range(4):
        arena.server.start()
        await arena.some_time(0.0, 1.2)
        await arena.server.kill()


async def the_sink_instead(arena: CrashRun) -> None:
    await arena.some_time(0.1, 0.5)
    await arena.sink.kill()
    await arena.some_time(0.0, 0.5)
    arena.sink.start()
    await arena.sink.ready()


async def both(arena: CrashRun) -> None:
    await arena.some_time(0.1, 1.0)
    await asyncio.gather(arena.sink.kill(), arena.server.kill())
    arena.sink.start()
    await arena.sink.ready()


MOMENTS: tuple[Callable[[CrashRun], Awaitable[None]], ...] = (
    at_random,
    while_acknowledgements_are_in_flight,
    during_an_orderly_stop,
    again_and_again_while_it_starts,
    the_sink_instead,
    both,
)


async def start_again(process: Process) -> None:
    if not process.running:
        process.start()
    await process.ready()


async def test_what_was_acknowledged_is_answered_once_though_the_server_is_killed(tmp_path: Path, seed: int) -> None:
    async with CrashRun(tmp_path, seed) as arena:
        async with arena.under_load():
            for _ in range(3):
                await at_random(arena)
                await start_again(arena.server)
        await arena.settle(patience=30)


@pytest.mark.parametrize("moment", MOMENTS[1:], ids=lambda moment: moment.__name__)
async def test_also_when_it_is_killed(tmp_path: Path, seed: int, moment: Callable[[CrashRun], Awaitable[None]]) -> None:
    async with CrashRun(tmp_path, seed, Setting(faults=0.02)) as arena:
        async with arena.under_load():
            await moment(arena)
            await start_again(arena.server)
        await arena.settle(patience=30)


@pytest.mark.soak
async def test_what_was_acknowledged_is_answered_once_though_all_is_killed_all_the_time(
    tmp_path: Path, seed: int
) -> None:
    async with CrashRun(tmp_path, seed, Setting(faults=0.15, most_faults=2)) as arena:
        async with arena.under_load():
            kills, end = 0, time.monotonic() + SECONDS
            while kills < KILLS or time.monotonic() < end:
                moment = arena.random.choices(MOMENTS, (8, 2, 2, 1, 1, 1))[0]
                await moment(arena)
                await start_again(arena.server)
                kills = len(arena.server.deaths)
        await arena.settle(patience=120)


# Some calls outlast the lease: it is renewed, or the other server would take them.
TWO = Setting(servers=2, lease=2.0, longest=3.5, faults=0.02)


async def one_of_two_is_killed(arena: CrashRun, times: int) -> None:
    for _ in range(times):
        await arena.some_time(0.2, 2.0)
        server = arena.random.choice(arena.servers)
        await server.kill()
        await arena.some_time(0.0, 1.0)
        await start_again(server)


async def test_two_servers_on_one_store_never_run_a_call_at_once(tmp_path: Path, seed: int) -> None:
    async with CrashRun(tmp_path, seed, TWO) as arena:
        async with arena.under_load():
            await one_of_two_is_killed(arena, times=2)
        await arena.settle(patience=30)


@pytest.mark.soak
async def test_two_servers_on_one_store_one_of_them_killed_all_the_time(tmp_path: Path, seed: int) -> None:
    async with CrashRun(tmp_path, seed, TWO) as arena:
        async with arena.under_load():
            await one_of_two_is_killed(arena, times=10 if SHORT else 100)
        await arena.settle(patience=120)


async def test_a_server_that_stood_still_too_long_comes_back_and_changes_nothing(tmp_path: Path, seed: int) -> None:
    async with CrashRun(tmp_path, seed, Setting(servers=2, lease=0.5, faults=0)) as arena:
        frozen, _ = arena.servers
        async with arena.under_load():
            await arena.some_time(0.3, 0.8)
            frozen.pause()
            # Callers that wait for it give up after five seconds and go to the other.
            await arena.some_time(1.5, 2.0)
            frozen.resume()
            await arena.some_time(0.3, 0.8)
        await arena.settle(patience=30, one_worker=False)
