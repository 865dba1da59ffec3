"""End a process group."""

import asyncio
import os
import signal

from rapkit.server.processes.process_table import PROC, can_look, living_processes

DIES_WITHIN = 5.0
"""Seconds after a SIGKILL in which a process has to be gone."""

_PAUSE = 0.02


async def end_group(group: int, exited: asyncio.Future[int], grace: float) -> bool:
    """End a process group; whether it is gone."""
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, DIES_WITHIN)):
        # The group's number cannot have been reused: that takes a whole round of pids since the leader was over.
        if not signal_group(group, number) and exited.done():
            return True
        if await group_is_gone(group, exited, patience):
            return True
    return False


async def group_is_gone(group: int, exited: asyncio.Future[int], patience: float) -> bool:
    """Whether a process group is gone, its leader included, within so many seconds."""
    loop = asyncio.get_running_loop()
    until = loop.time() + patience
    await asyncio.wait({exited}, timeout=patience)
    while not exited.done() or await asyncio.to_thread(_has_members, group):
        if loop.time() >= until:
            return False
        await asyncio.sleep(_PAUSE)
    return True


def signal_group(group: int, number: int) -> bool:
    """Signal a process group; whether there was a process to signal."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # the latter for processes of another user
        return False
    return True


def _has_members(group: int) -> bool:
    if not signal_group(group, 0):
        return False
    # A zombie counts as one to signal; where no init collects orphans, as in some containers, it stays for ever.
    return not can_look(PROC) or any(process.group == group for process in living_processes(PROC))
