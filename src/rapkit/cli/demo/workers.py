"""The demo's workers: processes that the receiver starts when there is something to do."""

import contextlib
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rapkit.cli.demo.failure import DemoFailed

_EVERY = 0.05


def children_of(pid: int) -> set[int]:
    """The processes that a process has started, by the system's own table; none if it is gone."""
    if not Path(f"/proc/self/task/{threading.get_native_id()}/children").exists():
        return _children_by_ps(pid)
    found: set[int] = set()
    with contextlib.suppress(OSError):  # gone, as a whole or a thread of it, while we looked
        for task in Path(f"/proc/{pid}/task").iterdir():
            found.update(int(child) for child in (task / "children").read_text().split())
    return found


def _children_by_ps(pid: int) -> set[int]:
    try:
        table = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid="],  # noqa: S607 - wherever it is
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        raise DemoFailed("Processes cannot be counted here: there is neither /proc nor a ps that works.") from None
    rows = (line.split() for line in table.splitlines())
    return {int(child) for child, parent in rows if int(parent) == pid}


class Workers:
    """Looks at the process table twenty times a second. `now` are those alive, `came` all that were ever seen.

    `receiver` is the process that starts them, None while it is dead.
    """

    def __init__(self, receiver: Callable[[], int | None]) -> None:
        self.now: frozenset[int] = frozenset()
        self.came: list[int] = []
        self.none_since = time.monotonic()
        self._changes: queue.SimpleQueue[tuple[int, bool]] = queue.SimpleQueue()
        self._receiver = receiver
        self._ended = threading.Event()
        self._problem: DemoFailed | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join()

    def quiet_for(self) -> float:
        """For how many seconds there has been none."""
        if self._problem is not None:
            raise self._problem
        return 0.0 if self.now else time.monotonic() - self.none_since

    def changes(self) -> Iterator[tuple[int, bool]]:
        """Those that came (True) or went since the last time."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._changes.get_nowait()

    def _watch(self) -> None:
        while not self._ended.wait(_EVERY):
            pid = self._receiver()
            try:
                found = frozenset(children_of(pid)) if pid is not None else frozenset()
            except DemoFailed as problem:
                self._problem = problem
                return
            for pid in sorted(found ^ self.now):
                self._changes.put((pid, pid in found))
            self.came.extend(sorted(found.difference(self.came)))
            if self.now and not found:
                self.none_since = time.monotonic()
            self.now = found
