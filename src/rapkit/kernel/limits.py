"""How far a thread may go."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ThreadLimits:
    """Bounds for one thread.

    `subscriptions`: active at once (SUB-17). `children`: child threads at once; past it events wait. `depth`: children of children; past
    it, or where no children are allowed at all, an event is taken into the thread itself. `views`: kinds of views. `mistakes`: completions
    in a row whose every call was wrong. `attempts`: failures of the model in a row. After either of the last two the thread is parked; one
    that was made for an event is closed after so many mistakes, and bears any number of failures.
    `window`: how many of the last entries of the journal the model is shown, at least. `answer_chars`: how much of one answer or
    message it is shown, `total_chars`: of all of them together, in characters. `cancel_on_interrupt`: whether a message of the user
    cancels the calls it interrupts. `remember_expired`: seconds for which the late result of a call that was given up is still taken.
    """

    subscriptions: int = 20
    children: int = 16
    depth: int = 8
    views: int = 64
    mistakes: int = 5
    attempts: int = 6
    window: int = 500
    answer_chars: int = 100_000
    total_chars: int = 600_000
    cancel_on_interrupt: bool = False
    remember_expired: float = 4 * 24 * 3600.0
