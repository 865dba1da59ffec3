"""A step in the making."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rapkit.kernel.effects import Effect, HideAuthorization, Invoke, SetTimer, ShowAuthorization, Step, Withdraw
from rapkit.kernel.entries import SHOWN, Answered, Ignored, JournalEntry
from rapkit.kernel.limits import ThreadLimits
from rapkit.kernel.thread import Expired, Pending, Thread

_EXPIRED_TIMER = "expired/"


class Draft:
    """Collects what follows from what happened to a thread. The thread it began with is left as it was."""

    def __init__(self, thread: Thread, now: float, limits: ThreadLimits) -> None:
        self.thread = replace(thread)
        self.now = now
        self.limits = limits
        self._entries: list[JournalEntry] = []
        self._effects: list[Effect] = []

    def change(self, **fields: Any) -> None:
        """Set fields of the thread."""
        # In place: it is a copy of ours until the step is made, and copying it for every field is what a step would mostly do.
        for name, value in fields.items():
            object.__setattr__(self.thread, name, value)

    def journal(self, entry: JournalEntry) -> int:
        """Append a line; its number."""
        self._entries.append(entry)
        self.change(length=self.thread.length + 1, shown=self.thread.shown + (entry.kind in SHOWN))
        return self.thread.length

    def do(self, effect: Effect) -> None:
        """Have something done once the step is stored."""
        self._effects.append(effect)

    def undo(self, is_meant: Callable[[Effect], bool]) -> None:
        """Have something not done after all, if it was wanted in this very step: no step both does and undoes a thing."""
        self._effects = [effect for effect in self._effects if not is_meant(effect)]

    def ignore(self, what: str, reason: str, call_id: str | None = None) -> None:
        """Note that something has no effect."""
        self.journal(Ignored(what, reason, call_id))

    def step(self) -> Step:
        """What was collected."""
        return Step(self.thread, tuple(self._entries), tuple(self._effects))

    # Waking the model

    def wake(self) -> None:
        """Ask the model to go on, once it can be asked. A thread that was parked gets one try; only the user gives it all of them."""
        thread = self.thread
        failures = thread.failures if thread.parked is None else max(thread.failures, self.limits.attempts - 1)
        self.change(wants_model=thread.is_free, parked=None, failures=failures)

    # Calls

    def take_pending(self, call_id: str) -> Pending:
        """A pending call, which is pending no more: it is not sent again, and what it asked the user is taken back."""
        call = self.thread.pending[call_id]
        self.change(pending=without(self.thread.pending, call_id))
        self.undo(lambda effect: effect == Invoke(call_id))  # it may have been corrected, and answered in the same step
        # Even if it was answered: a server whose acknowledgement was lost would be sent it again, and might do it again.
        self.do(Withdraw(call_id))
        self.take_back_questions(call_id)
        return call

    def take_back_questions(self, call_id: str) -> None:
        """Forget what a call asked the user."""
        if call_id in self.thread.authorizing:
            self.change(authorizing=tuple(each for each in self.thread.authorizing if each != call_id))
            self.undo(lambda effect: isinstance(effect, ShowAuthorization) and effect.call_id == call_id)
            self.do(HideAuthorization(call_id))
        if call_id in self.thread.choices:
            self.change(choices=without(self.thread.choices, call_id))

    def answer(self, call_id: str, call: Pending, text: str) -> None:
        """Answer a call ourselves."""
        self.journal(Answered(call_id, call.name, text, late=call.detached, by="runtime"))

    def remember_expired(self, call_id: str, call: Pending) -> None:
        """Take one late answer of a call that was given up, for so long. What came early for it goes on waiting for that."""
        expired = Expired(call.name, call.arguments, call.server, call.early)
        self.change(expired={**self.thread.expired, call_id: expired})
        self.do(SetTimer(_EXPIRED_TIMER + call_id, self.now + self.limits.remember_expired))

    def take_expired(self, call_id: str) -> Expired:
        """An expired call, which is forgotten now."""
        call = self.thread.expired[call_id]
        self.change(expired=without(self.thread.expired, call_id))
        self.take_timer_away(_EXPIRED_TIMER + call_id)
        return call

    def take_timer_away(self, key: str) -> None:
        """Be woken by a timer no more. One that is due comes again and again until this is done."""
        self.undo(lambda effect: isinstance(effect, SetTimer) and effect.key == key)
        self.do(SetTimer(key, None))

    def drop_subscription(self, call_id: str) -> None:
        """Track a subscription no more."""
        self.change(subscriptions=without(self.thread.subscriptions, call_id))
        self.take_back_questions(call_id)


def expired_call(timer_key: str) -> str | None:
    """The expired call a timer is about, if it is about one."""
    return timer_key.removeprefix(_EXPIRED_TIMER) if timer_key.startswith(_EXPIRED_TIMER) else None


def without(mapping: dict[str, Any], key: str) -> dict[str, Any]:
    """The mapping, less one key."""
    return {name: value for name, value in mapping.items() if name != key}
