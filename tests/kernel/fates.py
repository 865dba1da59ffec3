"""What must become of calls and events, worked out a second time and in the simplest way."""

from dataclasses import dataclass, field
from typing import Literal

from rapkit.kernel.completion import WantedCall
from rapkit.kernel.incoming import (
    CancelCall,
    ChildClosed,
    CloseThread,
    Incoming,
    SetAside,
    TimerDue,
    Undelivered,
    UserMessage,
)
from rapkit.kernel.limits import ThreadLimits
from rapkit.protocol import SubscriptionEvent, ToolResult, UserChoice

CallFate = Literal["pending", "active", "expired", "over"]
EventFate = Literal["early", "shown", "waiting", "child", "never"]


@dataclass
class Fates:
    """Of one thread. Events are told apart by their texts."""

    limits: ThreadLimits
    depth: int = 0
    calls: dict[str, CallFate] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    detached: set[str] = field(default_factory=set)
    corrected: set[str] = field(default_factory=set)
    undelivered: set[str] = field(default_factory=set)
    unanswered: set[str] = field(default_factory=set)
    events: dict[str, EventFate] = field(default_factory=dict)
    kept: dict[str, list[SubscriptionEvent]] = field(default_factory=dict)
    waiting: list[SubscriptionEvent] = field(default_factory=list)
    children: int = 0
    closed: bool = False

    def those(self, fate: CallFate) -> set[str]:
        return set() if self.closed else {call_id for call_id, each in self.calls.items() if each == fate}

    def texts(self, *fates: EventFate) -> set[str]:
        return {text for text, fate in self.events.items() if fate in fates}

    # What the model says

    def makes(self, call_id: str, wanted: WantedCall) -> None:
        target = (wanted.arguments or {}).get("tool_call_id", "")
        if wanted.name == "cancel_subscription" and self.calls.get(target) == "active":
            self._cancel(target)
        elif wanted.name == "cancel_tool_call" and self.calls.get(target) == "pending" and target in self.detached:
            self._end(target)
            self.unanswered.add(target)  # the answer to the cancelling call says it all
        elif self._fits(wanted):
            self.calls[call_id] = "pending"
            self.names[call_id] = wanted.name

    def _fits(self, wanted: WantedCall) -> bool:
        if wanted.name not in ("forecast", "storms") or (wanted.arguments or {}).keys() != {"city"}:
            return False
        active = self.those("active")
        return len(active) < self.limits.subscriptions or all(self.names[each] != wanted.name for each in active)

    # What comes from outside

    def hears(self, message: Incoming) -> None:
        match message:
            case SubscriptionEvent():
                self._hears_event(message)
            case _ if self.closed:
                pass
            case UserMessage():
                if self.limits.cancel_on_interrupt:
                    for call_id in self.those("pending"):
                        self._end(call_id)
                self.detached |= self.those("pending")
            case ToolResult():
                self._hears_result(message)
            case Undelivered() if self.calls.get(message.call_id) == "pending":
                self._hears_undelivered(message)
            case TimerDue(key) if self.calls.get(key.removeprefix("expired/")) == "expired":
                self._end(key.removeprefix("expired/"))
            case SetAside("tool_result" | "user_choice", _, call_id) if self.calls.get(call_id or "") == "pending":
                self._end(call_id or "")
            case UserChoice() if len(message.prompt) > 10_000 and self.calls.get(message.id) == "pending":
                self._end(message.id)
            case CancelCall(call_id) if self.calls.get(call_id) == "pending":
                self._end(call_id)
            case CancelCall(call_id) if self.calls.get(call_id) == "active":
                self._cancel(call_id)
            case CloseThread():
                self.close()
            case ChildClosed(thread_id) if thread_id != "nobody":
                self.children -= 1
                self._make_children()
            case _:
                pass

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
        else:
            self.events[event.text] = "waiting"
            self.waiting.append(event)
            self._make_children()
        if event.final:
            self.calls[event.tool_call_id] = "over"

    def _make_children(self) -> None:
        while self.waiting and self.children < self.limits.children:
            self.events[self.waiting.pop(0).text] = "child"
            self.children += 1

    def _hears_result(self, result: ToolResult) -> None:
        fate = self.calls.get(result.id)
        if fate not in ("pending", "expired"):
            return
        if result.subscription and len(self.those("active")) < self.limits.subscriptions:
            self.calls[result.id] = "active"
            for event in self.kept.pop(result.id, []):
                self._hears_event(event)
        else:
            self._end(result.id)

    def _hears_undelivered(self, undelivered: Undelivered) -> None:
        call_id, correction = undelivered.call_id, undelivered.correction
        if correction is not None and correction.problem is None and call_id not in self.corrected:
            self.corrected.add(call_id)
        else:
            self.calls[call_id] = "expired"
            self.undelivered.add(call_id)

    def _end(self, call_id: str) -> None:
        self.calls[call_id] = "over"
        for event in self.kept.pop(call_id, []):
            self.events[event.text] = "never"

    def _cancel(self, call_id: str) -> None:
        self.calls[call_id] = "over"
        for event in [event for event in self.waiting if event.tool_call_id == call_id]:
            self.waiting.remove(event)
            self.events[event.text] = "never"

    def close(self) -> None:
        """Every call that is still pending remains without an answer."""
        self.unanswered |= self.those("pending")
        for call_id in self.those("pending") | self.those("expired"):
            self._end(call_id)
        for event in self.waiting:
            self.events[event.text] = "never"
        self.waiting.clear()
        self.closed = True
