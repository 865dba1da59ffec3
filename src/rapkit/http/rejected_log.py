"""Log requests that were rejected as unauthenticated, at a bounded rate."""

import logging
import time
from collections.abc import Callable

from rapkit.http.rate_limit import RateLimit

_OF_ONE_ADDRESS = 1 / 60
_OF_ALL = 1.0
_LONGEST_ADDRESS = 64  # a proxy may put anything there

log = logging.getLogger("rapkit.http")


class RejectedLog:
    """Logs the same rejection once a minute per address, and one a second overall.

    Clients choose how often they call, and from how many addresses.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._one = RateLimit(_OF_ONE_ADDRESS, clock)
        self._all = RateLimit(_OF_ALL, clock)
        self._untold = 0

    def log_rejection(self, address: str | None, why: str) -> None:
        """Log one, or count it for the next line. `why` holds nothing of what was sent: it may be a token, with a slip in it."""
        address = None if address is None else address[:_LONGEST_ADDRESS]
        if self._one.wait(f"{address} {why}") or self._all.wait(""):
            self._untold += 1
            return
        more = f"; since the last of these lines, {self._untold} more were" if self._untold else ""
        self._untold = 0
        log.warning("a request was refused with 401: %s%s", why, more, extra={"address": address})
