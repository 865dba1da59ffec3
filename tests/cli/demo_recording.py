"""A demo in a real terminal, and what was on its screen in each chapter."""

import re
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pexpect
import pyte

from tests.cli.demo_runs import PATIENCE, environment

Size = tuple[int, int]
"""Rows, columns."""

_FRAME = b"\x1b[H"
_CHAPTER = re.compile(rb"(\d)/8  (\w[^\xe2\x1b]+?) ?(?:\x1b|\xe2)")


class Recording:
    """Records all a terminal is sent. In the chapters that `sizes` names, somebody resizes it.

    A screen is worked out afterwards: an emulator that is written in Python would not keep up on a busy machine.
    """

    def __init__(self, folder: Path, size: Size, sizes: Mapping[int, Size]) -> None:
        self._pieces: list[tuple[Size, bytes]] = []
        self._size = size
        self._sizes = dict(sizes)
        self._child: pexpect.spawn[bytes] = pexpect.spawn(
            sys.executable,
            ["-m", "rapkit", "demo"],
            dimensions=size,
            cwd=str(folder),
            env={**environment(folder), "TERM": "xterm-256color"},
            timeout=PATIENCE,
        )
        self._recording = threading.Thread(target=self._record)
        self._recording.start()

    @property
    def raw(self) -> bytes:
        """Everything it wrote."""
        return b"".join(piece for _, piece in self._pieces)

    def ended(self) -> int | None:
        """Its exit code, once it has ended."""
        self._recording.join(PATIENCE)
        self._child.close()
        return self._child.exitstatus

    def close(self) -> None:
        """End it, whatever it is at."""
        if self._recording.is_alive():
            self._child.kill(signal.SIGTERM)
            self._recording.join(PATIENCE)  # it reads to the end: nothing may be closed under it
        self._child.close(force=True)

    def screens(self) -> dict[str, str]:
        """What was on the screen last in each chapter, by its title."""
        frames = self._frames()
        titles = [found[2].decode() if (found := _CHAPTER.search(frame)) else "" for _, frame in frames]
        last = {title: number for number, title in enumerate(titles) if title}
        return {title: _shown(frames[: number + 1]) for title, number in last.items()}

    def afterwards(self) -> str:
        """What was written when the picture was gone, as it stands in the terminal."""
        rest = self.raw.rpartition(b"\x1b[?1049l")[2]
        return _display(self._size, [(self._size, rest)], rows=200)

    def _record(self) -> None:
        while True:
            try:
                piece = self._child.read_nonblocking(65536, timeout=PATIENCE)
            except (pexpect.EOF, pexpect.TIMEOUT):
                return
            self._pieces.append((self._size, piece))
            for found in _CHAPTER.finditer(piece):
                if size := self._sizes.pop(int(found[1]), None):
                    self._size = size
                    self._child.setwinsize(*size)

    def _frames(self) -> list[tuple[Size, bytes]]:
        """Whole pictures: each begins where the terminal is told to go to its upper left corner."""
        frames: list[tuple[Size, bytes]] = []
        for size, piece in self._pieces:
            first, *others = piece.partition(b"\x1b[?1049l")[0].split(_FRAME)
            if frames:
                frames[-1] = (frames[-1][0], frames[-1][1] + first)
            frames += [(size, _FRAME + other) for other in others]
            if b"\x1b[?1049l" in piece:
                break
        return frames


def _shown(frames: Sequence[tuple[Size, bytes]]) -> str:
    """What the last frame looks like, on top of the one before the window had this size."""
    size = frames[-1][0]
    before = [frame for frame in frames if frame[0] != size][-1:]
    return _display(size, [*before, *[frame for frame in frames if frame[0] == size][-3:]])


def _display(size: Size, pieces: Sequence[tuple[Size, bytes]], rows: int = 0) -> str:
    screen = pyte.Screen(pieces[0][0][1], rows or pieces[0][0][0])
    stream = pyte.ByteStream(screen)
    for (height, width), piece in pieces:
        screen.resize(rows or height, width)
        stream.feed(piece)
    screen.resize(rows or size[0], size[1])
    return "\n".join(line.rstrip() for line in screen.display).rstrip()
