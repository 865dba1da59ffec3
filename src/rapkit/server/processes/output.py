"""The output of a subprocess: collected until it ends, or handed out line by line."""

import asyncio
from typing import Protocol

_LONGEST_LINE = 64 * 1024
_MOST_WAITING = 64 * 1024
_LINES_AT_ONCE = 100
_LARGEST_PIPE = 1024 * 1024


class Pipe(Protocol):
    """What output is read from."""

    def pause(self) -> None:
        """Read nothing for now."""

    def resume(self) -> None:
        """Read on."""


class Kept:
    """The beginning and the end of a stream; what lies between is counted and left out."""

    def __init__(self, largest: int) -> None:
        self._most_tail = largest // 2
        self._most_head = largest - self._most_tail
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0

    def feed(self, data: bytes) -> None:
        room = self._most_head - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        excess = max(0, len(self._tail) - self._most_tail)
        del self._tail[:excess]
        self._left_out += excess

    def text(self) -> str:
        if not self._left_out:
            return (self._head + self._tail).decode(errors="replace")
        head, tail = self._head.decode(errors="replace"), self._tail.decode(errors="replace")
        return f"{head}\n[... {self._left_out:,} bytes left out ...]\n{tail}"


class Lines:
    """Lines that wait to be taken. While too much waits, nothing more is read."""

    def __init__(self) -> None:
        self.pipe: Pipe | None = None
        self._waiting = bytearray()
        self._line = bytearray()
        self._left_out = 0
        self._taken = 0
        self._paused = False
        self._room: int | None = None
        self._dropped = 0
        self._over = False
        self._news = asyncio.Event()

    def feed(self, data: bytes) -> None:
        if self._room is not None:
            self._dropped += len(data[self._room :])
            data = data[: self._room]
            self._room -= len(data)
        self._waiting += data
        if len(self._waiting) > _MOST_WAITING and self._room is None:
            self._pause(True)
        self._news.set()

    async def next(self) -> str | None:
        self._taken += 1
        if self._taken % _LINES_AT_ONCE == 0:
            await asyncio.sleep(0)  # others want to run too, however much there is to take
        while (end := self._waiting.find(b"\n")) < 0:
            self._add(self._waiting)
            self._waiting.clear()
            if self._over:
                return self._rest()
            self._pause(False)
            self._news.clear()
            await self._news.wait()
        self._add(self._waiting[:end])
        del self._waiting[: end + 1]
        if len(self._waiting) <= _MOST_WAITING // 2:
            self._pause(False)
        return self._cut()

    def hurry(self) -> None:
        """The program is over or has to end, and must not wait for us any more. What its pipe can hold is still taken."""
        self._room = _LARGEST_PIPE
        self._pause(False)

    def end(self) -> None:
        self._over = True
        self._news.set()

    def _add(self, part: bytearray) -> None:
        room = _LONGEST_LINE - len(self._line)
        self._left_out += len(part[room:])
        self._line += part[:room]

    def _cut(self) -> str:
        line = self._line.decode(errors="replace").removesuffix("\r")
        if self._left_out:
            line += f" [... {self._left_out:,} bytes left out]"
        self._line.clear()
        self._left_out = 0
        return line

    def _rest(self) -> str | None:
        if self._line:
            return self._cut()
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            return f"[... {dropped:,} bytes left out]"
        return None

    def _pause(self, pause: bool) -> None:
        if self.pipe is not None and pause != self._paused:
            self._paused = pause
            (self.pipe.pause if pause else self.pipe.resume)()


Output = Lines | tuple[Kept, Kept]
