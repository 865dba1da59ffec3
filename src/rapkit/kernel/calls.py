"""Tool calls: their results, in time, late or never, and their cancellation."""

from dataclasses import replace

from rapkit.kernel.cancellation import cancel_pending
from rapkit.kernel.child_threads import report
from rapkit.kernel.effects import Invoke, TellCancelled
from rapkit.kernel.entries import Answered, Unsubscribed
from rapkit.kernel.events import confirm_subscription, receive_refused_event, refuse_early, refuse_waiting
from rapkit.kernel.incoming import CallbackRefused, CancelCall, SetAside, TimerDue, Undelivered
from rapkit.kernel.step_builder import StepBuilder, expired_call, timed_call, waited
from rapkit.kernel.thread import Expired, Pending, Subscription
from rapkit.kernel.user_requests import receive_question_over, refuse_question
from rapkit.protocol import ToolResult

CANCELLED_BY_USER = "Error: Cancelled. The user cancelled this call."
_NOT_EXECUTED = "The server refused the call: nothing was executed."
_NOT_AGAIN = "The same call would be refused again. Do without it, or tell the user."
_UNKNOWN = "Whether the call was executed is not known."
_LATER = "Try again later, or do without it."

_LONG_WAIT = 60.0
"""Seconds that a model waits by itself, after which it is no loop that runs away."""


def receive_result(draft: StepBuilder, result: ToolResult) -> None:
    """Record a tool's answer; ask the model to go on once every call is answered.

    A result that no call waits for is ignored, not an error (CB-8): the tool did its part, and a 5xx would only make it send the same
    again.
    """
    thread = draft.thread
    if draft.awaits_tool(result.id):
        call = draft.take_pending(result.id)
        _take_answer(draft, result, call, late=call.detached)
    elif result.id in thread.expired:
        _take_answer(draft, result, draft.take_expired(result.id), late=True)
    elif result.id in thread.subscriptions:
        # SUB-11: the confirmation was its one result.
        draft.ignore("tool_result", "the call has its result already, and goes on as a subscription", result.id)
    else:
        draft.ignore("tool_result", "no call waits for it", result.id)


def _take_answer(draft: StepBuilder, result: ToolResult, call: Pending | Expired, *, late: bool) -> None:
    subscribed = _subscribe(draft, result, call)
    draft.journal(_answered(result, call.name, late=late, subscribed=subscribed))
    if subscribed:
        confirm_subscription(draft, result.id, call.early)
    else:
        refuse_early(draft, result.id, call.early)
    draft.wake()


def _subscribe(draft: StepBuilder, result: ToolResult, call: Pending | Expired) -> bool:
    """Track the call as a subscription, if it is one (SUB-10) and there is room for it (SUB-17)."""
    if not result.subscription:
        return False
    subscriptions = draft.thread.subscriptions
    if len(subscriptions) >= draft.limits.subscriptions:
        draft.do(TellCancelled(result.id))
        return False
    subscription = Subscription(call.name, call.arguments, draft.now, call.server, call.display)
    draft.change(subscriptions={**subscriptions, result.id: subscription})
    return True


def _answered(result: ToolResult, name: str, *, late: bool, subscribed: bool) -> Answered:
    if result.subscription and not subscribed:
        text = (
            "Error: This subscription was cancelled at once, because this thread has as many as it may. "
            "Cancel one with cancel_subscription, then subscribe again."
        )
        return Answered(result.id, name, text, late=late, by="runtime")
    return Answered(
        result.id,
        name,
        result.text,
        result.content,
        result.display_as,
        subscription=subscribed,
        late=late,
    )


def receive_undelivered(draft: StepBuilder, undelivered: Undelivered) -> None:
    """A call that did not get to its server: send it once more if it was only stale (DIS-10), else tell the model (INV-6)."""
    call_id = undelivered.call_id
    call = draft.thread.pending.get(call_id)
    if call is None or call.awaits != "tool":
        draft.ignore("undelivered", "no call waits for it", call_id)
        return
    correction = undelivered.correction
    if correction is not None and correction.problem is None and not call.corrected:
        draft.change(pending={**draft.thread.pending, call_id: replace(call, corrected=True)})
        draft.do(Invoke(call_id))
        draft.ignore("undelivered", "the toolset had changed; the call still fits and is sent again", call_id)
        return
    if correction is not None and correction.problem is not None:
        effect = _NOT_EXECUTED if undelivered.refused else _UNKNOWN
        _expire(draft, call_id, f"Error: The tool {call.name!r} has changed. {correction.problem} {effect}")
        return
    effect = f"{_NOT_EXECUTED} {_NOT_AGAIN}" if undelivered.refused else f"{_UNKNOWN} {_LATER}"
    _expire(draft, call_id, f"Error: The call of {call.name!r} could not be delivered: {undelivered.problem}. {effect}")


