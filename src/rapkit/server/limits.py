"""How much a server takes on."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from rapkit.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Limits:
    """What a tool server takes on.

    `concurrency`: handlers at once. `backlog`: accepted invocations that have not ended; past it a caller is asked to come back (503).
    `rate`: invocations a second and caller, with bursts of as many, None for no limit but the backlog. `body`: bytes of one message that
    comes in. `result`: bytes of one that goes out; a larger result becomes an error that says so.
    """

    concurrency: int = 256
    backlog: int = 10_000
    rate: float | None = None
    body: int = 1024 * 1024
    result: int = 16 * 1024 * 1024

    def __post_init__(self) -> None:
        """Refuse limits that would let nothing through."""
        for name in ("concurrency", "backlog", "rate", "body", "result"):
            value = getattr(self, name)
            if value is not None and not value > 0:  # written so that NaN fails too
                raise ConfigError(f"{name} is a number above 0, not {value}.")


class RateLimit:
    """A token bucket for each caller. Callers are few: they are named by our own tokens."""

    def __init__(self, rate: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def wait(self, caller: str) -> float:
        """0 if the caller may go on; else the seconds until it may, and nothing is taken from its bucket."""
        if self._rate is None:
            return 0.0
        size = max(1.0, self._rate)
        now = self._clock()
        level, at = self._buckets.get(caller, (size, now))
        level = min(size, level + (now - at) * self._rate)
        if level < 1:
            self._buckets[caller] = (level, now)
            return (1 - level) / self._rate
        self._buckets[caller] = (level - 1, now)
        return 0.0
