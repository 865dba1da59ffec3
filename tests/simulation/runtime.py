"""The runtime: it calls, cancels, closes, answers for its users, and sends again what got no answer."""

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any

from tests.simulation.observed_history import Did, Exchange, Kind, Message, ObservedHistory
from tests.simulation.scenario import Act, Answer, Moment, Part, Scenario
from tests.simulation.server import NoAnswer, Server

_OK, _UNAVAILABLE = 200, 503
_PATIENCE = 0.3
_MOST_ATTEMPTS = 200


class Runtime:
    """Plays its part in the plots, against a server that may be lost at any moment."""

    def __init__(self, seed: str, stories: Mapping[str, ObservedHistory], plots: Mapping[str, Scenario]) -> None:
        self._dice = Random(f"{seed}/runtime")
        self._stories = stories
        self._plots = plots
        self._questions: set[str] = set()
        self._answering: set[asyncio.Task[None]] = set()
        self.server: Server | None = None

    # What it does

    async def play(self, plot: Scenario) -> None:
        """Everything of a plot, each thing at its moment."""
        story = self._stories[plot.thread]
        async with asyncio.TaskGroup() as group:
            for part in plot.parts:
                group.create_task(self._call(story, part))
                if part.emits:
                    group.create_task(self._emit(story, part))
            for act in plot.acts:
                group.create_task(self._act(story, plot, act))

    async def _call(self, story: ObservedHistory, part: Part) -> None:
        await self.at(part.moment, story)
        await self._send_until_accepted(story, "invocation", part.id, "/invoke", _invocation(story.thread, part))

    async def _emit(self, story: ObservedHistory, part: Part) -> None:
        """From before the subscription is there, until after."""
        await asyncio.sleep(max(0.0, part.moment.delay + self._dice.uniform(-0.02, 0.05)))
        for number, emit in enumerate(part.emits, start=1):
            await asyncio.sleep(emit.pause)
            payload = {"number": number, "does": emit.does}
            for _ in range(_MOST_ATTEMPTS):
                exchange = self._ask(story, "emit", part.id, number)
                try:
                    await self._living().emit(f"topics/{_topic(story.thread, part)}", payload, str(number))
                except NoAnswer:
                    self._unanswered(story, exchange)
                    await self._pause()
                else:
                    self._answered(story, exchange, _OK)
                    break

    async def _act(self, story: ObservedHistory, plot: Scenario, act: Act) -> None:
        await self.at(act.moment, story)
        match act.what:
            case "cancel":
                await self.cancel(story, act.call)
            case "close":
                await self.close(story)
            case "repeat":
                part = next(part for part in plot.parts if part.id == act.call)
                await self._send(story, "invocation", part.id, "/invoke", _invocation(story.thread, part))

    async def cancel(self, story: ObservedHistory, call: str) -> bool:
        """Say once that a call is not wanted any more; whether that was acknowledged."""
        notice = {"thread_id": story.thread, "tool_call_id": call}
        return await self._send(story, "cancel", call, "/cancel_tool_call", notice) == _OK

    async def close(self, story: ObservedHistory) -> bool:
        """Say once that a thread is closed; whether that was acknowledged."""
        return await self._send(story, "close", None, "/close_thread", {"thread_id": story.thread}) == _OK

    def heard(self, message: Message) -> None:
        """A message was taken. A question is passed on to the user, once."""
        if message.kind is not Kind.QUESTION or message.id in self._questions:
            return
        self._questions.add(message.id)
        part = next(part for part in self._plots[message.thread].parts if part.id == message.call)
        for answer in part.answers:
            task = asyncio.create_task(self._answer(message, answer))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _answer(self, message: Message, answer: Answer) -> None:
        await asyncio.sleep(answer.pause)
        url, made = message.body["response_url"], {"id": message.call, "selected": answer.selected}
        await self._send_until_accepted(
            self._stories[message.thread], "answer", message.call, url, made, answer.selected
        )

    async def at(self, moment: Moment, story: ObservedHistory, patience: float = _PATIENCE) -> None:
        """Wait for a moment; if it does not come, not for ever."""
        if moment.did is not None:
            await story.until(moment.did, moment.what, moment.call, patience)
        await asyncio.sleep(moment.delay)

    # How it does it

    async def _send_until_accepted(
        self, story: ObservedHistory, what: str, call: str, path: str, message: object, more: object = None
    ) -> None:
        for _ in range(_MOST_ATTEMPTS):
            status = await self._send(story, what, call, path, message, more)
            if status not in (None, _UNAVAILABLE):
                return
            await self._pause()

    async def _send(
        self, story: ObservedHistory, what: str, call: str | None, path: str, message: object, more: object = None
    ) -> int | None:
        exchange = self._ask(story, what, call, more)
        if self._dice.random() < 0.5:
            await asyncio.sleep(self._dice.uniform(0, 0.006))  # on its way
        try:
            reply = await self._living().request(path, message)
        except NoAnswer:
            self._unanswered(story, exchange)
            return None
        self._answered(story, exchange, reply.status)
        return reply.status

    def _ask(self, story: ObservedHistory, what: str, call: str | None, more: object) -> Exchange:
        about = "" if more is None else str(more)
        exchange = Exchange(what, call, more, story.note(Did.ASKED, what, call, about))
        story.exchanges.append(exchange)
        return exchange

    def _answered(self, story: ObservedHistory, exchange: Exchange, status: int) -> None:
        exchange.status = status
        did = Did.ACKNOWLEDGED if status == _OK else Did.REFUSED
        about = str(status) if exchange.more is None else f"{exchange.more} {status}"
        exchange.answered = story.note(did, exchange.what, exchange.call, about)

    def _unanswered(self, story: ObservedHistory, exchange: Exchange) -> None:
        story.note(Did.UNANSWERED, exchange.what, exchange.call)

    def _living(self) -> Server:
        assert self.server is not None
        return self.server

    async def _pause(self) -> None:
        await asyncio.sleep(self._dice.uniform(0.005, 0.1))


def _topic(thread: str, part: Part) -> str:
    return f"{thread}-{part.id}"


def _invocation(thread: str, part: Part) -> dict[str, Any]:
    arguments: dict[str, Any] = {"script": list(part.script)}
    if part.operation == "topical":
        arguments = {"name": _topic(thread, part)}
    elif part.asks:
        arguments["expires"] = part.expires
    return {
        "operation": part.operation,
        "arguments": arguments,
        "id": part.id,
        "group_id": thread,
        # An origin for each thread, because the outbox sender is careful with origins that do not answer.
        "callback_url": f"http://{thread}.test/{part.id}",
    }
