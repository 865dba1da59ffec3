"""Find and kill subprocesses that a killed server left running, by the token in their environment."""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Collection
from functools import cache
from pathlib import Path

from rapkit.server.processes.process_groups import DIES_WITHIN, signal_group
from rapkit.server.processes.process_table import PROC, ProcessInfo, can_look, living_processes

VARIABLE = "RAPKIT_RUN"
"""Where a run's token stands in the environment of its program."""

_PAUSE = 0.02

log = logging.getLogger("rapkit.processes")


async def kill_leftovers(tokens: Collection[str], *, patience: float = DIES_WITHIN, proc: Path = PROC) -> bool:
    """Kill what a dead server left running on this machine under these tokens; whether nothing of it can be found any more.

    Whole process groups die, at once and without a grace: all that hold a process with one of the tokens, but our own. Returns when they
    are gone, or after `patience` seconds. Only processes of our own user can be looked at; without Linux' /proc none can be found, which
    is logged once.
    """
    if not tokens:
        return True
    if not can_look(proc):
        _say_that_we_cannot_look()
        return False
    return await asyncio.to_thread(kill_carriers, tokens, patience, proc)


def kill_carriers(tokens: Collection[str], patience: float, proc: Path) -> bool:
    """Kill the groups of all processes with one of the tokens; whether they are gone."""
    marks = {f"{VARIABLE}={token}".encode() for token in tokens}
    until = time.monotonic() + patience
    killed: set[ProcessInfo] = set()
    nothing_seen = 0
    while True:
        living, groups = set(), set()
        for process in living_processes(proc):
            living.add(process)
            if process.group != os.getpgrp() and not marks.isdisjoint(process.environment(proc)):
                _kill_group(process)  # at once, as the next moment it may have moved on
                killed.add(process)
                groups.add(process.group)
        killed = {process for process in living if process in killed or process.group in groups - {0, 1}}
        nothing_seen = 0 if killed else nothing_seen + 1
        if nothing_seen == 2:  # as one that is about to run another program has no environment for a moment
            return True
        if killed and time.monotonic() >= until:
            return False
        time.sleep(_PAUSE)


def _kill_group(process: ProcessInfo) -> None:
    if process.group > 1:
        signal_group(process.group, signal.SIGKILL)
    else:  # it is outside of our container, and by 0 and 1 the system would understand our own group, and everybody
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGKILL)


@cache
def _say_that_we_cannot_look() -> None:
    log.warning(
        "processes that a killed server left running cannot be found here, as there is no /proc: end them yourself"
    )
