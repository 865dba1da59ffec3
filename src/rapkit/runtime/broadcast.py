"""Broadcast updates of threads to the watchers in this process. Best effort; correctness never depends on it."""

import asyncio
import contextlib
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass

_MOST_UNSEEN = 1000


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of what the model is saying. Best effort."""

    text: str


@dataclass(frozen=True, slots=True)
class Reset:
    """What was said in pieces since the last entry does not count."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The thread was written: what was said in pieces so far is in its journal now."""


@dataclass(frozen=True, slots=True)
class MaybeChanged:
    """There may be a change: other processes cannot notify this one."""


@dataclass(frozen=True, slots=True)
class BroadcastEnded:
    """No more messages will follow."""


BroadcastMessage = Delta | Reset | Changed | MaybeChanged | BroadcastEnded


class Watcher:
    """A queue of messages for one watcher of a thread."""

    def __init__(self) -> None:
        self._news: deque[BroadcastMessage] = deque()
        self._rung = asyncio.Event()
        self._lost_pieces = False

    def publish(self, news: BroadcastMessage) -> None:
        """Keep it until it is asked for.

        Changes are never lost. A slow watcher can lose pieces of text, which no watcher needs once they are in the journal or void.
        """
        full = len(self._news) >= _MOST_UNSEEN
        if full:
            self._news = deque((Reset(), Changed()))
        if isinstance(news, Delta):
            self._lost_pieces = self._lost_pieces or full
            if not self._lost_pieces:  # else: the end of a text without its middle is worth nothing
                self._news.append(news)
        else:
            if isinstance(news, Changed | Reset):
                self._lost_pieces = False
                self._news = deque(each for each in self._news if not isinstance(each, Delta))
            if not self._news or self._news[-1] != news:
                self._news.append(news)
        self._rung.set()

    async def next(self, at_most: float) -> BroadcastMessage:
        """What is new; after so many seconds that something may be."""
        try:
            async with asyncio.timeout(at_most):
                while not self._news:
                    self._rung.clear()
                    await self._rung.wait()
        except TimeoutError:
            return MaybeChanged()
        return self._news.popleft()


class Broadcast:
    """Publishes messages to the watchers of each thread."""

    def __init__(self) -> None:
        self._watchers: defaultdict[str, set[Watcher]] = defaultdict(set)
        self._over = False

    @property
    def watched(self) -> int:
        """How many threads are watched."""
        return len(self._watchers)

    @contextlib.contextmanager
    def watch(self, thread_id: str) -> Iterator[Watcher]:
        """Watch a thread for as long as the context lasts."""
        watcher = Watcher()
        if self._over:
            watcher.publish(BroadcastEnded())
        self._watchers[thread_id].add(watcher)
        try:
            yield watcher
        finally:
            self._watchers[thread_id].discard(watcher)
            if not self._watchers[thread_id]:
                del self._watchers[thread_id]

    def publish(self, thread_id: str, news: BroadcastMessage) -> None:
        """Tell every watcher of a thread."""
        if thread_id in self._watchers:
            for watcher in self._watchers[thread_id]:
                watcher.publish(news)

    @property
    def over(self) -> bool:
        """Whether the broadcast has ended, because the process is about to stop."""
        return self._over

    def end(self) -> None:
        """End all watches: the process is about to stop, and open connections would delay that."""
        self._over = True
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.publish(BroadcastEnded())
