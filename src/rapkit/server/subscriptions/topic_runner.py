"""Handles what was emitted to a subscription's topic: one payload, one commit, in order."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pydantic_core import from_json

from rapkit.mailbox import Claim, Commit, Mail
from rapkit.server.resources.thread_resources import Resources
from rapkit.server.services import ToolsetServices
from rapkit.server.subscriptions.event import Occurrence, occurrences
from rapkit.server.subscriptions.event_publisher import (
    FLUSH,
    EventPublisher,
    EventRejected,
    HandlerFailed,
    authors,
    backoff,
)
from rapkit.server.subscriptions.subscription_context import SubscriptionContext
from rapkit.server.subscriptions.topics import EVENT
from rapkit.server.tools.handler import bound, invoke
from rapkit.server.tools.tool import PAYLOAD, Tool

_MOST_RUNS = 3
_LONGEST_PAUSE = 60.0
_WORTH_TELLING = 4


class TopicRunner:
    """The mail of one claim, handled. `places` are for functions that run at once; `at_work` hears of each workplace."""

    def __init__(
        self,
        premises: ToolsetServices,
        resources: Resources,
        telling: EventPublisher,
        tool: Tool,
        places: asyncio.Semaphore,
        at_work: Callable[[SubscriptionContext], None],
    ) -> None:
        self._premises = premises
        self._resources = resources
        self._telling = telling
        self._tool = tool
        self._places = places
        self._at_work = at_work

    async def run(self, claim: Claim) -> None:
        """Until the mail is handled, and our hold has ended. Raises `Fenced`, and other errors of the store."""
        telling, mail = self._telling, list(claim.mail)
        if (pause := telling.standing.retry_at - self._premises.clock.now()) > 0:
            await telling.put_off(telling.standing, pause, charge=True)  # more mail has woken us, and it is too early
            return
        if mail and telling.lost >= _MOST_RUNS:
            # The store hands out letters one by one by now, so this is the one that does it.
            poison = mail.pop(0)
            await telling.set_aside(poison.seq, f"the server was lost {telling.lost} times on it", keep=True)
        if FLUSH in claim.timers:
            await telling.flush()
        for number, letter in enumerate(mail, start=1):
            if not await telling.has_room():
                await self._pause()
                return
            if not await self._handle(letter, keep=number < len(mail)):
                return
        if not mail:
            await telling.hold.commit(Commit())

    async def _pause(self) -> None:
        """Leave the mail unread for a while, longer every time."""
        telling = self._telling
        if telling.attempts == _WORTH_TELLING:
            telling.log("is paused: its events do not get through", warn=True)
        await telling.put_off(telling.standing, min(backoff(telling.attempts), _LONGEST_PAUSE), charge=True)

    async def _handle(self, letter: Mail, *, keep: bool) -> bool:
        """Whether to go on with the next."""
        telling = self._telling
        workplace = await SubscriptionContext.open(
            self._premises, self._resources, telling.hold, self._tool, telling.standing, telling.checkpoint
        )
        self._at_work(workplace)
        try:
            events, changes = await authors(self._hear(letter, workplace))
        except EventRejected as refused:
            await telling.refuse(refused.error, consumed=[letter.seq])
            return False
        except HandlerFailed as broke:
            return await self._failed(letter, broke.error, keep=keep)
        finally:
            await workplace.close()
        await telling.tell(events, workplace, changes=changes, consumed=[letter.seq], keep=keep)
        return not telling.standing.ended

    async def _hear(self, letter: Mail, workplace: SubscriptionContext) -> tuple[list[Occurrence], Commit]:
        """The events of a letter, and what the function has changed in its thread's state."""
        if letter.kind != EVENT:
            return [], Commit()
        signature = self._tool.signature
        arguments: dict[str, Any] = bound(signature, self._telling.standing.message, workplace.context)
        async with self._places, self._premises.clock.timeout(self._tool.traits.timeout):
            told = await invoke(signature, {**arguments, PAYLOAD: from_json(letter.body)}, self._premises.threads)
        return occurrences(told, self._telling.traits.associative), workplace.changes()

    async def _failed(self, letter: Mail, error: BaseException, *, keep: bool) -> bool:
        telling = self._telling
        failures = telling.standing.failures + 1
        if failures >= _MOST_RUNS:
            telling.log("failed on an event of its topic", error)
            await telling.set_aside(letter.seq, f"it failed {failures} times: {type(error).__name__}", keep=keep)
            return True
        seconds = backoff(failures)
        telling.log(f"failed on an event of its topic, which is tried again in {seconds:g} s", error)
        retry_at = self._premises.clock.now() + seconds
        await telling.put_off(replace(telling.standing, failures=failures, retry_at=retry_at), seconds, charge=True)
        return False
