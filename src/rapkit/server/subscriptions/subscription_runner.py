"""Run subscriptions: long-lived boxes whose events go to the callback URL of their call.

A subscription is a box of its own, and its POSTs are in the lane named after it, the confirmation first. One whose events come
from a generator is claimed as long as the generator runs; one with a topic only while it has mail. Whatever is committed under a claim is
fenced, so that nothing is sent after a cancellation (SUB-5), and a box that has sent its final event is kept until that was delivered, so
that even then a cancellation finds what is still queued.
"""

import asyncio
import logging
from dataclasses import dataclass, replace

from rapkit.delivery.outbox_sender import DeliveryOutcome, FollowUp
from rapkit.delivery.retry import PostKind, RetryDecision, retry_decision
from rapkit.errors import Fenced, InvalidMessage, StoreError, ToolError
from rapkit.mailbox import Claim, Commit, Fact, NewMail, Outcome, TakenPost, Timer
from rapkit.server.interaction.questions import Questions, take_answers
from rapkit.server.interaction.user_interaction import InteractionUntilConfirmed, StoredConsent, UserInteraction
from rapkit.server.invocation import subscription_kind
from rapkit.server.resources.thread_resources import Resources
from rapkit.server.services import ToolsetServices
from rapkit.server.subscriptions.confirmation import stored_confirmation
from rapkit.server.subscriptions.event_publisher import EventPublisher, backoff, log_subscription
from rapkit.server.subscriptions.generator_runner import GeneratorRunner
from rapkit.server.subscriptions.subscription_context import SubscriptionContext
from rapkit.server.subscriptions.subscription_state import SubscriptionState
from rapkit.server.subscriptions.topic_runner import TopicRunner
from rapkit.server.subscriptions.topics import unsubscribe_mail
from rapkit.server.tools.output import CANCELLED, Output
from rapkit.server.tools.tool import SubscriptionTraits, Tool
from rapkit.work.poller import Poller

_FULL = 100
_PUT_OFF_FOR = 3600.0
_LOOK_FOR_FUNCTION_EVERY = 300.0
_MISS_FUNCTION_FOR = 24 * 3600.0
_LOSSES_BEFORE_DELAY = 3
_PAUSE_AFTER_STORE_FAILURE = 1.0
_PAUSE_AFTER_MISTAKE = 60.0
_PATIENCE_WITH_CANCELLED = 5.0

_MOST_RUNS = 3
_LANES = "s_"
_DONE = "done"
_GONE = "gone"
_NOT_FOUND = "not_found"
"""A record of when a POST was sent that the runtime answered 404, until another one is delivered."""
_NOT_FOUND_FOR = 60.0
_STATUS_NOT_FOUND = 404

log = logging.getLogger("rapkit.subscriptions")


@dataclass(frozen=True, slots=True)
class ClaimedSubscription:
    """A subscription and the claim of its box."""

    claim: Claim
    sub_state: SubscriptionState


@dataclass(slots=True)
class RunningSubscription:
    """A subscription that this process runs."""

    task: "asyncio.Task[None]"
    thread: str
    endless: bool
    sub_context: SubscriptionContext | None = None


