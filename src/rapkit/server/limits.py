"""How much a server takes on."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, fields

from rapkit.errors import ConfigError

_MOST_BUCKETS = 10_000


@dataclass(frozen=True, slots=True)
class Limits:
    """What a tool server takes on.

    `concurrency`: handlers at once. `backlog`: accepted invocations that have not ended; past it a caller is asked to come back (503).
    `subscriptions`: generators at work at once; past it a subscription is refused with an error result.
    `rate`: invocations a second and caller, None for no limit but the backlog. `notices`: closed threads and cancelled calls a second and
    caller; what is past it is answered and not acted on. `strangers`: requests a second and client address to what carries its own proof
    (answers of users, OAuth redirects, webhooks); past it 503. All three allow bursts of as many; None is no limit. `body`: bytes of one
    message that comes in. `result`: bytes of one that goes out; a larger result becomes an error that says so.
    """

    concurrency: int = 256
    backlog: int = 10_000
    subscriptions: int = 10_000
    rate: float | None = None
    notices: float | None = 1000
    strangers: float | None = 20
    body: int = 1024 * 1024
    result: int = 16 * 1024 * 1024

    def __post_init__(self) -> None:
        """Refuse limits that would let nothing through."""
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and not value > 0:  # written so that NaN fails too
                raise ConfigError(f"{each.name} is a number above 0, not {value}.")


class RateLimit:
    """A token bucket for each key: a caller's name, or a stranger's address.

    Strangers choose how many addresses they come from, so the buckets are bounded: one that has had time to fill up is as good as none and
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
        """0 if whoever it is may go on; else the seconds until it may, and nothing is taken from its bucket."""
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
