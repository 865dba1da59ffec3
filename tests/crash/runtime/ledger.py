"""What was said to the runtime, and what it acknowledged."""

import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Spoken:
    """A message of the user's. `answered` is when it was acknowledged; None if it never was, or the thread was closed."""

    thread: str
    text: str
    begun: float
    answered: float | None = None


@dataclass
class Ledger:
    """All of it. `threads` are the ones that were acknowledged to have been made; `closed` those to have been closed."""

    threads: list[str] = field(default_factory=list)
    closed: set[str] = field(default_factory=set)
    spoken: list[Spoken] = field(default_factory=list)

    def now(self) -> float:
        return time.monotonic()