class SubscriptionRunner:
    """Runs a toolset's subscriptions under one lease. Past `full` events that have not got through, a subscription is paused."""

    def __init__(self, services: ToolsetServices, resources: Resources, *, full: int = _FULL) -> None:
        self._services = services
        self._resources = resources
        self._store = services.store
        self._toolset = services.config.toolset
        self._kind = subscription_kind(self._toolset)
        self._full = full
        self._claimed: dict[str, int] = {}
        self._running: dict[str, RunningSubscription] = {}
        self._endings: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(services.config.limits.concurrency)
        limits = services.config.limits
        # More places than generators, because a crowd may get past their limit together, and topics need some too.
        places = limits.subscriptions + 2 * limits.concurrency
        self._poller = Poller(services.store, self._kind, places, self._claim, self._run)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._poller.run()

    async def drain(self, patience: float) -> None:
        """Interrupt generators, which go on after the next start; let functions of topics end."""
        try:
            if endless := [running.task for running in self._running.values() if running.endless]:
                for task in endless:
                    task.cancel()
                await asyncio.wait(endless, timeout=_PATIENCE_WITH_CANCELLED)
        finally:
            for ending in self._endings:
                ending.cancel()
            await self._poller.drain(patience)

    async def quiet(self, thread: str) -> None:
        """Return when nothing runs for a thread here."""
        if tasks := [running.task for running in self._running.values() if running.thread == thread]:
            await asyncio.wait(tasks)

    @property
    def healthy(self) -> bool:
        """Whether subscriptions can be fetched."""
        return self._poller.healthy

    @property
    def running(self) -> int:
        """How many subscriptions are at work here; those that wait for their topic are not."""
        return len(self._running)

    def cancel(self, boxes: tuple[str, ...]) -> None:
        """Interrupt these boxes if they run here. They were stopped, so nothing of theirs is committed."""
        for box in boxes:
            self._claimed.pop(box, None)
            if running := self._running.get(box):
                if running.sub_context is not None and running.sub_context.context is not None:
                    running.sub_context.context.cancel()
                running.task.cancel()

    async def report(self, taken: TakenPost, delivery_outcome: DeliveryOutcome) -> FollowUp:
        """What is written for a subscription together with the outcome of one of its POSTs."""
        lane = taken.outgoing.lane
        if not lane.startswith(_LANES):
            return FollowUp()
        if taken.outgoing.kind == PostKind.FINAL:
            return FollowUp(NewMail(lane, _DONE, b""))
        if delivery_outcome.outcome is Outcome.DELIVERED:
            return FollowUp(fact=Fact(lane, _NOT_FOUND, "", None))
        if delivery_outcome.status == _STATUS_NOT_FOUND:
            # Proxies answer 404 while the runtime behind them is replaced, so one alone does not end a subscription.
            first = await self._first_not_found(lane)
            if first is None or delivery_outcome.sent_at < first + _NOT_FOUND_FOR:
                at = str(delivery_outcome.sent_at if first is None else first)
                return FollowUp(fact=Fact(lane, _NOT_FOUND, "", at.encode()))
        elif delivery_outcome.status is not None and retry_decision(delivery_outcome.status) is RetryDecision.REFUSED:
            return FollowUp()
        # The runtime no longer knows the subscription (semantics 18), or could not be reached for days. The mail is for a box that no
        # worker has claimed, or if this process is lost before the box is stopped.
        ending = asyncio.create_task(self._stop(lane))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
        return FollowUp(NewMail(lane, _GONE, b"", dedup=_GONE))

    async def _first_not_found(self, lane: str) -> float | None:
        """When the first POST was sent that was answered 404, if none was delivered since."""
        while True:
            try:
                records = await self._store.records(lane, _NOT_FOUND)
            except StoreError as error:
                log.error("cannot read whether a subscription was answered 404 before: %s", error)
                await asyncio.sleep(_PAUSE_AFTER_STORE_FAILURE)
            else:
                return float(records[0].body) if records else None

    async def _stop(self, lane: str) -> None:
        try:
            stopped = await self._store.stop_box(lane)
        except StoreError as error:
            log.error("cannot end a subscription that nobody listens to: %s", error)
            return
        self.cancel(stopped.boxes)
        # The next in the lane may have left meanwhile. It could not be stopped any more once the box is forgotten.
        await self._services.outbox_sender.abort(stopped.in_flight)

    async def _claim(self, limit: int) -> list[ClaimedSubscription]:
        claims = await self._store.claim(self._services.worker, self._kind, limit, self._services.config.limits.mail)
        # At once, because a box can be stopped before its task begins; see `cancel`.
        self._claimed.update((claim.box.id, claim.epoch) for claim in claims)
        jobs = []
        for claim in claims:
            try:
                jobs.append(ClaimedSubscription(claim, SubscriptionState.from_state(self._toolset, claim.box.state)))
            except (InvalidMessage, ValueError, TypeError) as error:
                # It was fine when it was written, so this version of ours is stricter, or it is damaged. Another version may read it.
                log.error("a stored subscription cannot be read and is put off for an hour: %s", error)
                await self._put_off(claim)
        return jobs

    async def _put_off(self, claim: Claim) -> None:
        try:
            await self._store.commit(claim, Commit(again_at=claim.now + _PUT_OFF_FOR, charge=True))
        except StoreError as error:
            log.error(
                "it is left alone until the next start: %s", error
            )  # the others that were claimed with it are to be run

    async def _run(self, job: ClaimedSubscription) -> None:
        claim, sub_state = job.claim, job.sub_state
        task = asyncio.current_task()
        assert task is not None
        running = RunningSubscription(task, sub_state.call.thread_key, endless=sub_state.topic is None)
        wanted = self._claimed.get(claim.box.id) == claim.epoch
        if wanted:
            del self._claimed[claim.box.id]
            self._running[claim.box.id] = running
        elif not claim.box.stopped:
            return  # it was stopped after we have claimed it, and comes again
        try:
            await self._try(job, running)
        except asyncio.CancelledError:
            await asyncio.shield(self._give_back(claim))
            raise
        finally:
            if self._running.get(claim.box.id) is running:
                del self._running[claim.box.id]

    async def _try(self, job: ClaimedSubscription, running: RunningSubscription) -> None:
        try:
            await self._work(job, running)
        except Fenced as error:
            log.debug("%s", error)  # it was cancelled, or taken over: the worker that has it now goes on with it
        except StoreError as error:
            log_subscription(job.sub_state, "is started over: it is not known what was stored", error)
            await self._start_over(job, _PAUSE_AFTER_STORE_FAILURE)
        except Exception as error:  # noqa: BLE001 - a mistake of ours; without this the box would stay claimed and do nothing
            log_subscription(job.sub_state, "is started over: the server has failed", error)
            await self._start_over(job, _PAUSE_AFTER_MISTAKE)

    async def _work(self, job: ClaimedSubscription, running: RunningSubscription) -> None:
        claim, sub_state = job.claim, job.sub_state
        told = {mail.kind for mail in claim.mail}
        if claim.box.stopped and not sub_state.confirmed:
            await self._services.kill_leftovers(claim.box.id)
            publisher = EventPublisher(self._services, claim, sub_state, SubscriptionTraits(), self._full)
            await publisher.fail(Output(CANCELLED), "cancelled")
        elif claim.box.stopped:
            await self._forget(job, "ended: nobody listens any more" if _GONE in told else "ended: it was cancelled")
        elif _GONE in told:
            # Not forgotten yet: what may be under way is stopped with the box. The worker that claims it then forgets it.
            stopped = await self._store.stop_box(claim.box.id)
            await self._services.outbox_sender.abort(stopped.in_flight)
        elif sub_state.ended and _DONE in told:
            await self._forget(job, "is over")
        elif sub_state.ended:
            # What its topic still has for it. It leaves the topic when it is over.
            await self._store.commit(claim, Commit(consumed=[mail.seq for mail in claim.mail]))
        else:
            await self._go_on(job, running)

    async def _go_on(self, job: ClaimedSubscription, running: RunningSubscription) -> None:
        claim, sub_state = job.claim, job.sub_state
        tool = self._services.config.tools.get(sub_state.message.operation)
        traits = None if tool is None else tool.subscription
        if tool is None or traits is None or (traits.topic is None) != (sub_state.topic is None):
            await self._miss(EventPublisher(self._services, claim, sub_state, SubscriptionTraits(), self._full))
            return
        if tool.signature.context_parameter is not None:
            # The worker that ran it before may be lost, however few attempts are on the account: an event that was written has cleared it.
            await self._services.kill_leftovers(claim.box.id)
        confirmation = await stored_confirmation(self._store, sub_state)
        publisher = EventPublisher(self._services, claim, sub_state, traits, self._full, confirmation)
        if sub_state.topic is None:
            await self._take_mail(claim, sub_state)
            await self._generate(publisher, tool, running)
            return
        if not claim.mail and not claim.timers:
            publisher.log("started")

        def at_work(sub_context: SubscriptionContext) -> None:
            running.sub_context = sub_context

        await TopicRunner(self._services, self._resources, publisher, tool, self._places, at_work).run(claim)

    async def _take_mail(self, claim: Claim, sub_state: SubscriptionState) -> None:
        """Take the answers to a generator's questions. One that is confirmed can ask no more, and does not need them."""
        if sub_state.confirmed and (claim.mail or claim.timers):
            consumed, timers = [mail.seq for mail in claim.mail], [Timer(key, None) for key in claim.timers]
            await self._store.commit(claim, Commit(consumed=consumed, timers=timers, keep=True, charge=True))
        elif not sub_state.confirmed and not await take_answers(self._store, claim):
            raise Fenced(
                "The subscription was let go: an answer may have come just now, and comes with the next claim."
            )

    async def _generate(self, publisher: EventPublisher, tool: Tool, running: RunningSubscription) -> None:
        sub_state = publisher.sub_state
        if not sub_state.confirmed and publisher.lost >= _MOST_RUNS:
            told = f"Error: {tool.name} was interrupted {_MOST_RUNS} times before it was subscribed, and given up. Tell the user."
            await publisher.fail(Output(told))
            return
        losses = sub_state.losses + publisher.lost
        if sub_state.confirmed and publisher.lost and losses > _LOSSES_BEFORE_DELAY:
            # It may be what takes the server down; the others on it should have some peace.
            seconds = backoff(losses - _LOSSES_BEFORE_DELAY)
            publisher.log(f"was lost with the server {losses} times and is started again in {seconds:g} s", warn=True)
            await publisher.put_off(replace(sub_state, losses=losses), seconds, charge=False)
            return
        running.sub_context = await SubscriptionContext.open(
            self._services,
            self._resources,
            publisher.claimed_box,
            tool,
            sub_state,
            publisher.checkpoint,
            None if sub_state.confirmed else self._interaction(publisher, tool),
        )
        await GeneratorRunner(self._services, publisher, tool, running.sub_context).run()

    def _interaction(self, publisher: EventPublisher, tool: Tool) -> InteractionUntilConfirmed:
        call = publisher.sub_state.call
        questions = Questions(self._store, publisher.claimed_box, self._services.clock, publisher.suspend)
        interaction = UserInteraction(self._services, publisher.claimed_box, call, tool.name, questions)
        return InteractionUntilConfirmed(
            interaction, StoredConsent(self._services, call), lambda: publisher.sub_state.confirmed
        )

    async def _miss(self, publisher: EventPublisher) -> None:
        """Its function is not there. Perhaps another version of the server has it, or the next one; one day it is no more."""
        now, operation = self._services.clock.now(), publisher.sub_state.message.operation
        since = publisher.sub_state.missed_at or now
        if now - since >= _MISS_FUNCTION_FOR:
            await publisher.refuse(ToolError(f"the server has no subscription {operation} any more."))
            return
        if publisher.sub_state.missed_at is None:
            publisher.log("waits: this server has no such subscription", warn=True)
        sub_state = replace(publisher.sub_state, missed_at=since)
        # Soon at first, because it may be a mistake that is put right at once.
        seconds = min(max(1.0, now - since), _LOOK_FOR_FUNCTION_EVERY)
        await publisher.put_off(sub_state, seconds, charge=sub_state.topic is not None)

    async def _forget(self, job: ClaimedSubscription, why: str) -> None:
        claim, sub_state = job.claim, job.sub_state
        await self._services.kill_leftovers(claim.box.id)
        new_mails = unsubscribe_mail(self._toolset, sub_state.topic, claim.box.id)
        # Not remembered: that a repeated invocation is one, the call's box knows.
        commit = Commit(forget_for=0, unsend=[claim.box.id], new_mails=new_mails)
        if await self._services.claimed_box(claim, "").commit_with_retry(commit):
            log_subscription(sub_state, why)

    async def _start_over(self, job: ClaimedSubscription, seconds: float) -> None:
        # We wait, rather than the box, because one with mail would be due at once.
        await self._services.clock.sleep(seconds)
        await self._services.claimed_box(job.claim, "").commit_with_retry(Commit(again_at=job.claim.now))

    async def _give_back(self, claim: Claim) -> None:
        """This worker is interrupted: leave the subscription to the next one, as it is stored."""
        try:
            await self._store.commit(claim, Commit(again_at=claim.now))
        except Fenced as error:
            log.debug("%s", error)  # it was cancelled, or has ended
        except StoreError as error:
            # It is free when our lease ends. Insisting would keep the server from stopping.
            log.error("cannot give a subscription back: %s", error)
