"""What waiting costs: a million threads that wait for a tool, and one thread that has gone on for very long.

A wake is timed from the moment a result comes in at the callback's door until the call that follows from it reaches the tool server.
"""

import asyncio
import resource
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.wakes import Tools, agent, answer
from rapkit.kernel.entries import MadeCall, ModelSaid, UserSaid, dump_entry
from rapkit.kernel.thread import Pending, Thread, dump_thread
from rapkit.mailbox import Commit, Entry, NewBox, Record
from rapkit.runtime.engine import AgentEngine
from rapkit.runtime.toolsets import THREAD
from rapkit.stores import open_store

BATCH = 500


@dataclass(frozen=True)
class Wakes:
    """How long wakes took, in seconds, and the memory of the process after them, in MB."""

    times: Sequence[float]
    megabytes: float

    @property
    def p50_ms(self) -> float:
        return 1000 * statistics.median(self.times)

    @property
    def p99_ms(self) -> float:
        return 1000 * statistics.quantiles(self.times, n=100)[-1]


async def fill(folder: Path, threads: int) -> None:
    """Put threads into a store, each of which has made a call and waits for its result."""
    store = open_store(_store(folder))
    await store.renew("filler")

    async def put(number: int) -> None:
        thread_id = f"thr_{number:024x}"
        pending = {"call_1": Pending("next", {}, "http://127.0.0.1:1", "next", 0.0)}
        state = dump_thread(Thread(thread_id, length=2, shown=2, calls_made=1, pending=pending))
        claim = await store.create_claimed(NewBox(thread_id, THREAD, state, root=thread_id), "filler")
        assert claim is not None
        said = (UserSaid("Begin."), ModelSaid(calls=(MadeCall("call_1", "next", {}),)))
        entries = [Entry(each.kind, dump_entry(each)) for each in said]
        await store.commit(claim, Commit(entries=entries, put=[Record("live", "call_1")], status="waiting"))

    for first in range(0, threads, BATCH):
        await asyncio.gather(*map(put, range(first, min(first + BATCH, threads))))
    await store.retire("filler")
    await store.close()


async def wake_some(folder: Path, threads: int, wakes: int) -> Wakes:
    """Wake some of the threads a store was filled with, one after the other, spread over all of them."""
    tools = Tools()
    async with agent(_store(folder), tools) as engine:
        times = []
        for number in range(wakes):
            thread_id = f"thr_{number * (threads // wakes):024x}"
            times.append(await _wake(engine, tools, {"group_id": thread_id, "id": "call_1"}))
        return Wakes(times, _megabytes())


async def wake_long(folder: Path, entries: int, wakes: int, window: int) -> Wakes:
    """Wake one thread, again and again, whose journal is that long already."""
    tools = Tools()
    async with agent(f"sqlite:///{folder}/long.db", tools, window) as engine:
        await engine.threads.create(text="Begin.")
        call = await _next_call(tools)
        length = 2
        while length < entries:
            await answer(engine, call)
            call = await _next_call(tools)
            length += 2
        times = []
        for _ in range(wakes):
            times.append(await _wake(engine, tools, call))
            call = tools.calls.popleft()
        return Wakes(times, _megabytes())


async def _wake(engine: AgentEngine, tools: Tools, call: dict[str, Any]) -> float:
    called = asyncio.Event()
    tools.on_call = called.set
    begun = time.perf_counter()
    await answer(engine, {"callback_url": engine.callback_url(call["group_id"], call["id"]), **call})
    await called.wait()
    return time.perf_counter() - begun


async def _next_call(tools: Tools) -> dict[str, Any]:
    called = asyncio.Event()
    tools.on_call = called.set
    if not tools.calls:
        await called.wait()
    return tools.calls.popleft()


def _store(folder: Path) -> str:
    return f"sqlite:///{folder}/threads.db"


def _megabytes() -> float:
    """The memory this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1024**2
