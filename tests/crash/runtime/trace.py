"""What a process tells the test that may outlive it: lines appended to a file, each whole or not there."""

import json
import os
import time
from pathlib import Path
from typing import Any


class Trace:
    """A file that any number of processes append to."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, **line: Any) -> None:
        """Append a line, with the time of the machine and the process."""
        stamped = {"at": time.monotonic(), "pid": os.getpid(), **line}
        os.write(self._file, json.dumps(stamped).encode() + b"\n")


def read_trace(path: Path) -> list[dict[str, Any]]:
    """All lines so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
