"""People who talk to an agent: they ask for several things at once, interrupt, choose, answer, change their minds and leave.

They have it sleep, begin child threads and make calls that come too late, and let some of its questions go unanswered.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from tests.crash.runtime.client import Asked, Client, Glance
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
            self._have_it_sleep,
            self._ask_for_what_comes_late,
            self._ask_for_what_must_be_permitted,
            self._have_it_ask,
            self._have_it_spawn,
            self._tend_a_child,
        )
        while not self._stopped:
            await self._random.choices(turns, (3, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2))[0]()
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
        await self._say(call)
        await self._decide_on(call[1]["key"])

    async def _have_it_sleep(self) -> None:
        # No two are the same, so that none can be taken for another.
        seconds = round(self._random.uniform(0.2, 1.3), 2) + int(self._key().rpartition(".")[2]) / 1e6
        until = datetime.fromtimestamp(time.time() + 1 + seconds, UTC).isoformat()
        call = self._random.choice(
            (
                ("sleep", {"seconds": seconds}),
                ("sleep_until", {"time": until}),
                ("wait_for_event", {"at_most_seconds": seconds}),
            )
        )
        await self._say(call)
        if self._random.random() < 0.4:
            await asyncio.sleep(self._random.uniform(0.0, seconds))
            await self._say(*(self._some_call() for _ in range(self._random.randint(0, 1))))

    async def _ask_for_what_comes_late(self) -> None:
        seconds = self._random.choices((0.0, 0.4, 0.8, 3.0), (1, 2, 4, 1))[0]
        await self._say(self._tool("late", seconds=seconds), *(self._some_call() for _ in range(1)))

    async def _ask_for_what_must_be_permitted(self) -> None:
        call = self._tool("wipe")
        await self._say(call)
        if self._random.random() < 0.9:  # else the time for it runs out
            await self._decide_on(call[1]["key"])

    async def _have_it_ask(self) -> None:
        question = f"What now, {self._key()}?"
        choices = self._random.choice(((), ("Go on", "Stop")))
        await self._say(("ask_user", {"question": question, "choices": list(choices)}))
        how = self._random.random()
        if how < 0.8:
            await self._decide_on(question)
        elif how < 0.9:
            await self._until(lambda glance: question in _asking(glance))
            await self._say()

    async def _have_it_spawn(self) -> None:
        await self._say(("spawn_thread", {"task": command(self._key(), *self._part_of_a_task())}))
        await self._until(lambda glance: bool(glance.children))

    def _part_of_a_task(self) -> list[Call]:
        """Something to do in a child, which is done then, or waits for more."""
        last = ("a_put", {"key": f"{self._key()}~", "seconds": 0.05})
        calls = self._random.choice(
            (
                [last],
                [last],
                [self._some_call(), self._report("as far as"), self._report("and also")],
                [("sleep", {"seconds": 0.5 + int(self._key().rpartition(".")[2]) / 1e6})],
                [self._tool("wipe"), self._tool("late", seconds=0.8)],
                [("spawn_thread", {"task": command(self._key(), last)})],
                [self._report("no more than", done=True), self._some_call()],
            )
        )
        return list(calls)

    def _report(self, text: str, **more: bool) -> Call:
        return "report_to_parent", {"text": f"{text} {self._key()}", **more}

    async def _tend_a_child(self) -> None:
        """Answer what it asks; or tell it something, or have it closed."""
        glance = await self._client.look(self._id)
        if not glance.children:
            return
        child = self._random.choice(glance.children)
        seen = await self._client.look(child)
        for call_id, asked in seen.choices.items():
            await self._decide(child, call_id, asked)
        how = self._random.random()
        if not seen.has_task or seen.choices or how < 0.2:
            return
        if how < 0.6:
            text = command(self._key(), *self._part_of_a_task())
            await self._say(("send_message_to_child", {"thread_id": child, "text": text}))
        elif how < 0.8:
            await self._say(("close_thread", {"thread_id": child}))
        else:
            await self._client.close(child, f"close/{child}")

    async def _decide_on(self, key: str) -> None:
        """Answer a question when it is asked."""
        glance = await self._until(lambda glance: key in _asking(glance))
        for call_id in _asking(glance).get(key, ()):
            await self._decide(self._id, call_id, glance.choices[call_id])

    async def _decide(self, thread: str, call_id: str, asked: Asked) -> None:
        """Answer a question in one of the ways that there are; now and then two people do."""
        people = 2 if self._random.random() < 0.15 else 1
        await asyncio.gather(*(self._answer(thread, call_id, asked) for _ in range(people)))

    async def _answer(self, thread: str, call_id: str, asked: Asked) -> None:
        key = self._key()
        if asked.in_words and (not asked.choices or self._random.random() < 0.5):
            await self._client.answer(thread, call_id, f"in words {key}", key)
        else:
            selected = self._random.choice((*range(len(asked.choices)), *range(len(asked.choices)), None))
            await self._client.choose(thread, call_id, selected, key)

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
        while not await self._has_ended(self._id):
            await asyncio.sleep(_LOOK_EVERY)

    async def _has_ended(self, thread: str) -> bool:
        """Whether a thread and all its children have come to an end; what needs somebody for that is done."""
        glance = await self._client.look(thread)
        ended = all([await self._has_ended(child) for child in glance.children])
        if glance.status == "closed":
            return ended
        left = {id: key for id, key in {**glance.pending, **glance.subscriptions}.items() if key in self._unending}
        for call_id, key in left.items():
            await self._client.cancel(thread, call_id, f"end/{key}/{self._random.random()}")
        for call_id, asked in glance.choices.items():
            await self._decide(thread, call_id, asked)
        if glance.has_task:
            await self._client.close(thread, f"close/{thread}")
        if thread != self._id:
            return False
        return not (left or glance.choices or glance.children or glance.status == "running")

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
