"""The toolset whose handlers do what a script says."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from random import Random
from typing import Any

from rapkit import Context, Event, ToolError, Toolset
from rapkit.server.limits import Limits
from tests.simulation.scenario import CHOICES, EXPIRES, QUESTION

Key = tuple[str, str]


class Handlers:
    """What the handlers have done in this world, whatever the server knows of it. `breaches` is what must not have happened."""

    def __init__(self, seed: str) -> None:
        self.effects: Counter[Key] = Counter()
        self.runs: Counter[Key] = Counter()
        self.at_work: Counter[Key] = Counter()
        self.breaches: list[tuple[Key, str]] = []
        self._dice = Random(f"{seed}/handlers")
        self._stumbled: set[tuple[str, str, int]] = set()

    def begin(self, key: Key, *, alone: bool = True) -> None:
        """A handler is called."""
        self.runs[key] += 1
        self.at_work[key] += 1
        if alone and self.at_work[key] > 1:
            self.breaches.append((key, "runs twice at the same time"))

    def end(self, key: Key) -> None:
        """A handler has ended, somehow."""
        self.at_work[key] -= 1

    async def pause(self) -> None:
        """Give others the chance to do something."""
        await asyncio.sleep(self._dice.choice((0.0, self._dice.uniform(0, 0.005), self._dice.uniform(0, 0.04))))

    async def work(self) -> None:
        """Take some time, in which much can happen."""
        await asyncio.sleep(self._dice.uniform(0.01, 0.15))

    def stumbles(self, key: Key, position: int) -> bool:
        """Whether it is the first time that anybody comes this way."""
        place = (*key, position)
        first = place not in self._stumbled
        self._stumbled.add(place)
        return first


def make_tools(handlers: Handlers) -> Toolset:
    """The toolset."""
    tools = Toolset("simulated", store="sqlite:///:memory:", limits=Limits(notices=None, strangers=None))
    _add_generators(tools, handlers)
    _add_topic(tools, handlers)
    _add_calls(tools, handlers)
    return tools


def _add_generators(tools: Toolset, handlers: Handlers) -> None:
    async def numbered(script: list[str], ctx: Context) -> AsyncIterator[Event | list[Event]]:
        """Numbers, each with a cursor."""
        key = (ctx.thread_id, ctx.call_id)
        handlers.begin(key)
        try:
            begin = int(ctx.cursor or 0)
            number = sum(_events(word) for word in script[:begin])
            for position, word in enumerate(script[begin:], start=begin):
                after = str(position + 1)
                match word:
                    case "event":
                        number += 1
                        yield Event(str(number), cursor=after)
                    case "pair":
                        number += 2
                        yield [Event(str(number - 1)), Event(str(number), cursor=after)]
                    case "checkpoint":
                        await ctx.checkpoint(after)
                    case "final":
                        yield Event("end", cursor=after, final=True)
                        handlers.breaches.append((key, "was asked to go on after its final event"))
                    case _:
                        await _do(word, position, ctx, handlers)
        finally:
            handlers.end(key)

    tools.subscription(name="numbered")(numbered)
    tools.subscription(name="paced", rate=2)(numbered)
    tools.subscription(name="batched", rate=1, batch=True)(numbered)

    @tools.subscription
    async def restless(script: list[str], ctx: Context) -> AsyncIterator[str]:
        """Numbers without a cursor: whoever starts it again hears all of it again."""
        key = (ctx.thread_id, ctx.call_id)
        handlers.begin(key)
        run, number = handlers.runs[key], 0
        try:
            for position, word in enumerate(script):
                if word in ("event", "pair"):
                    number += 1
                    yield f"{run}/{number}"
                elif word != "final":
                    await _do(word, position, ctx, handlers)
        finally:
            handlers.end(key)


def _events(word: str) -> int:
    return {"event": 1, "pair": 2}.get(word, 0)


async def _do(word: str, position: int, ctx: Context, handlers: Handlers) -> None:
    key = (ctx.thread_id, ctx.call_id)
    match word:
        case "pause":
            await handlers.pause()
        case "work":
            await handlers.work()
        case "view":
            await ctx.progress(position)
        case "keep":
            ctx.state["position"] = position
        case "break":
            if handlers.stumbles(key, position):
                raise RuntimeError("it stumbles, the first time")
        case "refuse":
            raise ToolError("it does not want to")
        case "stay":
            await asyncio.Event().wait()


def _add_topic(tools: Toolset, handlers: Handlers) -> None:
    @tools.subscription(topic="topics/{name}")
    async def topical(name: str, payload: dict[str, Any], ctx: Context) -> Event | list[Event] | None:
        """Tells what is emitted."""
        key, number = (ctx.thread_id, ctx.call_id), payload["number"]
        handlers.begin(key)
        try:
            await handlers.pause()
            match payload["does"]:
                case "nothing":
                    return None
                case "two":
                    return [Event(f"{number}a"), Event(f"{number}b")]
                case "final":
                    return Event(f"{number}", final=True)
                case "refuse":
                    raise ToolError("it does not want to")
                case "stumble" if handlers.stumbles(key, number):
                    raise RuntimeError("it stumbles, the first time")
                case "break":
                    raise RuntimeError("it always does")
            return Event(f"{number}")
        finally:
            handlers.end(key)


def _add_calls(tools: Toolset, handlers: Handlers) -> None:
    async def work(script: list[str], ctx: Context) -> str:
        """Work."""
        return await _work(script, ctx, handlers)

    async def ask(script: list[str], expires: bool, ctx: Context) -> str:
        """Ask, then work."""
        # Whoever asks is interrupted, and called again when the answer is there: perhaps before it has noticed.
        await handlers.pause()
        chosen = await ctx.choose(QUESTION, CHOICES, expires_in=EXPIRES if expires else None)
        return f"{chosen} {await _work(script, ctx, handlers)}"

    tools.tool(name="work")(work)
    tools.tool(name="work_again", idempotent=True)(work)
    tools.tool(name="ask")(ask)
    tools.tool(name="ask_again", read_only=True)(ask)


async def _work(script: list[str], ctx: Context, handlers: Handlers) -> str:
    key = (ctx.thread_id, ctx.call_id)
    handlers.begin(key)
    try:
        for position, word in enumerate(script):
            if word == "effect":
                handlers.effects[key] += 1
            elif word == "break":
                raise RuntimeError("it does not work")
            else:
                await _do(word, position, ctx, handlers)
        return "done"
    finally:
        handlers.end(key)
