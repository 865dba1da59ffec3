"""What an agent is, put together once and not changed while it runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rapkit.delivery.retry import POLICIES, Kind, RetryPolicy
from rapkit.kernel.limits import ThreadLimits
from rapkit.models.model import Model
from rapkit.runtime.budget import Budget
from rapkit.runtime.doorbell import OnAccept
from rapkit.runtime.in_process import InProcess
from rapkit.runtime.schedules import Schedule
from rapkit.runtime.server import Server


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
    """How much at once: `threads` that run, `callback` bytes of one message of a tool, `message` bytes of one of a client."""

    threads: int = 2048
    callback: int = 16 * 1024 * 1024
    message: int = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Plan:
    """An agent: its model, its servers, its store, where it is reached, and how far it goes.

    `toolsets` are those of the servers that run in this process. `on_accept` is called when there is something to do; see `Doorbell`.
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
    policies: Mapping[Kind, RetryPolicy] = field(default_factory=lambda: POLICIES)
    schedules: tuple[Schedule, ...] | None = None
    budget: Budget | None = None
    on_accept: OnAccept | None = None
    lasting: bool = True
