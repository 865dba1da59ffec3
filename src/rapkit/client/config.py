"""How long a client waits, and how often it tries."""

import math
from dataclasses import dataclass, fields

from rapkit.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ClientTimeouts:
    """Seconds to wait.

    `connect` is for the connection, `answer` for a whole answer, `quiet` for the next byte of an event stream. Agents send a comment every
    15 seconds when nothing happens, so a stream that is quiet for longer than that is dead.
    """

    connect: float = 10.0
    answer: float = 30.0
    quiet: float = 45.0

    def __post_init__(self) -> None:
        """Refuse what is no time."""
        for each in fields(self):
            seconds = getattr(self, each.name)
            if not 0 < seconds < math.inf:
                raise ConfigError(f"ClientTimeouts({each.name}={seconds!r}): give a number of seconds above 0.")


@dataclass(frozen=True, slots=True)
class ClientRetries:
    """How a request is retried whose connection failed, or that was answered with 429, 502, 503 or 504.

    A request is sent at most `attempts` times. The pauses in between begin with `first_pause` seconds and double up to `longest_pause`;
    each is made shorter at random by up to a half. A `Retry-After` of the agent is waited for if it is no longer than `longest_pause`;
    otherwise the error is raised at once.
    """

    attempts: int = 6
    first_pause: float = 0.25
    longest_pause: float = 10.0

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        if self.attempts < 1:
            raise ConfigError(f"ClientRetries(attempts={self.attempts!r}): every request is sent at least once.")
        if not 0 <= self.first_pause <= self.longest_pause < math.inf:
            raise ConfigError(f"{self}: needs 0 <= first_pause <= longest_pause.")

    def pause(self, failures: int, random: float) -> float:
        """How long to wait after so many failures in a row, at least one; `random` is in [0, 1)."""
        # Bounded before it is raised: an agent may be away for days, and a float has an end.
        longest = min(self.first_pause * 2.0 ** min(failures - 1, 30), self.longest_pause)
        return longest * (1 - random / 2)
