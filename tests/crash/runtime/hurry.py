"""Schedules whose minutes take a second: the store's clock, as they see it, goes faster, until the test puts down that it is to stop.

Schedules know whole minutes only, which is too slow to be killed often. Nothing else sees this clock.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rapkit.mailbox import Claim, Commit, Timer
from rapkit.runtime.cron import Cron
from rapkit.runtime.schedules import SCHEDULE, Schedule
from tests.crash.runtime.evidence import Timetable
from tests.crash.runtime.model import command

_SPEED = 60.0
_DAY = 24 * 3600.0


@dataclass(frozen=True)
class Hurry:
    """A clock that goes fast from `begin` on, up to the time that is written in a file, if it is."""

    begin: float
    end_file: Path

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """The schedules, in zones where clocks are never changed: their times are compared as they are spoken.

        The threads they make are called after them and their times, so that each run, all of which may share a tool server, has names of
        its own.
        """
        run = f"{self.begin * 1000:.0f}"
        return (
            Schedule("* * * * *", command("often"), name=f"often-{run}"),
            Schedule("*/2 * * * *", command("sometimes"), name=f"sometimes-{run}", zone="Asia/Kolkata", user_id="u"),
            Schedule("*/6 * * * *", command("apart"), name=f"apart-{run}", new_thread=True),
        )

    def stop(self) -> None:
        """Nothing becomes due any more."""
        self.end_file.write_text(repr(time.time()))

    @property
    def end(self) -> float:
        return float(self.end_file.read_text()) if self.end_file.exists() else float("inf")

    def fast(self, at: float) -> float:
        """What the clock shows at a real time."""
        return self.begin + (min(at, self.end) - self.begin) * _SPEED

    def slow(self, at: float) -> float:
        """When it shows that, in real time; a day later if it never will."""
        real = self.begin + (at - self.begin) / _SPEED
        return real if real <= self.end else real + _DAY

    def claims(self, claims: Sequence[Claim]) -> list[Claim]:
        """Claims of schedules, as if the store had that clock."""
        return [self._claim(claim) if claim.box.kind == SCHEDULE else claim for claim in claims]

    def _claim(self, claim: Claim) -> Claim:
        mail = tuple(replace(each, accepted_at=self.fast(each.accepted_at)) for each in claim.mail)
        return replace(claim, now=self.fast(claim.now), mail=mail)

    def commit(self, claim: Claim, commit: Commit) -> Commit:
        """A commit of a schedule, as the store takes it."""
        if claim.box.kind != SCHEDULE:
            return commit
        timers = [Timer(each.key, None if each.at is None else self.slow(each.at)) for each in commit.timers]
        return replace(commit, timers=timers)

    def timetable(self, schedule: Schedule, made_at: float) -> Timetable:
        """All that was due of a schedule that was configured then."""
        cron = Cron(schedule.cron, schedule.zone)
        due: list[str] = []
        at = cron.next_after(self.fast(made_at))
        while at is not None and at <= self.fast(self.end):
            due.append(cron.text(at))
            at = cron.next_after(at)
        return Timetable(schedule.name, tuple(due), schedule.new_thread)
