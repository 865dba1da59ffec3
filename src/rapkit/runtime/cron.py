"""Compute when a cron expression is due in a time zone, including daylight-saving changes.

The rules are those of Debian's cron. A job at fixed times (neither minute nor hour begins with a star) is due once for each of them: one
that the clocks skip is due the moment they have skipped it, and those that are skipped together are due together, once; one that comes
twice is due the first time. A job whose minute or hour begins with a star goes by what the clock shows, minute after minute: what is
skipped is not due, what comes twice is due twice.

Whole minutes, five fields. `cronsim` reads them. It is asked about local times only, and what they are in real time is worked out here: by
itself it may answer with a time that is over, when it is asked within an hour that comes twice, and it leaves out times where a zone's
clocks are changed by half an hour.
"""

import difflib
import zoneinfo
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rapkit.errors import ConfigError
from rapkit.extras import how_to_install

if TYPE_CHECKING:
    from cronsim import CronSim

_MINUTE = 60
_HOUR = 3600
_DAY = 24 * _HOUR
_FIELDS = 5
_YEARS = 50
_EXAMPLE = 'Write its five fields, minute, hour, day of month, month and day of week, like "0 9 * * MON-FRI" for nine on weekdays.'


class Cron:
    """An expression in a zone; `ConfigError` says what is wrong with either."""

    def __init__(self, expression: str, zone: str) -> None:
        self._zone = _zone(zone)
        self._expression = expression
        self._rule = _parsed(expression, datetime(2000, 1, 1))  # any time will do: this one is never asked
        minute, hour, *_ = expression.split()
        self._by_the_clock = minute.startswith("*") or hour.startswith("*")

    def next_after(self, timestamp: float) -> float | None:
        """The first time that is due after this one, both in seconds since 1970; None if there is none within fifty years."""
        return self._next_shown(timestamp) if self._by_the_clock else self._next_fixed(timestamp)

    def text(self, timestamp: float) -> str:
        """A time as a clock in the zone shows it."""
        return f"{self._local(timestamp):%Y-%m-%d %H:%M} {self._zone.key}"

    def _local(self, timestamp: float) -> datetime:
        return datetime.fromtimestamp(timestamp, self._zone)

    # Jobs at fixed times

    def _next_fixed(self, timestamp: float) -> float | None:
        """Local times are worked through in order. What they are in real time is in the same order, so the first that is later is it."""
        for local in _parsed(self._expression, self._local(timestamp).replace(tzinfo=None)):
            at = self._instant(local)
            if at > timestamp:
                return at
        return None

    def _instant(self, local: datetime) -> float:
        """When the clock shows a local time first, or would have shown it, had it not been skipped."""
        at = local.replace(tzinfo=self._zone, fold=0)
        while at.astimezone(UTC).astimezone(self._zone).replace(tzinfo=None) != local:
            local += timedelta(minutes=1)
            at = local.replace(tzinfo=self._zone, fold=0)
        return at.timestamp()

    # Jobs that go by the clock

    def _next_shown(self, timestamp: float) -> float | None:
        """Real time is worked through minute by minute, in leaps where nothing can be due."""
        at = (timestamp // _MINUTE + 1.0) * _MINUTE
        until = at + _YEARS * 366 * _DAY
        rule = self._rule
        while at < until:
            local = self._local(at)
            within_hour = local.minute * _MINUTE
            if local.month not in rule.months or not rule.match_day(local.date()):
                at = self._leap(at, local, _DAY - local.hour * _HOUR - within_hour)
            elif local.hour not in rule.hours:
                at = self._leap(at, local, _HOUR - within_hour)
            elif local.minute not in rule.minutes:
                at += _MINUTE
            else:
                return at
        return None

    def _leap(self, at: float, local: datetime, seconds: float) -> float:
        """So many seconds on, if the clocks are not changed on the way."""
        landed = at + seconds
        return landed if self._local(landed).utcoffset() == local.utcoffset() else at + _MINUTE


def _parsed(expression: str, start: datetime) -> "CronSim":
    try:
        from cronsim import CronSim, CronSimError
    except ImportError as error:
        raise ConfigError(
            f"Schedules are read by cronsim, which comes with an extra. Run: {how_to_install('agent')}"
        ) from error
    fields = len(expression.split())
    if fields != _FIELDS:
        raise ConfigError(f"{expression!r} is no cron expression: it has {fields} fields. {_EXAMPLE}")
    try:
        return CronSim(expression, start)
    except CronSimError as error:
        which = str(error).removeprefix("Bad ").replace("-", " ")
        raise ConfigError(
            f"{expression!r} is no cron expression: its {which} is wrong, or there is no such day. {_EXAMPLE}"
        ) from None


def _zone(name: str) -> zoneinfo.ZoneInfo:
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        close = difflib.get_close_matches(name, zoneinfo.available_timezones(), n=1)
        meant = f"Did you mean {close[0]!r}? " if close else ""
        raise ConfigError(
            f"{name!r} is no time zone. {meant}Write its name in the IANA database, like "
            '"Europe/Berlin", "America/New_York" or "UTC".'
        ) from None
