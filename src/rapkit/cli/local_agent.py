"""The agent of the local settings, run by the command itself unless it already runs elsewhere."""

import contextlib
import functools
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rapkit.cli.agent_api import AgentRefused
from rapkit.errors import ConfigError
from rapkit.settings.agent_location import AgentLocation, Flags, load_agent_location

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rapkit.cli.agent_host import AgentHost
    from rapkit.settings.settings import Settings

_PAUSE = 0.5  # between two tries to take over


class LocalAgent:
    """The agent of some settings in this process: from the beginning, or from when the one that was found has ended. Never two at once."""

    def __init__(self, config: Path, flags: Flags, *, working: bool) -> None:
        self._config = config
        self._flags = flags
        self._one_at_a_time = threading.Lock()
        self._host: AgentHost | None = None
        self._not_before = 0.0
        self._over = self._hurried = False
        self.may_work = working

    @functools.cached_property
    def location(self) -> AgentLocation:
        """Where it is to be found if it runs already. `ConfigError` if that cannot be known; then all is said that is wrong."""
        try:
            return load_agent_location(self._config, self._flags)
        except ConfigError:
            return self.settings.location

    @functools.cached_property
    def settings(self) -> "Settings":
        """All of them; `ConfigError` if something is wrong with them."""
        return _load_settings(self._config, self._flags)

    def prepare(self) -> None:
        """Have all that it takes to run it, apart from the port. `ConfigError` if something is wrong with the settings."""
        _ = self.settings

    @property
    def runs(self) -> bool:
        """Whether it does now."""
        return self._host is not None and self._host.runs

    def listen(self) -> None:
        """Have its port; `ConfigError` if it cannot be had."""
        self._host = _host(self.settings, working=self.may_work)

    def begin(self) -> str:
        """Run it where it listens; that is returned. `RapkitError` if it cannot run."""
        assert self._host is not None
        self._host.start()
        return self._host.url

    def take_over(self) -> bool:
        """Run it, because it no longer runs elsewhere; returns whether it runs. Any thread may ask, and as often as it likes.

        `AgentRefused` if it cannot run. That its port is taken is no reason: another process was quicker, and will do.
        """
        with self._one_at_a_time:
            if self._host is not None and not self._over:
                return self._runs_still(self._host)
            if self._over or time.monotonic() < self._not_before:
                return False
            self._not_before = time.monotonic() + _PAUSE
            try:
                self._host = _host(self.settings, working=True)
            except ConfigError:
                return False
            try:
                self._host.start()
            except Exception as problem:
                raise AgentRefused(
                    0, f"The agent has ended with the command that ran it, and cannot run here: {problem}"
                ) from problem
            return True

    def look_at_servers(self) -> "Future[dict[str, str]] | None":
        """Have it ask its tool servers, if it runs."""
        return self._host.look_at_servers() if self._host is not None else None

    def _runs_still(self, host: "AgentHost") -> bool:
        if host.runs:
            return True
        raise AgentRefused(0, f"The agent, which ran here, has ended: {host.problem}")

    def hurry(self) -> None:
        """Do not wait for what is under way when it ends."""
        self._hurried = True

    @contextlib.contextmanager
    def ended_with_the_command(self) -> Iterator[None]:
        """It ends after this: in order, or if the command failed or was interrupted, at once."""
        try:
            yield
        except BaseException:
            self.hurry()
            raise
        finally:
            self._over = True
            with self._one_at_a_time:
                host = self._host
            if host is not None:
                host.stop(at_once=self._hurried)


# Loaded when they are needed: with all that an agent is made of, they take longer than most commands that talk to one that runs.


def _load_settings(config: Path, flags: Flags) -> "Settings":
    from rapkit.settings.settings import load_settings

    return load_settings(config, flags)


def _host(settings: "Settings", *, working: bool) -> "AgentHost":
    from rapkit.cli.agent_host import AgentHost

    return AgentHost(settings, working=working)
