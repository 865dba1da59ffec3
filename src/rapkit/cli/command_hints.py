"""Build the follow-up commands that a command prints, with the options that select the same agent."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rapkit.printable import printable
from rapkit.store_url import shown

_REFERENCES = ("env:", "file:")
_HIDDEN = "…"


@dataclass(frozen=True, slots=True)
class CommandHints:
    """The options that stood on the command line. What comes from the environment, or is the default, need not be said again.

    Commands are as a user would type them, with these options where they take them. A token that is no reference is not repeated.
    `kept_in` is the store of the agent that was found.
    """

    config: str | None = None
    url: str | None = None
    token: str | None = None
    store: str | None = None
    model: str | None = None
    servers: tuple[str, ...] = ()
    kept_in: str | None = None

    def of(self, store: object) -> "CommandHints":
        """The same, about an agent that has this store."""
        return replace(self, kept_in=str(store))

    def threads(self, rest: str) -> str:
        """`rapkit threads …`."""
        return _with(f"rapkit threads {rest}", [*self._settings, *self._running])

    def ask(self, rest: str) -> str:
        """`rapkit ask …`."""
        return _with(f"rapkit ask {rest}", [*self._settings, *self._running, *self._made_of])

    @property
    def up(self) -> str:
        """`rapkit up`."""
        return _with("rapkit up", [*self._settings, *self._made_of])

    @property
    def wake(self) -> str:
        """`rapkit wake`."""
        return _with("rapkit wake", [*self._settings, *self._made_of])

    def outbox(self, rest: str) -> str:
        """`rapkit outbox …`, which knows stores and no settings."""
        return _with(f"rapkit outbox {rest}", [("--store", self.store or self.kept_in)])

    @property
    def _settings(self) -> Iterable[tuple[str, str | None]]:
        return ("--config", self.config), ("--store", self.store)

    @property
    def _running(self) -> Iterable[tuple[str, str | None]]:
        token = self.token
        return ("--url", self.url), ("--token", token if token is None or token.startswith(_REFERENCES) else _HIDDEN)

    @property
    def _made_of(self) -> Iterable[tuple[str, str | None]]:
        return ("--model", self.model), *(("--server", server) for server in self.servers)


def _with(command: str, options: Iterable[tuple[str, str | None]]) -> str:
    given = (
        f"{name} {value if value == _HIDDEN else shlex.quote(printable(shown(value)))}"
        for name, value in options
        if value
    )
    return " ".join([command, *given])
