"""What a measurement found."""

from dataclasses import dataclass, field


@dataclass
class Figures:
    """Calls that were completed in a time, and how long each waited for its acknowledgement."""

    seconds: float = 0.0
    calls: int = 0
    acks: list[float] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        return self.calls / self.seconds

    def ack_ms(self, percent: float) -> float:
        """The time in milliseconds within which so many percent of the calls were acknowledged."""
        ordered = sorted(self.acks)
        return 1000 * ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
