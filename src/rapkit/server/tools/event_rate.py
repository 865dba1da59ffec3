"""The rate limit of a subscription's events: so many a second, with room for a burst (SUB-8).

Pure. All that has to be kept is a mark: the time at which the next event would be due if all before it had come evenly spaced. How far the
mark may run ahead of the clock is the room for bursts. (ATM networks call this the generic cell rate algorithm.)
"""

from dataclasses import dataclass
from typing import Final

DEFAULT_RATE: Final = 10.0
"""Events a second, unless a subscription says otherwise."""

_BURST_SECONDS = 2.0
_LONGEST_QUEUE = 1000


@dataclass(frozen=True, slots=True)
class EventRate:
    """Events leave `rate` times a second; as many as come in two seconds may leave at once. None is as fast as they come."""

    rate: float | None

    def opens(self, mark: float, now: float) -> float:
        """When the next event may leave: now, or later."""
        return max(now, mark - self._room)

    def advance(self, mark: float, now: float) -> float:
        """The mark after one more event."""
        return mark if self.rate is None else max(mark, now) + 1 / self.rate

    def sane(self, mark: float, now: float) -> float:
        """A mark that was kept, unless it is so far ahead that the clock must have been set back since: no queue is that long.

        Not to be asked between events that come together: there is no end to how many those are.
        """
        return mark if self.rate is None else min(mark, now + _LONGEST_QUEUE / self.rate)

    @property
    def _room(self) -> float:
        return float("inf") if self.rate is None else max(0.0, _BURST_SECONDS - 1 / self.rate)
