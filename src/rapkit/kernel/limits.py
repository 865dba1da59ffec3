"""The limits of a thread: how much it may do, how long it waits, and which calls need the user's confirmation."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Confirmation = Literal["always", "remembered", "never"]
"""Whether a person is asked before a call is made: each time, until they say that they need not be asked again, or not at all."""


_AS_LONG = 10


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds after which a call is given up (RUN-7); None is never.

    `call` is for all calls, `long_running` for those of tools that say of themselves that they take long: ten times as long if it is not
    given, for ever if it is infinite. `tools` wins over both, by the name the model has for a tool. A call that waits for a person does
    not run out of time.
    """

    call: float | None = None
    long_running: float | None = None
    tools: Mapping[str, float | None] = field(default_factory=dict)

    def of(self, name: str, *, long_running: bool, expected: float | None = None) -> float | None:
        """That of one tool. One that is `expected` to take up to so many seconds has at least twice that, unless `tools` names it."""
        seconds = self.call
        if name in self.tools:
            seconds = self.tools[name]
        elif long_running and self.long_running is not None:
            seconds = self.long_running
        elif long_running and seconds is not None:
            seconds *= _AS_LONG
        if name not in self.tools and seconds is not None and expected is not None:
            seconds = max(seconds, 2 * expected)
        return None if seconds == math.inf else seconds


@dataclass(frozen=True, slots=True)
class Confirmations:
    """Which calls a person is asked about first (DIS-11).

    `destructive` is for tools that say of themselves that they destroy something; `tools` wins over that, by the name the model has for a
    tool, and may name any tool.
    """

    destructive: Confirmation = "always"
    tools: Mapping[str, Confirmation] = field(default_factory=dict)

    def of(self, name: str, *, destructive: bool) -> Confirmation:
        """That of one tool."""
        return self.tools.get(name, self.destructive if destructive else "never")


@dataclass(frozen=True, slots=True)
class ThreadLimits:
    """Bounds for one thread.

    `calls`: not answered at once. `subscriptions`: active at once (SUB-17). `children`: child threads at once, for events, and as many
    again that the model has made; past it events wait. `depth`: children of children; past it, or where no children are allowed at all, an
    event is taken into the thread itself. `views`: kinds of views. `mistakes`: completions in a row whose every call was wrong.
    `attempts`: failures of the model in a row. After either of the last two the thread is parked; one that was made for an event is closed
    after so many mistakes, and bears any number of failures.

    `requests_per_message`: completions since the thread last heard from outside of the model's own loop: a message of the user or of its
    parent, an answer of the user, an event, a schedule, or the end of a wait of a minute or more. Results of its own calls and reports of
    children that it made do not count as that. Past it the thread is parked until something of that kind comes; one that was made for an
    event is closed. 0 is without end.

    `slices`, `tokens`, `cost`: how often the model is asked, with how many tokens in and out, for how many US dollars, all in all; past it
    the thread is parked until a client grants it more. What its children take counts, and a child has what its parent had left. None is
    without end.

    `window`: how many of the last entries of the journal the model is shown, about. `answer_chars`: how much of one answer or message,
    `total_chars`: of all of them together, in characters. `compaction`: whether what is too long ago is summarised, else it is left out;
    `context_window`: how many tokens the model takes, if that is not known of it.

    `timeouts` and `confirmations`: see there. `question_timeout`: seconds after which a question to the user is taken for dismissed, and
    where to authorise a tool is shown no more; None is never. `cancel_on_interrupt`: whether a message of the user cancels the calls it
    interrupts. `cancel_on_close`: whether closing the thread cancels its calls and subscriptions at their servers. `remember_expired`:
    seconds for which the late result of a call that was given up is still taken.
    """

    calls: int = 100
    subscriptions: int = 20
    children: int = 16
    depth: int = 8
    views: int = 64
    mistakes: int = 5
    attempts: int = 6
    requests_per_message: int = 500
    slices: int | None = None
    tokens: int | None = None
    cost: float | None = None
    window: int = 500
    answer_chars: int = 100_000
    total_chars: int = 600_000
    compaction: bool = True
    context_window: int | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    confirmations: Confirmations = field(default_factory=Confirmations)
    question_timeout: float | None = None
    cancel_on_interrupt: bool = False
    cancel_on_close: bool = True
    remember_expired: float = 4 * 24 * 3600.0
