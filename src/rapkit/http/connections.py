"""The open connections of a server: limit their number, and how long a peer may keep one waiting."""

import contextlib
import logging
from collections import OrderedDict
from typing import Protocol

from rapkit.http.limits import HttpLimits
from rapkit.http.rate_limit import RateLimit
from rapkit.http.requests import Refusal

_SWEEP = 0.5
_RESERVED = 0.5
"""The share of the file descriptors that is left to the store, to deliveries and to what else the process has open."""
_TOLD_A_SECOND = 1 / 60

log = logging.getLogger("rapkit.http")


class Connection(Protocol):
    """The interface of a connection."""

    def look(self, now: float) -> None:
        """Close if a deadline has passed."""

    def abort(self) -> None:
        """Close at once."""


class Connections:
    """Admits connections up to a bound, and has all of them look at their deadlines again and again.

    A connection is in `waiting` while its peer is to do something: send a request, go on with one, or take an answer. When the bound is
    reached, the one that has waited longest makes room for a new one, so that a flood of idle connections does not keep others out.

    `now` is the time that deadlines are compared with: seconds in which the event loop ran. A process that was stopped, or was busy with
    something else, has not read its sockets meanwhile, and must not take that for silence of its peers.
    """

    def __init__(self, limits: HttpLimits) -> None:
        self.limits = limits
        self.now = 0.0
        self.waiting: OrderedDict[Connection, None] = OrderedDict()
        self._open: set[Connection] = set()
        self._swept_at = 0.0
        self._most = min(limits.connections, _descriptors())
        self._told = RateLimit(_TOLD_A_SECOND)

    def admit(self, connection: Connection) -> bool:
        """Count a new connection, which waits for its peer. False if there is no room for it."""
        if len(self._open) >= self._most:
            if not self.waiting:
                return False
            oldest, _ = self.waiting.popitem(last=False)
            self.forget(oldest)
            oldest.abort()
        self._open.add(connection)
        self.waiting[connection] = None
        return True

    def forget(self, connection: Connection) -> None:
        """It is closed."""
        self._open.discard(connection)
        self.waiting.pop(connection, None)

    def refused(self, address: str | None, refusal: Refusal) -> None:
        """Log that a request was refused before any endpoint saw it. Peers choose how often that happens, so not all of them are logged."""
        if not self._told.wait(str(refusal.status)):
            log.warning("a request was refused with %d: %s", refusal.status, refusal.detail, extra={"address": address})

    def tick(self, seconds: float) -> None:
        """So much time has passed in which the event loop ran."""
        self.now += seconds
        if self.now - self._swept_at >= _SWEEP:
            self._swept_at = self.now
            for connection in list(self._open):
                connection.look(self.now)


def _descriptors() -> int:
    with contextlib.suppress(ImportError):  # not to be had on this platform
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            return max(1, int(soft * (1 - _RESERVED)))
    return 2**31