def _expire(draft: StepBuilder, call_id: str, text: str) -> None:
    """Give a call up. Its server may have got it all the same, so that one late answer is still taken."""
    call = draft.take_pending(call_id)
    draft.remember_expired(call_id, call)
    draft.answer(call_id, call, text)
    draft.wake()


def receive_timer(draft: StepBuilder, timer: TimerDue) -> None:
    """The time of a call is over, that of its question, or that for which its late answer would have been taken."""
    expired, timed = expired_call(timer.key), timed_call(timer.key)
    if expired in draft.thread.expired:
        # No call waits for it; the journal records only what becomes of its events.
        refuse_early(draft, expired, draft.take_expired(expired).early)
    elif timed in draft.thread.timers:
        # What came in the same mail may have put another timer in its place, which is not due.
        if draft.thread.timers[timed] == draft.before.timers.get(timed):
            _receive_call_timer(draft, timed)
    else:
        draft.take_timer_away(timer.key)


def _receive_call_timer(draft: StepBuilder, call_id: str) -> None:
    call = draft.thread.pending.get(call_id)
    # Where nothing ends a question, the time of a call that is to be authorised is its own.
    is_of_call = draft.limits.question_timeout is None and call is not None and call.timeout is not None
    if call_id in draft.thread.choices or (call_id in draft.thread.authorizing and not is_of_call):
        receive_question_over(draft, call_id)
    elif call is not None and call.awaits == "time":
        draft.answer(call_id, draft.take_pending(call_id), waited(call, draft.now))
        if draft.now - call.made_at >= _LONG_WAIT:
            draft.change(requests=0)
        draft.wake()
    elif call is not None:
        # RUN-7
        _expire(
            draft,
            call_id,
            f"Error: The call of {call.name!r} timed out after {call.timeout:g} s. It may still be running, and if its result comes you "
            "will be shown it. Go on without it, or tell the user.",
        )


def receive_set_aside(draft: StepBuilder, lost: SetAside) -> None:
    """A message that cannot be processed. If a call would hang without it, or a parent, they are answered with that."""
    call_id = lost.call_id
    if lost.what == "user_choice" and call_id is not None:
        refuse_question(draft, call_id, lost.reason)
        return
    draft.ignore(lost.what, lost.reason, call_id)
    if lost.what in ("task", "parent") and draft.thread.task:
        report(draft, f"It could not take what it was told: {lost.reason}")
    if lost.what == "tool_result" and call_id is not None and draft.awaits_tool(call_id):
        call = draft.take_pending(call_id)
        draft.answer(call_id, call, f"Error: The tool answered, but its answer could not be processed: {lost.reason}")
        refuse_early(draft, call_id, call.early)
        draft.wake()


def receive_refused(draft: StepBuilder, refused: CallbackRefused) -> None:
    """A message of a call was refused for good: a call that would wait for it for ever is given up (CB-15).

    What changes nothing is not journaled: its sender was told that it is refused, not that we have it.
    """
    call_id = refused.call_id
    if refused.what in ("tool_result", "") and draft.awaits_tool(call_id):
        name = draft.thread.pending[call_id].name
        _expire(
            draft,
            call_id,
            f"Error: The tool {name!r} answered, but its answer was refused: {refused.reason} If it sends another answer, you will be "
            "shown it. Go on without it, or tell the user.",
        )
    elif refused.what in ("subscription_event", "") and call_id in draft.thread.subscriptions:
        receive_refused_event(draft, call_id, refused.reason)


def receive_cancel(draft: StepBuilder, cancel: CancelCall) -> None:
    """The user cancels a call or a subscription; the model is told of a call, which it waits for."""
    call_id = cancel.call_id
    if call_id in draft.thread.pending:
        call = cancel_pending(draft, call_id)
        draft.answer(call_id, call, CANCELLED_BY_USER)
        draft.wake()
    elif call_id in draft.thread.subscriptions:
        cancel_subscription(draft, call_id, "cancelled by the user", by_user=True)
        if any(call.awaits == "time" for call in draft.thread.pending.values()):
            draft.wake()  # it may be what the model waits for
    else:
        draft.ignore("cancel", "no such call is pending, and no such subscription active", call_id)


def cancel_subscription(draft: StepBuilder, call_id: str, reason: str, *, by_user: bool = False) -> None:
    """Stop listening: every server is told, and what still comes is discarded (SUB-15, SUB-16)."""
    draft.drop_subscription(call_id)
    draft.journal(Unsubscribed(call_id, reason, by_user))
    refuse_waiting(draft, "its subscription was cancelled while it waited for a child thread", call_id)
    draft.do(TellCancelled(call_id))
