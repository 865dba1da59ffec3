"""How much a server takes on."""

from dataclasses import dataclass, fields

from rapkit.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Limits:
    """What a tool server takes on.

    `concurrency`: handlers at once. `backlog`: accepted invocations that have not ended; past it a caller is asked to come back (503).
    `subscriptions`: generators at work at once; past it a subscription is refused with an error result.
    `rate`: invocations a second and caller, far above what an honest runtime sends; past it 503. `notices`: closed threads and cancelled
    calls a second and caller; what is past it is answered and not acted on. `strangers`: requests a second and client address to what
    carries its own proof (answers of users, OAuth redirects, webhooks); past it 503. All three allow bursts of as many; None is no limit.
    `body`: bytes of one message that comes in. `result`: bytes of one that goes out; a larger result becomes an error that says so.
    """

    concurrency: int = 256
    backlog: int = 10_000
    subscriptions: int = 10_000
    rate: float | None = 10_000
    notices: float | None = 1000
    strangers: float | None = 20
    body: int = 1024 * 1024
    result: int = 16 * 1024 * 1024

    def __post_init__(self) -> None:
        """Refuse limits that would let nothing through."""
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and not value > 0:  # written so that NaN fails too
                raise ConfigError(f"{each.name} is a number above 0, not {value}.")
