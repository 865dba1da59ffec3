"""Divide the capacity for running handlers fairly between callers."""

import math
from collections import Counter

from rapkit.mailbox import Quota


class Fairness:
    """Counts the running handlers of each caller, and says how many more it may have.

    A caller that has no more than its fair share, which is as much as each gets if one more comes, may take half of what is free. A caller
    that has more leaves the reserve free: the places that no single caller may take.
    """

    def __init__(self, places: int, of_one_caller: int) -> None:
        self._places = places
        self._reserve = places - of_one_caller
        self._held: Counter[str] = Counter()

    def take(self, caller: str) -> None:
        """Count a place that a caller has now."""
        self._held[caller] += 1

    def give_back(self, caller: str) -> None:
        """Count a place that a caller no longer has."""
        self._held[caller] -= 1
        if not self._held[caller]:
            del self._held[caller]

    def room(self, caller: str, free: int) -> int:
        """How many more places a caller may have while so many are free."""
        return self._room(self._held[caller], len(self._held) + (caller not in self._held), free)

    def quota(self, free: int) -> Quota[str]:
        """How many calls of each caller may be begun."""
        listed = {caller: self.room(caller, free) for caller in self._held}
        return Quota(listed, others=self._room(0, len(self._held) + 1, free))

    def _room(self, held: int, callers: int, free: int) -> int:
        above_reserve = max(free - self._reserve, 0)
        below_fair = max(self._places // (callers + 1) - held, 0)
        return max(above_reserve, min(below_fair, math.ceil(free / 2)))
