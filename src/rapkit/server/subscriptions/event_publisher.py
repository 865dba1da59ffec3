"""How the events of a subscription get out: each in one commit with how the subscription stands after it."""

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


async def authors(work: Awaitable[T]) -> T:
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
    """A claimed subscription, and what is written of it.

    `standing` is how it stands in the store, `attempts` what is on the account of its box there. `confirmation` is the result that its
    call still owes, if it does. `released` is done when the claim has ended though the generator still runs, with a `failure` unless the
    generator is suspended: after a `StoreError` it is not known how the subscription stands, so start over with what is stored.
    """

    def __init__(
        self,
        premises: ToolsetServices,
        claim: Claim,
        standing: SubscriptionState,
        traits: SubscriptionTraits,
        full: int,
        confirmation: bytes = b"",
    ) -> None:
        self.standing = standing
        self.traits = traits
        self.hold = premises.hold(claim, standing.message.callback_url)
        self.hold.traceparent = standing.call.traceparent
        self.outflow = EventBatcher(traits, premises.plan.limits.result)
        self._premises = premises
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
        return max(0, self.attempts - 1 - self.standing.excused)

    async def has_room(self) -> bool:
        """Whether more events may be added to those that have not got through yet (semantics 18)."""
        if self._in_lane >= self._full:
            self._in_lane = await self._premises.store.waiting(self.hold.lane)
        return self._in_lane < self._full

    async def tell(
        self,
        events: Sequence[Occurrence],
        workplace: SubscriptionContext | None = None,
        *,
        changes: Commit = _NOTHING,
        consumed: Sequence[int] = (),
        keep: bool = True,
    ) -> None:
        """Write events, and that the subscription got on (SUB-3). With a final one it has ended (SUB-4), and so has our hold."""
        async with self._writing:
            now = self._premises.clock.now()
            standing, departures = self.outflow.send(self._after(events), events, now)
            shown = [] if workplace is None else workplace.take_views()
            commit = replace(changes, consumed=consumed, outgoing=shown, keep=keep)
            if standing.ended:
                commit = replace(commit, keep=False, status=ENDED)
            await self._write(replace(standing, confirmed=True), departures, commit, now)
        for _ in events:
            self._premises.metrics.event(standing.message.operation)
        if standing.ended:
            self.log("ended: it sent its final event")

    def _after(self, events: Sequence[Occurrence]) -> SubscriptionState:
        """How it stands once it got on. A generator that tells the same again every time it starts has got nowhere."""
        standing = self.standing
        moved = any(event.cursor not in (None, standing.cursor) for event in events)
        if moved or standing.topic or not events:
            return standing.got_on()
        if all(event.cursor is not None for event in events):
            # The same events as before the restart: nothing has changed.
            return replace(
                standing.got_on(), failures=standing.failures, failing_since=standing.failing_since, told=standing.told
            )
        return replace(standing.got_on(), failures=standing.failures)

    async def checkpoint(self, cursor: str, workplace: SubscriptionContext) -> None:
        """Write how far it has come, without an event. It confirms the subscription."""
        async with self._writing:
            changes = workplace.changes()
            standing = self.standing
            if standing.topic is None:
                standing = standing.got_on() if cursor != standing.cursor else standing
            commit = replace(
                changes, outgoing=workplace.take_views(), keep=True, charge=standing.topic is not None
            )  # of a topic's function the same event is at work as before
            standing = replace(standing, cursor=cursor, confirmed=True)
            await self._write(standing, [], commit, self._premises.clock.now())

    async def confirm(self) -> None:
        """Confirm the subscription, if that was not done yet."""
        async with self._writing:
            if not self.standing.confirmed and not self.released.done():
                # Charged, because that it has run for a second says nothing about whether it takes the server down.
                standing = replace(self.standing, confirmed=True)
                await self._write(standing, [], Commit(keep=True, charge=True), self._premises.clock.now())

    async def fail(
        self, output: Output, outcome: Ended = "error", workplace: SubscriptionContext | None = None
    ) -> None:
        """End the call of a subscription that was never confirmed: with this result, and nothing else."""
        message = self.standing.message
        body = dump(ToolResult(group_id=message.group_id, id=message.id, call_id=message.call_id, text=output.text))
        kind = PostKind.CANCELLED if outcome == "cancelled" else PostKind.CALLBACK
        shown = [] if workplace is None else workplace.take_views()
        async with self._writing:
            if self.failure is not None:
                raise self.failure
            if await self.hold.commit_with_retry(Commit(outgoing=[*shown, self.hold.post(body, kind)], forget_for=0)):
                self._record_call(outcome)

    async def suspend(self, commit: Commit, afterwards: Callable[[], Awaitable[None]] | None) -> NoReturn:
        """Let go until a question is answered (semantics 24); the generator starts again from the top then. This never returns."""
        async with self._writing:
            if self.failure is not None:
                raise self.failure
            if self.standing.confirmed:
                raise TooLateToAsk
            if not await self.hold.commit_with_retry(commit):
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
            now = self._premises.clock.now()
            standing, departures = self.outflow.flush(self.standing, now)
            await self._write(standing, departures, Commit(keep=True), now)

    async def got_on(self) -> None:
        """Write that the troubles are past."""
        async with self._writing:
            await self._write(self.standing.got_on(), [], Commit(keep=True), self._premises.clock.now())

    async def refuse(self, error: ToolError, consumed: Sequence[int] = ()) -> None:
        """End with an error (semantics 25)."""
        if isinstance(error, BadResult):
            self.log("sent what cannot be sent", error)
        text = error_text(error, "")
        if not self.standing.confirmed:
            await self.fail(Output(text))
            return
        await self.tell([Occurrence(text, None, self.traits.associative, final=True)], consumed=consumed)

    async def put_off(self, standing: SubscriptionState, seconds: float, *, charge: bool) -> None:
        """Let go for a while. With unread mail that takes a `charge`, which is excused."""
        async with self._writing:
            now = self._premises.clock.now()
            standing, departures = self.outflow.flush(standing, now)
            excused = self.attempts if charge else 0
            commit = Commit(again_at=now + seconds, charge=charge)
            await self._write(replace(standing, excused=excused), departures, commit, now)

    async def set_aside(self, seq: int, reason: str, *, keep: bool) -> None:
        """Go on without a letter that cannot be handled: an error event takes its place."""
        reference = new_reference()
        self.log(f"goes on without an event of its topic: {reason} (reference {reference})", warn=True)
        async with self._writing:
            now = self._premises.clock.now()
            instead = event_lost(self.standing.message.operation, reference)
            standing, departures = self.outflow.send(self.standing.got_on(), [instead], now)
            await self._write(standing, departures, Commit(set_aside={seq: reason}, keep=keep), now)

    async def failed(self, error: BaseException) -> None:
        """A confirmed generator has failed: start it again later, and tell the thread once; give it up after too long (semantics 25)."""
        reference = new_reference()
        operation = self.standing.message.operation
        async with self._writing:
            now = self._premises.clock.now()
            since = self.standing.failing_since or now
            failures = self.standing.failures + 1
            standing = replace(self.standing, failures=failures, failing_since=since, told=True, excused=0)
            longest = self._premises.plan.durations.subscription_outage
            if now - since >= longest:
                self.log(f"ended: it failed for too long (reference {reference})", error)
                standing, departures = self.outflow.send(standing, [given_up(operation, reference, longest)], now)
                await self._write(standing, departures, Commit(status=ENDED), now)
                return
            seconds = backoff(failures)
            self.log(f"failed and is started again in {seconds:g} s (reference {reference})", error)
            news = [] if self.standing.told else [outage_began(operation, reference)]
            standing, departures = self.outflow.send(standing, news, now)
            standing, flushed = self.outflow.flush(standing, now)
            await self._write(standing, [*departures, *flushed], Commit(again_at=now + seconds), now)

    async def _write(
        self, standing: SubscriptionState, departures: Sequence[EventMessage], commit: Commit, now: float
    ) -> None:
        if self.failure is not None:
            raise self.failure
        confirms = standing.confirmed and not self.standing.confirmed
        posts = [self._post(departure) for departure in departures]
        timers = [] if standing.topic is None else [Timer(FLUSH, self.outflow.flush_at(standing, now))]
        outgoing = [*commit.outgoing, *([self.hold.post(self._confirmation)] if confirms else ()), *posts]
        drop = [(CONFIRMATION, "")] if confirms else ()
        whole = replace(commit, state=standing.to_state(), outgoing=outgoing, timers=timers, drop=drop)
        try:
            await self.hold.commit(whole)
        except (StoreError, asyncio.CancelledError) as error:
            # Cancelled by an author's timeout, for example: it may have been written all the same.
            self.failure = error if isinstance(error, StoreError) else StoreError("A commit was interrupted.")
            self._release()
            raise
        self.standing = standing
        self._in_lane += len(outgoing)
        if not commit.charge:
            self.attempts = 0
        if confirms:
            self._record_call("ok")

    def _release(self) -> None:
        if not self.released.done():
            self.released.set_result(None)

    def _record_call(self, outcome: Ended) -> None:
        seconds = max(0.0, self._premises.clock.now() - self.hold.claim.box.created_at)
        record_call(self._premises.metrics, self.standing.call, outcome, seconds)

    def _post(self, departure: EventMessage) -> Outgoing:
        kind = PostKind.FINAL if departure.final else PostKind.CALLBACK
        return self.hold.post(departure.body, kind, not_before=departure.not_before)

    def log(self, what: str, error: BaseException | None = None, *, warn: bool = False) -> None:
        """A line about the subscription."""
        log_subscription(self.standing, what, error, warn=warn)


def log_subscription(
    standing: SubscriptionState, what: str, error: BaseException | None = None, *, warn: bool = False
) -> None:
    """A line about a subscription. Its callback URL is nobody's business (SUB-9)."""
    message = standing.message
    level = logging.WARNING if warn else logging.INFO
    log.log(
        level if error is None else logging.ERROR,
        "subscription %s",
        what,
        exc_info=error,
        extra={"operation": message.operation, "thread_id": message.group_id, "call_id": message.id},
    )
