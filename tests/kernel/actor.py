"""A thread that is watched: whatever happens to it, what must hold is checked."""

from collections import Counter
from collections.abc import Sequence, Set
from copy import deepcopy

from rapkit.kernel.completion import Reply
from rapkit.kernel.conversation import Conversation, Heard, Said
from rapkit.kernel.effects import (
    Effect,
    HideAuthorization,
    Invoke,
    MakeChild,
    SetTimer,
    ShowAuthorization,
    Step,
    TellParent,
    Withdraw,
)
from rapkit.kernel.entries import (
    Answered,
    Began,
    ChildMade,
    Happened,
    Ignored,
    JournalEntry,
    ModelSaid,
    Released,
    dump_entry,
    load_entry,
)
from rapkit.kernel.incoming import Incoming, TimerDue
from rapkit.kernel.limits import ThreadLimits
from rapkit.kernel.projection import STILL_RUNNING, Numbered, Stretch, project
from rapkit.kernel.receiving import receive
from rapkit.kernel.replying import model_failed, reply, worker_lost
from rapkit.kernel.thread import Thread, dump_thread, load_thread
from tests.kernel.fates import Fates
from tests.kernel.strict import accept, accept_question
from tests.kernel.talk import text_of
from tests.kernel.tools import CATALOG

NOW = 1000.0


