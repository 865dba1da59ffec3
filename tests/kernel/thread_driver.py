"""A thread and all that happens to it, as a test tells it."""

from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from rapkit.kernel.compaction import CHARS_PER_TOKEN, Cut, compacted, cut, room_for, summary_question
from rapkit.kernel.completion import Reply, Usage, WantedCall
from rapkit.kernel.conversation import Conversation, Heard, Said, ToolAnswer
from rapkit.kernel.effects import Effect, MakeChild, Spawn, Step, Write
from rapkit.kernel.entries import Answered, Happened, Ignored, JournalEntry
from rapkit.kernel.incoming import EventForChild, Incoming, Task, TimerDue, UserMessage
from rapkit.kernel.limits import ThreadLimits
from rapkit.kernel.projection import Stretch, project
from rapkit.kernel.receive import receive
from rapkit.kernel.reply import model_failed, out_of_budget, reply
from rapkit.kernel.thread import Status, Thread
from rapkit.protocol import SubscriptionEvent, TextContent, ToolResult
from tests.kernel.effect_log import EffectLog
from tests.kernel.memory_journals import own_stretch, seen
from tests.kernel.strict_provider import accept, accept_question
from tests.kernel.tools import CATALOG


def want(name: str, provider_id: str = "call_0", **arguments: Any) -> WantedCall:
    return WantedCall(provider_id, name, arguments)


def forecast(city: str = "Oslo") -> WantedCall:
    return want("forecast", city=city)


def storms(city: str = "Oslo") -> WantedCall:
    return want("storms", city=city)


def demolish(city: str = "Oslo") -> WantedCall:
    return want("demolish", city=city)


