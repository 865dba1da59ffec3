"""A watchdog process that ends the demo's processes if the demo itself is killed.

Its standard input is a pipe that only the demo holds: `+PID` is a process group to end, `-PID` one that has ended, and `done` says that
nothing is left. If the pipe ends without that, the demo is gone. Started as a file, so it imports nothing of ours.
"""

import contextlib
import os
import shutil
import signal
import sys


def watch(folder: str) -> None:
    """Until the pipe ends; `folder` goes with the processes."""
    groups: set[int] = set()
    for line in sys.stdin:
        word = line.strip()
        if word == "done":
            return
        (groups.add if word.startswith("+") else groups.discard)(int(word[1:]))
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    watch(sys.argv[1])
