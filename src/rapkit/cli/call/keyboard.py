"""Read keyboard input while a command also waits for something else."""

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

_LONGEST = 4096  # what a terminal takes for one line


@dataclass(frozen=True, slots=True)
class Typed:
    """A line, without its end; None if there will be no more. `since`: how often the keyboard was listened to when it came."""

    line: str | None
    since: int


class Keyboard:
    """The terminal that is our standard input. Each line is handed on when it is complete, from a daemon thread."""

    def __init__(self, hand_on: Callable[[Typed], None]) -> None:
        self._hand_on = hand_on
        self._since = 0

    def listen(self) -> None:
        """Hand on what is typed from now on. What was typed before is forgotten: it was not meant for what is asked only now."""
        _forget(sys.stdin.fileno())
        self._since += 1
        if self._since == 1:
            threading.Thread(target=self._read, args=(sys.stdin.fileno(),), daemon=True).start()

    def is_forgotten(self, typed: Typed) -> bool:
        """Whether it was typed before the last `listen`: what is handed on already is in no terminal that could be emptied."""
        return typed.since != self._since

    def _read(self, terminal: int) -> None:
        # Not through sys.stdin, which has a lock: an interpreter that ends while a thread has it, aborts.
        with contextlib.suppress(OSError):
            while typed := os.read(terminal, _LONGEST):
                self._hand_on(Typed(typed.decode(errors="replace").rstrip("\r\n"), self._since))
        self._hand_on(Typed(None, self._since))


def _forget(terminal: int) -> None:
    try:
        import termios
    except ImportError:  # there is none on Windows
        return
    with contextlib.suppress(termios.error):
        termios.tcflush(terminal, termios.TCIFLUSH)
