"""The configuration of a running toolset."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from rapkit.delivery.client_certificate import ClientCertificate
from rapkit.delivery.retry import POLICIES
from rapkit.errors import ConfigError
from rapkit.http.authentication import Callers
from rapkit.mailbox import Lease
from rapkit.server.interaction.oauth import OAuthProvider
from rapkit.server.limits import Limits
from rapkit.server.resources.close_hooks import CloseHook
from rapkit.server.tools.hooks import Hook
from rapkit.server.tools.tool import Tool

_DAY = 24 * 3600.0
_SHORTEST_LEASE = 0.2


@dataclass(frozen=True, slots=True)
class Durations:
    """How long things are kept or waited for, in seconds.

    `remember_calls`: how long after its end a repeated invocation is recognised. `remember_cancels`: how long a cancellation waits for
    a call that has not come yet. `remember_events`: how long a repeated `emit` with the same id is recognised. `connect`: how long
    a connection to a runtime may take. `response`: how long a runtime may take to answer a callback. `ask`: how long a question to the
    user is retried that does not reach the runtime, before it is given up. `answer`: how long a question stays open
    unless it says otherwise. `authorise`: how long a user may take to authorise us. `subscription_outage`: how long a subscription may
    fail without progress before it is given up. `keep_threads`: how long after its last call a thread's workspace and state are kept if
    no notice says that it closed. `keep_dead_letters`: how long undeliverable callbacks can be looked at and sent again. `grace`: how long
    running handlers may go on when the server is stopped. `lease`: how long a server that is lost without a word keeps its calls from
    the next start, or from other servers on the same store; shorter is a faster recovery, and too short takes calls from a server that
    is merely slow.
    """

    remember_calls: float = max(policy.horizon for policy in POLICIES.values()) + _DAY
    remember_cancels: float = 3600
    remember_events: float = 3 * _DAY
    connect: float = 10
    response: float = 60
    ask: float = 3600
    answer: float = 3 * _DAY
    authorise: float = 3600
    subscription_outage: float = 3 * _DAY
    keep_threads: float = 30 * _DAY
    keep_dead_letters: float = 30 * _DAY
    grace: float = 10
    lease: float = Lease().seconds

    def __post_init__(self) -> None:
        """Refuse what is no duration, and a lease that ends before it can be renewed."""
        for each in fields(self):
            if each.name != "lease" and not 0 <= getattr(self, each.name) < float("inf"):
                raise ConfigError(f"{each.name} is a number of seconds, not {getattr(self, each.name)}.")
        if not (self.connect and self.response):
            raise ConfigError("connect and response are numbers of seconds above 0.")
        if not _SHORTEST_LEASE <= self.lease < float("inf"):
            raise ConfigError(f"lease is a number of seconds from {_SHORTEST_LEASE:g} on, not {self.lease}.")


@dataclass(frozen=True, slots=True)
class ToolsetConfig:
    """The configuration of a toolset's engine."""

    toolset: str
    tools: Mapping[str, Tool]
    version: str
    store: str
    public_url: str | None
    callers: Callers
    allow_callbacks: Sequence[str] = ()
    loopback_callbacks: bool = False
    webhook_secrets: Sequence[str] = ()
    callback_certificate: ClientCertificate | None = None
    oauth: Mapping[str, OAuthProvider] = field(default_factory=dict)
    hooks: Sequence[Hook] = ()
    close_hooks: Sequence[CloseHook] = ()
    limits: Limits = field(default_factory=Limits)
    durations: Durations = field(default_factory=Durations)
