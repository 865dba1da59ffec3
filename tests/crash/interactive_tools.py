"""Tools that do not simply answer: subscriptions, questions to the user, consent elsewhere, programs. With those of `tools.py`.

Served by the crash tests in a process of its own, under the name `tests.crash.interactive_tools:tools`.
"""

import asyncio
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from rapkit import Context, Delivery, Event, ToolError
from rapkit.server.interaction.oauth import redirect, vault
from tests.crash.dialogues import CHOICES, prompt
from tests.crash.programs import VARIABLE, carriers, mark
from tests.crash.tools import PROVIDER, note, tools

# What a lost server was at with a provider is taken up when its claim has ended: a wait that need not be half a minute here.
vars(redirect)["LEASE"] = vars(vault)["LEASE"] = 4.0


# Subscriptions


@tools.subscription(rate=None)
async def count(n: int, last: int, pause: float, ctx: Context) -> AsyncIterator[Event]:
    """Counts; the last number is final."""
    note("start", n)
    try:
        for number in range(int(ctx.cursor or 0) + 1, last + 1):
            await asyncio.sleep(pause)
            yield Event(str(number), cursor=str(number), final=number == last)
    finally:
        note("stop", n)


@tools.subscription(rate=20, associative=True)
async def count_slowly(n: int, last: int, pause: float, ctx: Context) -> AsyncIterator[Event]:
    """Counts faster than it may, so that numbers wait."""
    note("start", n)
    try:
        for number in range(int(ctx.cursor or 0) + 1, last + 1):
            yield Event(str(number), cursor=str(number), final=number == last)
    finally:
        note("stop", n)


@tools.subscription(rate=None)
def count_plainly(n: int, last: int, pause: float, ctx: Context) -> Iterator[Event]:
    """Counts in a thread, and then returns."""
    note("start", n)
    try:
        for number in range(int(ctx.cursor or 0) + 1, last + 1):
            time.sleep(pause)
            yield Event(str(number), cursor=str(number))
    finally:
        note("stop", n)


@tools.subscription(rate=None)
async def count_out(n: int, last: int, pause: float, ctx: Context) -> AsyncIterator[Event]:
    """Counts until it has had enough."""
    note("start", n)
    try:
        for number in range(int(ctx.cursor or 0) + 1, last + 1):
            yield Event(str(number), cursor=str(number))
        raise ToolError("that is all")
    finally:
        note("stop", n)


@tools.subscription(topic="news/{topic}", rate=None)
async def news(n: int, topic: str, payload: dict[str, Any]) -> Event:
    """Passes on what is emitted."""
    return Event(str(payload["number"]), final=payload["last"])


@tools.webhook("/hooks/github", style="github", secret="env:CRASH_GITHUB_SECRET")
async def github(delivery: Delivery) -> None:
    await pass_on(delivery)


@tools.webhook("/hooks/standard", style="standard", secret="env:CRASH_STANDARD_SECRET")
async def standard(delivery: Delivery) -> None:
    await pass_on(delivery)


async def pass_on(delivery: Delivery) -> None:
    await tools.emit(f"news/{delivery.json['topic']}", delivery.json, id=delivery.id)


# Questions


@tools.tool
async def ask(n: int, seconds: float, ctx: Context) -> str:
    """Asks, and does something that must not be repeated."""
    return await after_questions("ask", n, 1, seconds, ctx)


@tools.tool(destructive=True)
async def ask_twice(n: int, seconds: float, ctx: Context) -> str:
    """Asks two things in a row, and does something that must not be repeated."""
    return await after_questions("ask_twice", n, 2, seconds, ctx)


@tools.tool(idempotent=True)
async def ask_again(n: int, seconds: float, ctx: Context) -> str:
    """Asks, and does something that may be repeated."""
    return await after_questions("ask_again", n, 1, seconds, ctx)


async def after_questions(name: str, n: int, questions: int, seconds: float, ctx: Context) -> str:
    note("start", n)
    try:
        labels = [await ctx.choose(prompt(n, number), CHOICES) for number in range(1, questions + 1)]
        await do(n, seconds)
        return f"{name} {n} {' '.join(labels)}"
    finally:
        note("stop", n)


async def do(n: int, seconds: float) -> None:
    note("resumed", n)
    await asyncio.sleep(seconds)
    note("end", n)


# Consent


@tools.tool(requires_auth="idp")
async def act(n: int, seconds: float, ctx: Context) -> str:
    """Does something for the user elsewhere that must not be repeated."""
    return await for_the_user("act", n, seconds, ctx)


@tools.tool(requires_auth="idp", read_only=True)
async def act_again(n: int, seconds: float, ctx: Context) -> str:
    """Looks something up for the user elsewhere."""
    return await for_the_user("act_again", n, seconds, ctx)


async def for_the_user(name: str, n: int, seconds: float, ctx: Context) -> str:
    note("start", n)
    try:
        token = await ctx.oauth("idp")
        while (login := await asyncio.to_thread(owner, token)) is None:
            token = await ctx.oauth("idp", refused=token)
        await do(n, seconds)
        return f"{name} {n} {login}"
    finally:
        note("stop", n)


def owner(token: str) -> str | None:
    """Whose token it is, if the provider honours it."""
    request = urllib.request.Request(f"{PROVIDER}/me", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return str(json.load(answer)["login"])
    except urllib.error.HTTPError as error:
        error.close()
        return None


# Programs


@tools.tool
async def hold(n: int, seconds: float, ctx: Context) -> str:
    """Runs programs until it is cancelled, and must not be repeated."""
    return await run_for_ever(n, ctx)


@tools.tool(idempotent=True)
async def watch(n: int, seconds: float, ctx: Context) -> str:
    """Runs programs until it is cancelled."""
    return await run_for_ever(n, ctx)


async def run_for_ever(n: int, ctx: Context) -> str:
    note("start", n)
    sign = mark(Path.cwd(), n)
    if await asyncio.to_thread(carriers, sign):
        note("leftover", n)
    try:
        # A shell and two of its children; the second leaves the group.
        script = "sleep 1000 & setsid sleep 1000 & wait"
        done = await ctx.run(["sh", "-c", script], env={"PATH": os.environ["PATH"], VARIABLE: sign})
        return f"ended by itself with {done.returncode}"
    finally:
        note("stop", n)
