"""Format durations for people."""


def format_duration(seconds: float) -> str:
    """`40 s`, `5 min`, `3 h`, `2 d`."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"
