"""An agent whose threads wait for a tool, are woken by its result, ask the model, and wait again.

A wake is all of it: the result comes in at the callback's door and is durable, the thread is claimed and loaded, the result is journaled,
the model is asked, its reply with the next call is committed, and that call is delivered. The model answers at once, and the tool server
is a function: what is measured is the runtime and its store.
"""

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.figures import Figures
from rapkit.delivery.guard import Guard
from rapkit.delivery.http_client import HttpResponse
from rapkit.kernel.completion import Question, Reply, WantedCall
from rapkit.kernel.limits import ThreadLimits
from rapkit.models import Model
from rapkit.models.scripted import Scripted
from rapkit.runtime.config import AgentConfig
from rapkit.runtime.engine import AgentEngine, AgentEnvironment, run_engine
from rapkit.runtime.server import Server

WINDOW = 10
"""How many entries of its journal the model is shown, at least."""

BASE = "http://127.0.0.1:1"
CALLBACK = "http://127.0.0.1:2/callback/"
TOOLSET = {
    "name": "adder",
    "endpoint": f"{BASE}/invoke",
    "tools": [{"name": "next", "description": "What is next?", "inputSchema": {"type": "object"}}],
}


def _reply(_question: Question) -> Reply:
    return Reply(calls=(WantedCall("p", "next", {}),))


class Tools:
    """The tool server: it keeps what it is called for, and answers when it is told to."""

    def __init__(self) -> None:
        self.calls: deque[dict[str, Any]] = deque()
        self.on_call: Callable[[], None] = lambda: None

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
        """An invocation."""
        self.calls.append(json.loads(body))
        self.on_call()
        return HttpResponse(200)

    async def get(self, url: str, headers: Mapping[str, str], *, limit: int) -> tuple[int, bytes]:
        """Discovery."""
        return 200, json.dumps(TOOLSET).encode()


@contextlib.asynccontextmanager
async def agent(
    store: str, tools: Tools, window: int = WINDOW, *, model: Model | None = None, compaction: bool = False
) -> AsyncIterator[AgentEngine]:
    """An agent at work on that store with that tool server."""

    @contextlib.asynccontextmanager
    async def line(_guard: Guard) -> AsyncIterator[Tools]:
        yield tools

    config = AgentConfig(
        model=model or Scripted(_reply),
        servers=(Server(BASE),),
        store=store,
        public_url=CALLBACK.removesuffix("/callback/"),
        limits=ThreadLimits(window=window, compaction=compaction),
    )
    async with run_engine(config, AgentEnvironment(open_transport=line)) as engine:
        yield engine


async def answer(engine: AgentEngine, call: dict[str, Any], text: str = "42") -> None:
    """The result of a call, at the callback's door."""
    result = {"type": "tool_result", "group_id": call["group_id"], "id": call["id"], "text": text}
    called = engine.callbacks.call_of(call["callback_url"].removeprefix(CALLBACK))
    await engine.callbacks.accept(called, json.dumps(result).encode(), {})


async def measure(folder: Path, seconds: float, threads: int, at_once: int) -> Figures:
    """Wake so many threads in turn for so long, a number of them at once."""
    tools = Tools()
    async with agent(f"sqlite:///{folder}/rapkit.db", tools) as engine:
        for _ in range(threads):
            await engine.threads.create(text="Begin.")
        while len(tools.calls) < threads:
            await asyncio.sleep(0.01)
        figures = Figures()
        answering: set[asyncio.Task[None]] = set()

        def wake_oldest() -> None:
            """Whenever a thread waits again, the one that has waited longest is woken."""
            if figures.seconds == 0.0:
                task = asyncio.create_task(answer(engine, tools.calls.popleft()))
                answering.add(task)
                task.add_done_callback(answering.discard)
                figures.calls += 1

        tools.on_call = wake_oldest
        begun = time.perf_counter()
        for _ in range(at_once):
            wake_oldest()
        await asyncio.sleep(seconds)
        figures.seconds = time.perf_counter() - begun
        figures.calls -= at_once  # they are under way
        await asyncio.gather(*answering)
    return figures
