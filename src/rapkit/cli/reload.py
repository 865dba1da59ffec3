"""Restart a server whenever its code changes."""

import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import watchfiles

_LOOK_EVERY_MS = 500
_PATIENCE = 15.0

log = logging.getLogger("rapkit.cli")


def run_and_reload(target: str, arguments: Sequence[str]) -> None:
    """Run `rapkit` with these arguments in a process of its own until SIGINT or SIGTERM, and start it anew whenever a Python file changes.

    Code that is broken ends that process, not this one: the next change gets its chance.
    """
    place = target if target.endswith(".py") else target.rpartition(":")[0] or target
    folder = Path(place).resolve().parent if place.endswith(".py") else Path.cwd()
    ending = threading.Event()
    child = _start(arguments)

    def end(_number: int, _frame: object) -> None:
        if ending.is_set():
            child.terminate()  # for the second time: it does not wait any longer
        ending.set()

    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), end)
    logging.getLogger("watchfiles").setLevel(logging.WARNING)  # what has changed we say ourselves
    told = False
    try:
        for changes in watchfiles.watch(
            folder,
            watch_filter=watchfiles.PythonFilter(),
            stop_event=ending,
            raise_interrupt=False,
            rust_timeout=_LOOK_EVERY_MS,
            yield_on_timeout=True,
            ignore_permission_denied=True,
        ):
            if changes:
                log.info("%s changed; restarting", ", ".join(sorted({Path(path).name for _, path in changes})))
                _stop(child)
                if ending.is_set():
                    break
                child, told = _start(arguments), False
            elif child.poll() is not None and not told:
                log.info("the server has ended; it is started again when a Python file changes")
                told = True
    finally:
        _stop(child)


def _start(arguments: Sequence[str]) -> "subprocess.Popen[bytes]":
    # In a group of its own: Ctrl-C would reach it directly, and with our signal it would count as the second one, which does not wait.
    return subprocess.Popen([sys.executable, "-m", "rapkit", *arguments], process_group=0)  # noqa: S603 - our own command line


def _stop(child: "subprocess.Popen[bytes]") -> None:
    child.terminate()
    try:
        child.wait(timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()  # nothing is lost: what it had accepted is in the store
        child.wait()
