"""How much memory a process has taken."""

from pathlib import Path

from tests.interop.processes import Process


def peak_memory(process: Process) -> int:
    """The most bytes that were resident at once since the process began."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
