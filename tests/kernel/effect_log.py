"""What a thread has set going, kept by whoever carries out its effects: timers, and calls that have left."""

from collections import Counter
from dataclasses import dataclass, field

from rapkit.kernel.effects import Invoke, SendChoice, SetTimer, Step, TellCancelled, Withdraw
from rapkit.kernel.limits import ThreadLimits
from rapkit.kernel.thread import Thread


@dataclass
class EffectLog:
    """Of one thread, from its first step on. Each step is checked against what was booked before."""

    timers: dict[str, float] = field(default_factory=dict)
    sent: Counter[str] = field(default_factory=Counter)

    def book(self, before: Thread, step: Step, limits: ThreadLimits) -> None:
        self._book_timers(step)
        self._check_timers(step.thread, limits)
        self._book_calls(before, step)

    def _book_timers(self, step: Step) -> None:
        set_ones = [effect for effect in step.effects if isinstance(effect, SetTimer)]
        assert len({timer.key for timer in set_ones}) == len(set_ones), "a timer is set twice in one step"
        for timer in set_ones:
            if timer.at is None:
                self.timers.pop(timer.key, None)
            else:
                self.timers[timer.key] = timer.at

    def _check_timers(self, thread: Thread, limits: ThreadLimits) -> None:
        """No timer is left behind, and none is missing."""
        kept = {f"call/{call_id}": at for call_id, at in thread.timers.items()}
        late = {key: self.timers.get(key, -1.0) for key in (f"expired/{call_id}" for call_id in thread.expired)}
        assert self.timers == {**kept, **late}
        every = {*thread.pending, *thread.subscriptions}
        due = {call_id: at for call_id in every if (at := due_at(thread, call_id, limits)) is not None}
        assert thread.timers == due

    def _book_calls(self, before: Thread, step: Step) -> None:
        """What was not sent is not live, and nobody is told that it was cancelled."""
        after, effects = step.thread, step.effects
        made = Counter(effect.call_id for effect in effects if isinstance(effect, Invoke))
        assert all(after.pending[call_id].awaits == "tool" for call_id in made)
        self.sent += made
        withdrawn = Counter(effect.call_id for effect in effects if isinstance(effect, Withdraw))
        assert withdrawn.keys() >= _sent_ones(before) - _sent_ones(after), "what has ended could be sent again"
        assert not withdrawn.keys() & _sent_ones(after), "what is awaited is withdrawn"
        assert all(times == 1 for times in withdrawn.values())
        assert {effect.call_id for effect in effects if isinstance(effect, TellCancelled)} <= self.sent.keys()
        assert all(effect.response_url for effect in effects if isinstance(effect, SendChoice))
        assert after.live_calls <= self.sent.keys(), "live, and never sent"
        assert _sent_ones(after) <= self.sent.keys(), "awaited, and never sent"


def _sent_ones(thread: Thread) -> set[str]:
    return {call_id for call_id, call in thread.pending.items() if call.awaits == "tool"}


def due_at(thread: Thread, call_id: str, limits: ThreadLimits) -> float | None:
    """When something becomes of a call by itself, worked out a second time."""
    questions = thread.choices.get(call_id, ())
    if questions and limits.question_timeout is None:
        return None
    if limits.question_timeout is not None and (questions or call_id in thread.authorizing):
        first = questions[0].asked_at if questions else thread.authorizing[call_id]
        return min(first, thread.authorizing.get(call_id, first)) + limits.question_timeout
    call = thread.pending.get(call_id)
    if call is None:
        return None
    if call.awaits == "tool" and call.timeout is not None:
        return call.since + call.timeout
    return call.until if call.awaits == "time" else None
