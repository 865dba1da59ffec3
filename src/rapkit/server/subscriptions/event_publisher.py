"""Publish the events of a subscription: each in one commit with the state of the subscription after it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import NoReturn, TypeVar

from rapkit.delivery.retry import PostKind
from rapkit.errors import Fenced, StoreError, ToolError
from rapkit.mailbox import Claim, Commit, Outgoing, Timer
from rapkit.protocol import ToolResult, dump
from rapkit.server.call_log import record_call
from rapkit.server.interaction.user_interaction import TooLateToAsk
from rapkit.server.metrics import Ended
from rapkit.server.services import ToolsetServices
from rapkit.server.subscriptions.confirmation import CONFIRMATION
from rapkit.server.subscriptions.event import Occurrence
from rapkit.server.subscriptions.event_batcher import EventBatcher, EventMessage
from rapkit.server.subscriptions.outage import event_lost, given_up, new_reference, outage_began
from rapkit.server.subscriptions.subscription_context import SubscriptionContext
from rapkit.server.subscriptions.subscription_state import SubscriptionState
from rapkit.server.tools.output import BadResult, Output, error_text
from rapkit.server.tools.tool import SubscriptionTraits

T = TypeVar("T")

FLUSH = "flush"
"""The timer by which a topic's batch leaves."""

ENDED = "ended"
"""The status of a subscription whose final event is on its way."""

_LONGEST_BACKOFF = 300.0
_NOTHING = Commit()

log = logging.getLogger("rapkit.subscriptions")


class EventRejected(Exception):
    """The author's function raised a `ToolError`: the subscription is to end with it."""

    def __init__(self, error: ToolError) -> None:
        super().__init__(str(error))
        self.error = error


