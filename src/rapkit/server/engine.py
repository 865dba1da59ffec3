"""A running toolset: its store, its runners, its outbox sender, and the operations behind its endpoints."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from rapkit.clock import Clock, SystemClock
from rapkit.delivery.guard import Guard
from rapkit.delivery.http_client import DeliveryTimeouts, HttpClient, Poster
from rapkit.delivery.name_resolver import NameResolver
from rapkit.delivery.outbox_sender import DeliveryOutcome, FollowUp, OutboxSender, SendLimits
from rapkit.delivery.retry import POLICIES, PostKind
from rapkit.errors import ForbiddenTarget, StoreError
from rapkit.http.health import NOT_WORKING
from rapkit.http.rate_limit import RateLimit
from rapkit.ids import new_id
from rapkit.mailbox import AcceptResult, Fact, Lease, Store, TakenPost
from rapkit.protocol import ChoiceMade, Invocation
from rapkit.server.calls.call_runner import CallRunner
from rapkit.server.config import ToolsetConfig
from rapkit.server.interaction.oauth import OAuth
from rapkit.server.interaction.oauth.service import OAuthClient
from rapkit.server.interaction.questions import REMEMBERED, answer_mail, report_question
from rapkit.server.interaction.user_box import stand_in_box
from rapkit.server.interaction.user_interaction import ANSWER_PURPOSE
from rapkit.server.invocation import StoredCall, call_kind, subscription_kind, thread_key, thread_kind
from rapkit.server.metrics import ToolsetMetrics
from rapkit.server.resources.thread_resources import Resources
from rapkit.server.resources.workspaces import workspaces_for
from rapkit.server.services import ToolsetServices
from rapkit.server.subscriptions.subscription_runner import SubscriptionRunner
from rapkit.server.subscriptions.topics import Topics
from rapkit.server.thread_pool import ThreadPool
from rapkit.signer import Signer
from rapkit.stores import open_store
from rapkit.tracing import Tracing
from rapkit.work import background
from rapkit.work.maintenance import Maintenance

_COUNT_BACKLOG_EVERY = 1.0
_UNKNOWN_ORIGIN = "unknown"

log = logging.getLogger("rapkit.server")


@dataclass(frozen=True, slots=True)
class ToolsetEnvironment:
    """The environment of a running toolset: clock, store, network. Tests bring their own.

    `is_lost` is asked when the work ends: whether it is to end as in a process that was killed, with nothing brought to an end.
    """

    clock: Clock = field(default_factory=SystemClock)
    open_store: Callable[[ToolsetConfig], Store] = lambda config: open_store(
        config.store, lease=Lease(config.durations.lease)
    )
    open_client: Callable[[Guard, DeliveryTimeouts], contextlib.AbstractAsyncContextManager[Poster]] = HttpClient
    oauth_client: OAuthClient | None = None
    workspaces: Callable[[ToolsetConfig], Path | None] = lambda config: workspaces_for(config.store)
    thread_pool: Callable[[], ThreadPool] = ThreadPool
    is_lost: Callable[[], bool] = lambda: False


class Admission(StrEnum):
    """What becomes of an invocation when it is received."""

    ACCEPTED = "accepted"
    REPEATED = "repeated"
    STALE = "stale"


@dataclass(frozen=True, slots=True)
class TooBusy(Exception):
    """The invocation was not accepted; the caller may retry in so many seconds."""

    retry_after: float


class ToolsetEngine:
    """A running toolset. Made by `run_engine`."""

    def __init__(
        self, config: ToolsetConfig, store: Store, client: Poster, guard: Guard, environment: ToolsetEnvironment
    ) -> None:
        clock = environment.clock
        self._config = config
        self._store = store
        self._guard = guard
        self._name = new_id("worker")
        self._kind = call_kind(config.toolset)
        self._rate = RateLimit(config.limits.rate)
        self._backlog: Counter[str] = Counter()
        self._background: list[asyncio.Task[None]] = []
        self._maintenance = Maintenance(store, self._name, config.durations.keep_dead_letters)
        self.metrics = ToolsetMetrics(config.toolset, config.tools)
        tracing = Tracing()
        self._outbox_sender = OutboxSender(
            store,
            client,
            self._name,
            secrets=config.webhook_secrets,
            policies={
                **POLICIES,
                PostKind.QUESTION: replace(POLICIES[PostKind.QUESTION], horizon=config.durations.ask),
            },
            send_limits=SendLimits(
                config.limits.deliveries, config.limits.deliveries_per_origin, bytes=8 * config.limits.mail
            ),
            report=self._report,
            clock=clock.now,
            on_attempt=self.metrics.callback,
            tracing=tracing,
        )
        signer = Signer(store.derive("rapkit urls"))
        self.oauth = OAuth(
            config.oauth.values(),
            store,
            config.toolset,
            signer,
            clock,
            self._wake,
            config.durations.authorise,
            environment.oauth_client,
        )
        self._services = ToolsetServices(
            config=config,
            worker=self._name,
            store=store,
            outbox_sender=self._outbox_sender,
            clock=clock,
            signer=signer,
            oauth=self.oauth,
            thread_pool=environment.thread_pool(),
            metrics=self.metrics,
            tracing=tracing,
            origin_of=self._origin_of,
        )
        self._resources = Resources(self._services, environment.workspaces(config), self._quiet)
        self._worker = CallRunner(self._services, self._resources, self._one_less)
        self._subscriptions = SubscriptionRunner(self._services, self._resources)
        self._topics = Topics(self._services)
        self._measure()

    @property
    def toolset(self) -> str:
        """The name of the toolset."""
        return self._config.toolset

    @property
    def public_url(self) -> str | None:
        """Where callers and users reach us, if that was said."""
        return self._config.public_url

    async def admit(self, call: StoredCall) -> Admission:
        """Make an invocation durable. `ForbiddenTarget` if its callback URL is none we would dial, `TooBusy` if there is too much to do."""
        self._guard.check_url(call.message.callback_url)
        if wait := self._rate.wait(call.caller):
            raise TooBusy(wait)
        message = call.message
        if isinstance(message, Invocation) and message.toolset_version not in (None, self._config.version):
            # A repetition of what was accepted under the old version is still a repetition (DIS-9).
            return Admission.REPEATED if await self._store.known(call.box_id) else Admission.STALE
        if self._has_too_much(call.caller) and not await self._store.known(call.box_id):
            raise TooBusy(_COUNT_BACKLOG_EVERY)
        self._backlog[call.caller] += 1  # before it is true, so that a crowd cannot get past the limit together
        made = False
        try:
            made = await self._worker.accept(call)
        finally:
            if not made:
                self._one_less(call.caller)
        return Admission.ACCEPTED if made else Admission.REPEATED

    async def cancel(self, caller: str, thread_id: str, call_id: str) -> None:
        """Stop a call: it ends in a result that says so, or silently if it is a subscription; what its handler still does has no effect."""
        await self._stop([call_kind(self.toolset), subscription_kind(self.toolset)], caller, thread_id, call_id)

    async def close_thread(self, caller: str, thread_id: str) -> None:
        """Stop all calls and subscriptions of a thread, and clean up what is kept for it (CLO-5)."""
        kinds = [call_kind(self.toolset), subscription_kind(self.toolset), thread_kind(self.toolset)]
        await self._stop(kinds, caller, thread_id, None)
        await self._forget_stand_in(caller, thread_id)

    async def _forget_stand_in(self, caller: str, thread_id: str) -> None:
        """If the thread stood in for an unnamed user, what was kept for that user goes with it."""
        box = stand_in_box(self.toolset, caller, thread_id)
        for provider in self._config.oauth:
            await self.oauth.vault.delete(box.id, provider)
        for record in await self._store.records(box.id, REMEMBERED):
            await self._store.note(box, Fact(box.id, record.kind, record.key, None))

    async def _stop(self, kinds: list[str], caller: str, thread_id: str, call_id: str | None) -> None:
        thread = thread_key(self.toolset, caller, thread_id)
        stopped = await self._store.stop(kinds, thread, call_id, self._config.durations.remember_cancels)
        self._worker.cancel(stopped.boxes)
        self._subscriptions.cancel(stopped.boxes)
        await self._outbox_sender.abort(stopped.in_flight)

    async def answer(self, token: str, made: ChoiceMade) -> AcceptResult:
        """Take a user's choice, durably; a repetition is taken for the first answer.

        `UNKNOWN` means that the token was never given out for this call, `UNWANTED` that its question is not open any more.
        """
        parts = self._services.signer.read(ANSWER_PURPOSE, token)
        if parts is None:
            return AcceptResult.UNKNOWN
        box_id, key = parts
        box = await self._store.box(box_id)
        if box is not None and box.name != made.id:
            return AcceptResult.UNKNOWN
        accept_result = await self._store.accept(answer_mail(box_id, key, made.selected))
        return AcceptResult.UNWANTED if accept_result is AcceptResult.UNKNOWN else accept_result

    async def _report(self, taken: TakenPost, delivery_outcome: DeliveryOutcome) -> FollowUp:
        if taken.outgoing.kind == PostKind.QUESTION:
            return report_question(taken, delivery_outcome)
        return await self._subscriptions.report(taken, delivery_outcome)

    async def _wake(self, box: str, key: str, error: str | None) -> bool:
        accept_result = await self._store.accept(answer_mail(box, key, error=error))
        return accept_result in (AcceptResult.ACCEPTED, AcceptResult.DUPLICATE)

    async def emit(self, topic: str, payload: object, id: str | None) -> None:
        """Make an event of a topic durable; it reaches all that are subscribed by then."""
        await self._topics.emit(topic, payload, id)

    async def problem(self) -> str | None:
        """Why invocations cannot be accepted now, or are not worked on; None if they are. As the last renewal of the lease has found."""
        if problem := self._maintenance.store_problem:
            return problem
        healthy = all(each.healthy for each in self._at_work) and not any(task.done() for task in self._background)
        return None if healthy else NOT_WORKING

    @property
    def _at_work(self) -> "tuple[CallRunner | SubscriptionRunner | Topics | Resources | OutboxSender, ...]":
        return (self._worker, self._subscriptions, self._topics, self._resources, self._outbox_sender)

    def _measure(self) -> None:
        for name, says, function in (
            ("rapkit_handlers_running", "Handlers that run now.", lambda: self._worker.running),
            (
                "rapkit_backlog",
                "Accepted calls that have not ended and wait for nobody.",
                lambda: self._backlog.total(),
            ),
            ("rapkit_callbacks_under_way", "POSTs being made now.", lambda: self._outbox_sender.under_way),
            (
                "rapkit_silent_origins",
                "Origins that left their last POST unanswered.",
                lambda: self._outbox_sender.silent_origins,
            ),
            ("rapkit_subscriptions_running", "Subscriptions at work now.", lambda: self._subscriptions.running),
        ):
            self.metrics.gauge(name, says, function)

    def _origin_of(self, url: str) -> str:
        try:
            return self._guard.check_url(url).origin
        except ForbiddenTarget:
            # Allowed when it was accepted, and no longer: the outbox sender will give it up, and say why.
            return _UNKNOWN_ORIGIN

    async def _quiet(self, thread: str) -> None:
        """Return when nothing of a closed thread runs here any more."""
        await self._worker.quiet(thread)
        await self._subscriptions.quiet(thread)

    def _has_too_much(self, caller: str) -> bool:
        limits = self._config.limits
        return self._backlog.total() >= limits.backlog or self._backlog[caller] >= limits.of_one_caller(limits.backlog)

    def _one_less(self, caller: str) -> None:
        self._backlog[caller] -= 1

    async def start(self) -> None:
        """Begin to work."""
        await self._store.renew(self._name)
        self._backlog = Counter(await self._store.backlog_of_shares(self._kind))
        if self._backlog:
            log.info(
                "calls from before are taken up: %d; those of a server that was lost, within %g s",
                self._backlog.total(),
                self._store.lease.seconds,
            )
        self._background = [
            background.start(work, what)
            for work, what in (
                (self._maintenance.renew, "renewing the lease"),
                (self._outbox_sender.run, "delivering callbacks"),
                (self._worker.run, "running calls"),
                (self._subscriptions.run, "running subscriptions"),
                (self._topics.run, "passing events on"),
                (self._resources.run, "looking after threads"),
                (self._count_backlog, "counting the backlog"),
                (self._maintenance.sweep, "sweeping"),
            )
        ]

    async def stop(self) -> None:
        """End in order: no new work, let running handlers end, deliver what they said, leave the rest to the next start."""
        renewing, delivering, *others = self._background
        grace = self._config.durations.grace
        try:
            await background.end(*others)
            await asyncio.gather(
                self._worker.drain(grace),
                self._subscriptions.drain(grace),
                self._topics.drain(grace),
                self._resources.drain(grace),
            )
            self._services.thread_pool.close()
            self._resources.close()
            await self.oauth.aclose()
            await self._maintenance.drain_outbox(grace)
            await background.end(delivering)
            await self._outbox_sender.drain(grace)
        finally:
            # Also on a hurried stop: the next process need not wait for the end of this lease.
            await background.end(renewing, delivering)
            await self._maintenance.retire()

    async def abandon(self) -> None:
        """End as a process that is killed: nothing is finished, nothing given back. For tests, whose stores refuse us from then on."""
        await background.end(*self._background)
        await asyncio.gather(*(each.drain(0) for each in self._at_work))
        self._services.thread_pool.close()
        self._resources.close()

    async def _count_backlog(self) -> None:
        while True:
            await asyncio.sleep(_COUNT_BACKLOG_EVERY)
            with contextlib.suppress(StoreError):  # an estimate: the operations that matter report the failure
                self._backlog = Counter(await self._store.backlog_of_shares(self._kind))


@contextlib.asynccontextmanager
async def run_engine(
    config: ToolsetConfig, environment: ToolsetEnvironment | None = None
) -> AsyncIterator[ToolsetEngine]:
    """Open the store, work as long as the context lasts, then end in order."""
    environment = environment or ToolsetEnvironment()
    store = environment.open_store(config)
    try:
        guard = Guard(config.allow_callbacks, config.loopback_callbacks, resolver=NameResolver(config.limits.lookups))
        certificate = config.callback_certificate
        timeouts = DeliveryTimeouts(config.durations.connect, config.durations.response)
        ours = HttpClient(guard, timeouts, certificate=certificate) if certificate else None
        async with ours or environment.open_client(guard, timeouts) as client:
            engine = ToolsetEngine(config, store, client, guard, environment)
            await engine.start()
            try:
                yield engine
            finally:
                await (engine.abandon() if environment.is_lost() else engine.stop())
    finally:
        await store.close()
