"""What is fuzzed: a toolset with arguments of many types, and tools that do whatever a tool can do.

Served in a process of its own. The environment says who may call it, and how many strangers it lets in.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from typing import Any, Literal

from rapkit import Context, Delivery, Event, Limits, OAuthProvider, ToolError, Toolset

NOBODY = "http://127.0.0.1:1"
"""Where nobody listens."""

FEW = os.environ.get("FUZZ_STRANGERS")
"""Requests of strangers a second, if there is to be a limit on them."""

tools = Toolset(
    "fuzzed",
    description="Tools that say what they were given",
    caller_secrets=os.environ.get("FUZZ_CALLER_SECRET"),
    oauth=[
        OAuthProvider(
            "nowhere",
            authorize_url=f"{NOBODY}/authorize",
            token_url=f"{NOBODY}/token",
            client_id="fuzzed",
            token_auth="none",
        )
    ],
    # Without a limit on notices, so that every one of them is looked at; and none on strangers but where that is what is tested.
    limits=Limits(notices=None, strangers=float(FEW) if FEW else None),
)


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


@tools.tool
async def ask(
    ctx: Context,
    prompt: str = "Which way?",
    remember: Literal["thread", "user"] | None = None,
    expires_in: float | None = None,
) -> str:
    """Has the user choose."""
    try:
        return await ctx.choose(prompt, ["left", "right"], remember=remember, expires_in=expires_in)
    except ValueError as error:  # a time that is none
        raise ToolError(str(error)) from None


@tools.tool(requires_auth="nowhere")
async def act(ctx: Context) -> str:
    """Needs a consent that nobody can give."""
    return f"a token of {len(await ctx.oauth('nowhere'))} characters"


@tools.tool
async def remind(ctx: Context, text: str) -> list[str | None]:
    """Says what the same thread gave the last time, as its state and its workspace remember it."""
    file = ctx.workspace() / "last"
    before = [ctx.state.get("last"), file.read_text() if file.exists() else None]
    ctx.state["last"] = text
    file.write_text(text)
    return before


@tools.tool
async def keep(ctx: Context, key: str, value: Any = None) -> str:
    """Keeps any JSON under any key."""
    try:
        ctx.state[key] = value
    except (TypeError, ValueError) as error:
        raise ToolError(str(error)) from None
    return json.dumps(ctx.state[key])


@tools.subscription(rate=None)
async def count(ctx: Context, last: int = 1, text: str = "") -> AsyncIterator[Event]:
    """Counts, up to a hundred."""
    for number in range(int(ctx.cursor or 0) + 1, min(last, 100) + 1):
        yield Event(f"{number}{text}", cursor=str(number), final=number == last)


@tools.subscription(rate=None)
async def wait_for_ever(ctx: Context) -> AsyncIterator[str]:
    """Says hello, and is there to be cancelled."""
    yield ctx.thread_id
    await asyncio.Event().wait()


@tools.subscription(topic="news/{topic}", rate=None)
async def news(topic: str, payload: dict[str, Any]) -> Event:
    """Passes on what is emitted."""
    return Event(payload.get("text"), final=payload.get("final") is True)


@tools.webhook("/hooks/github", style="github", secret="env:FUZZ_GITHUB_SECRET")
async def github(delivery: Delivery) -> None:
    await pass_on(delivery)


@tools.webhook("/hooks/stripe", style="stripe", secret="env:FUZZ_STRIPE_SECRET")
async def stripe(delivery: Delivery) -> None:
    await pass_on(delivery)


@tools.webhook("/hooks/standard", style="standard", secret="env:FUZZ_STANDARD_SECRET")
async def standard(delivery: Delivery) -> None:
    await pass_on(delivery)


@tools.webhook("/hooks/own", verify=lambda delivery: delivery.json["password"] == delivery.headers["x-password"])
def own(delivery: Delivery) -> None:
    """Is content."""


async def pass_on(delivery: Delivery) -> None:
    document = delivery.json
    if not isinstance(document, dict) or not isinstance(document.get("topic"), str):
        raise ToolError("The topic is missing.")
    await tools.emit(f"news/{document['topic']}", document, id=delivery.id)
