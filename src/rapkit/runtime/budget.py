"""The budget of an agent: what all its threads together may spend in a period of time."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, get_args

from rapkit.errors import ConfigError
from rapkit.kernel.completion import Usage

Per = Literal["hour", "day", "month", "total"]

_FORMATS: Final[Mapping[Per, str]] = {"hour": "%Y-%m-%d %H:00", "day": "%Y-%m-%d", "month": "%Y-%m", "total": "total"}


@dataclass(frozen=True, slots=True)
class Budget:
    """What an agent may spend in every hour, day or month of the UTC calendar, or in its whole life.

    `slices` counts completions, `tokens` those read and written, `cost` is in US dollars as far as prices are known. With several limits,
    the one that is reached first counts. Another `per` begins a count of its own; another limit goes on with the same one.
    """

    slices: int | None = None
    tokens: int | None = None
    cost: float | None = None
    per: Per = "day"

    def __post_init__(self) -> None:
        if self.per not in get_args(Per):
            raise ConfigError(f"A budget cannot be per {self.per!r}. Make it one of: {', '.join(get_args(Per))}.")
        if self.slices is None and self.tokens is None and self.cost is None:
            raise ConfigError(
                "A budget without a limit limits nothing. Give it `slices`, `tokens` or `cost`, or leave it out."
            )
        for name, value in (("slices", self.slices), ("tokens", self.tokens)):
            if value is not None and not _is_count(value):
                raise ConfigError(
                    f"`{name}` of a budget is {value!r}. Make it a whole number above 0, or leave it out."
                )
        if self.cost is not None and not is_price(self.cost):
            raise ConfigError(
                f"`cost` of a budget is {self.cost!r}. Make it a number of dollars above 0, or leave it out."
            )

    def period_of(self, now: float) -> str:
        """What the period at this time is called, such as "2026-11-16". Later periods have greater names."""
        return period_name(self.per, now)

    def ends_at(self, now: float) -> float | None:
        """When the period at this time is over, which is when the next begins; None if it never is."""
        at = datetime.fromtimestamp(now, UTC).replace(minute=0, second=0, microsecond=0)
        match self.per:
            case "hour":
                return (at + timedelta(hours=1)).timestamp()
            case "day":
                return (at.replace(hour=0) + timedelta(days=1)).timestamp()
            case "month":
                # 31 days after the first of a month it is always the next month.
                return (at.replace(day=1, hour=0) + timedelta(days=31)).replace(day=1).timestamp()
            case "total":
                return None


@dataclass(frozen=True, slots=True)
class Exceeded:
    """A budget is used up: why, in a sentence for a person, and when it goes on; None if it does not by itself."""

    reason: str
    until: float | None


def judge(budget: Budget, spent: Usage, period: str, ends_at: float | None) -> Exceeded | None:
    """Whether what was spent in a period is all there is."""
    used, limits = [], []
    tokens = spent.input_tokens + spent.output_tokens
    if budget.cost is not None and spent.cost >= budget.cost:
        used.append(f"spent {_dollars(spent.cost, budget.cost)} of its {_dollars(budget.cost, budget.cost)}")
        limits.append("`cost`")
    if budget.tokens is not None and tokens >= budget.tokens:
        used.append(f"used {tokens:,} of its {budget.tokens:,} tokens")
        limits.append("`tokens`")
    if budget.slices is not None and spent.requests >= budget.slices:
        used.append(f"run {spent.requests:,} of its {budget.slices:,} slices")
        limits.append("`slices`")
    if not used:
        return None
    remedy = f"raise {_listed(limits)} in [agent.budget] (or Agent(budget=...)) and restart."
    if ends_at is None:
        return Exceeded(f"The agent has {_listed(used)} in total. It does not go on by itself: {remedy}", None)
    again = datetime.fromtimestamp(ends_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    when = f"the hour from {period}" if budget.per == "hour" else period
    return Exceeded(
        f"The agent has {_listed(used)} for {when} (UTC). It goes on at {again}; to go on earlier, {remedy}",
        ends_at,
    )


def _listed(things: list[str]) -> str:
    *most, last = things
    return f"{', '.join(most)} and {last}" if most else last


def _dollars(amount: float, limit: float) -> str:
    """With cents, or as many places as it takes to tell a small limit from nothing."""
    places = max(2, 1 - math.floor(math.log10(limit)))
    return f"${amount:,.{places}f}"


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def is_price(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def period_name(per: Per, at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime(_FORMATS[per])
