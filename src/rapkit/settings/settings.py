"""The settings of an agent, read from `rapkit.toml`, the environment and flags.

Flags win over the environment, the environment over the file. Relative paths in the file are relative to its folder; those in flags and
variables to the current one.
"""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_args
from urllib.parse import urlsplit

from rapkit.delivery.client_certificate import ClientCertificate
from rapkit.delivery.request_signer import SigV4
from rapkit.errors import ConfigError
from rapkit.http.limits import HttpLimits
from rapkit.kernel.limits import Confirmation, Confirmations, ThreadLimits, Timeouts
from rapkit.runtime.agent import Agent, check_public_url
from rapkit.runtime.budget import Budget, Per
from rapkit.runtime.config import Capacity
from rapkit.runtime.schedules import Schedule, check_names
from rapkit.runtime.server import Server
from rapkit.settings.agent_location import (
    DEFAULT_FILE,
    DEFAULT_HOST,
    DEFAULT_PORT,
    SERVERS,
    AgentLocation,
    Flags,
    SettingsFile,
    Tokens,
)
from rapkit.settings.keys import key_names
from rapkit.settings.toml_table import TomlTable
from rapkit.store_url import DEFAULT_STORE

__all__ = ["DEFAULT_FILE", "SERVERS", "Flags", "Settings", "load_settings"]

