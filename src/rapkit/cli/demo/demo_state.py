"""The state of the demo at a moment, independent of how it is displayed."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from rapkit.cli.demo.process import DemoProcess
from rapkit.cli.demo.workers import Workers

Kind = Literal["user", "agent", "child", "out", "in", "shell", "note", "worker"]
"""Who speaks: a person, the model, the model in a child thread, a POST to a server or from one, a command, the demo, a worker."""


@dataclass(frozen=True, slots=True)
class Chapter:
    """A part of the script: what happens, and what it means, in a sentence or two."""

    title: str
    meaning: str


@dataclass(frozen=True, slots=True)
class DemoLine:
    """Something that happened, `at` seconds after the beginning. `who` is a short name, `aside` what was measured of it."""

    at: float
    kind: Kind
    who: str
    text: str
    aside: str = ""


@dataclass(frozen=True, slots=True)
class DemoFact:
    """A line of the summary."""

    about: str
    measured: str


@dataclass(frozen=True, slots=True)
class ThreadSeen:
    """The conversation, in a few words."""

    status: str = "none yet"
    waits_for: str = ""


class DemoOutput(Protocol):
    """Displays the state of the demo."""

    paced: bool
    """Whether a user reads along and needs the time to."""

    def chapter(self, demo_state: "DemoState") -> None:
        """Another chapter began."""

    def line(self, line: DemoLine) -> None:
        """Something happened."""


@dataclass
class DemoState:
    """Chapters, lines, processes. Only the script changes it; a display may read it at any time."""

    shown: DemoOutput
    subtitle: str = ""
    chapters: Sequence[Chapter] = ()
    number: int = 0
    lines: list[DemoLine] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    """With which line each chapter begins."""
    facts: list[DemoFact] = field(default_factory=list)
    processes: Sequence[DemoProcess] = ()
    workers: Workers | None = None
    doing: dict[str, str] = field(default_factory=dict)
    """What a process is doing, by its name, in a few words."""
    thread: ThreadSeen = field(default_factory=ThreadSeen)
    began: float = field(default_factory=time.monotonic)
    chapter_began: float = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.began

    @property
    def chapter(self) -> Chapter:
        """The one we are in."""
        return self.chapters[max(0, self.number - 1)]

    def next_chapter(self) -> None:
        """Go on to it."""
        self.number += 1
        self.begins.append(len(self.lines))
        self.chapter_began = time.monotonic()
        self.shown.chapter(self)

    def say(self, kind: Kind, who: str, text: str, aside: str = "") -> None:
        """Something happened."""
        line = DemoLine(self.elapsed, kind, who, text, aside)
        self.lines.append(line)
        self.shown.line(line)

    @property
    def quiet_for(self) -> float:
        """Seconds since something happened that is to be read."""
        read = [line.at for line in self.lines if line.kind != "worker"]
        return self.elapsed - (read[-1] if read else 0.0)

    def fact(self, about: str, measured: str) -> None:
        """Something was measured."""
        self.facts.append(DemoFact(about, measured))

    @contextmanager
    def watched(self, workers: Workers) -> Iterator[None]:
        """Workers are looked at as long as the context."""
        self.workers = workers
        workers.start()
        try:
            yield
        finally:
            workers.stop()
