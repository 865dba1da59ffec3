"""What can be configured of an agent: read from `rapkit.toml`, the environment and flags.

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

from rapkit.config_file import Table
from rapkit.errors import ConfigError
from rapkit.kernel.limits import Confirmation, Confirmations, ThreadLimits, Timeouts
from rapkit.runtime.agent import DEFAULT_STORE, Agent, check_public_url
from rapkit.runtime.budget import Budget, Per
from rapkit.runtime.schedules import Schedule, check_names
from rapkit.runtime.server import Server

DEFAULT_FILE = Path("rapkit.toml")
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8700
MINIMAL = """\
[agent]
model = "openai:gpt-5-mini"

[[servers]]
url = "http://127.0.0.1:8001"
"""

_LAST_PORT = 65535
_VARIABLES = {"model": "RAPKIT_MODEL", "store": "RAPKIT_STORE", "public_url": "RAPKIT_PUBLIC_URL"}
_AGENT = (
    *("model", "instructions", "store", "public_url", "host", "port", "tokens", "limits", "context_window"),
    *("call_timeout", "long_running_timeout", "call_timeouts", "confirm", "budget"),
)
_SERVER = ("url", "token", "prefix", "name", "allow_http")
_SCHEDULE = ("cron", "message", "zone", "name", "user_id", "new_thread")
_BUDGET = ("slices", "tokens", "cost", "per")
_NEVER_ZERO = ("mistakes", "attempts", "window")
_ELSEWHERE = ("context_window", "timeouts", "confirmations")
_LIMITS = {each.name: each.type for each in dataclasses.fields(ThreadLimits) if each.name not in _ELSEWHERE}
_CONFIRMATIONS = get_args(Confirmation)

T = TypeVar("T")
Tokens = Mapping[str, Sequence[str]]
"""Who may use the client API: tokens, or where they are to be found, by name."""


@dataclass(frozen=True, slots=True)
class Flags:
    """What was said on the command line; None is what was not."""

    model: str | None = None
    store: str | None = None
    public_url: str | None = None
    host: str | None = None
    port: int | None = None
    tokens: Tokens | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """An agent as it is configured."""

    model: str
    servers: tuple[Server, ...] = ()
    instructions: str = ""
    store: str = DEFAULT_STORE
    public_url: str | None = None
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    tokens: Tokens = field(default_factory=dict, repr=False)
    limits: ThreadLimits = field(default_factory=ThreadLimits)
    schedules: tuple[Schedule, ...] = ()
    budget: Budget | None = None

    def agent(self) -> Agent:
        """The agent; `ConfigError` if its model cannot be used, or a token of its clients is not there."""
        return Agent(
            model=self.model,
            servers=self.servers,
            instructions=self.instructions,
            store=self.store,
            public_url=self.public_url,
            tokens=self.tokens,
            limits=self.limits,
            schedules=self.schedules,
            budget=self.budget,
        )


def load_settings(
    path: Path = DEFAULT_FILE, flags: Flags | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """Read everything; `ConfigError` says which keys are wrong, what is possible, and what to do."""
    outside = _Outside(flags or Flags(), os.environ if environment is None else environment)
    file = Table.read(path, ("agent", "servers", "schedule"), example=MINIMAL)
    agent = file.table("agent", _AGENT)
    settings = Settings(
        model=file.attempt("", _model, agent, outside),
        servers=_each(_server, file.tables("servers", _SERVER, example='url = "http://127.0.0.1:8001"')),
        instructions=file.attempt("", _instructions, agent),
        store=file.attempt("", _store, agent, outside),
        public_url=file.attempt(None, _public_url, agent, outside),
        host=file.attempt(None, agent.text, "host") or DEFAULT_HOST,
        port=file.attempt(0, _port, agent),
        tokens=file.attempt({}, agent.secrets, "tokens"),
        limits=_limits(agent),
        schedules=_schedules(file),
        budget=file.attempt(None, _budget, agent),
    )
    host = file.attempt(None, outside.text, "host")
    file.check()
    said = {key: getattr(outside.flags, key) for key in ("port", "tokens")} | {"host": host}
    return dataclasses.replace(settings, **{key: value for key, value in said.items() if value is not None})


class _Outside:
    """What was said outside of the file."""

    def __init__(self, flags: Flags, environment: Mapping[str, str]) -> None:
        self.flags = flags
        self._environment = environment

    def text(self, key: str) -> str | None:
        flag: str | None = getattr(self.flags, key)
        if flag == "":
            raise ConfigError(f"{_as_flag(key)} is empty. Give it a value, or leave it out.")
        return flag or self._environment.get(_VARIABLES.get(key, "")) or None

    def source(self, key: str) -> str:
        return _as_flag(key) if getattr(self.flags, key) else _VARIABLES[key]


def _as_flag(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _model(agent: Table, outside: _Outside) -> str:
    inside = agent.text("model")
    if said := outside.text("model"):
        return said
    if inside is None:
        raise agent.missing("model", 'Write one, such as model = "openai:gpt-5-mini", or set RAPKIT_MODEL.')
    return agent.beside(inside, "scripted:")


def _port(agent: Table) -> int:
    port = agent.number("port", 0, _LAST_PORT)
    return DEFAULT_PORT if port is None else port


def _instructions(agent: Table) -> str:
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


def _store(agent: Table, outside: _Outside) -> str:
    url = agent.text("store") or DEFAULT_STORE
    return outside.text("store") or (url if url.endswith(":memory:") else agent.beside(url, "sqlite:///"))


def _public_url(agent: Table, outside: _Outside) -> str | None:
    said, inside = outside.text("public_url"), agent.text("public_url")
    url = said or inside
    if url is None:
        return None
    try:
        return check_public_url(url)
    except ConfigError as error:
        source = outside.source("public_url") if said else f'{agent.path}, "public_url" in {agent.title}'
        raise ConfigError(f"{source}: {error}") from None


def _server(table: Table) -> Server:
    url = table.text("url")
    if url is None:
        raise table.missing("url", 'Write it like url = "http://127.0.0.1:8001".')
    given: dict[str, Any] = {
        "token": table.secret("token"),
        "prefix": table.text("prefix", may_be_empty=True) or "",
        "name": table.text("name") or "",
        "allow_http": table.flag("allow_http") or False,
    }
    try:
        server = Server(url, **given)
        _ = urlsplit(url).port
        return server
    except ConfigError as error:
        raise ConfigError(f"{table.path}, {table.title}: {error}") from None
    except ValueError:  # a port that is no number, a bracket that is not closed
        raise table.wrong("url", "the URL of a tool server, like http://127.0.0.1:8001") from None


def _each(read: Callable[[Table], T], tables: Sequence[Table]) -> tuple[T, ...]:
    """What all the tables say, except those that are wrong."""
    return tuple(each for table in tables if (each := table.attempt(None, read, table)) is not None)


# How far, how long, how much


def _limits(agent: Table) -> ThreadLimits:
    table = agent.table("limits", tuple(_LIMITS))
    given = {key: table.attempt(None, _limit, table, key) for key in _LIMITS}
    given["context_window"] = table.attempt(None, agent.number, "context_window", 1)
    given["timeouts"] = _timeouts(agent)
    given["confirmations"] = _confirmations(agent)
    return ThreadLimits(**{key: value for key, value in given.items() if value is not None})


def _limit(table: Table, key: str) -> Any:
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


def _timeouts(agent: Table) -> Timeouts:
    def read(table: Table, key: str) -> float | None:
        return table.attempt(None, table.seconds, key, may_be_off=True)

    tools = agent.table("call_timeouts", None)
    return Timeouts(
        _unless_off(read(agent, "call_timeout")),
        read(agent, "long_running_timeout"),
        {name: _unless_off(read(tools, name)) for name in tools.names()},
    )


def _unless_off(seconds: float | None) -> float | None:
    return None if seconds == math.inf else seconds


def _confirmations(agent: Table) -> Confirmations:
    def read(table: Table, key: str) -> Any:
        return table.attempt(None, table.choice, key, _CONFIRMATIONS)

    table = agent.table("confirm", ("destructive", "tools"))
    tools = table.table("tools", None)
    given = {name: read(tools, name) for name in tools.names()}
    return Confirmations(read(table, "destructive") or Confirmations().destructive, given)


def _budget(agent: Table) -> Budget | None:
    table = agent.table("budget", _BUDGET)
    if not table.names():
        return None
    given: dict[str, Any] = {
        "slices": table.number("slices", 1),
        "tokens": table.number("tokens", 1),
        "cost": table.amount("cost"),
        "per": table.choice("per", get_args(Per)),
    }
    try:
        return Budget(**{key: value for key, value in given.items() if value is not None})
    except ConfigError as error:
        raise ConfigError(f"{table.path}, {table.title}: {error}") from None


# Schedules


def _schedules(file: Table) -> tuple[Schedule, ...]:
    tables = file.tables("schedule", _SCHEDULE, example='cron = "0 9 * * MON-FRI" and message = "…"')
    schedules = _each(_schedule, tables)
    file.attempt(None, _check_names, file, schedules)
    return schedules


def _check_names(file: Table, schedules: Sequence[Schedule]) -> None:
    try:
        check_names(schedules)
    except ConfigError as error:
        raise ConfigError(f"{file.path}, [[schedule]]: {error}") from None


def _schedule(table: Table) -> Schedule:
    cron, message = table.text("cron"), table.text("message")
    if cron is None:
        raise table.missing("cron", 'Write it like cron = "0 9 * * MON-FRI": minute, hour, day, month, day of week.')
    if message is None:
        raise table.missing("message", 'Write what the agent is to be told, like message = "Summarise what is new.".')
    given = {key: table.text(key) for key in ("zone", "name", "user_id")}
    new_thread = table.flag("new_thread") or False
    try:
        return Schedule(
            cron, message, new_thread=new_thread, **{key: text for key, text in given.items() if text is not None}
        )
    except ConfigError as error:
        raise ConfigError(f"{table.path}, {table.title}: {error}") from None
