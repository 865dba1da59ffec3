"""What must become of calls, events and children, worked out a second time and in the simplest way."""

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from rapkit.kernel.completion import Usage, WantedCall
from rapkit.kernel.incoming import (
    AnswerFor,
    CancelCall,
    ChildClosed,
    ChildReport,
    ChooseFor,
    CloseThread,
    EventForChild,
    Grant,
    Incoming,
    ParentMessage,
    SetAside,
    Task,
    TimerDue,
    Undelivered,
    UserMessage,
    WakeUp,
)
from rapkit.kernel.limits import ThreadLimits
from rapkit.protocol import OAuthRequest, SubscriptionEvent, ToolResult, UserChoice

CallFate = Literal["pending", "permission", "user", "time", "active", "expired", "over"]
EventFate = Literal["early", "shown", "waiting", "child", "never"]

OURS: tuple[CallFate, ...] = ("permission", "user", "time")
CITY_TOOLS = ("forecast", "storms", "survey", "demolish")


@dataclass
class Question:
    """An open one. `url` is where a tool wants the answer; `choices` how many there are."""

    asked_at: float
    url: str = ""
    choices: int = 2


@dataclass
class ExpectedOutcomes:
    """Of one thread. Events are told apart by their texts."""

    id: str
    limits: ThreadLimits
    depth: int = 0
    task: str = ""
    for_event: bool = False
    allowed: set[str] = field(default_factory=set)
    calls: dict[str, CallFate] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    detached: set[str] = field(default_factory=set)
    corrected: set[str] = field(default_factory=set)
    given_up: set[str] = field(default_factory=set)
    unanswered: set[str] = field(default_factory=set)
    questions: dict[str, list[Question]] = field(default_factory=dict)
    authorizing: dict[str, float] = field(default_factory=dict)
    since: dict[str, float] = field(default_factory=dict)
    until: dict[str, float] = field(default_factory=dict)
    events: dict[str, EventFate] = field(default_factory=dict)
    kept: dict[str, list[SubscriptionEvent]] = field(default_factory=dict)
    waiting: list[SubscriptionEvent] = field(default_factory=list)
    children: list[str] = field(default_factory=list)
    spawned: dict[str, str] = field(default_factory=dict)
    closing: set[str] = field(default_factory=set)
    owing: set[str] = field(default_factory=set)
    used: Usage = field(default_factory=Usage)
    used_by: dict[str, Usage] = field(default_factory=dict)
    children_made: int = 0
    owes_report: bool = False
    heard: list[str] = field(default_factory=list)
    told_of_stop: bool = False
    closed: bool = False

    def those(self, *fates: CallFate) -> set[str]:
        return set() if self.closed else {call_id for call_id, each in self.calls.items() if each in fates}

    def texts(self, *fates: EventFate) -> set[str]:
        return {text for text, fate in self.events.items() if fate in fates}

    @property
    def waits(self) -> bool:
        """Whether anything is left that could wake it, a person aside."""
        return bool(self.those("pending", *OURS, "active") or self.children or self.owing or self.waiting)

    @property
    def used_by_all(self) -> Usage:
        """By the thread and by its children, as far as they have told."""
        return sum(self.used_by.values(), self.used)

    @property
    def timers(self) -> dict[str, float]:
        """When something becomes of each call by itself, of those of which something does."""
        return {id: at for id in self.those("pending", *OURS, "active") if (at := self._due_at(id)) is not None}

    # What the model says

    def replies(self, first: int, text: str, calls: tuple[WantedCall, ...], now: float) -> list[str]:
        """What the parent must hear because of it."""
        reports: list[str] = []
        closes = wrong = False
        last_words: str | None = None
        self.told_of_stop = False
        for number, wanted in enumerate(calls, first):
            call_id, arguments = f"c{number}_{self.id}", wanted.arguments or {}
            self.calls[call_id] = "over"
            self.names[call_id] = wanted.name
            if wanted.name == "report_to_parent" and self.depth:
                if arguments.get("done"):
                    closes, last_words = True, last_words or arguments["text"]
                else:
                    reports.append(arguments["text"])
                    self.owes_report = False
            elif wanted.name == "close_thread" and arguments.get("thread_id", self.id) == self.id and self.depth:
                closes = True
            else:
                wrong |= not self._makes(call_id, wanted, arguments, now)
        if wrong:
            self._wakes()
        if not calls and self.owes_report and not self.waits:
            reports.append(text if text.strip() else "(It ended its turn and said nothing.)")
            self.owes_report = False
        if closes:
            self.close()
            reports += [last_words] if last_words else []
        return reports

    def _makes(self, call_id: str, wanted: WantedCall, arguments: dict[str, Any], now: float) -> bool:
        """Whether it was a call that could be made."""
        target, child = arguments.get("tool_call_id", ""), arguments.get("thread_id", "")
        is_open = child in self.children or (child in self.spawned and child not in self.closing)
        has_room = len(self.those("pending", *OURS)) < self.limits.calls
        match wanted.name:
            case "cancel_subscription" if self.calls.get(target) == "active":
                self._cancel(target)
            case "cancel_tool_call" if target in self.those("pending", *OURS) & self.detached:
                self._end(target)
                self.unanswered.add(target)  # the answer to the cancelling call says it all
            case "close_thread" if is_open:
                self.closing.add(child)
            case "send_message_to_child" if is_open:
                self.owing |= {child} & self.spawned.keys()
            case "wait_for_event" if "at_most_seconds" in arguments or self.waits or not self.depth:
                self._sleeps(call_id, arguments.get("at_most_seconds"), now)
            case "sleep":
                self._sleeps(call_id, arguments["seconds"], now)
            case "sleep_until" if arguments["time"] != "tomorrow":
                self._sleeps(call_id, 500.0, now)
            case "ask_user" if has_room:
                self.calls[call_id] = "user"
                self.questions[call_id] = [Question(now, choices=len(arguments.get("choices", ())))]
            case "spawn_thread":
                return self._spawns(arguments["task"])
            case name if name in CITY_TOOLS and arguments.keys() == {"city"} and has_room and not self._is_full(name):
                self.calls[call_id] = "pending"
                self.since[call_id] = now
                if (choices := self._asked_first(name)) > 0:
                    self.calls[call_id] = "permission"
                    self.questions[call_id] = [Question(now, choices=choices)]
            case _:
                return False
        return True

    def _sleeps(self, call_id: str, seconds: float | None, now: float) -> None:
        self.calls[call_id] = "time"
        if seconds is not None:
            self.until[call_id] = now + seconds

    def _is_full(self, name: str) -> bool:
        active = self.those("active")
        return len(active) >= self.limits.subscriptions and any(self.names[each] == name for each in active)

    def _asked_first(self, name: str) -> int:
        if name != "demolish" or self.limits.confirmations.destructive == "never":
            return 0
        if self.limits.confirmations.destructive == "always":
            return 2
        return 0 if name in self.allowed else 3

    def _spawns(self, task: str) -> bool:
        if self.depth >= self.limits.depth or len(self.spawned) >= self.limits.children or task == self.task:
            return False
        child = self._next_child()
        self.spawned[child] = task
        self.owing.add(child)
        return True

    def _next_child(self) -> str:
        self.children_made += 1
        return f"{self.id}-{self.children_made:06}"

    # What comes from outside

    def hears(self, message: Incoming, now: float) -> None:
        match message:
            case SubscriptionEvent():
                self._hears_event(message)
            case _ if self.closed:
                pass
            case UserMessage():
                for call_id in self.those("user"):
                    self._end(call_id)
                if self.limits.cancel_on_interrupt:
                    for call_id in self.those("pending", "permission"):
                        self._end(call_id)
                self._goes_on()
            case WakeUp():
                self._goes_on()
            case Grant():
                self.told_of_stop &= message == Grant()
            case ToolResult():
                self._hears_result(message)
            case Undelivered(call_id) if self.calls.get(call_id) == "pending":
                self._hears_undelivered(message)
            case TimerDue(key):
                self._hears_timer(key, now)
            case SetAside("tool_result" | "user_choice", _, call_id) if self.calls.get(call_id or "") == "pending":
                self._ends_and_wakes(call_id or "")
            case OAuthRequest(id=call_id) if self.calls.get(call_id) in ("pending", "active"):
                self.authorizing[call_id] = self.since[call_id] = now
            case UserChoice(id=call_id) if self.calls.get(call_id) in ("pending", "active"):
                self._hears_question(message, now)
            case ChooseFor(call_id, selected) if self._is_asked(message):
                choices = self.questions[call_id][0].choices
                if selected is None or 0 <= selected < choices:
                    self._answers(call_id, selected, now, message.problem)
            case AnswerFor(call_id) if self.calls.get(call_id) == "user" and self._is_asked(message):
                self._ends_and_wakes(call_id)
            case CancelCall(call_id) if call_id in self.those("pending", *OURS):
                self._ends_and_wakes(call_id)
            case CancelCall(call_id) if self.calls.get(call_id) == "active":
                self._cancel(call_id)
                self._wakes()
            case CloseThread():
                self.close()
            case EventForChild() | Task():
                self._wakes()
            case ParentMessage():
                self.owes_report = bool(self.task)
                self.told_of_stop = False
                self._wakes()
            case SetAside("parent"):
                self.owes_report = False
            case ChildReport(thread_id, text) if thread_id in self.spawned or thread_id in self.children:
                self.heard.append(text)
                self.owing.discard(thread_id)
                if thread_id in self.spawned:
                    self.used_by[thread_id] = message.usage
                self._wakes()
            case ChildClosed():
                self._hears_end_of_child(message)
            case _:
                pass

    def _hears_end_of_child(self, message: ChildClosed) -> None:
        child, report = message.thread_id, message.report
        if child in self.children:
            self.children.remove(child)
        elif child in self.spawned:
            del self.spawned[child]
            if report is None and child not in self.closing:
                report = f"It was closed by {message.by}."
        else:
            return
        self.owing.discard(child)
        self.used_by[child] = message.usage
        if report is not None:
            self.heard.append(report)
            self._wakes()
        self._make_children()

    def _goes_on(self) -> None:
        self._wakes()
        self.told_of_stop = False
        self.detached |= self.those("pending", *OURS)

    def _wakes(self) -> None:
        """Something else has come: that is the end of a sleep."""
        for call_id in self.those("time"):
            self.calls[call_id] = "over"

    def _ends_and_wakes(self, call_id: str) -> None:
        self._end(call_id)
        self._wakes()

    def _hears_timer(self, key: str, now: float) -> None:
        kind, _, call_id = key.partition("/")
        fate = self.calls.get(call_id)
        if kind == "expired" and fate == "expired":
            self._end(call_id)
        elif kind != "call" or self.timers.get(call_id, math.inf) > now:
            pass  # what has come before it, in the same batch, has put it off
        elif call_id in self.questions or (call_id in self.authorizing and self.limits.question_timeout is not None):
            self._question_is_over(call_id, now)
        elif fate == "time":
            self._ends_and_wakes(call_id)
        else:
            self._is_given_up(call_id)

    def _due_at(self, call_id: str) -> float | None:
        asked = [question.asked_at for question in self.questions.get(call_id, [])[:1]]
        asked += [self.authorizing[call_id]] if call_id in self.authorizing else []
        if asked and self.limits.question_timeout is not None:
            return min(asked) + self.limits.question_timeout
        if self.calls[call_id] == "time":
            return self.until.get(call_id)
        if call_id in self.questions or self.calls[call_id] != "pending":
            return None
        name = self.names[call_id]
        timeout = self.limits.timeouts.of(name, long_running=name == "survey")
        return None if timeout is None else self.since[call_id] + timeout

    def _is_asked(self, answer: ChooseFor | AnswerFor) -> bool:
        questions = self.questions.get(answer.call_id)
        return questions is not None and answer.asked_at in (None, questions[0].asked_at)

    def _question_is_over(self, call_id: str, now: float) -> None:
        asked = self.authorizing.get(call_id)
        if call_id in self.questions and (asked is None or self.questions[call_id][0].asked_at < asked):
            self._answers(call_id, None, now)
        else:
            del self.authorizing[call_id]
            self.since[call_id] = now

    def _hears_question(self, message: UserChoice, now: float) -> None:
        open_ones = self.questions.get(message.id, [])
        if any(each.url == message.response_url for each in open_ones) or len(open_ones) >= 16:
            return
        if len(message.prompt) > 10_000:
            if self.calls[message.id] == "pending":
                self._ends_and_wakes(message.id)
            return
        question = Question(now, message.response_url, len(message.choices))
        self.questions.setdefault(message.id, []).append(question)

    def _answers(self, call_id: str, selected: int | None, now: float, problem: str | None = None) -> None:
        question, *others = self.questions.pop(call_id)
        self.since[call_id] = now
        fate = self.calls[call_id]
        if fate == "user":
            self._ends_and_wakes(call_id)
        elif fate == "permission":
            if selected is None or selected == question.choices - 1 or problem is not None:
                self._ends_and_wakes(call_id)
            else:
                self.calls[call_id] = "pending"
                self.allowed |= {self.names[call_id]} if selected else set()
        elif others:
            others[0].asked_at = now
            self.questions[call_id] = others

    def _hears_event(self, event: SubscriptionEvent) -> None:
        fate = None if self.closed else self.calls.get(event.tool_call_id)
        if fate in ("pending", "expired"):
            self.kept.setdefault(event.tool_call_id, []).append(event)
            self.events[event.text] = "early"
        elif fate == "active":
            self._happens(event)
        else:
            self.events[event.text] = "never"

    def _happens(self, event: SubscriptionEvent) -> None:
        if event.associative or self.depth >= self.limits.depth:
            self.events[event.text] = "shown"
            self._wakes()
        else:
            self.events[event.text] = "waiting"
            self.waiting.append(event)
            self._make_children()
        if event.final:
            self._forget(event.tool_call_id)

    def _make_children(self) -> None:
        while self.waiting and len(self.children) < self.limits.children:
            self.events[self.waiting.pop(0).text] = "child"
            self.children.append(self._next_child())

    def _hears_result(self, result: ToolResult) -> None:
        fate = self.calls.get(result.id)
        if fate not in ("pending", "expired"):
            return
        if result.subscription and len(self.those("active")) < self.limits.subscriptions:
            self._forget(result.id)
            self.calls[result.id] = "active"
            for event in self.kept.pop(result.id, []):
                self._hears_event(event)
        else:
            self._end(result.id)
        self._wakes()

    def _hears_undelivered(self, undelivered: Undelivered) -> None:
        call_id, correction = undelivered.call_id, undelivered.correction
        if correction is not None and correction.problem is None and call_id not in self.corrected:
            self.corrected.add(call_id)
        else:
            self._is_given_up(call_id)

    def _is_given_up(self, call_id: str) -> None:
        self._forget(call_id)
        self.calls[call_id] = "expired"
        self.given_up.add(call_id)
        self._wakes()

    def _end(self, call_id: str) -> None:
        self._forget(call_id)
        for event in self.kept.pop(call_id, []):
            self.events[event.text] = "never"

    def _cancel(self, call_id: str) -> None:
        self._forget(call_id)
        for event in [event for event in self.waiting if event.tool_call_id == call_id]:
            self.waiting.remove(event)
            self.events[event.text] = "never"

    def _forget(self, call_id: str) -> None:
        self.calls[call_id] = "over"
        self.questions.pop(call_id, None)
        self.authorizing.pop(call_id, None)

    def close(self) -> None:
        """Every call that is still pending remains without an answer."""
        self.unanswered |= self.those("pending", *OURS)
        for call_id in self.those("pending", *OURS, "expired", "active"):
            self._end(call_id)
        for event in self.waiting:
            self.events[event.text] = "never"
        self.waiting.clear()
        self.closed = True
