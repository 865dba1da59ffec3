"""Format times and durations in a timeline."""

import time

from rapkit.cli.duration_text import format_duration

_EXACT = 10


def lasted(seconds: float) -> str:
    """How long something took: `0.3 s`, `12 s`, `5 min`."""
    return f"{seconds:.1f} s" if seconds < _EXACT else format_duration(seconds)


def clock(at: float) -> str:
    """The time of day, here."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def day(at: float) -> str:
    """The date, here."""
    return time.strftime("%Y-%m-%d", time.localtime(at))


def ago(at: float, now: float) -> str:
    """`5 min ago`."""
    return f"{format_duration(now - at)} ago"


def until(at: float, now: float) -> str:
    """`in 5 min`, and when that is if it is not soon."""
    if at <= now:
        return "now"
    soon = at - now < 3600
    return f"in {format_duration(at - now)}" + ("" if soon else f" ({day(at)} {clock(at)})")
