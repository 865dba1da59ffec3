"""Read from the receiver's log which calls the agent has sent, by its workers' audit lines."""

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Post:
    """A call that its server has acknowledged, `seconds` after it was made."""

    thread_id: str
    call_id: str
    operation: str
    server: str
    seconds: float


class Audit:
    """Reads on in a log that is being written."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._read = 0
        self._invoked: dict[tuple[str, str], datetime] = {}

    def new(self) -> list[Post]:
        """What was acknowledged since the last time."""
        posts: list[Post] = []
        for line in self._lines():
            key = (line.get("thread_id", ""), line.get("call_id", ""))
            at = datetime.fromisoformat(line["time"])
            if line["message"] == "invoked":
                self._invoked[key] = at
            elif line["message"] == "acknowledged" and key in self._invoked:
                seconds = (at - self._invoked.pop(key)).total_seconds()
                posts.append(Post(*key, line["operation"], line["server"], seconds))
        return posts

    def _lines(self) -> list[dict[str, Any]]:
        try:
            with self._log.open("rb") as log:
                log.seek(self._read)
                whole, newline, _ = log.read().rpartition(b"\n")
        except OSError:
            return []
        self._read += len(whole) + len(newline)
        return [found for line in whole.splitlines() if (found := _audited(line)) is not None]


def _audited(line: bytes) -> dict[str, Any] | None:
    """A line of the receiver's log is JSON; what a worker has printed is its message, and JSON again."""
    try:
        found = json.loads(json.loads(line)["message"])
    except (ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, dict) and found.get("logger") == "rapkit.audit" else None
