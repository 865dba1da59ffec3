"""A runtime in a process of its own, that can be told at which moment to die.

    python -m tests.crash.runtime.runtime_process SETTINGS

SETTINGS is JSON; see `Settings`. What it claims, is told and sends is written to the trace.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rapkit.delivery.client import Answer, HttpClient
from rapkit.delivery.guard import Guard
from rapkit.delivery.retry import POLICIES, Kind, RetryPolicy
from rapkit.http.callers import Callers
from rapkit.http.serving import listen, serve_until_signal
from rapkit.kernel.completion import Question, Reply
from rapkit.kernel.limits import ThreadLimits
from rapkit.logs import set_up_logging
from rapkit.mailbox import Claim, Commit, Fact, Lease, Letter, NewBox, Reception, Settlement, Store, Taken
from rapkit.models.scripted import Scripted
from rapkit.runtime.app import make_app
from rapkit.runtime.engine import Engine, Surroundings, running
from rapkit.runtime.in_process import Line
from rapkit.runtime.plan import Capacity, Patience, Plan
from rapkit.runtime.server import Server
from rapkit.stores import open_store
from tests.crash.runtime.model import reply_to
from tests.crash.runtime.trace import Trace
from tests.kernel import strict

_QUICKLY = RetryPolicy(first=0.2, factor=1.5, cap=1.0, horizon=600)
_HOST = "127.0.0.1"
LIMITS = ThreadLimits(children=2)


@dataclass(frozen=True)
class Settings:
    """`servers` are base URLs by prefix. `die` is the moment at which the process ends itself, the first time it comes; "" for never."""

    port: int
    public_url: str
    store: str
    trace: str
    servers: dict[str, str]
    lease: float
    slowest: float = 0.1
    die: str = ""


class Moments:
    """Things that happen, by name; one of them is the last."""

    def __init__(self, last: str) -> None:
        self._last = last

    def come(self, moment: str) -> None:
        if moment == self._last:
            os.kill(os.getpid(), signal.SIGKILL)


class WatchedStore:
    """A store that tells what is claimed and for how long."""

    def __init__(self, store: Store, trace: Trace, moments: Moments) -> None:
        self._store = store
        self._trace = trace
        self._moments = moments

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def create(self, box: NewBox, letter: Letter | None = None) -> bool:
        self._moments.come("before create")
        made = await self._store.create(box, letter)
        self._moments.come("after create")
        return made

    async def note(self, box: NewBox, fact: Fact, expect: bytes | EllipsisType | None = ...) -> bool:
        written = await self._store.note(box, fact, expect)
        self._moments.come(f"after note {box.kind}")
        return written

    async def accept(self, letter: Letter) -> Reception:
        kind = letter.kind.partition("/")[0]
        self._moments.come(f"before accept {kind}")
        reception = await self._store.accept(letter)
        self._moments.come(f"after accept {kind}")
        return reception

    async def accept_claimed(self, letter: Letter, worker: str) -> tuple[Reception, Claim | None]:
        kind = letter.kind.partition("/")[0]
        self._moments.come(f"before accept {kind}")
        reception, claim = await self._store.accept_claimed(letter, worker)
        self._moments.come(f"after accept {kind}")
        self._claimed([] if claim is None else [claim])
        return reception, claim

    async def claim(self, worker: str, kind: str, limit: int) -> list[Claim]:
        claims = await self._store.claim(worker, kind, limit)
        self._claimed(claims)
        return claims

    def _claimed(self, claims: list[Claim]) -> None:
        for claim in claims:
            self._trace.write(what="claimed", box=claim.box.id, epoch=claim.epoch)
            self._moments.come("after claim")

    async def commit(self, claim: Claim, commit: Commit, sender: str | None = None) -> list[Taken]:
        name = _name_of(commit)
        self._moments.come(f"before commit {name}")
        if not commit.keep:
            self._trace.write(what="released", box=claim.box.id, epoch=claim.epoch)
        taken = await self._store.commit(claim, commit, sender)
        self._moments.come(f"after commit {name}")
        return taken

    async def settle(self, taken: Taken, settlement: Settlement) -> None:
        self._moments.come(f"before settle {taken.outgoing.kind}")
        await self._store.settle(taken, settlement)
        self._moments.come(f"after settle {taken.outgoing.kind}")


def _name_of(commit: Commit) -> str:
    """What a commit is for."""
    kinds = {entry.kind for entry in commit.entries}
    if commit.spawn:
        return "child"
    for kind in ("closed", "chosen"):
        if kind in kinds:
            return kind
    if commit.keep:
        return "journal"
    if "assistant" in kinds:
        return "calls" if commit.outgoing else "answer"
    return "other"


class WatchedLine:
    """A way out that tells what is sent."""

    def __init__(self, line: HttpClient, trace: Trace, moments: Moments) -> None:
        self._line = line
        self._trace = trace
        self._moments = moments

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        message = json.loads(body)
        if "operation" not in message:
            return await self._line.post(url, body, headers)
        ids = {"thread": message["group_id"], "call": message["id"], "message": headers["webhook-id"]}
        self._trace.write(what="invoking", **ids)
        self._moments.come("before post")
        answer = await self._line.post(url, body, headers)
        self._trace.write(what="invoked", status=answer.status, **ids)
        self._moments.come("after post")
        return answer

    async def get(self, url: str, headers: Mapping[str, str], *, limit: int) -> tuple[int, bytes]:
        return await self._line.get(url, headers, limit=limit)


class WatchedDoor:
    """An app that tells what tools were answered. It is written down before it is said."""

    def __init__(self, app: ASGIApp, trace: Trace, moments: Moments) -> None:
        self._app = app
        self._trace = trace
        self._moments = moments

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/callback/"):
            await self._app(scope, receive, send)
            return
        body = b""
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
        ids = _ids(body, dict(scope["headers"]))
        self._trace.write(what="heard", **ids)

        async def again() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._trace.write(what="answered", status=message["status"], **ids)
                self._moments.come("before answer")
            await send(message)

        await self._app(scope, again, answer)


def _ids(body: bytes, headers: Mapping[bytes, bytes]) -> dict[str, Any]:
    said = json.loads(body)
    return {
        "message": headers[b"webhook-id"].decode(),
        "type": said["type"],
        "thread": said["group_id"],
        "call": said.get("id") or said.get("tool_call_id") or "",
        "text": said.get("text") or said.get("prompt") or said.get("view_type") or "",
    }


def serve(settings: Settings) -> None:
    """Run until a signal, or until the moment has come."""
    trace = Trace(settings.trace)
    moments = Moments(settings.die)

    async def answering(question: Question) -> Reply:
        try:
            strict.accept_question(question.conversation)
        except AssertionError as error:
            trace.write(what="unacceptable", problem=str(error))
        reply = reply_to(question)
        moments.come("in the model")
        await asyncio.sleep(random.uniform(0, settings.slowest))
        return reply

    plan = Plan(
        model=Scripted(answering),
        servers=tuple(Server(url, prefix=prefix) for prefix, url in settings.servers.items()),
        store=settings.store,
        public_url=settings.public_url,
        limits=LIMITS,
        patience=Patience(lease=settings.lease, grace=2.0, rediscover=0.5),
        policies={**POLICIES, Kind.INVOCATION: _QUICKLY, Kind.ANSWER: _QUICKLY},
    )

    @contextlib.asynccontextmanager
    async def line(guard: Guard) -> AsyncIterator[Line]:
        async with HttpClient(guard) as client:
            yield WatchedLine(client, trace, moments)

    def store(plan: Plan) -> Store:
        watched = WatchedStore(open_store(plan.store, lease=Lease(plan.patience.lease)), trace, moments)
        return cast("Store", watched)

    engine: Engine | None = None

    def found() -> Engine:
        assert engine is not None
        return engine

    @contextlib.asynccontextmanager
    async def lifespan(_app: object = None) -> AsyncIterator[None]:
        nonlocal engine
        async with running(plan, Surroundings(open_store=store, open_line=line)) as engine:
            yield

    app = make_app(engine=found, callers=Callers({}), capacity=Capacity(), toolsets=(), lifespan=lifespan)
    with listen(_HOST, settings.port) as listener:
        serve_until_signal(
            WatchedDoor(app, trace, moments), listener, lifespan(), on_start=lambda: None, ending="slices end"
        )


if __name__ == "__main__":
    set_up_logging("json", "info")
    serve(Settings(**json.loads(sys.argv[1])))
