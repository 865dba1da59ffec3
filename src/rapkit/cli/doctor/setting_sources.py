"""Record where settings outside the file come from, so that advice can name the place to correct."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rapkit.runtime.server import Server
from rapkit.settings.agent_location import SettingsFile
from rapkit.settings.settings import SERVERS, Flags, load_settings


@dataclass(frozen=True, slots=True)
class SettingSources:
    """Flags and variables: the one that named the file, if any did, and that of each tool server that is not in it, by its base URL."""

    config: str | None = None
    servers: Mapping[str, str] = field(default_factory=dict)

    def of(self, server: Server) -> str | None:
        """Like `--server`; None if it is in the file."""
        return self.servers.get(server.base)


def servers_outside(path: Path, flags: Flags, environment: Mapping[str, str]) -> dict[str, str]:
    """For `Sources.servers`, of settings that can be loaded."""
    named = SettingsFile(path, flags, environment).servers()
    if not named:
        return {}
    without = {name: value for name, value in environment.items() if name != SERVERS}
    inside = {server.base for server in load_settings(path, dataclasses.replace(flags, servers=()), without).servers}
    # The first that names a server is the one whose word counted.
    outside = {url.rstrip("/"): source for url, source in reversed(named)}
    return {base: source for base, source in outside.items() if base not in inside}
