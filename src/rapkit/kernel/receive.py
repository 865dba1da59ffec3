"""Receive a message: how a thread reacts to what happens to it.

No clock, no network, no database: the caller stores the returned thread and its entries, then carries out the effects in order.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rapkit.kernel.budgets import receive_grant
from rapkit.kernel.calls import (
    CANCELLED_BY_USER,
    receive_cancel,
    receive_refused,
    receive_result,
    receive_set_aside,
    receive_timer,
    receive_undelivered,
)
from rapkit.kernel.cancellation import cancel_pending
from rapkit.kernel.child_threads import receive_child_closed, receive_parent_message, receive_report, receive_task
from rapkit.kernel.effects import Step, TellCancelled, TellClosed, Write
from rapkit.kernel.entries import ClosedEntry, UserSaid, WokenUp
from rapkit.kernel.events import (
    receive_event,
    receive_event_for_child,
    refuse_early,
    refuse_waiting,
)
from rapkit.kernel.incoming import (
    AnswerFor,
    AnswerUndelivered,
    CallbackRefused,
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
from rapkit.kernel.step_builder import StepBuilder
from rapkit.kernel.thread import Expired, Pending, Subscription, Thread
from rapkit.kernel.user_requests import (
    receive_answer,
    receive_answer_undelivered,
    receive_choice,
    receive_choice_made,
    receive_oauth,
    receive_view,
)
from rapkit.protocol import OAuthRequest, SubscriptionEvent, ToolResult, UserChoice, ViewUpdate

_CLOSED = "the thread is closed"
_SEE_BELOW = "The user answered with the message that follows."


def receive(thread: Thread, mail: Sequence[Incoming], now: float, limits: ThreadLimits) -> Step:
    """Everything that came, one after the other, in order. One completion may answer several of them."""
    draft = StepBuilder(thread, now, limits)
    for message in mail:
        if draft.thread.closed:
            draft.ignore(name_of(message), _CLOSED, call_of(message))
        else:
            if isinstance(message, _FROM_OUTSIDE):
                draft.change(requests=0)
            _RECEIVERS[type(message)](draft, message)
    if mail:
        _wake_if_waited_for(draft)
        close_if_done(draft)
    return draft.step()


def _wake_if_waited_for(draft: StepBuilder) -> None:
    """A child that owes its parent a report, and has nothing left to wait for, is not to come to rest without a word."""
    thread = draft.thread
    if thread.task and thread.owes_report and not (thread.waits or thread.closed or thread.parked is not None):
        draft.wake()


def _receive_user_message(draft: StepBuilder, message: UserMessage) -> None:
    """The user is answered at once (RUN-6): what is pending becomes, for the model, something that is still running.

    What the model has asked the user is answered by that, and what it only waits for the time for is over.
    """
    for call_id, call in draft.thread.pending.items():
        if call.awaits == "user":
            draft.answer(call_id, draft.take_pending(call_id), _SEE_BELOW)
        elif call.awaits != "time" and draft.limits.cancel_on_interrupt:
            draft.answer(call_id, cancel_pending(draft, call_id), CANCELLED_BY_USER)
    _go_on(draft)
    draft.journal(UserSaid(message.text, message.id))


def _receive_wake_up(draft: StepBuilder, message: WakeUp) -> None:
    """A schedule speaks for the user, who is not there: nothing is answered or cancelled by it."""
    _go_on(draft)
    draft.journal(WokenUp(message.schedule, message.due, message.text))


def _go_on(draft: StepBuilder) -> None:
    draft.interrupt_sleep()
    pending = {call_id: replace(call, detached=True) for call_id, call in draft.thread.pending.items()}
    draft.change(
        pending=pending, parked=None, retry_at=0.0, failures=0, mistakes=0, wants_model=True, told_of_stop=False
    )


def _receive_close(draft: StepBuilder, message: CloseThread) -> None:
    close(draft, message.by)


def close(draft: StepBuilder, by: str, report: str | None = None) -> None:
    """End the thread: it accepts nothing more, and every server is told.

    Not every server knows that notice, so what was live is cancelled too, each call at its own server (SUB-19). Its parent hears of it, and
    of a last `report`. Its children go on.
    """
    thread = draft.thread
    cancelled = _sent_to(draft) if draft.limits.cancel_on_close else {}
    cancels = [TellCancelled(id, server) for id, server in cancelled.items() if id not in thread.expired]
    for call_id, call in thread.pending.items():
        draft.take_pending(call_id)
        refuse_early(draft, call_id, call.early, _CLOSED)
    for call_id in thread.subscriptions:
        draft.drop_subscription(call_id)
    for call_id in thread.expired:
        refuse_early(draft, call_id, draft.take_expired(call_id).early, _CLOSED)
    refuse_waiting(draft, _CLOSED, *dict.fromkeys(event.call_id for event in thread.waiting_events))
    draft.change(closed=True, wants_model=False, parked=None, cancelled_by_close=cancelled)
    draft.journal(ClosedEntry(by))
    draft.do(TellClosed())
    for cancel in cancels:
        draft.do(cancel)
    if thread.parent is not None:
        draft.do(
            Write(thread.parent, ChildClosed(thread.id, by, report, thread.usage_of_all), once=f"closed/{thread.id}")
        )


def _sent_to(draft: StepBuilder) -> dict[str, str]:
    """The servers of the calls that may still call back. Those that were made in this very step never leave, and have no server yet."""
    thread = draft.thread
    live = thread.live_calls & draft.before.live_calls
    calls: dict[str, Subscription | Pending | Expired] = {**thread.subscriptions, **thread.pending, **thread.expired}
    return {call_id: call.server for call_id, call in calls.items() if call_id in live}


def close_if_done(draft: StepBuilder) -> None:
    """A thread that was made for one event ends when nothing is left that could wake it."""
    thread = draft.thread
    if thread.for_event and not (thread.waits or thread.wants_model or thread.closed):
        close(draft, "the thread itself, because it was made for one event and nothing is left to do")


_RECEIVERS: dict[type, Callable[[StepBuilder, Any], None]] = {
    UserMessage: _receive_user_message,
    ToolResult: receive_result,
    SubscriptionEvent: receive_event,
    OAuthRequest: receive_oauth,
    UserChoice: receive_choice,
    ViewUpdate: receive_view,
    CloseThread: _receive_close,
    CancelCall: receive_cancel,
    ChooseFor: receive_choice_made,
    AnswerFor: receive_answer,
    WakeUp: _receive_wake_up,
    Grant: receive_grant,
    Undelivered: receive_undelivered,
    AnswerUndelivered: receive_answer_undelivered,
    EventForChild: receive_event_for_child,
    Task: receive_task,
    ParentMessage: receive_parent_message,
    ChildReport: receive_report,
    ChildClosed: receive_child_closed,
    TimerDue: receive_timer,
    SetAside: receive_set_aside,
    CallbackRefused: receive_refused,
}

_FROM_OUTSIDE = (
    UserMessage,
    ChooseFor,
    AnswerFor,
    CancelCall,
    WakeUp,
    SubscriptionEvent,
    EventForChild,
    Task,
    ParentMessage,
)
"""What is no consequence of the model's own calls, so that it may be asked as often as before again."""

_NAMES: dict[type, str] = {
    UserMessage: "user",
    CloseThread: "close",
    CancelCall: "cancel",
    ChooseFor: "choice",
    AnswerFor: "answer",
    WakeUp: "schedule",
    Grant: "grant",
    Undelivered: "undelivered",
    AnswerUndelivered: "answer_undelivered",
    EventForChild: "event_for_child",
    Task: "task",
    ParentMessage: "parent",
    ChildReport: "report",
    ChildClosed: "child_closed",
    TimerDue: "timer",
    SetAside: "set_aside",
    CallbackRefused: "refused",
}


def name_of(message: Incoming) -> str:
    """What the journal calls it."""
    return _NAMES.get(type(message)) or str(message.type)  # type: ignore[union-attr]


def call_of(message: Incoming) -> str | None:
    """The call it is about, if any."""
    if isinstance(message, ToolResult | OAuthRequest | UserChoice):
        return message.id
    if isinstance(message, SubscriptionEvent):
        return message.tool_call_id
    return getattr(message, "call_id", None)
