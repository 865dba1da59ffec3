"""Run a topic subscription's function on emitted payloads: one payload, one commit, in order."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pydantic_core import from_json

from rapkit.mailbox import Claim, Commit, Mail
from rapkit.server.resources.thread_resources import Resources
from rapkit.server.services import ToolsetServices
from rapkit.server.subscriptions.event import Occurrence, to_occurrences
from rapkit.server.subscriptions.event_publisher import (
    FLUSH,
    EventPublisher,
    EventRejected,
    HandlerFailed,
    await_author,
    backoff,
)
from rapkit.server.subscriptions.subscription_context import SubscriptionContext
from rapkit.server.subscriptions.topics import EVENT
from rapkit.server.tools.handler import bind_arguments, call_function
from rapkit.server.tools.tool import PAYLOAD, Tool

_MOST_RUNS = 3
_LONGEST_PAUSE = 60.0
_WORTH_TELLING = 4


class TopicRunner:
    """Handles the mail of one claim. `places` limits the functions that run at once; `at_work` is called with each context."""

    def __init__(
        self,
        services: ToolsetServices,
        resources: Resources,
        publisher: EventPublisher,
        tool: Tool,
        places: asyncio.Semaphore,
        at_work: Callable[[SubscriptionContext], None],
    ) -> None:
        self._services = services
        self._resources = resources
        self._publisher = publisher
        self._tool = tool
        self._places = places
        self._at_work = at_work

    async def run(self, claim: Claim) -> None:
        """Run until the mail is handled, and the claim has ended. Raises `Fenced`, and other errors of the store."""
        publisher, mail = self._publisher, list(claim.mail)
        if (pause := publisher.sub_state.retry_at - self._services.clock.now()) > 0:
            await publisher.put_off(
                publisher.sub_state, pause, charge=True
            )  # more mail has woken us, and it is too early
            return
        if mail and publisher.lost >= _MOST_RUNS:
            # The store hands out mail one by one by now, so this is the one that does it.
            poison = mail.pop(0)
            await publisher.set_aside(poison.seq, f"the server was lost {publisher.lost} times on it", keep=True)
        if FLUSH in claim.timers:
            await publisher.flush()
        for number, new_mail in enumerate(mail, start=1):
            if not await publisher.has_room():
                await self._pause()
                return
            if not await self._handle(new_mail, keep=number < len(mail)):
                return
        if not mail:
            await publisher.claimed_box.commit(Commit())

    async def _pause(self) -> None:
        """Leave the mail unread for a while, longer every time."""
        publisher = self._publisher
        if publisher.attempts == _WORTH_TELLING:
            publisher.log("is paused: its events do not get through", warn=True)
        await publisher.put_off(publisher.sub_state, min(backoff(publisher.attempts), _LONGEST_PAUSE), charge=True)

    async def _handle(self, new_mail: Mail, *, keep: bool) -> bool:
        """Whether to go on with the next."""
        publisher = self._publisher
        sub_context = await SubscriptionContext.open(
            self._services,
            self._resources,
            publisher.claimed_box,
            self._tool,
            publisher.sub_state,
            publisher.checkpoint,
        )
        self._at_work(sub_context)
        try:
            events, changes = await await_author(self._hear(new_mail, sub_context))
        except EventRejected as refused:
            await publisher.refuse(refused.error, consumed=[new_mail.seq])
            return False
        except HandlerFailed as broke:
            return await self._failed(new_mail, broke.error, keep=keep)
        finally:
            await sub_context.close()
        await publisher.publish(events, sub_context, changes=changes, consumed=[new_mail.seq], keep=keep)
        return not publisher.sub_state.ended

    async def _hear(self, new_mail: Mail, sub_context: SubscriptionContext) -> tuple[list[Occurrence], Commit]:
        """The events of one mail, and what the function has changed in its thread's state."""
        if new_mail.kind != EVENT:
            return [], Commit()
        signature = self._tool.signature
        arguments: dict[str, Any] = bind_arguments(signature, self._publisher.sub_state.message, sub_context.context)
        async with self._places, self._services.clock.timeout(self._tool.traits.timeout):
            told = await call_function(
                signature, {**arguments, PAYLOAD: from_json(new_mail.body)}, self._services.thread_pool
            )
        return to_occurrences(told, self._publisher.traits.associative), sub_context.changes()

    async def _failed(self, new_mail: Mail, error: BaseException, *, keep: bool) -> bool:
        publisher = self._publisher
        failures = publisher.sub_state.failures + 1
        if failures >= _MOST_RUNS:
            publisher.log("failed on an event of its topic", error)
            await publisher.set_aside(new_mail.seq, f"it failed {failures} times: {type(error).__name__}", keep=keep)
            return True
        seconds = backoff(failures)
        publisher.log(f"failed on an event of its topic, which is tried again in {seconds:g} s", error)
        retry_at = self._services.clock.now() + seconds
        await publisher.put_off(
            replace(publisher.sub_state, failures=failures, retry_at=retry_at), seconds, charge=True
        )
        return False
