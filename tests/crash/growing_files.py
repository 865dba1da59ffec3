"""The files that processes write their lines into, read as they grow."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from tests.crash.history import Delivery, Effect

T = TypeVar("T")


class GrowingFile(Generic[T]):
    """What is in a file so far, line by line."""

    def __init__(self, path: Path, read: Callable[[str], T]) -> None:
        self.lines: list[T] = []
        self._path = path
        self._read = read
        self._offset = 0

    def look(self) -> None:
        """Read what was added since the last look. A line that is not complete yet is left for the next."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        complete = data[: data.rfind(b"\n") + 1]
        self._offset += len(complete)
        self.lines += [self._read(line) for line in complete.decode().splitlines()]


def delivery(line: str) -> Delivery:
    found = json.loads(line)
    return Delivery(found["at"], found["path"], found["id"], found["body"], found["answer"], found["began"])


def effect(line: str) -> Effect:
    at, pid, what, n = line.split()
    return Effect(float(at), int(pid), what, int(n))