@dataclass
class ThreadDriver:
    """Keeps the journal as a store would. `effects` are those of the last step."""

    thread: Thread = field(default_factory=lambda: Thread("t1"))
    limits: ThreadLimits = field(default_factory=ThreadLimits)
    journal: list[JournalEntry] = field(default_factory=list)
    effects: tuple[Effect, ...] = ()
    parent: "ThreadDriver | None" = None
    now: float = 1000.0
    ledger: EffectLog = field(default_factory=EffectLog)

    def _apply(self, step: Step) -> tuple[JournalEntry, ...]:
        self.ledger.book(self.thread, step, self.limits)
        self.thread = step.thread
        self.journal += step.entries
        self.effects = step.effects
        assert self.thread.length == len(self.journal)
        assert self.is_accepted()
        return step.entries

    def hears(self, *mail: Incoming) -> tuple[JournalEntry, ...]:
        before = deepcopy(self.thread)
        step = receive(self.thread, mail, self.now, self.limits)
        assert self.thread == before, "the thread that was given was changed"
        return self._apply(step)

    def user(self, text: str = "Hello") -> tuple[JournalEntry, ...]:
        return self.hears(UserMessage(text))

    def says(self, text: str = "", *calls: WantedCall, usage: Usage | None = None) -> tuple[JournalEntry, ...]:
        assert self.thread.wants_model, "the model is not asked"
        said = Reply(text, calls, usage=usage or Usage())
        return self._apply(reply(self.thread, said, CATALOG, self.now, self.limits, id_suffix=self.thread.id))

    def fails(self, problem: str = "No answer.", **how: Any) -> tuple[JournalEntry, ...]:
        assert self.thread.wants_model, "the model is not asked"
        return self._apply(model_failed(self.thread, problem, self.now, self.limits, **how))

    def has_no_budget(self, reason: str = "No money.", until: float | None = None) -> tuple[JournalEntry, ...]:
        assert self.thread.wants_model, "the model is not asked"
        return self._apply(out_of_budget(self.thread, reason, until, self.now, self.limits))

    def goes_on_until(self, now: float) -> tuple[JournalEntry, ...]:
        """Time passes, and what is due by then is heard of, as a store would have it."""
        self.now = now
        due = sorted((at, key) for key, at in self.ledger.timers.items() if at <= now)
        return self.hears(*(TimerDue(key) for _, key in due))

    def is_summarised(self, text: str = "All was said.", usage: Usage | None = None) -> Cut:
        """What was said long ago is; the question for that satisfies the strict provider too."""
        assert self.thread.wants_model, "the model is not asked"
        lines = seen(self.thread, self.journal)
        room = room_for(self.thread, self.limits, None) * CHARS_PER_TOKEN
        where = cut(lines, [len(str(line.entry)) for line in lines], self.limits, room)
        *others, own = self.stretches()
        before = [*others, replace(own, lines=[line for line in own.lines if line.seq <= where.upto])]
        accept_question(summary_question(project(before)).conversation)
        said = Reply(text, usage=usage or Usage())
        self._apply(compacted(self.thread, said, where, self.now, self.limits))
        return where

    def result(self, call_id: str, text: str = "sunny", *, subscription: bool = False) -> tuple[JournalEntry, ...]:
        return self.hears(self.a_result(call_id, text, subscription=subscription))

    def a_result(self, call_id: str, text: str = "sunny", *, subscription: bool = False) -> ToolResult:
        return ToolResult(group_id=self.thread.id, id=call_id, text=text, subscription=subscription)

    def event(
        self, call_id: str, text: str = "storm", *, associative: bool = True, final: bool = False
    ) -> tuple[JournalEntry, ...]:
        return self.hears(self.an_event(call_id, text, associative=associative, final=final))

    def an_event(
        self, call_id: str, text: str = "storm", *, associative: bool = True, final: bool = False
    ) -> SubscriptionEvent:
        return SubscriptionEvent(
            group_id=self.thread.id, tool_call_id=call_id, text=text, associative=associative, final=final
        )

    def spawned(self, number: int = 0) -> "ThreadDriver":
        """One of the children of the last step, which has heard its task."""
        made = [effect for effect in self.effects if isinstance(effect, Spawn)][number]
        child = ThreadDriver(made.child, self.limits, parent=self, now=self.now)
        child.hears(Task(self.thread.id, made.task))
        return child

    def does(self) -> tuple[Effect, ...]:
        """The effects of the last step, for a test that looks at those of several."""
        return self.effects

    def written(self) -> list[Write]:
        """What the last step wrote to relatives."""
        return [effect for effect in self.effects if isinstance(effect, Write)]

    def takes_mail_of(self, relative: "ThreadDriver") -> tuple[JournalEntry, ...]:
        """What the last step of a relative wrote to this thread."""
        mail = [write.message for write in relative.written() if write.thread_id == self.thread.id]
        assert mail, "nothing was written to it"
        return self.hears(*mail)

    def child(self, made: MakeChild) -> "ThreadDriver":
        """The child, which has heard the event it was made for."""
        event = self.journal[made.event - 1]
        assert isinstance(event, Happened)
        child = ThreadDriver(made.child, self.limits, parent=self)
        child.hears(EventForChild(self.thread.id, event.call_id, event.name, made.arguments, event.text, event.final))
        return child

    def conversation(self) -> Conversation:
        return project(self.stretches(), self.thread)

    def stretches(self, upto: int | None = None) -> list[Stretch]:
        own = own_stretch(self.journal, upto)
        before: list[Stretch] = []
        if self.parent is not None and self.thread.inherits is not None and own.summary is None:
            before = [replace(each, inherited=True) for each in self.parent.stretches(self.thread.inherits.upto)]
        return [*before, own]

    def is_accepted(self) -> bool:
        """Every step of every example is shown to the strict provider."""
        conversation = self.conversation()
        if self.thread.wants_model:
            accept_question(conversation)
        elif conversation:
            accept(conversation)
        return True

    def is_asked(self) -> bool:
        """Whether the model is."""
        return self.thread.wants_model

    def status(self) -> Status:
        return self.thread.status

    def answers(self) -> list[Answered]:
        return [entry for entry in self.journal if isinstance(entry, Answered)]

    def ignored(self) -> list[Ignored]:
        return [entry for entry in self.journal if isinstance(entry, Ignored)]

    def shown(self) -> list[str]:
        """The conversation, a line for each thing in it."""
        return [line for message in self.conversation() for line in _lines(message)]


def text_of(answer: ToolAnswer) -> str:
    return "".join(item.text for item in answer.content if isinstance(item, TextContent))


def _lines(message: Heard | Said) -> list[str]:
    if isinstance(message, Heard):
        return [*(f"{answer.call_id}: {text_of(answer)}" for answer in message.answers), *message.texts]
    said = [f"model: {message.text}"] if message.text else []
    return said + [f"model calls {call.id}: {call.name} {_values(call.arguments)}" for call in message.calls]


def _values(arguments: dict[str, Any]) -> str:
    return ", ".join(str(value) for value in arguments.values())


def calling(*calls: WantedCall, limits: ThreadLimits | None = None) -> ThreadDriver:
    """A thread whose model has made calls, and waits."""
    talk = ThreadDriver(limits=limits or ThreadLimits())
    talk.user("How is it?")
    talk.says("", *calls)
    return talk


def subscribed(limits: ThreadLimits | None = None) -> ThreadDriver:
    """A thread with one subscription, `c1_t1`, whose model has nothing to do."""
    talk = calling(storms(), limits=limits)
    talk.result("c1_t1", "Subscribed.", subscription=True)
    talk.says("I listen.")
    return talk
