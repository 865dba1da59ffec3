"""The configuration of an agent, assembled once and immutable while the agent runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rapkit.delivery.retry import POLICIES, PostKind, RetryPolicy
from rapkit.errors import ConfigError
from rapkit.http.limits import HttpLimits
from rapkit.kernel.limits import ThreadLimits
from rapkit.mailbox import MAIL_BYTES
from rapkit.models.model import Model
from rapkit.runtime.budget import Budget
from rapkit.runtime.in_process import InProcess
from rapkit.runtime.schedules import Schedule
from rapkit.runtime.server import Server
from rapkit.runtime.wake_hook import OnAccept


@dataclass(frozen=True, slots=True)
class Patience:
    """How long, in seconds.

    `lease`: how long a silent process keeps its threads. `grace`: what runs when we are told to stop. `dead_letters`: how long what could
    not be delivered is kept. `rediscover`: after which time a server that was down is asked again. `completion`: how long a model may take.
    """

    lease: float = 6.0
    grace: float = 10.0
    dead_letters: float = 14 * 24 * 3600.0
    rediscover: float = 30.0
    completion: float = 600.0


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much at once: `threads` that run, `callback` bytes of one message of a tool, `message` bytes of one of a client.

    `values`: JSON values in one message of either, because they take far more time and memory than their bytes.
    `mail`: bytes of mail that are read at once, however much has piled up; the rest waits for the next slices. Of a conversation that a
    model is shown, four times as much is read. Neither `callback` nor `message` may exceed it.
    `deliveries`: messages under way to tool servers, and `deliveries_per_origin` of them to one; servers that do not answer get only a
    part of them. `lookups`: names looked up at once; names whose DNS does not answer get only a part of them.
    `http`: what the agent takes from its peers on the socket, when rapkit itself listens.
    """

    threads: int = 2048
    callback: int = 16 * 1024 * 1024
    message: int = 1024 * 1024
    values: int = 100_000
    mail: int = MAIL_BYTES
    deliveries: int = 1024
    deliveries_per_origin: int = 64
    lookups: int = 256
    http: HttpLimits = field(default_factory=HttpLimits)

    @property
    def conversation(self) -> int:
        """Bytes of a conversation that are read for its model; what is older is not shown."""
        return 4 * self.mail

    def __post_init__(self) -> None:
        """Refuse to accept what could not be read afterwards."""
        for name in ("callback", "message"):
            if (size := getattr(self, name)) > self.mail:
                raise ConfigError(
                    f"{name} is {size} bytes and mail {self.mail}: a message that is accepted must fit into the mail that is read at once. "
                    f"Lower {name}, or raise mail to {size} or more."
                )


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """An agent: its model, its servers, its store, where it is reached, and how far it goes.

    `toolsets` are those of the servers that run in this process. `on_accept` is called when there is something to do; see `WakeHook`.
    `lasting`: it is run for good, not only as long as some command.
    """

    model: Model
    servers: tuple[Server, ...]
    store: str
    public_url: str
    toolsets: tuple[InProcess, ...] = ()
    instructions: str = ""
    limits: ThreadLimits = field(default_factory=ThreadLimits)
    capacity: Capacity = field(default_factory=Capacity)
    patience: Patience = field(default_factory=Patience)
    policies: Mapping[PostKind, RetryPolicy] = field(default_factory=lambda: POLICIES)
    schedules: tuple[Schedule, ...] | None = None
    budget: Budget | None = None
    on_accept: OnAccept | None = None
    lasting: bool = True
