"""A runtime in a process of its own, that can be told at which moment to die.

    python -m tests.crash.runtime.runtime_process SETTINGS

SETTINGS is JSON; see `Settings`. What it claims, is told and sends is written to the trace.
"""

import asyncio
import contextlib
import json
import random
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from rapkit.delivery.guard import Guard
from rapkit.delivery.http_client import HttpClient
from rapkit.delivery.retry import POLICIES, PostKind, RetryPolicy
from rapkit.http.authentication import Callers
from rapkit.http.http_server import listen, serve_until_signal
from rapkit.kernel.completion import Question, Reply
from rapkit.kernel.limits import Confirmations, ThreadLimits, Timeouts
from rapkit.logs import set_up_logging
from rapkit.mailbox import Lease, Store
from rapkit.models.scripted import Scripted
from rapkit.runtime.app import make_app
from rapkit.runtime.config import AgentConfig, Capacity, Patience
from rapkit.runtime.engine import AgentEngine, AgentEnvironment, run_engine
from rapkit.runtime.in_process import Transport
from rapkit.runtime.server import Server
from rapkit.stores import open_store
from tests.crash.runtime.hurry import Hurry
from tests.crash.runtime.model import reply_to
from tests.crash.runtime.trace import Trace
from tests.crash.runtime.watching import Moments, WatchedDoor, WatchedLine, WatchedStore
from tests.kernel import strict_provider

_QUICKLY = RetryPolicy(first=0.2, factor=1.5, cap=1.0, horizon=600)
_HOST = "127.0.0.1"
_TIMEOUT = 0.4
# So small that there are summaries, questions nobody answers and results that come too late, all the time.
LIMITS = ThreadLimits(
    children=2,
    mistakes=50,
    window=14,
    timeouts=Timeouts(tools={"a_late": _TIMEOUT, "b_late": _TIMEOUT}),
    confirmations=Confirmations("never", {"a_wipe": "always", "b_wipe": "remembered"}),
    remember_expired=2.0,
)


@dataclass(frozen=True)
class Settings:
    """`servers` are base URLs by prefix. `die` are moments at which the process ends itself, whichever comes first.

    The clock of schedules, if there are any, goes fast from `begin` on, until a time is written into the file `end`.
    """

    port: int
    public_url: str
    store: str
    trace: str
    servers: dict[str, str]
    lease: float
    slowest: float = 0.1
    die: tuple[str, ...] = ()
    question_timeout: float = 6.0
    schedules: bool = False
    begin: float = 0.0
    end: str = "schedules.end"


def serve(settings: Settings) -> None:
    """Run until a signal, or until the moment has come."""
    trace = Trace(settings.trace)
    moments = Moments(settings.die, trace)
    hurry = Hurry(settings.begin, Path(settings.end))

    async def answering(question: Question) -> Reply:
        try:
            strict_provider.accept_question(question.conversation)
        except AssertionError as error:
            trace.write(what="unacceptable", problem=str(error))
        reply = reply_to(question)
        moments.come("in a summary" if question.for_summary else "in the model")
        await asyncio.sleep(random.uniform(0, settings.slowest))
        return reply

    config = AgentConfig(
        model=Scripted(answering),
        servers=tuple(Server(url, prefix=prefix) for prefix, url in settings.servers.items()),
        store=settings.store,
        public_url=settings.public_url,
        limits=replace(LIMITS, question_timeout=settings.question_timeout),
        schedules=hurry.schedules if settings.schedules else (),
        patience=Patience(lease=settings.lease, grace=2.0, rediscover=0.5),
        policies={**POLICIES, PostKind.INVOCATION: _QUICKLY, PostKind.ANSWER: _QUICKLY},
    )

    @contextlib.asynccontextmanager
    async def line(guard: Guard) -> AsyncIterator[Transport]:
        async with HttpClient(guard) as client:
            yield WatchedLine(client, trace, moments)

    def store(config: AgentConfig) -> Store:
        opened = open_store(config.store, lease=Lease(config.patience.lease))
        return cast("Store", WatchedStore(opened, trace, moments, hurry))

    engine: AgentEngine | None = None

    def found() -> AgentEngine:
        assert engine is not None
        return engine

    @contextlib.asynccontextmanager
    async def lifespan(_app: object = None) -> AsyncIterator[None]:
        nonlocal engine
        async with run_engine(config, AgentEnvironment(open_store=store, open_transport=line)) as engine:
            yield

    app = make_app(engine=found, callers=Callers({}), capacity=Capacity(), toolsets=(), lifespan=lifespan)
    with listen(_HOST, settings.port) as listener:
        serve_until_signal(
            WatchedDoor(app, trace, moments), listener, lifespan(), on_start=lambda: None, ending="slices end"
        )


if __name__ == "__main__":
    set_up_logging("json", "info")
    serve(Settings(**json.loads(sys.argv[1])))
