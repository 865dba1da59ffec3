"""The part of the settings that locates a running agent: enough to talk to it, without loading what an agent needs to run.

By itself, because it is read in a moment: the rest of the settings is made of what an agent is made of, which takes longer to load than
most commands take.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rapkit.errors import ConfigError
from rapkit.settings.keys import homes, key_names, key_table
from rapkit.settings.missing_file import ANOTHER_FILE, empty_file_error, missing_file_error
from rapkit.settings.toml_table import TomlTable
from rapkit.store_url import DEFAULT_STORE

DEFAULT_FILE = Path("rapkit.toml")
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8700
SERVERS = "RAPKIT_SERVERS"
"""The variable that adds tool servers: their URLs, with spaces between them."""

_LAST_PORT = 65535
_VARIABLES = {key.name: key.variable for key in key_table("agent").keys if key.variable is not None}

Tokens = Mapping[str, Sequence[str]]
"""Who may use the client API: tokens, or where they are to be found, by name."""


@dataclass(frozen=True, slots=True)
class Flags:
    """The values of command-line options; None if an option was not given."""

    model: str | None = None
    store: str | None = None
    public_url: str | None = None
    allow_plain_http: bool = False
    host: str | None = None
    port: int | None = None
    tokens: Tokens | None = field(default=None, repr=False)
    servers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentLocation:
    """Where an agent listens, with which tokens, and which store it uses, which identifies it."""

    store: str = DEFAULT_STORE
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    tokens: Tokens = field(default_factory=dict, repr=False)


def load_agent_location(path: Path, flags: Flags) -> AgentLocation:
    """Read no more than that, from where `load_settings` reads everything; `ConfigError` says what is wrong with that much."""
    file = SettingsFile(path, flags, os.environ)
    file.table.attempt("", file.model)
    found = file.location()
    file.table.check()
    return found


class SettingsFile:
    """A settings file, together with flags and environment variables.

    What is wrong with it is kept for `table.check`, as far as it is read with `attempt`.
    """

    def __init__(self, path: Path, flags: Flags, environment: Mapping[str, str]) -> None:
        self._flags = flags
        self._environment = environment
        self.table = self._read(path)
        self.agent = self.table.table("agent", key_names("agent"))

    def _read(self, path: Path) -> TomlTable:
        if path == DEFAULT_FILE and not os.path.lexists(path):
            if self.said("model") is None:
                raise ConfigError(missing_file_error(path))
            return TomlTable.nothing(path, key_names(""))
        return TomlTable.read(path, key_names(""), homes, absent=ANOTHER_FILE)

    def said(self, key: str) -> str | None:
        """What was said of a key outside of the file."""
        flag: str | None = getattr(self._flags, key)
        if flag == "":
            raise ConfigError(f"{_as_flag(key)} is empty. Give it a value, or leave it out.")
        return flag or self._environment.get(_VARIABLES.get(key, "")) or None

    def source(self, key: str) -> str:
        """Where that was said."""
        return _as_flag(key) if getattr(self._flags, key) else _VARIABLES[key]

    def allow_plain_http(self) -> bool:
        """Whether a public URL may be plain HTTP: said by the flag, or in the file."""
        inside = self.table.attempt(None, self.agent.flag, "allow_plain_http")
        return self._flags.allow_plain_http or bool(inside)

    def servers(self) -> list[tuple[str, str]]:
        """URLs of tool servers that were named outside of it, each with where."""
        named = [(url, "--server") for url in self._flags.servers]
        return named + [(url, SERVERS) for url in self._environment.get(SERVERS, "").split()]

    def model(self) -> str:
        """The name of the model."""
        inside = self.agent.text("model")
        if said := self.said("model"):
            return said
        if inside is None and not self.table.names():
            raise ConfigError(empty_file_error(self.table.path))
        if inside is None:
            raise self.agent.missing("model", 'Write one, such as model = "openai:gpt-5-mini", or set RAPKIT_MODEL.')
        return self.agent.beside(inside, "scripted:")

    def location(self) -> AgentLocation:
        """Where the agent is; what is wrong with it is kept."""
        agent, attempt = self.agent, self.table.attempt
        found = AgentLocation(
            store=attempt("", self._store),
            host=attempt(None, agent.text, "host") or DEFAULT_HOST,
            port=attempt(0, self._port),
            tokens=attempt({}, agent.secrets, "tokens"),
        )
        said: dict[str, Any] = {"host": attempt(None, self.said, "host")}
        said |= {"port": self._flags.port, "tokens": self._flags.tokens}
        return dataclasses.replace(found, **{key: value for key, value in said.items() if value is not None})

    def _store(self) -> str:
        url = self.agent.text("store") or DEFAULT_STORE
        return self.said("store") or (url if url.endswith(":memory:") else self.agent.beside(url, "sqlite:///"))

    def _port(self) -> int:
        port = self.agent.number("port", 0, _LAST_PORT)
        return DEFAULT_PORT if port is None else port


def _as_flag(key: str) -> str:
    return f"--{key.replace('_', '-')}"
