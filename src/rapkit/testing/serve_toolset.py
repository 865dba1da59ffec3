"""Serve a toolset to a test."""

import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from rapkit.server.toolset import Toolset
from rapkit.testing.client import Client, Identity
from rapkit.testing.toolset_fixture import ToolsetFixture

_PATIENCE = 5.0


@contextlib.asynccontextmanager
async def serve(tools: Toolset, *, caller: str | None = None, patience: float = _PATIENCE) -> AsyncIterator[Client]:
    """Serve a toolset in memory, and call it: no port, no file, and a clock that stands still until it is advanced.

    The requests, the store, the retries are those of a real server; its callbacks are checked against the protocol. `caller` names one of
    the toolset's tokens, the first one by default. `patience` is how many real seconds are waited for anything that is expected. What
    still runs when the context ends is interrupted.
    """
    with tempfile.TemporaryDirectory(prefix="rapkit-testing-", ignore_cleanup_errors=True) as folder:
        fixture = ToolsetFixture(tools, patience, Path(folder, "workspaces"))
        try:
            await fixture.process.start()
            yield Client(fixture, Identity(caller or fixture.server.requests.callers[0]))
            await fixture.activity.settle()
            fixture.inbox.complain()
        finally:
            await fixture.process.close()
