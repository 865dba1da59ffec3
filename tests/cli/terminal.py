"""A command in a real terminal: what a person types goes in, what they see comes out."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pexpect
import pyte

from tests.cli.command import PATIENCE

_HISTORY = 1000
_HIDDEN = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TERM")


class Terminal:
    """A command on a screen of so many rows and columns. Its colours are in `screen.buffer`; its exit code is `code`, once it `ended`."""

    def __init__(
        self,
        command: Sequence[str],
        rows: int = 24,
        columns: int = 80,
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        ours = {key: value for key, value in os.environ.items() if key not in _HIDDEN}
        self._child: pexpect.spawn[bytes] = pexpect.spawn(
            command[0],
            list(command[1:]),
            dimensions=(rows, columns),
            cwd=str(folder) if folder else None,
            env={**ours, "TERM": "xterm-256color", **(environment or {})},
            timeout=PATIENCE,
        )
        self._child.delaybeforesend = None
        self.screen = _Screen(columns, rows, self._child)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        """Everything it wrote, control codes and all."""

    @property
    def lines(self) -> list[str]:
        """What is on the screen now, row by row."""
        self._read()
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        """What is on the screen now."""
        return "\n".join(self.lines).rstrip()

    @property
    def everything(self) -> str:
        """What is on the screen now, and what has scrolled off its top."""
        lines = self.lines
        gone = ["".join(row[x].data for x in sorted(row)).rstrip() for row in self.screen.history.top]
        return "\n".join([*gone, *lines]).rstrip()

    def send(self, keys: str) -> None:
        """Press keys: letters are themselves, `\\r` is Enter, `\\x1b[A` the arrow that points up."""
        self._child.send(keys.encode())

    def paste(self, text: str) -> None:
        """Paste a text, as terminals do it."""
        self.send(f"\x1b[200~{text}\x1b[201~")

    def until(self, wanted: str | Callable[[str], bool], *, everywhere: bool = False) -> str:
        """Wait for a text on the screen, or for a screen of which something is true; it is the answer. `everywhere`: scrolled off, too."""
        deadline = time.monotonic() + PATIENCE
        while True:
            text = self.everything if everywhere else self.text
            if wanted in text if isinstance(wanted, str) else wanted(text):
                return text
            missing = f"{wanted!r} did not appear. The screen:\n{self.everything}"
            assert self._child.isalive() or self._read(), missing
            assert time.monotonic() < deadline, missing
            time.sleep(0.02)

    def resize(self, rows: int, columns: int) -> None:
        """Make the window smaller or larger."""
        self._read()
        self.screen.resize(rows, columns)
        self._child.setwinsize(rows, columns)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._child.kill(number)

    def ended(self) -> int:
        """Its exit code, once it has ended; minus the number of the signal that killed it, if one did."""
        deadline = time.monotonic() + PATIENCE
        while self._child.isalive():
            self._read()
            assert time.monotonic() < deadline, f"it did not end. The screen:\n{self.everything}"
            time.sleep(0.02)
        self._read()
        if self._child.exitstatus is None:
            return -(self._child.signalstatus or 0)
        return self._child.exitstatus

    def close(self) -> None:
        """End it, whatever it is at."""
        self._child.close(force=True)

    def _read(self) -> bool:
        """Take what it wrote since the last time; whether that was anything."""
        anything = False
        with contextlib.suppress(pexpect.TIMEOUT, pexpect.EOF):
            while True:
                written = self._child.read_nonblocking(65536, timeout=0)
                self.raw += written
                self._stream.feed(written)
                anything = True
        return anything


class _Screen(pyte.HistoryScreen):
    """One that answers when it is asked where its cursor is, as terminals do."""

    def __init__(self, columns: int, rows: int, child: "pexpect.spawn[bytes]") -> None:
        super().__init__(columns, rows, history=_HISTORY)
        self._child = child

    def write_process_input(self, data: str) -> None:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            self._child.send(data.encode())


@contextlib.contextmanager
def in_terminal(
    *words: str, folder: Path, rows: int = 24, columns: int = 80, environment: Mapping[str, str] | None = None
) -> Iterator[Terminal]:
    """`rapkit` with these words; it is ended with the context."""
    command = [sys.executable, "-m", "rapkit", *words]
    terminal = Terminal(command, rows, columns, folder=folder, environment=environment)
    try:
        yield terminal
    finally:
        terminal.close()
