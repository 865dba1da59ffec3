"""The expected time of a tool: how its author writes it, and the annotation that carries it (INV-20)."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ANNOTATION = "x-rapkit-expected-seconds"
"""Its value is `[least, most]`, both in seconds."""

_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_TEXT = re.compile(r"(\d+(?:\.\d+)?)(?: ?- ?(\d+(?:\.\d+)?))? ?(s|min|h|d)")


@dataclass(frozen=True, slots=True)
class ExpectedTime:
    """From `least` to `most` seconds, as `text` says it."""

    text: str
    least: float
    most: float


def parse_expected_time(text: object) -> ExpectedTime:
    """Read an author's "30 s" or "2-10 min"; `ValueError` says how it is written."""
    match = _TEXT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(
            f'expected is {text!r}. Write a time or a range with one of s, min, h, d, like "30 s" or "2-10 min".'
        )
    least = float(match[1]) * _UNITS[match[3]]
    most = float(match[2] or match[1]) * _UNITS[match[3]]
    if not most > 0:
        raise ValueError(f"expected is {text!r}. It has to be more than 0.")
    if least > most:
        raise ValueError(f"expected is {text!r}. The second number must not be less than the first.")
    return ExpectedTime(match[0], least, most)


def longest_expected(annotations: Mapping[str, Any] | None) -> float | None:
    """The longest time in a tool's annotations, in seconds; None if there is none that can be used."""
    value = (annotations or {}).get(ANNOTATION)
    if not isinstance(value, list) or len(value) != 2 or any(type(each) not in (int, float) for each in value):
        return None
    least, most = value
    return float(most) if 0 <= least <= most < math.inf and most > 0 else None


def duration(seconds: float) -> str:
    """A time for people, in the largest unit that is not more than it."""
    unit = next((unit for unit in reversed(_UNITS) if seconds >= _UNITS[unit]), "s")
    return f"{seconds / _UNITS[unit]:.3g} {unit}"
