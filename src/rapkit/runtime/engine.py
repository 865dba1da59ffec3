"""A running agent: its store, its receiver and its workers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from rapkit.clock import Clock, SystemClock
from rapkit.delivery.guard import Guard
from rapkit.delivery.http_client import HttpClient
from rapkit.delivery.name_resolver import NameResolver
from rapkit.errors import ConfigError
from rapkit.http.health import NOT_WORKING
from rapkit.ids import new_id
from rapkit.mailbox import AcceptResult, Lease, NewMail, Store
from rapkit.models.model import kept_open
from rapkit.runtime.broadcast import Broadcast
from rapkit.runtime.callback_signatures import CallbackSignatures
from rapkit.runtime.callback_urls import CallbackUrls
from rapkit.runtime.callbacks import CallbackReceiver
from rapkit.runtime.config import AgentConfig
from rapkit.runtime.discovery import Discovery, InThread
from rapkit.runtime.dispatch import Dispatch
from rapkit.runtime.due_timer import DueTimer, next_due_time
from rapkit.runtime.event_feed import check_state
from rapkit.runtime.in_process import Transport, TransportRouter, place_of
from rapkit.runtime.late_subscriptions import LateSubscriptions
from rapkit.runtime.metrics import AgentMetrics
from rapkit.runtime.schedules import Schedules
from rapkit.runtime.stable_port import record_receiver, warn_if_url_differs
from rapkit.runtime.thread_commands import ThreadCommands
from rapkit.runtime.toolsets import THREAD, Toolsets
from rapkit.runtime.wake_hook import WakeHook
from rapkit.runtime.worker import TOPICS, Worker, WorkerServices
from rapkit.signer import Signer
from rapkit.stores import open_store
from rapkit.tracing import Tracing
from rapkit.work import background
from rapkit.work.maintenance import Maintenance


@dataclass(frozen=True, slots=True)
class AgentEnvironment:
    """The environment of a running agent: clock, store, network. Tests bring their own.

    `is_lost` is asked when the work ends: whether it is to end as in a process that was killed, with nothing brought to an end.
    """

    clock: Clock = field(default_factory=SystemClock)
    open_store: Callable[[AgentConfig], Store] = lambda config: open_store(
        config.store, lease=Lease(config.patience.lease)
    )
    open_transport: Callable[[Guard], contextlib.AbstractAsyncContextManager[Transport]] = HttpClient
    in_thread: InThread = asyncio.to_thread
    tracing: Tracing = field(default_factory=Tracing)
    is_lost: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True)
class WakeResult:
    """What was done when an agent was woken: how many threads ran, how many POSTs were delivered; and when there is more to do."""

    threads: int
    posts: int
    next: datetime | None


class AgentEngine:
    """An agent on an open store: it receives, and runs a worker, permanently or when woken. Made by `open_engine` or `run_engine`."""

    def __init__(self, config: AgentConfig, store: Store, transport: Transport, environment: AgentEnvironment) -> None:
        self._config = config
        self._store = store
        self._clock = environment.clock
        self._name = new_id("receiver")
        self._maintenance = Maintenance(store, self._name, config.patience.dead_letters)
        self._configured = False
        self._worker: Worker | None = None
        self._wakes: dict[asyncio.Task[WakeResult], Worker] = {}
        self._due_timer: asyncio.Task[None] | None = None
        self._wake_hook = WakeHook(config.on_accept)
        self.metrics = AgentMetrics(partial(store.load, THREAD))
        self.broadcast = Broadcast()
        self._callback_urls = callback_urls = CallbackUrls(config.public_url, Signer(store.derive("rapkit callbacks")))
        dispatch = Dispatch(config.servers, callback_urls, Guard(_origins(config), loopback=True))
        discovery = Discovery(transport, environment.in_thread, config.capacity.values)
        self.toolsets = Toolsets(store, discovery, config.servers, environment.clock, config.patience.rediscover)
        self._worker_services = WorkerServices(
            config,
            store,
            transport,
            environment.clock,
            self.toolsets,
            dispatch,
            self.broadcast,
            self.metrics,
            environment.tracing,
        )
        self.threads = ThreadCommands(
            store, self.broadcast, environment.clock.now, self._interrupt, self._wake_hook.trigger, config.limits
        )
        self.callbacks = CallbackReceiver(
            self._accept,
            store.remembers,
            callback_urls,
            LateSubscriptions(store, dispatch, self._wake_hook.trigger),
            CallbackSignatures(config.servers, store, environment.clock),
        )
        self.metrics.gauge(
            "rapkit_slices_running", "Slices that run now.", lambda: sum(each.running for each in self._workers)
        )
        self.metrics.gauge(
            "rapkit_posts_under_way", "POSTs being made now.", lambda: sum(each.under_way for each in self._workers)
        )
        self.metrics.gauge(
            "rapkit_silent_origins",
            "Origins that left their last POST unanswered.",
            lambda: sum(each.silent_origins for each in self._workers),
        )

    @property
    def config(self) -> AgentConfig:
        """What the agent is."""
        return self._config

    @property
    def works(self) -> bool:
        """Whether this process works on threads by itself."""
        return self._worker is not None

    def callback_url(self, thread_id: str, call_id: str) -> str:
        """The callback URL of a call. A holder of it can speak into the conversation."""
        return self._callback_urls.callback_url(thread_id, call_id, "")

    @property
    def _workers(self) -> list[Worker]:
        return [*self._wakes.values(), *([self._worker] if self._worker else ())]

    # Receiving

    async def _accept(self, new_mail: NewMail) -> AcceptResult:
        await check_state(self._store, new_mail.box)
        accept = self._store.accept if self._worker is None else self._worker.accept
        accept_result = await accept(new_mail)
        if accept_result in (AcceptResult.ACCEPTED, AcceptResult.DUPLICATE):
            self._wake_hook.trigger(
                new_mail.box
            )  # for a duplicate too: the process that accepted it first may have died before it called the hook
        return accept_result

    def _interrupt(self, thread_id: str) -> None:
        for active_worker in self._workers:
            active_worker.interrupt(thread_id)

    async def problem(self) -> str | None:
        """Why messages cannot be accepted now, or with a worker are not worked on; None if they are.

        As the last renewal of the lease has found; without a worker, which renews one, it is found out now, but not at every request.
        """
        if self.broadcast.over:
            return "The process is about to stop."
        if self._worker is None:
            await self._maintenance.check_store()
        if problem := (self._maintenance if self._worker is None else self._worker.maintenance).store_problem:
            return problem
        healthy = (self._worker is None or self._worker.healthy) and not (self._due_timer and self._due_timer.done())
        return None if healthy else NOT_WORKING

    # Working

    async def start(self, *, worker: bool) -> None:
        """Start the worker; without one, only call the wake hook when there is something to do."""
        await self._configure()
        if worker:
            active_worker = Worker(self._worker_services)
            await active_worker.start()
            self._worker = active_worker
            return
        await record_receiver(self._store, self._config.public_url)
        if self._config.on_accept is not None:
            alarm = DueTimer(self._store, TOPICS, self._clock, self._wake_hook)
            self._due_timer = background.start(alarm.run, "looking at what is due")

    async def _configure(self) -> None:
        """Have the store know the schedules: they are due for the next worker."""
        if not self._configured and self._config.schedules is not None:
            await Schedules(self._store, self._name, self._config.schedules, self._clock.now).reconcile()
        self._configured = True

    async def wake(self, at_most: float | None = None) -> WakeResult:
        """Do what is due until nothing is, and nothing that was begun still runs; after `at_most` seconds nothing more is begun."""
        if self._worker is not None:
            raise ConfigError(
                "The agent runs with a worker, which does what is due by itself. Only one without is woken: Agent(worker=False)."
            )
        await self._configure()
        await warn_if_url_differs(self._store, self._config.public_url)
        active_worker = Worker(self._worker_services)
        task = asyncio.create_task(self._wake(active_worker, at_most))
        self._wakes[task] = active_worker
        task.add_done_callback(self._wakes.pop)
        return await task

    async def _wake(self, active_worker: Worker, at_most: float | None) -> WakeResult:
        await active_worker.finish(at_most)
        seconds = await next_due_time(self._store, TOPICS)
        later = None if seconds is None else datetime.fromtimestamp(self._clock.now() + seconds, UTC)
        return WakeResult(active_worker.threads, active_worker.posts, later)

    # Ending

    async def stop(self) -> None:
        """End in order: what runs is let end, what was said is sent, the rest is left to the next start."""
        if self._due_timer is not None:
            await background.end(self._due_timer)
        try:
            if self._worker is not None:
                await self._worker.stop()
            for active_worker in self._wakes.values():
                active_worker.hurry()
            await asyncio.gather(*self._wakes, return_exceptions=True)
        finally:
            await self.toolsets.close()
            await self._wake_hook.close()

    async def abandon(self) -> None:
        """End as a process that is killed: nothing is finished, nothing given back. For tests, whose stores refuse us from then on."""
        await background.end(*self._wakes, *([self._due_timer] if self._due_timer else ()))
        if self._worker is not None:
            await self._worker.abandon()
        await asyncio.gather(self.toolsets.close(), self._wake_hook.close())


@contextlib.asynccontextmanager
async def open_engine(config: AgentConfig, environment: AgentEnvironment | None = None) -> AsyncIterator[AgentEngine]:
    """Open the store as long as the context lasts. Nothing is worked on unless it is woken."""
    environment = environment or AgentEnvironment()
    store = environment.open_store(config)
    lookups = NameResolver(config.capacity.lookups)
    try:
        async with (
            environment.open_transport(Guard(_origins(config), resolver=lookups)) as far,
            environment.open_transport(Guard(loopback=True, resolver=lookups)) as near,
            _certified(config, lookups) as certified,
            kept_open(config.model),
        ):
            engine = AgentEngine(config, store, TransportRouter(far, near, config.toolsets, certified), environment)
            try:
                yield engine
            finally:
                await (engine.abandon() if environment.is_lost() else engine.stop())
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def run_engine(
    config: AgentConfig, environment: AgentEnvironment | None = None, *, worker: bool = True
) -> AsyncIterator[AgentEngine]:
    """Open the store, work as long as the context lasts, then end in order. Without a worker it only receives, until it is woken."""
    async with open_engine(config, environment) as engine:
        await engine.start(worker=worker)
        yield engine


@contextlib.asynccontextmanager
async def _certified(config: AgentConfig, lookups: NameResolver) -> AsyncIterator[dict[str, Transport]]:
    """Lines that show the client certificates of servers, by the origins of these."""
    lines: dict[str, Transport] = {}
    async with contextlib.AsyncExitStack() as stack:
        for server in config.servers:
            if server.certificate is not None:
                allow = [] if server.is_local else [server.origin]
                guard = Guard(allow, loopback=server.is_local, resolver=lookups)
                client = HttpClient(guard, certificate=server.certificate)
                lines[place_of(server.url)] = await stack.enter_async_context(client)
        yield lines


def _origins(config: AgentConfig) -> list[str]:
    """Configured servers are dialled wherever they are; those on this machine have a line of their own."""
    return [server.origin for server in config.servers if not server.is_local]
