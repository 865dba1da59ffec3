"""A source of events that tests fill, and subscriptions that follow it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator


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
