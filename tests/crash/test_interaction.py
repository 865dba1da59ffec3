"""The server is killed while subscriptions run, questions are open, users are at the provider and programs run.

What was acknowledged goes on after that: events without gap or repetition, questions asked once, consent given once; no program is left.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.crash.crash_run import Setting
from tests.crash.interactive_crash_run import InteractiveCrashRun
from tests.crash.test_kill import (
    SHORT,
    again_and_again_while_it_starts,
    both,
    during_an_orderly_stop,
    start_again,
    the_sink_instead,
)

KILLS = 20 if SHORT else 200
SECONDS = 45 if SHORT else 600
_LIES_IN_WAIT = 3.0

Moment = Callable[[InteractiveCrashRun], Awaitable[None]]


async def at_random(arena: InteractiveCrashRun) -> None:
    await arena.some_time(0.1, 2.0)
    await arena.kill()


async def when(arena: InteractiveCrashRun, sprung: "asyncio.Future[None]", longest: float) -> None:
    """Kill it within so many seconds of an event; if that does not come, some time.

    Right after an acknowledgement is when it shows whether that was given before it was certain.
    """
    await asyncio.wait({sprung}, timeout=_LIES_IN_WAIT)
    await arena.some_time(0.0, longest)
    await arena.kill()


async def while_a_user_answers(arena: InteractiveCrashRun) -> None:
    await when(arena, arena.door.ambush("/answer/", "sent"), 0.02)


async def after_a_user_has_answered(arena: InteractiveCrashRun) -> None:
    await when(arena, arena.door.ambush("/answer/", "answered"), 0.002)


async def while_a_user_comes_back_from_the_provider(arena: InteractiveCrashRun) -> None:
    await when(arena, arena.door.ambush("/oauth/callback", "sent"), 0.02)


async def while_the_provider_is_asked_for_a_token(arena: InteractiveCrashRun) -> None:
    await when(arena, arena.provider.ambush("asked"), 0.05)


async def after_the_provider_gave_a_token(arena: InteractiveCrashRun) -> None:
    await when(arena, arena.provider.ambush("given"), 0.03)


async def while_a_source_tells_something(arena: InteractiveCrashRun) -> None:
    await when(arena, arena.door.ambush("/hooks/", "sent"), 0.02)


async def after_a_source_was_acknowledged(arena: InteractiveCrashRun) -> None:
    await when(arena, arena.door.ambush("/hooks/", "answered"), 0.002)


async def while_a_subscription_is_cancelled(arena: InteractiveCrashRun) -> None:
    await when(arena, arena.door.ambush("/cancel_tool_call", "sent"), 0.02)


async def after_a_subscription_was_cancelled(arena: InteractiveCrashRun) -> None:
    await when(arena, arena.door.ambush("/cancel_tool_call", "answered"), 0.002)


CHOSEN: tuple[Moment, ...] = (
    while_a_user_answers,
    after_a_user_has_answered,
    while_a_user_comes_back_from_the_provider,
    while_the_provider_is_asked_for_a_token,
    after_the_provider_gave_a_token,
    while_a_source_tells_something,
    after_a_source_was_acknowledged,
    while_a_subscription_is_cancelled,
    after_a_subscription_was_cancelled,
)
GENERAL: tuple[Moment, ...] = (
    at_random,
    during_an_orderly_stop,
    again_and_again_while_it_starts,
    the_sink_instead,
    both,
)


async def test_what_waits_goes_on_though_the_server_is_killed(tmp_path: Path, seed: int) -> None:
    async with InteractiveCrashRun(tmp_path, seed) as arena:
        async with arena.under_load():
            for moment in arena.random.sample(CHOSEN, 3):
                await moment(arena)
                await start_again(arena.server)
        await arena.settle(patience=40)


@pytest.mark.soak
async def test_what_waits_goes_on_though_all_is_killed_all_the_time(tmp_path: Path, seed: int) -> None:
    async with InteractiveCrashRun(tmp_path, seed, Setting(senders=3, pause=0.1, faults=0.1, most_faults=2)) as arena:
        async with arena.under_load():
            kills, end = 0, time.monotonic() + SECONDS
            while kills < KILLS or time.monotonic() < end:
                moment = arena.random.choices((*CHOSEN, *GENERAL), (*[2] * len(CHOSEN), 4, 2, 1, 1, 1))[0]
                await moment(arena)
                await start_again(arena.server)
                kills = len(arena.server.deaths)
        await arena.settle(patience=150)
        tried = arena.history()
        assert all(
            (tried.emissions, tried.answers, tried.consents, any(stream.silent_from for stream in tried.streams))
        ), "not all was tried"
        assert arena.orphaned, "no program was left behind, so it was not seen that they are ended"


@pytest.mark.soak
async def test_what_waits_goes_on_at_another_server(tmp_path: Path, seed: int) -> None:
    setting = Setting(servers=2, lease=2.0, senders=3, pause=0.1, faults=0.02)
    async with InteractiveCrashRun(tmp_path, seed, setting) as arena:
        async with arena.under_load():
            for _ in range(8 if SHORT else 80):
                await arena.some_time(0.2, 2.0)
                server = arena.random.choice(arena.servers)
                await arena.kill(server)
                await arena.some_time(0.0, 3.0)
                await start_again(server)
        await arena.settle(patience=150)
