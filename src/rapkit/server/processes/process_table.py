"""The process table of this machine, read from Linux' /proc."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
_MOST_LOOKS = 20


class ProcessInfo(NamedTuple):
    """A process that was alive when the table was read."""

    pid: int
    group: int
    started: int  # tells it from another one that was given its pid

    def environment(self, proc: Path) -> frozenset[bytes]:
        """Its variables, each as `NAME=value`; none if we cannot look."""
        try:
            return frozenset((proc / str(self.pid) / "environ").read_bytes().split(b"\0"))
        except OSError:  # gone, or not ours to look at
            return frozenset()


def can_look(proc: Path) -> bool:
    """Whether there is a table to look at."""
    return (proc / "self" / "environ").exists()


def living_processes(proc: Path) -> Iterator[ProcessInfo]:
    """All processes that live, those born while we look too. Zombies do not live."""
    seen: set[str] = set()
    for _ in range(_MOST_LOOKS):
        names = {name for name in os.listdir(proc) if name.isdigit()} - seen
        if not names:
            return
        seen |= names
        for name in names:
            try:
                stat = (proc / name / "stat").read_bytes()
            except OSError:  # gone
                continue
            # The second field is the program's name, which may hold anything, brackets and spaces too.
            fields = stat.rpartition(b")")[2].split()
            if fields and fields[0] not in (b"Z", b"X"):
                yield ProcessInfo(int(name), group=int(fields[2]), started=int(fields[19]))
