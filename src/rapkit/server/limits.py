"""`Limits`: how much load a server accepts."""

import math
from dataclasses import dataclass, field, fields

from rapkit.errors import ConfigError
from rapkit.http.limits import HttpLimits
from rapkit.mailbox import MAIL_BYTES


@dataclass(frozen=True, slots=True)
class Limits:
    """What a tool server takes on.

    `concurrency`: handlers at once. `backlog`: accepted invocations that have not ended; past it a caller is asked to come back (503).
    `caller_share`: the part of both that one caller may have, from above 0 to 1; what is left is for the others.
    `subscriptions`: generators at work at once; past it a subscription is refused with an error result.
    `rate`: invocations a second and caller, far above what an honest runtime sends; past it 503. `notices`: closed threads and cancelled
    calls a second and caller; what is past it is answered and not acted on. `strangers`: requests a second and client address to what
    carries its own proof (answers of users, OAuth redirects, webhooks); past it 503. All three allow bursts of as many; None is no limit.
    `body`: bytes of one message that comes in. `values`: JSON values in it, because they take far more time and memory than their bytes.
    `mail`: bytes of stored messages (answers of users, events) that are read at once; more waits. `body` may not exceed it.
    `result`: bytes of one that goes out; a larger result becomes an error that says so.
    `deliveries`: callbacks under way at once, and `deliveries_per_origin` of them to one origin; origins that do not answer get only a part
    of them. `lookups`: names of callback URLs looked up at once; names whose DNS does not answer get only a part of them.
    `http`: what the server takes from its peers on the socket, when it is served by `rapkit serve` or `Toolset.run`.
    """

    concurrency: int = 256
    backlog: int = 10_000
    caller_share: float = 0.875
    subscriptions: int = 10_000
    rate: float | None = 10_000
    notices: float | None = 1000
    strangers: float | None = 20
    body: int = 1024 * 1024
    values: int = 100_000
    mail: int = MAIL_BYTES
    result: int = 16 * 1024 * 1024
    deliveries: int = 1024
    deliveries_per_origin: int = 64
    lookups: int = 256
    http: HttpLimits = field(default_factory=HttpLimits)

    def __post_init__(self) -> None:
        """Refuse limits that would let nothing through."""
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, HttpLimits):
                continue  # it checks itself
            if value is not None and not value > 0:  # written so that NaN fails too
                raise ConfigError(f"{each.name} is a number above 0, not {value}.")
        if self.body > self.mail:
            raise ConfigError(
                f"body is {self.body} bytes and mail {self.mail}: a message that is accepted must fit into the mail that is read at once. "
                f"Lower body, or raise mail to {self.body} or more."
            )
        if self.caller_share > 1:
            raise ConfigError(f"caller_share is a number from above 0 to 1, not {self.caller_share}.")

    def of_one_caller(self, limit: int) -> int:
        """How much of a limit one caller may have."""
        return math.ceil(limit * self.caller_share)
