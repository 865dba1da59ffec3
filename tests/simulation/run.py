"""A run: some threads at once on one server, which is lost now and then; then peace, so that everything can come to its end."""

import asyncio
import contextlib
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from rapkit.server.invocation import call_kind, subscription_kind, thread_key, thread_kind, topic_kind
from tests.simulation.disk import SlowStore
from tests.simulation.loop import LoopClock, simulate
from tests.simulation.network import Network
from tests.simulation.observed_history import Kind, ObservedHistory
from tests.simulation.races import RACES, races_of
from tests.simulation.rules import Case, breaches_of
from tests.simulation.runtime import Runtime
from tests.simulation.scenario import Part, Scenario, crash_moment, draw
from tests.simulation.server import Server
from tests.simulation.tools import Handlers, make_tools

_TOOLSET, _CALLER = "simulated", "local"
_PATIENCE = 400
_OURS = ("the server has failed", "work on ")


@dataclass
class Report:
    """What came of some runs: how often each race happened, the kinds of stories there were, and what must not have happened."""

    races: Counter[str] = field(default_factory=Counter)
    signatures: set[int] = field(default_factory=set)
    threads: int = 0
    lives: int = 0
    breaches: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """For a reader."""
        races = "\n".join(f"{self.races[race]:7d}  {race}" for race in RACES)
        return f"{self.threads} threads, {len(self.signatures)} different stories, {self.lives} servers\n{races}"

    def add(self, other: "Report") -> None:
        """Another run."""
        self.races += other.races
        self.signatures |= other.signatures
        self.threads += other.threads
        self.lives += other.lives
        self.breaches += other.breaches


def run(seed: str, threads: int) -> Report:
    """One run. The same seed gives the same run."""
    random.seed(seed)  # the jitter of the outbox sender
    with _errors() as errors:
        report, unnoticed = simulate(_World(seed, threads).run)
    report.breaches += [f"seed {seed}: {error}" for error in [*unnoticed, *errors]]
    return report


