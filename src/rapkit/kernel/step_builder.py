"""`StepBuilder`: collects the changes, entries and effects of one step."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from rapkit.kernel.effects import Effect, HideAuthorization, Invoke, SetTimer, ShowAuthorization, Step, Withdraw
from rapkit.kernel.entries import SHOWN, Answered, Ignored, JournalEntry
from rapkit.kernel.limits import ThreadLimits
from rapkit.kernel.thread import Expired, Pending, Thread
from rapkit.kernel.time_text import format_time

_EXPIRED_TIMER = "expired/"
_CALL_TIMER = "call/"
_INTERRUPTED = "Interrupted by what follows. {waited}"


@dataclass(frozen=True, slots=True)
class PendingClose:
    """A thread that closes itself."""

    by: str
    report: str | None


class StepBuilder:
    """Collects what follows from what happened to a thread. The thread it began with is left as it was."""

    def __init__(self, thread: Thread, now: float, limits: ThreadLimits) -> None:
        self.before = thread
        self.thread = replace(thread)
        self.now = now
        self.limits = limits
        self.closing: PendingClose | None = None
        """Whether the thread is to be closed at the end of this step, by whom, and with which last words to its parent."""
        self.spawn_point = thread.length
        """The last line a child inherits that is made in this step."""
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
        """Ask the model to go on, once it can be asked; if it sleeps, that ends here.

        A thread that was parked gets one try; only the user gives it all of them.
        """
        self.interrupt_sleep()
        thread = self.thread
        if thread.parked is not None:
            waits_for_budget = thread.wants_model  # which is no failure of the model's
            failures = thread.failures if waits_for_budget else max(thread.failures, self.limits.attempts - 1)
            self.change(parked=None, retry_at=0.0, failures=failures)
        self.change(wants_model=thread.is_free)

    def interrupt_sleep(self) -> None:
        """Answer the calls that only wait for the time: something else has come."""
        for call_id, call in self.thread.pending.items():
            if call.awaits == "time":
                self.answer(call_id, self.take_pending(call_id), _INTERRUPTED.format(waited=waited(call, self.now)))

    def close_at_end(self, by: str, report: str | None) -> None:
        """Close the thread when all else in this step is done. The first last words count."""
        last = report if self.closing is None or self.closing.report is None else self.closing.report
        self.closing = PendingClose(by, last)

    # Calls

    def add_pending(self, call_id: str, call: Pending) -> None:
        """Wait for a call."""
        self.change(pending={**self.thread.pending, call_id: call})
        self.set_call_timer(call_id)

    def awaits_tool(self, call_id: str) -> bool:
        """Whether a call was sent to a tool and is not answered: whatever else is pending is no tool's business."""
        call = self.thread.pending.get(call_id)
        return call is not None and call.awaits == "tool"

    def take_pending(self, call_id: str) -> Pending:
        """A pending call, which is pending no more: it is not sent again, and what it asked the user is taken back."""
        call = self.thread.pending[call_id]
        self.change(pending=without(self.thread.pending, call_id))
        if call.awaits == "tool":
            self.undo(lambda effect: effect == Invoke(call_id))  # it may have been corrected, and answered in this step
            # Even if it was answered: a server whose acknowledgement was lost would be sent it again, and might do it again.
            self.do(Withdraw(call_id))
        self.take_back_questions(call_id)
        return call

    def take_back_questions(self, call_id: str) -> None:
        """Forget what a call asked the user."""
        if call_id in self.thread.authorizing:
            self.take_back_authorization(call_id)
        if call_id in self.thread.choices:
            self.change(choices=without(self.thread.choices, call_id))
        self.set_call_timer(call_id)

    def take_back_authorization(self, call_id: str) -> None:
        """Show the user no more where to authorise a call."""
        self.change(authorizing=without(self.thread.authorizing, call_id))
        self.undo(lambda effect: isinstance(effect, ShowAuthorization) and effect.call_id == call_id)
        self.do(HideAuthorization(call_id))

    def set_call_timer(self, call_id: str) -> None:
        """Be woken when the time of a call is over, or that of its question: whichever it waits for now."""
        at = due_at(self.thread, call_id, self.limits)
        before = self.thread.timers.get(call_id)
        if at == before:
            return
        timers = without(self.thread.timers, call_id)
        self.change(timers=timers if at is None else {**timers, call_id: at})
        self._set_timer(_CALL_TIMER + call_id, at)

    def _set_timer(self, key: str, at: float | None) -> None:
        self.undo(lambda effect: isinstance(effect, SetTimer) and effect.key == key)
        self.do(SetTimer(key, at))

    def answer(self, call_id: str, call: Pending, text: str) -> None:
        """Answer a call ourselves."""
        self.journal(Answered(call_id, call.name, text, late=call.detached, by="runtime"))

    def remember_expired(self, call_id: str, call: Pending) -> None:
        """Take one late answer of a call that was given up, for so long. What came early for it goes on waiting for that."""
        expired = Expired(call.name, call.arguments, call.server, call.early, call.display)
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
        self._set_timer(key, None)

    def drop_subscription(self, call_id: str) -> None:
        """Track a subscription no more."""
        self.change(subscriptions=without(self.thread.subscriptions, call_id))
        self.take_back_questions(call_id)


def expired_call(timer_key: str) -> str | None:
    """The expired call a timer is about, if it is about one."""
    return timer_key.removeprefix(_EXPIRED_TIMER) if timer_key.startswith(_EXPIRED_TIMER) else None


def timed_call(timer_key: str) -> str | None:
    """The call whose time a timer is about, if it is about one."""
    return timer_key.removeprefix(_CALL_TIMER) if timer_key.startswith(_CALL_TIMER) else None


def due_at(thread: Thread, call_id: str, limits: ThreadLimits) -> float | None:
    """When something becomes of a call by itself: its question is over, its sleep, or its time."""
    choices = thread.choices.get(call_id, ())
    asked = [*(choice.asked_at for choice in choices[:1]), *filter(None, [thread.authorizing.get(call_id)])]
    if asked and limits.question_timeout is not None:
        return min(asked) + limits.question_timeout
    if choices:
        # A person decides now, and however long that takes is not the tool's time. The runtime is not told that a tool was authorised.
        return None
    call = thread.pending.get(call_id)
    if call is None:
        return None
    if call.awaits == "time":
        return call.until
    return None if call.timeout is None or call.awaits != "tool" else call.since + call.timeout


def waited(call: Pending, now: float) -> str:
    """How long a call has waited, in words, and what time it is."""
    return f"{max(0.0, now - call.made_at):.0f} seconds have passed. It is {format_time(now)}."


def without(mapping: dict[str, Any], key: str) -> dict[str, Any]:
    """The mapping, less one key."""
    return {name: value for name, value in mapping.items() if name != key}
