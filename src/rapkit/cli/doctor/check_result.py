"""The result of one check."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What was looked at, how it is, what was seen, and what to do about it. A check that could not be made is `skipped`: `seen` is why."""

    check: str
    state: State
    seen: str
    do: str = ""