class HandlerFailed(Exception):
    """The author's function raised something else."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(type(error).__name__)
        self.error = error


async def await_author(work: Awaitable[T]) -> T:
    """Await an author's code, and map what it raises to `EventRejected` or `HandlerFailed`.

    Our own cancellation and `Fenced` pass through unchanged.
    """
    task = asyncio.current_task()
    assert task is not None
    try:
        return await work
    except asyncio.CancelledError as error:
        if task.cancelling():
            raise
        raise HandlerFailed(error) from error
    except (Fenced, GeneratorExit):
        raise
    except ToolError as error:
        raise EventRejected(error) from error
    except BaseException as error:
        raise HandlerFailed(error) from error


def backoff(times: int) -> float:
    """Seconds to wait after something has failed so many times in a row."""
    return min(2.0 ** (min(times, 30) - 1), _LONGEST_BACKOFF)


class EventPublisher:
    """Publishes the events of a claimed subscription, and stores its state.

    `sub_state` is how it stands in the store, `attempts` what is on the account of its box there. `confirmation` is the result that its
    call still owes, if it does. `released` is done when the claim has ended though the generator still runs, with a `failure` unless the
    generator is suspended: after a `StoreError` it is not known how the subscription stands, so start over with what is stored.
    """

    def __init__(
        self,
        services: ToolsetServices,
        claim: Claim,
        sub_state: SubscriptionState,
        traits: SubscriptionTraits,
        full: int,
        confirmation: bytes = b"",
    ) -> None:
        self.sub_state = sub_state
        self.traits = traits
        self.claimed_box = services.claimed_box(claim, sub_state.message.callback_url)
        self.claimed_box.traceparent = sub_state.call.traceparent
        self.batcher = EventBatcher(traits, services.config.limits.result)
        self._services = services
        self._full = full
        self._in_lane = full  # so that the store is asked at first
        self.attempts = claim.attempts
        self.failure: StoreError | None = None
        self.released: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._confirmation = confirmation
        self._writing = asyncio.Lock()  # the generator stores checkpoints while we write what has its time

    @property
    def lost(self) -> int:
        """How many servers were lost on the subscription since it last got on."""
        return max(0, self.attempts - 1 - self.sub_state.excused)

    async def has_room(self) -> bool:
        """Whether more events may be added to those that have not got through yet (semantics 18)."""
        if self._in_lane >= self._full:
            self._in_lane = await self._services.store.waiting(self.claimed_box.lane)
        return self._in_lane < self._full

    async def publish(
        self,
        events: Sequence[Occurrence],
        sub_context: SubscriptionContext | None = None,
        *,
        changes: Commit = _NOTHING,
        consumed: Sequence[int] = (),
        keep: bool = True,
    ) -> None:
        """Write events, and that the subscription got on (SUB-3). With a final one it has ended (SUB-4), and so has the claim."""
        async with self._writing:
            now = self._services.clock.now()
            sub_state, messages = self.batcher.send(self._after(events), events, now)
            shown = [] if sub_context is None else sub_context.take_views()
            commit = replace(changes, consumed=consumed, outgoing=shown, keep=keep)
            if sub_state.ended:
                commit = replace(commit, keep=False, status=ENDED)
            await self._write(replace(sub_state, confirmed=True), messages, commit, now)
        for _ in events:
            self._services.metrics.event(sub_state.message.operation)
        if sub_state.ended:
            self.log("ended: it sent its final event")

    def _after(self, events: Sequence[Occurrence]) -> SubscriptionState:
        """How it stands once it got on. A generator that tells the same again every time it starts has got nowhere."""
        sub_state = self.sub_state
        moved = any(event.cursor not in (None, sub_state.cursor) for event in events)
        if moved or sub_state.topic or not events:
            return sub_state.record_progress()
        if all(event.cursor is not None for event in events):
            # The same events as before the restart: nothing has changed.
            return replace(
                sub_state.record_progress(),
                failures=sub_state.failures,
                failing_since=sub_state.failing_since,
                told=sub_state.told,
            )
        return replace(sub_state.record_progress(), failures=sub_state.failures)

    async def checkpoint(self, cursor: str, sub_context: SubscriptionContext) -> None:
        """Write how far it has come, without an event. It confirms the subscription."""
        async with self._writing:
            changes = sub_context.changes()
            sub_state = self.sub_state
            if sub_state.topic is None:
                sub_state = sub_state.record_progress() if cursor != sub_state.cursor else sub_state
            commit = replace(
                changes, outgoing=sub_context.take_views(), keep=True, charge=sub_state.topic is not None
            )  # of a topic's function the same event is at work as before
            sub_state = replace(sub_state, cursor=cursor, confirmed=True)
            await self._write(sub_state, [], commit, self._services.clock.now())

    async def confirm(self) -> None:
        """Confirm the subscription, if that was not done yet."""
        async with self._writing:
            if not self.sub_state.confirmed and not self.released.done():
                # Charged, because that it has run for a second says nothing about whether it takes the server down.
                sub_state = replace(self.sub_state, confirmed=True)
                await self._write(sub_state, [], Commit(keep=True, charge=True), self._services.clock.now())

    async def fail(
        self, output: Output, outcome: Ended = "error", sub_context: SubscriptionContext | None = None
    ) -> None:
        """End the call of a subscription that was never confirmed: with this result, and nothing else."""
        message = self.sub_state.message
        body = dump(ToolResult(group_id=message.group_id, id=message.id, call_id=message.call_id, text=output.text))
        kind = PostKind.CANCELLED if outcome == "cancelled" else PostKind.CALLBACK
        shown = [] if sub_context is None else sub_context.take_views()
        async with self._writing:
            if self.failure is not None:
                raise self.failure
            if await self.claimed_box.commit_with_retry(
                Commit(outgoing=[*shown, self.claimed_box.post(body, kind)], forget_for=0)
            ):
                self._record_call(outcome)

    async def suspend(self, commit: Commit, afterwards: Callable[[], Awaitable[None]] | None) -> NoReturn:
        """Let go until a question is answered (semantics 24); the generator starts again from the top then. This never returns."""
        async with self._writing:
            if self.failure is not None:
                raise self.failure
            if self.sub_state.confirmed:
                raise TooLateToAsk
            if not await self.claimed_box.commit_with_retry(commit):
                self.failure = Fenced("The subscription was cancelled, or taken over.")
            elif afterwards is not None:
                try:
                    await afterwards()
                except (StoreError, ToolError) as error:
                    log.error("a subscription that waits for an answer may have to wait longer: %s", error)
            self._release()
        await asyncio.Event().wait()
        raise AssertionError("the event is never set")

    async def flush(self) -> None:
        """Let the batch leave."""
        async with self._writing:
            now = self._services.clock.now()
            sub_state, messages = self.batcher.flush(self.sub_state, now)
            await self._write(sub_state, messages, Commit(keep=True), now)

    async def record_progress(self) -> None:
        """Write that the troubles are past."""
        async with self._writing:
            await self._write(self.sub_state.record_progress(), [], Commit(keep=True), self._services.clock.now())

    async def refuse(self, error: ToolError, consumed: Sequence[int] = ()) -> None:
        """End with an error (semantics 25)."""
        if isinstance(error, BadResult):
            self.log("sent what cannot be sent", error)
        text = error_text(error, "")
        if not self.sub_state.confirmed:
            await self.fail(Output(text))
            return
        await self.publish([Occurrence(text, None, self.traits.associative, final=True)], consumed=consumed)

    async def put_off(self, sub_state: SubscriptionState, seconds: float, *, charge: bool) -> None:
        """Let go for a while. With unread mail that takes a `charge`, which is excused."""
        async with self._writing:
            now = self._services.clock.now()
            sub_state, messages = self.batcher.flush(sub_state, now)
            excused = self.attempts if charge else 0
            commit = Commit(again_at=now + seconds, charge=charge)
            await self._write(replace(sub_state, excused=excused), messages, commit, now)

    async def set_aside(self, seq: int, reason: str, *, keep: bool) -> None:
        """Go on without mail that cannot be handled: an error event takes its place."""
        reference = new_reference()
        self.log(f"goes on without an event of its topic: {reason} (reference {reference})", warn=True)
        async with self._writing:
            now = self._services.clock.now()
            instead = event_lost(self.sub_state.message.operation, reference)
            sub_state, messages = self.batcher.send(self.sub_state.record_progress(), [instead], now)
            await self._write(sub_state, messages, Commit(set_aside={seq: reason}, keep=keep), now)

    async def failed(self, error: BaseException) -> None:
        """A confirmed generator has failed: start it again later, and tell the thread once; give it up after too long (semantics 25)."""
        reference = new_reference()
        operation = self.sub_state.message.operation
        async with self._writing:
            now = self._services.clock.now()
            since = self.sub_state.failing_since or now
            failures = self.sub_state.failures + 1
            sub_state = replace(self.sub_state, failures=failures, failing_since=since, told=True, excused=0)
            longest = self._services.config.durations.subscription_outage
            if now - since >= longest:
                self.log(f"ended: it failed for too long (reference {reference})", error)
                sub_state, messages = self.batcher.send(sub_state, [given_up(operation, reference, longest)], now)
                await self._write(sub_state, messages, Commit(status=ENDED), now)
                return
            seconds = backoff(failures)
            self.log(f"failed and is started again in {seconds:g} s (reference {reference})", error)
            news = [] if self.sub_state.told else [outage_began(operation, reference)]
            sub_state, messages = self.batcher.send(sub_state, news, now)
            sub_state, flushed = self.batcher.flush(sub_state, now)
            await self._write(sub_state, [*messages, *flushed], Commit(again_at=now + seconds), now)

    async def _write(
        self, sub_state: SubscriptionState, messages: Sequence[EventMessage], commit: Commit, now: float
    ) -> None:
        if self.failure is not None:
            raise self.failure
        confirms = sub_state.confirmed and not self.sub_state.confirmed
        posts = [self._post(event_message) for event_message in messages]
        timers = [] if sub_state.topic is None else [Timer(FLUSH, self.batcher.flush_at(sub_state, now))]
        outgoing = [*commit.outgoing, *([self.claimed_box.post(self._confirmation)] if confirms else ()), *posts]
        drop = [(CONFIRMATION, "")] if confirms else ()
        whole = replace(commit, state=sub_state.to_state(), outgoing=outgoing, timers=timers, drop=drop)
        try:
            await self.claimed_box.commit(whole)
        except (StoreError, asyncio.CancelledError) as error:
            # Cancelled by an author's timeout, for example: it may have been written all the same.
            self.failure = error if isinstance(error, StoreError) else StoreError("A commit was interrupted.")
            self._release()
            raise
        self.sub_state = sub_state
        self._in_lane += len(outgoing)
        if not commit.charge:
            self.attempts = 0
        if confirms:
            self._record_call("ok")

    def _release(self) -> None:
        if not self.released.done():
            self.released.set_result(None)

    def _record_call(self, outcome: Ended) -> None:
        seconds = max(0.0, self._services.clock.now() - self.claimed_box.claim.box.created_at)
        record_call(self._services.metrics, self.sub_state.call, outcome, seconds)

    def _post(self, event_message: EventMessage) -> Outgoing:
        kind = PostKind.FINAL if event_message.final else PostKind.CALLBACK
        return self.claimed_box.post(event_message.body, kind, not_before=event_message.not_before)

    def log(self, what: str, error: BaseException | None = None, *, warn: bool = False) -> None:
        """A line about the subscription."""
        log_subscription(self.sub_state, what, error, warn=warn)


def log_subscription(
    sub_state: SubscriptionState, what: str, error: BaseException | None = None, *, warn: bool = False
) -> None:
    """A line about a subscription. Its callback URL is secret (SUB-9)."""
    message = sub_state.message
    level = logging.WARNING if warn else logging.INFO
    log.log(
        level if error is None else logging.ERROR,
        "subscription %s",
        what,
        exc_info=error,
        extra={"operation": message.operation, "thread_id": message.group_id, "call_id": message.id},
    )
