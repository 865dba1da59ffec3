"""Agents in processes of their own, and their threads as a third process sees them."""

import contextlib
import os
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from rapkit.runtime.broadcast import Broadcast
from rapkit.runtime.thread_commands import ThreadCommands
from tests.crash.processes import Process, free_port
from tests.runtime.agents import opened

_ROOT = Path(__file__).parents[2]


@contextlib.asynccontextmanager
async def from_outside(store: str) -> AsyncIterator[ThreadCommands]:
    """The threads of an agent that runs elsewhere. It tells us nothing, so we look often."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rapkit.runtime.event_feed._LOOK_AGAIN_AFTER", 0.02)
        async with opened(store) as handle:
            yield ThreadCommands(handle, Broadcast())


def agent_process(who: str, folder: Path, store: str, servers: Sequence[str]) -> Process:
    """An agent to be started; its ledger is `ledger` in the folder."""
    port = free_port()
    command = [sys.executable, "-m", "tests.runtime.agent_process", store, str(port), str(folder / "ledger"), *servers]
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(_ROOT))))
    return Process(who, command, folder, port, {"PYTHONPATH": path})


def slices_in(ledger: Path) -> list[tuple[str, str, str]]:
    """What the models wrote: which thread, what, which process."""
    if not ledger.exists():
        return []
    lines = [line.split(" ") for line in ledger.read_text().splitlines()]
    return [(name, what, process) for name, what, process in lines]
