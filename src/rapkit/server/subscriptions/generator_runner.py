"""Runs a subscription's generator: one event, one commit, and only then is it asked for the next."""

import asyncio
from typing import Any

from rapkit.mailbox import Commit
from rapkit.server.services import ToolsetServices
from rapkit.server.subscriptions.event import Occurrence, occurrences
from rapkit.server.subscriptions.event_publisher import EventPublisher, EventRejected, HandlerFailed, authors
from rapkit.server.subscriptions.generator_steps import DONE, GeneratorSteps, Outcome, steps_of
from rapkit.server.subscriptions.subscription_context import SubscriptionContext
from rapkit.server.tools.handler import bound, unexpected
from rapkit.server.tools.tool import Tool

_FIRST_PAUSE = 0.125
_WORTH_TELLING = 4.0
_LONGEST_PAUSE = 32.0
_GOT_ON_AFTER = 60.0
_PATIENCE_WITH_CLOSED = 3.0
_ENDED = "The subscription has ended."


class GeneratorReleased(Exception):
    """The claim has ended while the generator runs: it is suspended, or the store has failed."""


class GeneratorRunner:
    """One run of a generator under a hold."""

    def __init__(
        self, premises: ToolsetServices, telling: EventPublisher, tool: Tool, workplace: SubscriptionContext
    ) -> None:
        self._threads = premises.threads
        self._clock = premises.clock
        self._telling = telling
        self._signature = tool.signature
        self._workplace = workplace
        troubled = telling.lost or telling.standing.failures or telling.standing.losses
        self._got_on_at = self._clock.now() + _GOT_ON_AFTER if troubled and telling.standing.confirmed else None
        self._confirm_at: float | None = None
        if not telling.standing.confirmed and telling.traits.confirm_after is not None:
            self._confirm_at = self._clock.now() + telling.traits.confirm_after

    async def run(self) -> None:
        """Until it has ended or failed, and our hold with it. Raises `Fenced`, and other errors of the store."""
        telling = self._telling
        try:
            await self._tell_all()
        except GeneratorReleased:
            if telling.failure is not None:
                raise telling.failure from None
            telling.log("is suspended: it waits for the user")
        except EventRejected as refused:
            await telling.refuse(refused.error)
        except HandlerFailed as broke:
            if telling.failure is not None:
                raise telling.failure from broke
            if not telling.standing.confirmed:
                await telling.fail(unexpected(telling.standing.message, broke.error), workplace=self._workplace)
                return
            await telling.failed(broke.error)

    async def _tell_all(self) -> None:
        telling, workplace = self._telling, self._workplace
        steps = await authors(self._start())
        telling.log("started")
        try:
            while not telling.standing.ended:
                await self._wait_for_room()
                events, changes = await authors(self._find(await self._next(steps)))
                if events:
                    await telling.tell(events, workplace, changes=changes)
                    if workplace.context is not None:
                        workplace.context.cursor = telling.standing.cursor
        finally:
            # Before the hold is let go, so that nobody starts it again while it still runs.
            await self._close(steps)
            await workplace.close()

    async def _start(self) -> GeneratorSteps:
        arguments = bound(self._signature, self._telling.standing.message, self._workplace.context)
        return steps_of(self._signature, arguments, self._threads)

    async def _find(self, value: Any) -> tuple[list[Occurrence], Commit]:
        """The events in what was yielded, and what the generator has changed in its thread's state."""
        associative = self._telling.traits.associative
        if value is DONE:
            return [Occurrence(_ENDED, None, associative, final=True)], self._workplace.changes()
        events = occurrences(value, associative)
        return events, self._workplace.changes() if events else Commit()

    async def _wait_for_room(self) -> None:
        """Not to be in a hurry is no trouble, and common where events are faster than their rate."""
        pause = _FIRST_PAUSE
        while not await self._telling.has_room():
            if _WORTH_TELLING <= pause < 2 * _WORTH_TELLING:
                self._telling.log("is paused: its events do not get through", warn=True)
            await self._clock.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        if pause > _WORTH_TELLING:
            self._telling.log("goes on: its events get through")

    async def _next(self, steps: GeneratorSteps) -> Any:
        """What the generator yields next. Meanwhile what has its time is done."""
        asked = steps.ask()
        while not asked.done():
            await self._wait(asked)
            if self._telling.released.done():
                raise GeneratorReleased
            if not asked.done():
                await self._do_chores()
        return await authors(_value(asked))

    async def _wait(self, asked: "asyncio.Future[Outcome]") -> None:
        at = self._next_chore()
        either: set[asyncio.Future[Any]] = {asked, self._telling.released}
        if at is None:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            return
        sleep = asyncio.ensure_future(self._clock.sleep(max(0.0, at - self._clock.now())))
        either.add(sleep)
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()

    def _next_chore(self) -> float | None:
        flush_at = self._telling.outflow.flush_at(self._telling.standing, self._clock.now())
        return min((at for at in (flush_at, self._got_on_at, self._confirm_at) if at is not None), default=None)

    async def _do_chores(self) -> None:
        now, telling = self._clock.now(), self._telling
        flush_at = telling.outflow.flush_at(telling.standing, now)
        if flush_at is not None and flush_at <= now:
            await telling.flush()
        if self._confirm_at is not None and self._confirm_at <= now:
            self._confirm_at = None
            await telling.confirm()
            self._got_on_at = now + _GOT_ON_AFTER
        if self._got_on_at is not None and self._got_on_at <= now:
            self._got_on_at = None
            await telling.got_on()

    async def _close(self, steps: GeneratorSteps) -> None:
        """End the generator where it stands, and wait for it: not for ever, because it may not want to."""
        closing = steps.close()
        await asyncio.wait({closing}, timeout=_PATIENCE_WITH_CLOSED)
        if not closing.done():
            self._telling.log("does not stop; it goes on unheard", warn=True)
        elif not closing.cancelled() and (error := closing.exception()) is not None:
            self._telling.log("failed when it was ended", error)


async def _value(asked: "asyncio.Future[Outcome]") -> Any:
    value, error = asked.result()
    if error is not None:
        raise error
    return value
