"""People who talk to an agent: they ask for several things at once, interrupt, choose, change their minds and leave."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from tests.crash.runtime.client import Client, Glance
from tests.crash.runtime.model import command

_PATIENCE = 5.0
_LOOK_EVERY = 0.1
_ENDLESS = 1_000_000
Call = tuple[str, dict[str, Any]]


class Conversation:
    """One thread, and who talks in it. What is random in it follows from `random` and from what the thread does."""

    def __init__(self, name: str, client: Client, random: random.Random) -> None:
        self._name = name
        self._client = client
        self._random = random
        self._said = 0
        self._keys = 0
        self._id = ""
        self._unending: set[str] = set()
        """Keys of what ends only if somebody ends it."""
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True

    async def run(self) -> None:
        """Talk until stopped, then see to it that everything can come to an end."""
        await self._begin()
        turns: tuple[Callable[[], Awaitable[None]], ...] = (
            self._ask_for_calls,
            self._interrupt,
            self._subscribe,
            self._choose,
            self._cancel_a_call,
            self._cancel_a_subscription,
        )
        while not self._stopped:
            await self._random.choices(turns, (4, 2, 2, 2, 1, 1))[0]()
            if self._random.random() < 0.5:
                await self._until(lambda glance: not glance.pending)
            await asyncio.sleep(self._random.uniform(0.1, 0.8))
        await self._end()

    # Saying something

    async def _begin(self) -> None:
        self._id = await self._client.create(self._name, command(f"{self._name}#0"))

    async def _say(self, *calls: Call) -> None:
        self._said += 1
        say = f"{self._name}#{self._said}"
        await self._client.send(self._id, say, command(say, *calls))

    def _key(self) -> str:
        self._keys += 1
        return f"{self._name}.{self._keys}"

    def _tool(self, name: str, **arguments: Any) -> Call:
        return self._random.choice("ab") + "_" + name, {"key": self._key(), **arguments}

    def _some_call(self) -> Call:
        name = self._random.choices(("put", "pay", "chain", "refuse", "paint"), (4, 3, 2, 1, 1))[0]
        if name == "chain":
            return self._tool(name, left=self._random.randint(0, 2))
        if name == "paint":
            return self._tool(name)
        return self._tool(name, seconds=round(self._random.choice((0.0, 0.05, 0.3)), 3))

    # What they do

    async def _ask_for_calls(self) -> None:
        await self._say(*(self._some_call() for _ in range(self._random.randint(1, 3))))

    async def _interrupt(self) -> None:
        await self._say(self._tool("put", seconds=1.0), self._tool("pay", seconds=0.7))
        await asyncio.sleep(self._random.uniform(0.0, 0.6))
        await self._say(*(self._some_call() for _ in range(self._random.randint(0, 1))))

    async def _subscribe(self) -> None:
        name, last = self._random.choice((("count", 5), ("apart", 3)))
        await self._say(self._tool(name, last=last, pause=round(self._random.uniform(0.0, 0.15), 3)))

    async def _choose(self) -> None:
        call = self._tool("ask")
        key = call[1]["key"]
        await self._say(call)
        glance = await self._until(lambda glance: key in _asking(glance))
        for call_id in _asking(glance).get(key, ()):
            await self._client.choose(self._id, call_id, self._random.choice((0, 1, None)), f"choose/{key}")

    async def _cancel_a_call(self) -> None:
        await self._cancel(self._tool("hold"), "cancel_tool_call")

    async def _cancel_a_subscription(self) -> None:
        name = self._random.choice(("count", "apart"))
        await self._cancel(self._tool(name, last=_ENDLESS, pause=0.2), "cancel_subscription")

    async def _cancel(self, call: Call, builtin: str) -> None:
        """As the user, or by asking the model to."""
        key = call[1]["key"]
        self._unending.add(key)
        await self._say(call)
        kind = self._random.choice(("as soon as it is made", "when it is known"))
        glance = await self._until(lambda glance: key in (_all(glance) if "made" in kind else _known(glance, builtin)))
        await asyncio.sleep(self._random.uniform(0.0, 0.5))
        for call_id in [id for id, each in {**glance.pending, **glance.subscriptions}.items() if each == key]:
            if self._random.random() < 0.5:
                await self._client.cancel(self._id, call_id, f"cancel/{key}")
            else:
                await self._say((builtin, {"tool_call_id": call_id}))

    async def _end(self) -> None:
        if self._random.random() < 0.3:
            await self._client.close(self._id, f"close/{self._name}")
            return
        while True:
            glance = await self._client.look(self._id)
            left = {id: key for id, key in {**glance.pending, **glance.subscriptions}.items() if key in self._unending}
            if not left and not glance.choices and glance.status != "running":
                return
            for call_id, key in left.items():
                await self._client.cancel(self._id, call_id, f"end/{key}/{self._random.random()}")
            for call_id in glance.choices:
                await self._client.choose(self._id, call_id, 0, f"end/{call_id}/{self._random.random()}")
            await asyncio.sleep(_LOOK_EVERY)

    async def _until(self, wanted: Callable[[Glance], bool]) -> Glance:
        """Look until it is so, or for a while."""
        glance = await self._client.look(self._id)
        for _ in range(int(_PATIENCE / _LOOK_EVERY)):
            if wanted(glance) or self._stopped:
                break
            await asyncio.sleep(_LOOK_EVERY)
            glance = await self._client.look(self._id)
        return glance


def _asking(glance: Glance) -> dict[str, list[str]]:
    return {glance.pending.get(call_id, ""): [call_id] for call_id in glance.choices}


def _all(glance: Glance) -> list[str]:
    return [*glance.pending.values(), *glance.subscriptions.values()]


def _known(glance: Glance, builtin: str) -> list[str]:
    return list((glance.pending if builtin == "cancel_tool_call" else glance.subscriptions).values())
