"""Sources of events that tests fill, and a subscription that follows one."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

from rapkit import Context, Event, Toolset
from rapkit.testing import Subscription


class Feed:
    """Items with numbers from 1 on. Whoever follows it waits for the next."""

    def __init__(self, *items: str) -> None:
        self.items = list(items)
        self.followed_from: list[str | None] = []
        self.following = 0
        self._news = asyncio.Event()

    def add(self, *items: str) -> None:
        """Something happens."""
        self.items += items
        self._news.set()
        self._news = asyncio.Event()

    async def after(self, cursor: str | None) -> AsyncIterator[tuple[str, str]]:
        """Cursor and text of every item after a cursor, as they come."""
        self.followed_from.append(cursor)
        self.following += 1
        number = int(cursor or 0)
        try:
            while True:
                while number >= len(self.items):
                    await self._news.wait()
                number += 1
                yield str(number), self.items[number - 1]
        finally:
            self.following -= 1


class Tap:
    """The same for threads: gives the items there are, then blocks until it is closed."""

    def __init__(self, *items: str) -> None:
        self.items = items
        self.closed = threading.Event()
        self.ended = threading.Event()

    def after(self, cursor: str | None) -> Iterator[tuple[str, str]]:
        """Cursor and text of every item after a cursor."""
        try:
            for number in range(int(cursor or 0), len(self.items)):
                yield str(number + 1), self.items[number]
            self.closed.wait(10)
        finally:
            self.ended.set()


def following(tools: Toolset, feed: Feed) -> Toolset:
    """The toolset with a subscription that follows the feed, and never ends by itself."""

    @tools.subscription(rate=None)
    async def follow(ctx: Context) -> AsyncIterator[Event]:
        """Tell me what is new."""
        async for number, text in feed.after(ctx.cursor):
            yield Event(text, cursor=number)

    return tools


def texts(subscription: Subscription) -> list[str]:
    """What the events said that have come so far."""
    return [event.text for event in subscription.events]


def without_failures(subscription: Subscription) -> list[str]:
    """The same without what the thread was told of failures."""
    return [text for text in texts(subscription) if not text.startswith("Error: the subscription ")]


async def all_of(subscription: Subscription) -> list[str]:
    """What all events say, up to the final one."""
    return [event.text async for event in subscription]


async def dawdle(turns: int) -> None:
    """Let everybody else have so many turns."""
    for _ in range(turns):
        await asyncio.sleep(0)
