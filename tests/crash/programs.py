"""Programs that tools run, found by a mark in their environment."""

import os
import signal
from contextlib import suppress
from pathlib import Path

VARIABLE = "CRASH_MARK"


def mark(folder: Path, n: int) -> str:
    """What the programs of a call carry."""
    return f"{folder}#{n}#"


def carriers(text: str) -> list[int]:
    """The processes that are alive with a mark that begins so. Zombies are not."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and _carries(Path("/proc", entry), text)]


def end_carriers(text: str) -> None:
    """Whatever happened, they do not outlive the test."""
    for pid in carriers(text):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _carries(process: Path, text: str) -> bool:
    try:
        variables = (process / "environ").read_bytes()
        state = (process / "stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:  # gone, or not ours
        return False
    return f"\0{VARIABLE}={text}".encode() in b"\0" + variables and state not in (b"Z", b"X")