_SERVER = key_names("servers")
_SIGV4 = key_names("servers.sigv4")
_CERTIFICATE = key_names("servers.client_certificate")
_SCHEDULE = key_names("schedule")
_BUDGET = key_names("agent.budget")
_NEVER_ZERO = ("mistakes", "attempts", "window")
_LIMITS = {each.name: each.type for each in dataclasses.fields(ThreadLimits) if each.name in key_names("agent.limits")}
_CAPACITY = {each.name: each.type for each in dataclasses.fields(Capacity) if each.name != "http"}
_HTTP = {each.name: each.type for each in dataclasses.fields(HttpLimits)}
_CONFIRMATIONS = get_args(Confirmation)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of an agent."""

    model: str
    servers: tuple[Server, ...] = ()
    instructions: str = ""
    store: str = DEFAULT_STORE
    public_url: str | None = None
    allow_plain_http: bool = False
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    tokens: Tokens = field(default_factory=dict, repr=False)
    limits: ThreadLimits = field(default_factory=ThreadLimits)
    capacity: Capacity = field(default_factory=Capacity)
    schedules: tuple[Schedule, ...] = ()
    budget: Budget | None = None

    @property
    def location(self) -> AgentLocation:
        """Where the agent is when it runs."""
        return AgentLocation(self.store, self.host, self.port, self.tokens)

    def agent(self) -> Agent:
        """The agent; `ConfigError` if its model cannot be used, or a token of its clients is not there."""
        return Agent(
            model=self.model,
            servers=self.servers,
            instructions=self.instructions,
            store=self.store,
            public_url=self.public_url,
            allow_plain_http=self.allow_plain_http,
            tokens=self.tokens,
            limits=self.limits,
            capacity=self.capacity,
            schedules=self.schedules,
            budget=self.budget,
        )


def load_settings(
    path: Path = DEFAULT_FILE, flags: Flags | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """Read everything; `ConfigError` says which keys are wrong, what is possible, and what to do.

    Without a file of the usual name, a model that is named outside of it is enough.
    """
    file = SettingsFile(path, flags or Flags(), os.environ if environment is None else environment)
    table, agent = file.table, file.agent
    where = file.location()
    settings = Settings(
        model=table.attempt("", file.model),
        servers=_servers(file),
        instructions=table.attempt("", _instructions, agent),
        store=where.store,
        public_url=table.attempt(None, _public_url, file),
        allow_plain_http=file.allow_plain_http(),
        host=where.host,
        port=where.port,
        tokens=where.tokens,
        limits=_limits(agent),
        capacity=table.attempt(Capacity(), _capacity, agent),
        schedules=_schedules(table),
        budget=table.attempt(None, _budget, agent),
    )
    table.check()
    return settings


def _instructions(agent: TomlTable) -> str:
    text = agent.text("instructions", may_be_empty=True) or ""
    place = agent.beside(text, "file:")
    if not text.startswith("file:"):
        return text
    file = Path(place.removeprefix("file:"))
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(
            f'{agent.path}: "instructions" in {agent.title} are to come from {file}, which cannot be read: {problem}.'
        ) from None


def _public_url(file: SettingsFile) -> str | None:
    said, inside = file.said("public_url"), file.agent.text("public_url")
    url = said or inside
    if url is None:
        return None
    try:
        return check_public_url(url)
    except ConfigError as error:
        source = file.source("public_url") if said else f'{file.agent.path}, "public_url" in {file.agent.title}'
        raise ConfigError(f"{source}: {error}") from None


def _servers(file: SettingsFile) -> tuple[Server, ...]:
    """Those of the file, then those that were named outside and are not among them."""
    tables = file.table.tables("servers", _SERVER, example='url = "http://127.0.0.1:8001"')
    servers = list(_each(_server, tables))
    for url, source in file.servers():
        if url.rstrip("/") not in [server.base for server in servers]:  # there it may have a token and a prefix
            named = file.table.attempt(None, _named_server, url, source)
            servers += [named] if named is not None else []
    return tuple(servers)


def _named_server(url: str, source: str) -> Server:
    try:
        return Server(url)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def _server(table: TomlTable) -> Server:
    given: dict[str, Any] = {
        "token": table.attempt(None, table.secret, "token"),
        "prefix": table.attempt(None, table.text, "prefix", may_be_empty=True) or "",
        "name": table.attempt(None, table.text, "name") or "",
        "webhook_secret": table.attempt((), table.secret_or_several, "webhook_secret"),
        "allow_http": table.attempt(False, table.flag, "allow_http") or False,
        "auth": table.attempt(None, _auth, table),
    }
    url = table.required("url", 'Write it like url = "http://127.0.0.1:8001".')
    try:
        server = Server(url, **given)
        _ = urlsplit(url).port
        return server
    except ConfigError as error:
        raise ConfigError(f"{table.path}, {table.title}: {error}") from None
    except ValueError:  # a port that is no number, a bracket that is not closed
        raise table.wrong("url", "the URL of a tool server, like http://127.0.0.1:8001") from None


def _auth(table: TomlTable) -> SigV4 | ClientCertificate | None:
    """How the agent proves to a server who it is, besides a token: one way or the other."""
    sigv4, files = table.table("sigv4", _SIGV4), table.table("client_certificate", _CERTIFICATE)
    if sigv4.names() and files.names():
        raise ConfigError(
            f"{table.path}, {table.title}: sigv4 and client_certificate are two ways to be known. Leave one out."
        )
    if sigv4.names():
        region = sigv4.required("region", 'Write it like region = "eu-central-1".')
        keys = sigv4.secret("access_key"), sigv4.secret("secret_key")
        return _made(sigv4, SigV4, region, sigv4.text("service") or "execute-api", *keys)
    if files.names():
        cert = files.required("cert", 'Write it like cert = "agent.pem".')
        return _made(files, ClientCertificate, files.place(cert), *(_place(files, key) for key in ("key", "ca")))
    return None


def _place(table: TomlTable, key: str) -> str | None:
    text = table.text(key)
    return None if text is None else table.place(text)


def _made(table: TomlTable, make: Callable[..., T], *given: str | None) -> T:
    try:
        return make(*given)
    except ConfigError as error:
        raise ConfigError(f"{table.path}, {table.title}: {error}") from None


def _each(read: Callable[[TomlTable], T | None], tables: Sequence[TomlTable]) -> tuple[T, ...]:
    """What all the tables say, except those that are wrong."""
    return tuple(each for table in tables if (each := table.attempt(None, read, table)) is not None)


# How far, how long, how much


def _limits(agent: TomlTable) -> ThreadLimits:
    table = agent.table("limits", tuple(_LIMITS))
    given = {key: table.attempt(None, _limit, table, key) for key in _LIMITS}
    given["context_window"] = table.attempt(None, agent.number, "context_window", 1)
    given["timeouts"] = _timeouts(agent)
    given["confirmations"] = _confirmations(agent)
    return ThreadLimits(**{key: value for key, value in given.items() if value is not None})


def _limit(table: TomlTable, key: str) -> Any:
    kind = _LIMITS[key]
    if kind is bool:
        return table.flag(key)
    if kind is int:
        return table.number(key, 1 if key in _NEVER_ZERO else 0)
    if kind == int | None:
        return table.number(key, 1)
    if key == "cost":
        return table.amount(key)
    return table.seconds(key, may_be_zero=kind is float)


def _capacity(agent: TomlTable) -> Capacity:
    table = agent.table("capacity", key_names("agent.capacity"))
    http = HttpLimits(**_sizes(table.table("http", key_names("agent.capacity.http")), _HTTP))
    sizes = _sizes(table, _CAPACITY)
    try:
        return Capacity(**sizes, http=http)
    except ConfigError as error:
        raise ConfigError(f"{table.path}, {table.title}: {error}") from None


def _sizes(table: TomlTable, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of things or bytes, and the times in seconds, that a table has."""
    given = {key: table.attempt(None, _size, table, key, kinds[key]) for key in table.names() if key in kinds}
    return {key: value for key, value in given.items() if value is not None}