class _World:
    def __init__(self, seed: str, threads: int) -> None:
        self._seed = seed
        self._plots: dict[str, Scenario] = {plot.thread: plot for plot in (draw(seed, n) for n in range(threads))}
        self._stories = {thread: ObservedHistory(thread) for thread in self._plots}
        self._handlers = Handlers(seed)
        self._dice = Random(f"{seed}/world")
        self._report = Report(threads=threads)
        self._keys = {thread: thread_key(_TOOLSET, _CALLER, thread) for thread in self._plots}

    async def run(self) -> Report:
        """All of it."""
        self._runtime = Runtime(self._seed, self._stories, self._plots)
        self._store = SlowStore(self._seed, LoopClock().now, self._stories)
        network = Network(self._seed, self._stories, self._store.message, self._runtime.heard)
        network.weather = {plot.thread: plot.weather for plot in self._plots.values()}
        self._store.fails = self._dice.random() < 0.3
        self._server = Server(self._seed, make_tools(self._handlers), self._store, network, self._stories)
        self._runtime.server = self._server
        await self._server.start()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._crash_now_and_then())
            for plot in self._plots.values():
                group.create_task(self._runtime.play(plot))
        network.weather.clear()
        self._store.fails = False
        endless = self._endless()
        left = await self._wait_until_none(lambda: [*self._boxes_left(endless), *self._posts_left()])
        await self._end_all()
        left += await self._wait_until_none(
            lambda: [*self._boxes_left(set()), *self._posts_left(), *self._resources_left(), *self._handlers_left()]
        )
        self._judge(left)
        await self._server.close()
        return self._report

    async def _crash_now_and_then(self) -> None:
        for _ in range(self._dice.choices((0, 1, 2, 3, 4), (5, 25, 30, 25, 15))[0]):
            await asyncio.sleep(self._dice.uniform(0, 0.15))
            plot = self._dice.choice(list(self._plots.values()))
            moment = crash_moment(self._dice, self._dice.choice(plot.parts))
            await self._runtime.at(moment, self._stories[plot.thread], patience=0.1)
            if self._dice.random() < 0.3:
                self._report.races["restart in order"] += 1
                await self._server.restart()
            else:
                self._look_what_a_crash_meets()
                await self._server.crash()

    def _look_what_a_crash_meets(self) -> None:
        for (id,) in self._store.rows("SELECT id FROM outbox WHERE dead_at IS NULL"):
            posts = self._store.message(id).posts
            if not posts:
                race = "crash between commit and send"
            elif posts[-1].answered is None and posts[-1].aborted is None:
                race = "crash while a POST is under way"
            else:
                race = "crash between answer and settlement" if posts[-1].status < 500 else "crash between two attempts"
            self._report.races[race] += 1

    # The end

    def _endless(self) -> set[tuple[str, str]]:
        return {
            (plot.thread, part.id)
            for plot in self._plots.values()
            for part in plot.parts
            if part.endless or self._waits_for_nothing(plot.thread, part)
        }

    def _waits_for_nothing(self, thread: str, part: Part) -> bool:
        """Whether the end of its topic was emitted too early, or its question has reached nobody who could answer."""
        told = [message for message in self._stories[thread].messages if message.call == part.id]
        if part.operation == "topical":
            return not any(message.kind is Kind.FINAL for message in told)
        questions = [message for message in told if message.kind is Kind.QUESTION]
        return bool(questions) and not questions[-1].taken

    async def _wait_until_none(self, left: Callable[[], list[str]]) -> list[str]:
        for _ in range(_PATIENCE):
            if not left():
                return []
            await asyncio.sleep(0.5)
        return left()

    def _boxes_left(self, but: set[tuple[str, str]]) -> list[str]:
        spared = {(self._keys[thread], call) for thread, call in but}
        threads = {key: thread for thread, key in self._keys.items()}
        rows = self._store.rows("SELECT kind, parent, name, stopped, worker, due_at FROM boxes WHERE name IS NOT NULL")
        return [
            f"{threads[parent]} {name}: the box {kind} is still there (stopped {stopped}, worker {worker}, due {due_at})"
            for kind, parent, name, stopped, worker, due_at in rows
            if kind in (call_kind(_TOOLSET), subscription_kind(_TOOLSET)) and (parent, name) not in spared
        ]

    def _posts_left(self) -> list[str]:
        found = [self._store.message(id) for (id,) in self._store.rows("SELECT id FROM outbox WHERE dead_at IS NULL")]
        return [f"{message.thread} {message.call}: {message} is still in the outbox" for message in found]

    def _handlers_left(self) -> list[str]:
        """A handler that was cancelled may need a moment to end after its box is gone."""
        return [f"{key} still runs" for key, number in self._handlers.at_work.items() if number]

    async def _end_all(self) -> None:
        endless = self._endless()
        for plot in self._plots.values():
            story = self._stories[plot.thread]
            if self._dice.random() < 0.5:
                await self._runtime.close(story)
            else:
                for part in plot.parts:
                    if (plot.thread, part.id) in endless:
                        await self._runtime.cancel(story, part.id)

    def _judge(self, left: list[str]) -> None:
        report = self._report
        report.lives = self._server.lives
        report.breaches += [f"seed {self._seed}: {one}" for one in left]
        report.breaches += [f"seed {self._seed}: {key} {what}" for key, what in self._handlers.breaches]
        for plot in self._plots.values():
            story = self._stories[plot.thread]
            report.signatures.add(story.signature)
            for part in plot.parts:
                case = Case(story, part, self._handlers)
                report.races.update(races_of(case))
                if found := breaches_of(case):
                    told = "\n".join(f"  {one}" for one in found)
                    report.breaches.append(f"seed {self._seed}, {plot.thread}: {part}\n{told}\n{plot.acts}\n{story}")

    def _resources_left(self) -> Iterator[str]:
        """What should be gone with a thread that was closed, and with a subscription that has ended."""
        boxes = {id for (id,) in self._store.rows(f"SELECT id FROM boxes WHERE kind = '{thread_kind(_TOOLSET)}'")}
        for thread, story in self._stories.items():
            came = [each for each in story.exchanges if each.what == "invocation" and each.acknowledged is not None]
            first = {each.call: each.acknowledged for each in reversed(came)}
            closed = [each.asked for each in story.exchanges if each.what == "close" and each.acknowledged is not None]
            is_over = closed and all(at is not None and at < closed[-1] for at in first.values())
            if is_over and self._keys[thread] in boxes:
                yield f"{thread} is closed, and its box is still there\n{story}"
        kind = topic_kind(_TOOLSET)
        statement = f"SELECT count(*) FROM records r JOIN boxes b ON b.id = r.box WHERE b.kind = '{kind}'"
        ((subscribers,),) = self._store.rows(statement)
        if subscribers:
            yield f"{subscribers} subscriptions that have ended are still subscribed to topics"


@contextlib.contextmanager
def _errors() -> Iterator[list[str]]:
    """What the server logs as a mistake of its own. Nothing else is logged, because that would take most of the time."""
    found: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.getMessage()
            if record.levelno >= logging.CRITICAL or any(words in text for words in _OURS):
                found.append(f"{text} {record.exc_info}")

    root, listener = logging.getLogger("rapkit"), Listener()
    level, propagate = root.level, root.propagate
    root.addHandler(listener)
    root.setLevel(logging.ERROR)
    root.propagate = False
    try:
        yield found
    finally:
        root.removeHandler(listener)
        root.setLevel(level)
        root.propagate = propagate
