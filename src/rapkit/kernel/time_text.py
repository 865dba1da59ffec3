"""Format and parse times for people and models. The current time is always passed in."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError


def format_time(at: float) -> str:
    """A moment in words."""
    return f"{datetime.fromtimestamp(at, UTC):%A %Y-%m-%d %H:%M:%S} UTC"


def parse_time(text: str, zone: str | None, now: float) -> float:
    """The moment that a date and time, as ISO 8601 has them, mean in an IANA zone; in UTC if there is none.

    A time that the clocks skip is as long after the change as it says it is after the hour; of one that comes twice the first is meant,
    unless that is over. ValueError says what is wrong.
    """
    try:
        given = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is no date and time. Write it like 2030-01-31T09:00.") from None
    if given.tzinfo is not None:
        return given.timestamp()
    local = given.replace(tzinfo=_zone(zone))
    first, second = local.replace(fold=0).timestamp(), local.replace(fold=1).timestamp()
    # Where the clocks are put forward the second reading is the earlier one; then the first is the one that keeps the distance.
    return second if first < now <= second else first


def _zone(name: str | None) -> ZoneInfo:
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{name!r} is no IANA time zone. Write one like Europe/Berlin.") from None
