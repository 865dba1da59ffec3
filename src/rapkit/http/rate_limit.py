"""A rate limit by key, as token buckets."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable

_MOST_BUCKETS = 10_000


class RateLimit:
    """A token bucket for each key: a caller's name, or a client's address.

    Clients choose how many addresses they use, so the buckets are bounded: one that has had time to fill up is as good as none and
    is forgotten, and past `most` the one that was used longest ago is, whatever it holds.
    """

    def __init__(
        self, rate: float | None, clock: Callable[[], float] = time.monotonic, most: int = _MOST_BUCKETS
    ) -> None:
        self._rate = None if rate == math.inf else rate
        self._size = max(1.0, rate or 0.0)
        self._clock = clock
        self._most = most
        # Level and time of use, the one used longest ago first. A plain dict would be searched through what was deleted.
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        """How many keys are remembered."""
        return len(self._buckets)

    def wait(self, key: str) -> float:
        """0 if the request may proceed; else the seconds until it may, and nothing is taken from the bucket."""
        if self._rate is None:
            return 0.0
        now = self._clock()
        level, at = self._buckets.pop(key, (self._size, now))
        level = min(self._size, level + (now - at) * self._rate)
        wait = 0.0 if level >= 1 else (1 - level) / self._rate
        self._buckets[key] = (level if wait else level - 1, now)
        self._forget(now, self._size / self._rate)
        return wait

    def _forget(self, now: float, filled_after: float) -> None:
        while True:
            _, used = next(iter(self._buckets.values()))
            if len(self._buckets) <= self._most and now - used < filled_after:
                return
            self._buckets.popitem(last=False)
