"""A thread that is watched: whatever happens to it, what must hold is checked."""

from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

from rapkit.kernel.compaction import (
    CHARS_PER_TOKEN,
    compacted,
    cut,
    lines_since,
    not_compacted,
    room_for,
    shrink_window,
    summary_question,
)
from rapkit.kernel.completion import Reply, Usage
from rapkit.kernel.conversation import Conversation, Heard, Said
from rapkit.kernel.effects import Effect, HideAuthorization, ShowAuthorization, Step, Write
from rapkit.kernel.entries import (
    Answered,
    Began,
    ChildMade,
    Happened,
    Ignored,
    JournalEntry,
    ModelSaid,
    ParkedEntry,
    Released,
    Reported,
    Summary,
    Unsubscribed,
    dump_entry,
    load_entry,
)
from rapkit.kernel.incoming import ChildClosed, ChildReport, Grant, Incoming, SetAside, TimerDue
from rapkit.kernel.limits import ThreadLimits
from rapkit.kernel.projection import NOT_PERMITTED_YET, STILL_RUNNING, Numbered, Stretch, project
from rapkit.kernel.receive import receive
from rapkit.kernel.reply import model_failed, out_of_budget, reply, worker_lost
from rapkit.kernel.thread import Thread, dump_thread, load_thread
from rapkit.protocol import TextContent
from tests.kernel.effect_log import EffectLog
from tests.kernel.expected_outcomes import OURS, ExpectedOutcomes
from tests.kernel.memory_journals import own_stretch, seen
from tests.kernel.strict_provider import accept, accept_question
from tests.kernel.thread_driver import text_of
from tests.kernel.tools import CATALOG

TAKEN = Usage(1, 3, 2, 0.25)
"""What every completion takes."""

STOPPED = ("It has stopped: ", "It could not take what it was told: ")


@dataclass
class Clock:
    """The time it is for all of them."""

    now: float = 1000.0


