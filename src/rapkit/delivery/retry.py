"""Retry policies: when to POST again, and when to give up.

No clock and no randomness: the caller says how many attempts were made, how old the message is, and brings the dice.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from rapkit.errors import ConfigError


class PostKind(StrEnum):
    """What a POST carries; it determines the retry policy."""

    INVOCATION = "invocation"
    CALLBACK = "callback"
    FINAL = "final"  # a callback after which nothing follows on its lane
    CANCELLED = "cancelled"  # the result of a cancelled call, whose receiver may be gone by now
    QUESTION = "question"  # a callback that asks the user something, for whose answer a call waits
    VIEW = "view"  # a callback of which only the newest matters
    ANSWER = "answer"
    NOTICE = "notice"


class RetryDecision(StrEnum):
    """What the receiver's status means for the message."""

    DELIVERED = "delivered"
    GONE = "gone"
    REFUSED = "refused"
    RETRY = "retry"


def retry_decision(status: int) -> RetryDecision:
    """Judge an HTTP status. Only RETRY leaves the message alive; GONE also says that nothing lives at the URL any more.

    Every 4xx is final (INV-5, CB-4), 408 and 429 included: a RAP receiver that is merely busy says 503.

    A 3xx is tried again, never followed: following would dial an unchecked address, and a redirect is what
    maintenance pages and half-made proxies answer, so it may be gone in an hour. An acknowledged result lost for good
    costs more than a few POSTs in vain, and the horizon bounds those.
    """
    if 200 <= status < 300:
        return RetryDecision.DELIVERED
    if status in (404, 410):
        return RetryDecision.GONE
    if 400 <= status < 500:
        return RetryDecision.REFUSED
    return RetryDecision.RETRY


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with an end. All times are in seconds.

    The n-th wait is `first * factor ** (n - 1)`, at most `cap`, made shorter by up to the fraction `jitter` of itself
    so that messages that failed together do not come back together. No attempt is made after `horizon`, counted from
    the first one; a horizon of 0 means one attempt.
    """

    first: float
    factor: float
    cap: float
    horizon: float
    jitter: float = 0.5

    def __post_init__(self) -> None:
        """Refuse a schedule that would spin, shrink or never end."""
        # Written so that NaN fails too.
        if not (0 < self.first <= self.cap < math.inf and 1 <= self.factor < math.inf):
            raise ConfigError(f"{self}: needs 0 < first <= cap and factor >= 1.")
        if not (0 <= self.horizon < math.inf and 0 <= self.jitter < 1):
            raise ConfigError(f"{self}: needs horizon >= 0 and 0 <= jitter < 1.")

    def delay(self, attempts: int, age: float, random: float, retry_after: float | None = None) -> float | None:
        """Seconds until the next attempt, or None to give up.

        `attempts` counts those already made (at least 1), `age` is the time since the first, `random` is in [0, 1).
        A receiver's `retry_after` can lengthen the wait, up to `cap`, but never move the end.
        """
        wait = self._backoff(attempts) * (1 - self.jitter * random)
        if retry_after is not None:
            wait = max(wait, min(retry_after, self.cap))
        left = self.horizon - age
        if wait <= left:
            return wait
        # One last try at the very end, unless that is sooner than any receiver could have recovered.
        return left if left >= self.first else None

    def _backoff(self, attempts: int) -> float:
        # Compared as logarithms: a message that has failed a thousand times must not overflow a float.
        steps = max(attempts, 1) - 1
        if steps * math.log(self.factor) >= math.log(self.cap) - math.log(self.first):
            return self.cap
        return min(self.first * self.factor**steps, self.cap)


POLICIES: Mapping[PostKind, RetryPolicy] = MappingProxyType(
    {
        # A person may be waiting for the call: fail within ten minutes, so that the model can say so.
        PostKind.INVOCATION: RetryPolicy(first=1, factor=2, cap=60, horizon=600),
        # The work is done and paid for: outlast a weekend's outage, and be there soon after a restart.
        PostKind.CALLBACK: RetryPolicy(first=1, factor=2, cap=3600, horizon=3 * 24 * 3600),
        PostKind.FINAL: RetryPolicy(first=1, factor=2, cap=3600, horizon=3 * 24 * 3600),
        PostKind.CANCELLED: RetryPolicy(first=1, factor=2, cap=3600, horizon=3 * 24 * 3600),
        # A call waits for the answer: better that it fails than that it hangs on a question that was never asked.
        PostKind.QUESTION: RetryPolicy(first=1, factor=2, cap=60, horizon=3600),
        # It is out of date soon.
        PostKind.VIEW: RetryPolicy(first=1, factor=2, cap=60, horizon=300),
        PostKind.ANSWER: RetryPolicy(first=1, factor=2, cap=60, horizon=3600),
        # Sent once, whatever happens.
        PostKind.NOTICE: RetryPolicy(first=1, factor=1, cap=1, horizon=0),
    }
)
"""What we do unless configured otherwise."""
