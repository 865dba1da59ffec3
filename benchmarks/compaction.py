"""What a conversation costs that goes on and on: how much the model is shown of it, and how long a turn takes.

The model answers at once, and sums up what it is shown whenever it is asked to. A turn is timed from the user's message to the answer.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.wakes import Tools, agent
from rapkit.kernel.completion import Question, Reply, Usage
from rapkit.kernel.entries import ModelSaid
from rapkit.kernel.window import turn_size
from rapkit.models.scripted import Scripted

CONTEXT_WINDOW = 8000
WORDS = "The harbour master says that the third crane is to be looked at before noon. " * 4


@dataclass(frozen=True)
class Long:
    """What a long conversation took: how long its turns did, in seconds, the largest question in characters, how many summaries."""

    times: Sequence[float]
    largest: int
    summaries: int


class _Model:
    def __init__(self) -> None:
        self.largest = 0
        self.summaries = 0

    def reply(self, question: Question) -> Reply:
        size = sum(map(turn_size, question.conversation))
        self.largest = max(self.largest, size)
        self.summaries += question.for_summary
        text = "They talked about cranes." if question.for_summary else f"I see. {WORDS}"
        return Reply(text, usage=Usage(1, size // 4, len(text) // 4))


async def talk(folder: Path, turns: int) -> Long:
    """A conversation of so many turns."""
    model = _Model()
    scripted = Scripted(model.reply, context_window=CONTEXT_WINDOW)
    async with agent(f"sqlite:///{folder}/long.db", Tools(), model=scripted, window=500, compaction=True) as engine:
        thread_id = await engine.threads.create()
        answered = asyncio.Event()

        async def listen() -> None:
            async for event in engine.threads.follow(thread_id):
                if event.line is not None and isinstance(event.line.entry, ModelSaid):
                    answered.set()

        listening = asyncio.create_task(listen())
        times = []
        for turn in range(turns):
            answered.clear()
            begun = time.perf_counter()
            await engine.threads.send(thread_id, f"Message {turn}. {WORDS}")
            await answered.wait()
            times.append(time.perf_counter() - begun)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    return Long(times, model.largest, model.summaries)