class Actor:
    """A thread and the lines of its journal, which have been bytes in between and are numbered from 1, as in a store."""

    def __init__(self, thread: Thread, limits: ThreadLimits, parent: "Actor | None" = None) -> None:
        self.thread = thread
        self.limits = limits
        self.parent = parent
        self.fates = Fates(limits, depth=len(thread.ancestors))
        self.mail: list[Incoming] = []
        self._journal: list[JournalEntry] = []
        self._invoked: Counter[str] = Counter()
        self._before: Conversation = ()

    # What happens

    def take(self, count: int) -> tuple[Effect, ...]:
        """What came, the first so many of it."""
        mail, self.mail = self.mail[:count], self.mail[count:]
        unchanged = deepcopy(self.thread)
        step = receive(self.thread, mail, NOW, self.limits)
        assert self.thread == unchanged
        assert len(step.entries) >= sum(not isinstance(message, TimerDue) for message in mail)
        for message in mail:
            self.fates.hears(message)
        return self._store(step)

    def replies(self, said: Reply) -> tuple[Effect, ...]:
        first, unchanged = self.thread.calls_made + 1, deepcopy(self.thread)
        step = reply(self.thread, said, CATALOG, NOW, self.limits)
        assert self.thread == unchanged
        for number, wanted in enumerate(said.calls, first):
            self.fates.makes(f"call_{number}", wanted)
        return self._store(step)

    def fails(self, *, retryable: bool, lost: bool) -> tuple[Effect, ...]:
        unchanged = deepcopy(self.thread)
        if lost:
            step = worker_lost(self.thread, 3, NOW, self.limits)
        else:
            step = model_failed(self.thread, "No answer.", NOW, self.limits, retryable=retryable)
        assert self.thread == unchanged
        return self._store(step)

    def _store(self, step: Step) -> tuple[Effect, ...]:
        kept = [load_entry(dump_entry(entry)) for entry in step.entries]
        assert kept == list(step.entries)
        self._journal += kept
        ended = self.thread.pending.keys() - step.thread.pending.keys()
        self.thread = load_thread(dump_thread(step.thread))
        assert self.thread == step.thread
        if self.thread.closed and not self.fates.closed:
            assert self.thread.for_event, "only a thread that was made for an event closes by itself"
            self.fates.close()
        self._check_effects(step.effects, ended)
        self._check_state()
        self._check_journal()
        self._check_conversation()
        return step.effects

    # What must hold

    def _check_effects(self, effects: Sequence[Effect], ended: Set[str]) -> None:
        assert not any(isinstance(effect, TellParent) for effect in effects) or self.thread.closed
        timers = [effect.key for effect in effects if isinstance(effect, SetTimer)]
        shown = {effect.call_id for effect in effects if isinstance(effect, ShowAuthorization)}
        hidden = {effect.call_id for effect in effects if isinstance(effect, HideAuthorization)}
        assert len(timers) == len(set(timers)), "a timer is set and taken away"
        withdrawn = Counter(effect.call_id for effect in effects if isinstance(effect, Withdraw))
        assert not shown & hidden
        assert withdrawn == Counter(ended), "what has ended is withdrawn, once, and nothing else"
        assert shown <= set(self.thread.authorizing)
        for effect in effects:
            if isinstance(effect, Invoke):
                assert effect.call_id in self.thread.pending
                self._invoked[effect.call_id] += 1
        for call_id, times in self._invoked.items():
            assert times <= 1 + (call_id in self.fates.corrected), "sent too often"
        assert set(self.thread.pending) <= set(self._invoked), "never sent"

    def _check_state(self) -> None:
        thread, fates = self.thread, self.fates
        assert set(thread.pending) == fates.those("pending")
        assert set(thread.subscriptions) == fates.those("active")
        assert set(thread.expired) == fates.those("expired")
        assert thread.live_calls == {*thread.pending, *thread.subscriptions, *thread.expired}
        assert {*thread.choices, *thread.authorizing} <= {*thread.pending, *thread.subscriptions}
        assert len(thread.subscriptions) <= self.limits.subscriptions
        assert len(thread.children) <= self.limits.children
        assert not thread.waiting_events or len(thread.children) == self.limits.children
        assert set(thread.ended) == {event.call_id for event in thread.waiting_events} - set(thread.subscriptions)
        assert not thread.for_event or thread.parked is None, "nobody would revive it"
        if thread.wants_model:
            assert thread.is_free
            assert thread.parked is None
            assert not thread.closed
        for call_id, call in thread.pending.items():
            assert call.detached == (call_id in fates.detached)

    def _check_journal(self) -> None:
        """One answer for each call, and one more where it had been given up."""
        entries = self.entries()
        assert self.thread.length == len(entries)
        made = [call.id for entry in entries if isinstance(entry, ModelSaid) for call in entry.calls]
        answers = Counter(entry.call_id for entry in entries if isinstance(entry, Answered))
        assert len(made) == len(set(made))
        assert set(answers) <= set(made)
        without = {*self.thread.pending, *self.fates.unanswered}
        for call_id in made:
            late = call_id in self.fates.undelivered and call_id not in {*self.thread.expired, *without}
            assert answers[call_id] == (0 if call_id in without else 1) or (late and answers[call_id] == 2)
        self._check_fates(entries)

    def _check_fates(self, entries: Sequence[JournalEntry]) -> None:
        """Every event that was not shown at once is kept in one place, or was decided upon, once."""
        kept = [event.seq for call in self.thread.pending.values() for event in call.early]
        kept += [event.seq for call in self.thread.expired.values() for event in call.early]
        kept += [event.seq for event in self.thread.waiting_events]
        kept += [seq for entry in entries if isinstance(entry, Released | Ignored) for seq in entry.seqs]
        kept += [entry.event for entry in entries if isinstance(entry, ChildMade)]
        events = [seq for seq, entry in enumerate(entries, 1) if isinstance(entry, Happened) and entry.fate != "shown"]
        assert sorted(kept) == events

    def _check_conversation(self) -> None:
        whole = project(self.stretches())
        if self.thread.wants_model:
            accept_question(whole)
            assert project(self.stretches(), self.thread) == whole
        elif whole:
            accept(whole)
        self._check_events(whole)
        self._check_running(whole)
        self._check_nothing_is_overlooked(whole)
        self._check_history(whole)
        self.check_cut(len(self._journal) * 7 % (len(self._journal) + 3))  # somewhere; every place is tried in the end

    def check_cut(self, cut: int) -> None:
        """Whatever is left out in front, of this journal and of those before it, the rest is shown."""
        stretches = [Stretch(each.lines[cut:], each.inherited) for each in self.stretches()]
        shown = project(stretches, self.thread)
        if self.thread.wants_model:
            accept_question(shown)
        elif shown:
            accept(shown)
        answers = {text_of(answer) for message in shown if isinstance(message, Heard) for answer in message.answers}
        for entry in (line.entry for line in stretches[-1].lines):
            if (isinstance(entry, Answered) and entry.text) or (isinstance(entry, Happened) and entry.fate == "shown"):
                assert entry.text in answers

    def _check_events(self, whole: Conversation) -> None:
        """All that should be shown is, once, and nothing else."""
        own = Counter(
            text_of(answer)
            for message in project([self.stretches()[-1]])
            if isinstance(message, Heard)
            for answer in message.answers
        )
        begun = {entry.text for entry in self.entries() if isinstance(entry, Began)}
        events = Counter({text: times for text, times in own.items() if text.startswith("event ")})
        assert set(events) == self.fates.texts("shown") | begun
        assert not events or max(events.values()) == 1
        seen = Counter(text_of(a) for message in whole if isinstance(message, Heard) for a in message.answers)
        assert all(times == 1 for text, times in seen.items() if text.startswith("event "))

    def _check_running(self, whole: Conversation) -> None:
        """Only its own calls can be running: the result of an ancestor's will not come here."""
        heard = [answer for message in whole if isinstance(message, Heard) for answer in message.answers]
        running = {answer.call_id for answer in heard if text_of(answer) == STILL_RUNNING}
        own = {call.id for entry in self.entries() if isinstance(entry, ModelSaid) for call in entry.calls}
        assert set(self.thread.pending) <= running <= own

    def _check_nothing_is_overlooked(self, whole: Conversation) -> None:
        """A thread that does nothing has nothing left to reply to."""
        thread = self.thread
        if thread.wants_model or not thread.is_free or thread.parked is not None or thread.closed:
            return
        entries = self.entries()
        last = max((number for number, entry in enumerate(entries, 1) if isinstance(entry, ModelSaid)), default=0)
        assert project(self.stretches(upto=last)) == whole

    def _check_history(self, whole: Conversation) -> None:
        """What the model was shown stays as it was: later there is only more."""
        before = self._before
        assert len(whole) >= len(before)
        if before:
            assert whole[: len(before) - 1] == before[:-1]
            assert _begins(whole[len(before) - 1], before[-1])
        if self.thread.is_free:
            self._before = whole

    # What there is

    def entries(self) -> list[JournalEntry]:
        return list(self._journal)

    def stretches(self, upto: int | None = None) -> list[Stretch]:
        """Its ancestors' journals, as far as they are its own history, and its own."""
        before: list[Stretch] = []
        if self.parent is not None and self.thread.inherits is not None:
            before = [Stretch(each.lines, inherited=True) for each in self.parent.stretches(self.thread.inherits.upto)]
        lines = [Numbered(seq, entry) for seq, entry in enumerate(self.entries(), 1)]
        return [*before, Stretch(lines[:upto])]

    def child(self, made: MakeChild) -> "Actor":
        return Actor(made.child, self.limits, self)


def _begins(later: Heard | Said, earlier: Heard | Said) -> bool:
    if isinstance(earlier, Heard):
        if not isinstance(later, Heard):
            return False
        return later.answers == earlier.answers and later.texts[: len(earlier.texts)] == earlier.texts
    return isinstance(later, Said) and not earlier.calls and later.text.startswith(earlier.text)
