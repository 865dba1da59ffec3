"""The start-up banner of `rapkit up`: the agent's URL, its store, and its pending work."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rapkit.cli.duration_text import format_duration
from rapkit.printable import printable
from rapkit.runtime.cron import Cron
from rapkit.runtime.schedules import Schedule
from rapkit.runtime.thread_commands import SnapshotPage

MOST_COUNTED = 1000
"""How many threads of a kind are counted; for more than that it is said that there are more."""

_MOST_SCHEDULES = 3


@dataclass(frozen=True, slots=True)
class Banner:
    """An agent at work. `hooked`: a command is run when something comes for it. `works`: threads are worked on in this process."""

    url: str
    public_url: str
    model: str
    store: str
    waiting: SnapshotPage
    parked: SnapshotPage
    schedules: Sequence[Schedule]
    has_tokens: bool
    works: bool
    hooked: bool

    def text(self) -> str:
        """For people: a few lines."""
        public = f" (for tools {self.public_url})" if self.public_url != self.url else ""
        parked = f", {_count(self.parked)} parked" if self.parked.looks else ""
        threads = f"{_counted(self.waiting)} waiting{parked}"
        lines = [f"agent at {self.url}{public}, model {self.model}, kept in {self.store}, {threads}"]
        if self.schedules:
            lines.append(_scheduled(self.schedules, time.time()))
        lines.append(
            "Only clients with a token are served."
            if self.has_tokens
            else "No token is configured: only clients on this machine are served."
        )
        return "\n".join([*lines, *self._about_work()])

    def fields(self) -> dict[str, object]:
        """For machines."""
        return {
            "url": self.url,
            "public_url": self.public_url,
            "model": self.model,
            "store": self.store,
            "waiting": len(self.waiting.looks),
            "parked": len(self.parked.looks),
            "schedules": [each.name for each in self.schedules],
        }

    def _about_work(self) -> list[str]:
        if self.works:
            also = "Threads are worked on here; besides, the command of --on-accept is run whenever one has something to do."
            return [also] if self.hooked else []
        if self.hooked:
            return ["Nobody works on threads here: what comes is kept, and the command of --on-accept is run."]
        return ["Nobody works on threads here: what comes is kept until somebody runs `rapkit wake`."]


def _counted(page: SnapshotPage) -> str:
    count = len(page.looks)
    return f"{_count(page)} thread{'s' * (count != 1 or page.next is not None)}"


def _count(page: SnapshotPage) -> str:
    return f"{len(page.looks)} or more" if page.next is not None else str(len(page.looks) or "no")


def _scheduled(schedules: Sequence[Schedule], now: float) -> str:
    """The schedules, the one that is due first first."""
    told = sorted((_next(each, now), printable(each.name)) for each in schedules)
    shown = "; ".join(f"{name}, {when}" for (_, when), name in told[:_MOST_SCHEDULES])
    more = len(told) - _MOST_SCHEDULES
    return f"{len(told)} schedule{'s' * (len(told) != 1)}: {shown}" + (f"; and {more} more" if more > 0 else "")


def _next(schedule: Schedule, now: float) -> tuple[float, str]:
    cron = Cron(schedule.cron, schedule.zone)
    at = cron.next_after(now)
    return (
        (float("inf"), "never due") if at is None else (at, f"next at {cron.text(at)} (in {format_duration(at - now)})")
    )
