"""Quotas: how much of what is due one share may get, so that no single caller or origin gets everything."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Quota(Generic[S]):
    """How many due things one request may get of each share: those of `listed` shares, and `others` of any share that is not listed.

    None is no limit.
    """

    listed: Mapping[S, int] = field(default_factory=dict)
    others: int | None = None

    def room(self, share: S) -> int | None:
        """How many may be had of a share."""
        return self.listed.get(share, self.others)

    @property
    def full(self) -> list[S]:
        """The listed shares of which nothing may be had."""
        return [share for share, room in self.listed.items() if room <= 0]

    @property
    def only(self) -> list[S] | None:
        """The only shares of which something may be had; None if those that are not listed are among them."""
        if self.others is None or self.others > 0:
            return None
        return [share for share, room in self.listed.items() if room > 0]
