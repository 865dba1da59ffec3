"""What was said to the runtime, and what it acknowledged."""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Spoken:
    """A message of the user's. `answered` is when it was acknowledged; None if it never was, or the thread was closed."""

    thread: str
    text: str
    begun: float
    answered: float | None = None


@dataclass(frozen=True)
class Wish:
    """What else the user wanted: that a call is cancelled, or its question answered, and how."""

    what: Literal["cancel", "choice", "answer"]
    thread: str
    call: str
    acknowledged: bool
    said: str | int | None = None


@dataclass
class Ledger:
    """All of it. `threads` are the ones that were acknowledged to have been made; `closed` those to have been closed."""

    threads: list[str] = field(default_factory=list)
    closed: set[str] = field(default_factory=set)
    spoken: list[Spoken] = field(default_factory=list)
    wishes: list[Wish] = field(default_factory=list)