def _size(table: TomlTable, key: str, kind: Any) -> Any:
    return table.seconds(key) if kind is float else table.number(key, 1)


def _timeouts(agent: TomlTable) -> Timeouts:
    def read(table: TomlTable, key: str) -> float | None:
        return table.attempt(None, table.seconds, key, may_be_off=True)

    tools = agent.table("call_timeouts", None)
    return Timeouts(
        _unless_off(read(agent, "call_timeout")),
        read(agent, "long_running_timeout"),
        {name: _unless_off(read(tools, name)) for name in tools.names()},
    )


def _unless_off(seconds: float | None) -> float | None:
    return None if seconds == math.inf else seconds


def _confirmations(agent: TomlTable) -> Confirmations:
    def read(table: TomlTable, key: str) -> Any:
        return table.attempt(None, table.choice, key, _CONFIRMATIONS)

    table = agent.table("confirm", key_names("agent.confirm"))
    tools = table.table("tools", None)
    given = {name: read(tools, name) for name in tools.names()}
    return Confirmations(read(table, "destructive") or Confirmations().destructive, given)


def _budget(agent: TomlTable) -> Budget | None:
    table = agent.table("budget", _BUDGET)
    if not table.names():
        return None
    given: dict[str, Any] = {
        "slices": table.attempt(None, table.number, "slices", 1),
        "tokens": table.attempt(None, table.number, "tokens", 1),
        "cost": table.attempt(None, table.amount, "cost"),
        "per": table.attempt(None, table.choice, "per", get_args(Per)),
    }
    if any(
        given.get(key) is None for key in table.names()
    ):  # which was said to be wrong; the rest may make no sense without it
        return None
    try:
        return Budget(**{key: value for key, value in given.items() if value is not None})
    except ConfigError as error:
        raise ConfigError(f"{table.path}, {table.title}: {error}") from None


# Schedules


def _schedules(file: TomlTable) -> tuple[Schedule, ...]:
    tables = file.tables("schedule", _SCHEDULE, example='cron = "0 9 * * MON-FRI" and message = "…"')
    schedules = _each(_schedule, tables)
    file.attempt(None, _check_names, file, schedules)
    return schedules


def _check_names(file: TomlTable, schedules: Sequence[Schedule]) -> None:
    try:
        check_names(schedules)
    except ConfigError as error:
        raise ConfigError(f"{file.path}, [[schedule]]: {error}") from None


def _schedule(table: TomlTable) -> Schedule | None:
    cron = table.attempt(
        None,
        table.required,
        "cron",
        'Write it like cron = "0 9 * * MON-FRI": minute, hour, day, month, day of week.',
    )
    message = table.attempt(
        None,
        table.required,
        "message",
        'Write what the agent is to be told, like message = "Summarise what is new.".',
    )
    given = {key: table.attempt(None, table.text, key) for key in ("zone", "name", "user_id")}
    new_thread = table.attempt(False, table.flag, "new_thread") or False
    if cron is None or message is None:
        return None
    try:
        return Schedule(
            cron, message, new_thread=new_thread, **{key: text for key, text in given.items() if text is not None}
        )
    except ConfigError as error:
        raise ConfigError(f"{table.path}, {table.title}: {error}") from None
