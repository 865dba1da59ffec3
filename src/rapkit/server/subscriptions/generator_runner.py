"""Run a subscription's generator: commit each event before asking for the next."""

import asyncio
from typing import Any

from rapkit.mailbox import Commit
from rapkit.server.services import ToolsetServices
from rapkit.server.subscriptions.event import Occurrence, to_occurrences
from rapkit.server.subscriptions.event_publisher import EventPublisher, EventRejected, HandlerFailed, await_author
from rapkit.server.subscriptions.generator_steps import DONE, GeneratorSteps, Outcome, steps_of
from rapkit.server.subscriptions.subscription_context import SubscriptionContext
from rapkit.server.tools.handler import bind_arguments, unexpected_error
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
    """One run of a generator under a claim."""

    def __init__(
        self, services: ToolsetServices, publisher: EventPublisher, tool: Tool, sub_context: SubscriptionContext
    ) -> None:
        self._thread_pool = services.thread_pool
        self._clock = services.clock
        self._publisher = publisher
        self._signature = tool.signature
        self._workplace = sub_context
        troubled = publisher.lost or publisher.sub_state.failures or publisher.sub_state.losses
        self._got_on_at = self._clock.now() + _GOT_ON_AFTER if troubled and publisher.sub_state.confirmed else None
        self._confirm_at: float | None = None
        if not publisher.sub_state.confirmed and publisher.traits.confirm_after is not None:
            self._confirm_at = self._clock.now() + publisher.traits.confirm_after

    async def run(self) -> None:
        """Run until it has ended or failed, and the claim with it. Raises `Fenced`, and other errors of the store."""
        publisher = self._publisher
        try:
            await self._tell_all()
        except GeneratorReleased:
            if publisher.failure is not None:
                raise publisher.failure from None
            publisher.log("is suspended: it waits for the user")
        except EventRejected as refused:
            await publisher.refuse(refused.error)
        except HandlerFailed as broke:
            if publisher.failure is not None:
                raise publisher.failure from broke
            if not publisher.sub_state.confirmed:
                await publisher.fail(
                    unexpected_error(publisher.sub_state.message, broke.error), sub_context=self._workplace
                )
                return
            await publisher.failed(broke.error)

    async def _tell_all(self) -> None:
        publisher, sub_context = self._publisher, self._workplace
        steps = await await_author(self._start())
        publisher.log("started")
        try:
            while not publisher.sub_state.ended:
                await self._wait_for_room()
                events, changes = await await_author(self._find(await self._next(steps)))
                if events:
                    await publisher.publish(events, sub_context, changes=changes)
                    if sub_context.context is not None:
                        sub_context.context.cursor = publisher.sub_state.cursor
        finally:
            # Before the claim is released, so that no worker starts it again while it still runs.
            await self._close(steps)
            await sub_context.close()

    async def _start(self) -> GeneratorSteps:
        arguments = bind_arguments(self._signature, self._publisher.sub_state.message, self._workplace.context)
        return steps_of(self._signature, arguments, self._thread_pool)

    async def _find(self, value: Any) -> tuple[list[Occurrence], Commit]:
        """The events in what was yielded, and what the generator has changed in its thread's state."""
        associative = self._publisher.traits.associative
        if value is DONE:
            return [Occurrence(_ENDED, None, associative, final=True)], self._workplace.changes()
        events = to_occurrences(value, associative)
        return events, self._workplace.changes() if events else Commit()

    async def _wait_for_room(self) -> None:
        """Not to be in a hurry is no trouble, and common where events are faster than their rate."""
        pause = _FIRST_PAUSE
        while not await self._publisher.has_room():
            if _WORTH_TELLING <= pause < 2 * _WORTH_TELLING:
                self._publisher.log("is paused: its events do not get through", warn=True)
            await self._clock.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        if pause > _WORTH_TELLING:
            self._publisher.log("goes on: its events get through")

    async def _next(self, steps: GeneratorSteps) -> Any:
        """What the generator yields next. Meanwhile what has its time is done."""
        asked = steps.ask()
        while not asked.done():
            await self._wait(asked)
            if self._publisher.released.done():
                raise GeneratorReleased
            if not asked.done():
                await self._do_chores()
        return await await_author(_value(asked))

    async def _wait(self, asked: "asyncio.Future[Outcome]") -> None:
        at = self._next_chore()
        either: set[asyncio.Future[Any]] = {asked, self._publisher.released}
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
        flush_at = self._publisher.batcher.flush_at(self._publisher.sub_state, self._clock.now())
        return min((at for at in (flush_at, self._got_on_at, self._confirm_at) if at is not None), default=None)

    async def _do_chores(self) -> None:
        now, publisher = self._clock.now(), self._publisher
        flush_at = publisher.batcher.flush_at(publisher.sub_state, now)
        if flush_at is not None and flush_at <= now:
            await publisher.flush()
        if self._confirm_at is not None and self._confirm_at <= now:
            self._confirm_at = None
            await publisher.confirm()
            self._got_on_at = now + _GOT_ON_AFTER
        if self._got_on_at is not None and self._got_on_at <= now:
            self._got_on_at = None
            await publisher.record_progress()

    async def _close(self, steps: GeneratorSteps) -> None:
        """End the generator where it stands, and wait for it: not for ever, because it may not want to."""
        closing = steps.close()
        await asyncio.wait({closing}, timeout=_PATIENCE_WITH_CLOSED)
        if not closing.done():
            self._publisher.log("does not stop; it goes on unheard", warn=True)
        elif not closing.cancelled() and (error := closing.exception()) is not None:
            self._publisher.log("failed when it was ended", error)


async def _value(asked: "asyncio.Future[Outcome]") -> Any:
    value, error = asked.result()
    if error is not None:
        raise error
    return value