class CheckedThread:
    """A thread and the lines of its journal, which have been bytes in between and are numbered from 1, as in a store."""

    def __init__(
        self, thread: Thread, limits: ThreadLimits, clock: Clock | None = None, parent: "CheckedThread | None" = None
    ) -> None:
        self.thread = thread
        self.limits = limits
        self.clock = clock or Clock()
        self.parent = parent
        self.fates = ExpectedOutcomes(
            thread.id,
            limits,
            depth=len(thread.ancestors),
            task=thread.task,
            for_event=thread.for_event,
            allowed=set(thread.allowed),
            owes_report=bool(thread.task),
        )
        self.ledger = EffectLog()
        self.mail: list[Incoming] = []
        self._journal: list[JournalEntry] = []
        self._before: Conversation = ()
        self._shown_before: Conversation = ()

    # What happens

    def take(self, count: int) -> tuple[Effect, ...]:
        """What came, the first so many of it; and behind it the timers that are due, as the runtime has it."""
        mail, self.mail = self.mail[:count], self.mail[count:]
        due = sorted((at, key) for key, at in self.ledger.timers.items() if at <= self.clock.now)
        return self._hear([*mail, *(TimerDue(key) for _, key in due)])

    def _hear(self, mail: Sequence[Incoming]) -> tuple[Effect, ...]:
        unchanged = deepcopy(self.thread)
        step = receive(self.thread, mail, self.clock.now, self.limits)
        assert self.thread == unchanged
        assert len(step.entries) >= sum(not isinstance(message, TimerDue) and message != Grant() for message in mail)
        lost = 0
        for message in mail:
            lost += isinstance(message, SetAside) and message.what == "parent" and not self.fates.closed
            self.fates.hears(message, self.clock.now)
        return self._store(step, stops=lost)

    def hears_timer_of_nothing(self, key: str) -> tuple[Effect, ...]:
        """One that was taken away meanwhile; a thread that has heard nothing yet never had any."""
        return self._hear([TimerDue(key)]) if self.thread.length and key not in self.ledger.timers else ()

    def replies(self, said: Reply) -> tuple[Effect, ...]:
        first, unchanged = self.thread.calls_made + 1, deepcopy(self.thread)
        self.fates.used += TAKEN
        step = reply(
            self.thread, replace(said, usage=TAKEN), CATALOG, self.clock.now, self.limits, id_suffix=self.thread.id
        )
        assert self.thread == unchanged
        reports = self.fates.replies(first, said.text, said.calls, self.clock.now)
        return self._store(step, reports)

    def fails(self, *, retryable: bool, lost: bool) -> tuple[Effect, ...]:
        unchanged = deepcopy(self.thread)
        if lost:
            step = worker_lost(self.thread, 3, self.clock.now, self.limits)
        else:
            self.fates.used += Usage(requests=1)
            step = model_failed(self.thread, "No answer.", self.clock.now, self.limits, retryable=retryable)
        assert self.thread == unchanged
        return self._store(step)

    def has_no_budget(self, until: float | None) -> tuple[Effect, ...]:
        return self._store(out_of_budget(self.thread, "No money.", until, self.clock.now, self.limits))

    def is_summarised(self, text: str) -> tuple[Effect, ...]:
        """By a model, if there is anything to be; the question for that is a question like any other."""
        lines = seen(self.thread, self._journal)
        sizes = [len(dump_entry(line.entry)) for line in lines]
        where = cut(lines, sizes, self.limits, room_for(self.thread, self.limits, None) * CHARS_PER_TOKEN)
        summary = self.thread.summary
        if where.upto <= (summary.upto if summary else 0) and (summary or self.thread.inherits is None):
            return ()
        *others, own = self.shown_stretches()
        before = [*others, replace(own, lines=[line for line in own.lines if line.seq <= where.upto])]
        accept_question(summary_question(project(before)).conversation)
        self.fates.used += TAKEN
        if not text:
            return self._store(not_compacted(self.thread, "no answer", TAKEN, self.clock.now, self.limits))
        self._shown_before = ()
        effects = self._store(compacted(self.thread, Reply(text, usage=TAKEN), where, self.clock.now, self.limits))
        assert lines_since(self.thread) == len(seen(self.thread, self._journal))
        last = self._journal[-1]
        assert isinstance(last, Summary)
        assert last.children == {id: task for id, task in self.fates.spawned.items() if id not in self.fates.closing}
        return effects

    def shrink_window(self, tokens: int) -> tuple[Effect, ...]:
        """The model has turned out to take less than it was asked; it is shown less from now on."""
        room = room_for(self.thread, self.limits, None)
        step = shrink_window(self.thread, room, tokens, self.clock.now, self.limits)
        if step is None:
            assert min(room, tokens) < 1000
            return self.fails(retryable=False, lost=False)
        self.fates.used += Usage(requests=1)
        effects = self._store(step)
        assert 2 * room_for(self.thread, self.limits, None) <= min(room, tokens)
        return effects

    def _store(self, step: Step, reports: Sequence[str] = (), stops: int = 0) -> tuple[Effect, ...]:
        kept = [load_entry(dump_entry(entry)) for entry in step.entries]
        assert kept == list(step.entries)
        self._journal += kept
        self.ledger.book(self.thread, step, self.limits)
        was_parked = self.thread.parked is not None
        self.thread = load_thread(dump_thread(step.thread))
        assert self.thread == step.thread
        if self.thread.closed and not self.fates.closed:
            assert self.thread.for_event, "only a thread that was made for an event closes by itself"
            self.fates.close()
        told = sum(isinstance(entry, ParkedEntry) for entry in kept)
        assert told <= (not self.fates.told_of_stop), "it is told twice that it has stopped"
        self.fates.told_of_stop |= bool(told)
        if self.thread.parked is not None and not was_parked:
            assert self.fates.told_of_stop, "nobody knows that it has stopped"
        stops += told
        self._check_effects(step.effects, reports, stops if self.thread.task else 0)
        self._check_state()
        self._check_journal()
        self._check_conversation()
        return step.effects

    # What must hold

    def _check_effects(self, effects: Sequence[Effect], reports: Sequence[str], stops: int) -> None:
        shown = {effect.call_id for effect in effects if isinstance(effect, ShowAuthorization)}
        hidden = {effect.call_id for effect in effects if isinstance(effect, HideAuthorization)}
        assert not shown & hidden
        assert shown <= set(self.thread.authorizing)
        for call_id, times in self.ledger.sent.items():
            assert times <= 1 + (call_id in self.fates.corrected), "sent too often"
        to_parent = [
            effect.message for effect in effects if isinstance(effect, Write) and effect.thread_id == self.thread.parent
        ]
        closed = [message for message in to_parent if isinstance(message, ChildClosed)]
        said = [message for message in to_parent if isinstance(message, ChildReport)]
        assert not closed or self.thread.closed
        assert len(to_parent) == len(closed) + len(said)
        last_words = [message.report for message in closed if message.report is not None]
        assert [message.text for message in said if not message.text.startswith(STOPPED)] + last_words == list(reports)
        assert sum(message.text.startswith(STOPPED) for message in said) == stops
        told = [message.usage for message in closed] or [message.usage for message in said[-1:]]
        assert all(usage == self.fates.used_by_all for usage in told)

    def _check_state(self) -> None:
        thread, fates = self.thread, self.fates
        assert {call_id for call_id, call in thread.pending.items() if call.awaits == "tool"} == fates.those("pending")
        for awaits in OURS:
            assert {call_id for call_id, call in thread.pending.items() if call.awaits == awaits} == fates.those(awaits)
        assert set(thread.subscriptions) == fates.those("active")
        assert set(thread.expired) == fates.those("expired")
        assert thread.live_calls == fates.those("pending", "active", "expired")
        asked = {call_id: [each.asked_at for each in some] for call_id, some in thread.choices.items()}
        assert asked == {call_id: [each.asked_at for each in some] for call_id, some in fates.questions.items()}
        assert thread.authorizing == fates.authorizing
        assert set(thread.allowed) == fates.allowed
        assert len(thread.subscriptions) <= self.limits.subscriptions
        assert len(thread.children) <= self.limits.children
        assert len(thread.spawned) <= self.limits.children
        assert list(thread.children) == fates.children
        assert {child: each.task for child, each in thread.spawned.items()} == fates.spawned
        assert {child for child, each in thread.spawned.items() if each.closing} == fates.closing & set(thread.spawned)
        assert {child for child, each in thread.spawned.items() if each.owes_report} == fates.owing
        assert thread.owes_report == fates.owes_report
        assert thread.usage == fates.used
        assert thread.usage_of_all == fates.used_by_all
        assert thread.timers == fates.timers
        assert len(thread.pending) <= self.limits.calls + sum(call.awaits == "time" for call in thread.pending.values())
        assert not thread.waiting_events or len(thread.children) == self.limits.children
        assert set(thread.ended) == {event.call_id for event in thread.waiting_events} - set(thread.subscriptions)
        assert not thread.for_event or thread.parked is None, "nobody would revive it"
        if thread.wants_model:
            assert thread.is_free
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
            late = call_id in self.fates.given_up and call_id not in {*self.thread.expired, *without}
            assert answers[call_id] == (0 if call_id in without else 1) or (late and answers[call_id] == 2)
        self._check_fates(entries)

    def _check_fates(self, entries: Sequence[JournalEntry]) -> None:
        """Every event that was not shown at once is kept in one place, or was decided upon, once."""
        kept = [event.seq for call in self.thread.pending.values() for event in call.early]
        kept += [event.seq for call in self.thread.expired.values() for event in call.early]
        kept += [event.seq for event in self.thread.waiting_events]
        kept += [seq for entry in entries if isinstance(entry, Released | Ignored) for seq in entry.seqs]
        kept += [entry.event for entry in entries if isinstance(entry, ChildMade) and entry.event is not None]
        events = [seq for seq, entry in enumerate(entries, 1) if isinstance(entry, Happened) and entry.fate != "shown"]
        assert sorted(kept) == events
        assert [entry.text for entry in entries if isinstance(entry, Reported)] == self.fates.heard

    def _check_conversation(self) -> None:
        whole = project(self.stretches())
        if self.thread.wants_model:
            accept_question(whole)
            assert _as_if_permitted(project(self.stretches(), self.thread)) == whole
        elif whole:
            accept(whole)
        self._check_events(whole)
        self._check_running(whole)
        self._check_nothing_is_overlooked(whole)
        self._check_history(whole)
        self._check_shown()
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
        heard = Counter(text_of(a) for message in whole if isinstance(message, Heard) for a in message.answers)
        assert all(times == 1 for text, times in heard.items() if text.startswith("event "))
        assert all(heard[text] for text in self.fates.heard)

    def _check_running(self, whole: Conversation) -> None:
        """Only its own calls can be running: the result of an ancestor's will not come here."""
        heard = [answer for message in whole if isinstance(message, Heard) for answer in message.answers]
        running = {answer.call_id for answer in heard if text_of(answer) == STILL_RUNNING}
        own = {call.id for entry in self.entries() if isinstance(entry, ModelSaid) for call in entry.calls}
        assert set(self.thread.pending) <= running <= own

    def _check_nothing_is_overlooked(self, whole: Conversation) -> None:
        """A thread that does nothing has nothing left to reply to; that the user ended a subscription needs no reply."""
        thread = self.thread
        if thread.wants_model or not thread.is_free or thread.parked is not None or thread.closed:
            return
        entries = self.entries()
        last = max((number for number, entry in enumerate(entries, 1) if isinstance(entry, ModelSaid)), default=0)
        if any(isinstance(entry, Unsubscribed) and entry.by_user for entry in entries[last:]):
            *others, own = self.stretches()
            lines = [line for line in own.lines if line.seq <= last or not isinstance(line.entry, Unsubscribed)]
            whole = project([*others, Stretch(lines)])
        assert project(self.stretches(upto=last)) == whole

    def _check_history(self, whole: Conversation) -> None:
        """What the model was shown stays as it was: later there is only more."""
        assert _goes_on(whole, self._before)
        if self.thread.is_free:
            self._before = whole

    def _check_shown(self) -> None:
        """What the model is shown where there are summaries: everything since the last one, and whatever goes on."""
        if self.thread.summary is None and self.parent is None:
            return
        shown = self.shown()
        if self.thread.wants_model:
            accept_question(shown)
            known = project(self.shown_stretches(), self.thread)
            accept_question(known)
            heard = [answer for message in known if isinstance(message, Heard) for answer in message.answers]
            unpermitted = {answer.call_id for answer in heard if text_of(answer) == NOT_PERMITTED_YET}
            assert unpermitted == self.fates.those("permission")
            room = room_for(self.thread, self.limits, None) * CHARS_PER_TOKEN
            accept_question(project(self.shown_stretches(), self.thread, total_chars=room))
        elif shown:
            accept(shown)
        assert _goes_on(shown, self._shown_before)
        if self.thread.is_free:
            self._shown_before = shown
        calls = [call for message in shown if isinstance(message, Said) for call in message.calls]
        named = {call.id for call in calls}
        active = {
            each
            for each in self.thread.subscriptions
            if any(f"result:{each} " in str(call.arguments) for call in calls)
        }
        assert set(self.thread.pending) <= named
        assert set(self.thread.subscriptions) <= named | active
        for line in seen(self.thread, self._journal):
            if isinstance(line.entry, Answered) and not line.entry.late:
                assert line.entry.call_id in named, "an answer is cut off from its call"

    # What there is

    def entries(self) -> list[JournalEntry]:
        return list(self._journal)

    def stretches(self, upto: int | None = None) -> list[Stretch]:
        """Its ancestors' journals, as far as they are its own history, and its own; as if nothing had been summarised."""
        before: list[Stretch] = []
        if self.parent is not None and self.thread.inherits is not None:
            before = [Stretch(each.lines, inherited=True) for each in self.parent.stretches(self.thread.inherits.upto)]
        lines = [Numbered(seq, entry) for seq, entry in enumerate(self.entries(), 1)]
        return [*before, Stretch(lines[:upto])]

    def shown_stretches(self, upto: int | None = None) -> list[Stretch]:
        """The same, no further back than to a summary."""
        own = own_stretch(self._journal, upto)
        before: list[Stretch] = []
        if self.parent is not None and self.thread.inherits is not None and own.summary is None:
            before = [replace(each, inherited=True) for each in self.parent.shown_stretches(self.thread.inherits.upto)]
        return [*before, own]

    def shown(self) -> Conversation:
        return project(self.shown_stretches())

    def child(self, thread: Thread) -> "CheckedThread":
        return CheckedThread(thread, self.limits, self.clock, self)


def _as_if_permitted(conversation: Conversation) -> Conversation:
    """What the journal alone tells: it does not say which calls the user is still asked about."""
    running = (TextContent(text=STILL_RUNNING),)
    return tuple(
        Heard(
            tuple(
                replace(answer, content=running) if text_of(answer) == NOT_PERMITTED_YET else answer
                for answer in message.answers
            ),
            message.texts,
        )
        if isinstance(message, Heard)
        else message
        for message in conversation
    )


def _goes_on(later: Conversation, earlier: Conversation) -> bool:
    """Whether it is the same conversation, or more of it."""
    if not earlier:
        return True
    count = len(earlier)
    return len(later) >= count and later[: count - 1] == earlier[:-1] and _begins(later[count - 1], earlier[-1])


def _begins(later: Heard | Said, earlier: Heard | Said) -> bool:
    if isinstance(earlier, Heard):
        if not isinstance(later, Heard):
            return False
        return later.answers == earlier.answers and later.texts[: len(earlier.texts)] == earlier.texts
    return isinstance(later, Said) and not earlier.calls and later.text.startswith(earlier.text)
