"""What is known of a run: what the runtime and its clients, tools and store say of it, and when who died."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeVar

from rapkit.kernel.entries import Answered, ClosedEntry, JournalEntry, MadeCall, ModelSaid
from rapkit.kernel.thread import Thread
from tests.crash.history import Death
from tests.crash.runtime.ledger import Spoken, Wish

Call = tuple[str, str]
"""A thread and the id of a call in it."""


@dataclass(frozen=True)
class Journal:
    """A thread in the store when all is over. `wrong` is what a strict provider would say of the conversation; "" if nothing."""

    thread: Thread
    entries: tuple[JournalEntry, ...]
    live: frozenset[str] = frozenset()
    views: frozenset[str] = frozenset()
    timers: frozenset[str] = frozenset()
    unread: int = 0
    busy: bool = False
    wrong: str = ""

    @property
    def id(self) -> str:
        return self.thread.id

    @property
    def numbered(self) -> Iterable[tuple[int, JournalEntry]]:
        return enumerate(self.entries, 1)

    @cached_property
    def made(self) -> list[MadeCall]:
        """All calls the model made."""
        return [call for entry in self.entries if isinstance(entry, ModelSaid) for call in entry.calls]

    @property
    def closed_at(self) -> int | None:
        return next((number for number, entry in self.numbered if isinstance(entry, ClosedEntry)), None)

    @cached_property
    def calls(self) -> dict[str, MadeCall]:
        """The calls by their ids."""
        return {call.id: call for call in self.made}

    def answers(self, call_id: str) -> list[Answered]:
        return [entry for entry in self.entries if isinstance(entry, Answered) and entry.call_id == call_id]


@dataclass(frozen=True)
class Heard:
    """A message of a tool server at the runtime's door. `answered` is when it was first acknowledged; None if it never was."""

    message: str
    type: str
    thread: str
    call: str
    text: str
    at: float
    answered: float | None = None


@dataclass(frozen=True)
class Run:
    """A claim of a thread, until its release if there was one."""

    box: str
    epoch: int
    pid: int
    begun: float
    ended: float | None = None


@dataclass(frozen=True)
class Effect:
    """What a tool's handler did, for which call."""

    at: float
    pid: int
    what: str
    key: str
    call: Call


@dataclass(frozen=True)
class Timetable:
    """A schedule, and when it was due all in all, in its own words."""

    name: str
    due: tuple[str, ...]
    new_thread: bool = False


@dataclass(frozen=True)
class Sample:
    """A line of a journal as it was read while all went on."""

    thread: str
    number: int
    entry: JournalEntry


@dataclass(frozen=True)
class Evidence:
    """All of it. `invoked` are the ids of the POSTs by which a call was made. `left` is what still lay in some store, in words."""

    journals: dict[str, Journal] = field(default_factory=dict)
    threads: tuple[str, ...] = ()
    spoken: tuple[Spoken, ...] = ()
    wishes: tuple[Wish, ...] = ()
    closed: frozenset[str] = frozenset()
    heard: tuple[Heard, ...] = ()
    invoked: dict[Call, frozenset[str]] = field(default_factory=dict)
    runs: tuple[Run, ...] = ()
    effects: tuple[Effect, ...] = ()
    deaths: tuple[Death, ...] = ()
    timetables: tuple[Timetable, ...] = ()
    samples: tuple[Sample, ...] = ()
    left: tuple[str, ...] = ()

    @cached_property
    def heard_by_thread(self) -> dict[str, list[Heard]]:
        return _by_thread(self.heard)

    @cached_property
    def spoken_by_thread(self) -> dict[str, list[Spoken]]:
        return _by_thread(self.spoken)

    @cached_property
    def wishes_by_thread(self) -> dict[str, list[Wish]]:
        return _by_thread(self.wishes)

    def died_between(self, who: str, begin: float, end: float = float("inf")) -> bool:
        return any(death.who == who and begin <= death.at <= end for death in self.deaths)


class _InThread(Protocol):
    @property
    def thread(self) -> str: ...


T = TypeVar("T", bound=_InThread)


def _by_thread(things: Iterable[T]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = defaultdict(list)
    for thing in things:
        found[thing.thread].append(thing)
    return found


def heard_in(lines: Sequence[dict[str, Any]]) -> tuple[Heard, ...]:
    """What came to the door, each message once however often it was sent."""
    found: dict[str, Heard] = {}
    for line in lines:
        if line["what"] not in ("heard", "answered"):
            continue
        id = line["message"]
        before = found.get(id)
        answered = line["at"] if line["what"] == "answered" and line["status"] == 200 else None
        if before is None or (before.answered is None and answered is not None):
            at = line["at"] if before is None else before.at
            found[id] = Heard(id, line["type"], line["thread"], line["call"], line["text"], at, answered)
    return tuple(found.values())


def invoked_in(lines: Sequence[dict[str, Any]]) -> dict[Call, frozenset[str]]:
    """By which POSTs calls were made."""
    found: dict[Call, set[str]] = defaultdict(set)
    for line in lines:
        if line["what"] == "invoking":
            found[line["thread"], line["call"]].add(line["message"])
    return {call: frozenset(ids) for call, ids in found.items()}


def runs_in(lines: Sequence[dict[str, Any]]) -> tuple[Run, ...]:
    """Who had which thread, from when to when."""
    found: dict[tuple[str, int], Run] = {}
    for line in sorted(lines, key=lambda line: float(line["at"])):
        if line["what"] == "claimed":
            found[line["box"], line["epoch"]] = Run(line["box"], line["epoch"], line["pid"], line["at"])
        elif line["what"] == "released" and (run := found.get((line["box"], line["epoch"]))) is not None:
            ended = line["at"] if run.ended is None else run.ended
            found[line["box"], line["epoch"]] = Run(run.box, run.epoch, run.pid, run.begun, ended)
    return tuple(found.values())


def effects_in(lines: Sequence[dict[str, Any]]) -> tuple[Effect, ...]:
    """What handlers did."""
    return tuple(
        Effect(line["at"], line["pid"], line["what"], line["key"], (line["thread"], line["call"])) for line in lines
    )
