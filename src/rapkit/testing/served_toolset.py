"""A toolset served in a test, by a process that can crash."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from rapkit.delivery.http_client import Poster
from rapkit.server.engine import ToolsetEnvironment
from rapkit.server.toolset import Toolset
from rapkit.testing.activity import Activity
from rapkit.testing.clock import ManualClock
from rapkit.testing.crashable_process import CrashableProcess
from rapkit.testing.crashable_run import CrashableRun
from rapkit.testing.providers import Providers
from rapkit.testing.requests import Requests

HOST = "127.0.0.1:8001"


class ServedToolset:
    """The toolset, its request client, and the OAuth providers of its users. What it sends goes to `callers`."""

    def __init__(
        self,
        tools: Toolset,
        clock: ManualClock,
        activity: Activity,
        callers: Poster,
        workspaces: Path,
        host: str = HOST,
    ) -> None:
        self.tools = tools
        self.requests = Requests(tools, host)
        self.providers = Providers(clock)
        self.process = CrashableProcess(self._work, clock, activity)
        self._clock = clock
        self._activity = activity
        self._callers = callers
        self._workspaces = workspaces

    @contextlib.asynccontextmanager
    async def _work(self, crashable_run: CrashableRun) -> AsyncIterator[None]:
        environment = ToolsetEnvironment(
            clock=self._clock,
            open_store=lambda _config: crashable_run.store,
            open_client=lambda _guard, _timeouts: crashable_run.transport(self._callers),
            oauth_client=self.providers,
            workspaces=lambda _config: self._workspaces,
            thread_pool=self._activity.threads,
            is_lost=lambda: crashable_run.over,
        )
        async with self.tools.lifespan(loopback_callbacks=True, environment=environment):
            if not crashable_run.workers:
                raise RuntimeError(f"The toolset {self.tools.name!r} is being served already. End that first.")
            yield
