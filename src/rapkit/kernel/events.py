"""Subscription events: deliver them into this thread or a child of their own, or keep them until their call is confirmed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from rapkit.kernel.effects import MakeChild
from rapkit.kernel.entries import Began, ChildMade, Happened, Ignored, Released, Unsubscribed
from rapkit.kernel.incoming import EventForChild
from rapkit.kernel.limits import ThreadLimits
from rapkit.kernel.step_builder import StepBuilder, without
from rapkit.kernel.thread import EarlyEvent, Expired, Granted, Inherited, Pending, Thread, WaitingEvent
from rapkit.protocol import SubscriptionEvent

_Call = TypeVar("_Call", Pending, Expired)

_FINISHED = "the subscription ended with its final event"
_NOT_CONFIRMED = "its call did not become a subscription"


def receive_event(draft: StepBuilder, event: SubscriptionEvent) -> None:
    """An event: inline if it is associative (SUB-12), else in a child thread (SUB-13). One without a subscription is discarded (SUB-15)."""
    call_id = event.tool_call_id
    thread = draft.thread
    if draft.awaits_tool(call_id):
        draft.change(pending={**thread.pending, call_id: _keep_early(draft, event, thread.pending[call_id])})
    elif call_id in thread.expired:
        draft.change(expired={**thread.expired, call_id: _keep_early(draft, event, thread.expired[call_id])})
    elif call_id not in thread.subscriptions:
        draft.ignore("subscription_event", "no such subscription is active", call_id)
    else:
        _set_refusing(draft, call_id, refusing=False)
        inline = event.associative or not may_have_children(draft.thread, draft.limits)
        seq = draft.journal(_happened(event, thread.subscriptions[call_id].name, inline))
        _process(draft, WaitingEvent(seq, call_id, upto=seq - 1), inline=inline, final=event.final)


def _happened(event: SubscriptionEvent, name: str, inline: bool) -> Happened:
    return Happened(
        event.tool_call_id, name, event.text, event.associative, event.final, "shown" if inline else "threaded"
    )


def receive_refused_event(draft: StepBuilder, call_id: str, reason: str) -> None:
    """An event of an active subscription was refused: the thread is told once, until an event comes that can be used."""
    subscription = draft.thread.subscriptions[call_id]
    if subscription.refusing:
        return
    _set_refusing(draft, call_id, refusing=True)
    text = f"Error: An event was refused and is lost: {reason} The subscription remains active."
    draft.journal(Happened(call_id, subscription.name, text, associative=True))
    draft.wake()


def _set_refusing(draft: StepBuilder, call_id: str, *, refusing: bool) -> None:
    subscription = draft.thread.subscriptions[call_id]
    if subscription.refusing is not refusing:
        changed = replace(subscription, refusing=refusing)
        draft.change(subscriptions={**draft.thread.subscriptions, call_id: changed})


def _keep_early(draft: StepBuilder, event: SubscriptionEvent, call: _Call) -> _Call:
    """It overtook the result that makes its call a subscription: what becomes of it is decided with that, in time or late."""
    seq = draft.journal(Happened(event.tool_call_id, call.name, event.text, event.associative, event.final, "early"))
    return replace(call, early=(*call.early, EarlyEvent(seq, event.associative, event.final)))


def confirm_subscription(draft: StepBuilder, call_id: str, early: Sequence[EarlyEvent]) -> None:
    """The call is a subscription now: what came too early happens now, in the order in which it came."""
    for number, event in enumerate(early):
        if call_id not in draft.thread.subscriptions:
            seqs = tuple(rest.seq for rest in early[number:])
            draft.journal(Ignored("subscription_event", _FINISHED, call_id, seqs))
            return
        inline = event.associative or not may_have_children(draft.thread, draft.limits)
        # A child sees that its parent subscribed, though the event came before that was known.
        upto = draft.thread.length
        if inline:
            draft.journal(Released((event.seq,), call_id, draft.thread.subscriptions[call_id].name))
        _process(draft, WaitingEvent(event.seq, call_id, upto), inline=inline, final=event.final)


def refuse_early(draft: StepBuilder, call_id: str, early: Sequence[EarlyEvent], reason: str = _NOT_CONFIRMED) -> None:
    """The call is no subscription after all."""
    if early:
        seqs = tuple(event.seq for event in early)
        draft.journal(Ignored("subscription_event", reason, call_id, seqs))


def refuse_waiting(draft: StepBuilder, reason: str, *call_ids: str) -> None:
    """No child will be made for the events of these calls that still wait for one (SUB-15)."""
    for call_id in call_ids:
        if seqs := tuple(event.seq for event in draft.thread.waiting_events if event.call_id == call_id):
            draft.journal(Ignored("subscription_event", reason, call_id, seqs))
    draft.change(
        waiting_events=tuple(event for event in draft.thread.waiting_events if event.call_id not in call_ids),
        ended={call_id: each for call_id, each in draft.thread.ended.items() if call_id not in call_ids},
    )


def _process(draft: StepBuilder, event: WaitingEvent, *, inline: bool, final: bool) -> None:
    call_id = event.call_id
    if inline:
        draft.wake()
    else:
        draft.change(waiting_events=(*draft.thread.waiting_events, event))
        make_event_children(draft)
    if final:
        # SUB-14: it is untracked by itself.
        if any(waiting.call_id == call_id for waiting in draft.thread.waiting_events):
            draft.change(ended={**draft.thread.ended, call_id: draft.thread.subscriptions[call_id]})
        draft.drop_subscription(call_id)
        draft.journal(Unsubscribed(call_id, _FINISHED))


def may_have_children(thread: Thread, limits: ThreadLimits) -> bool:
    """Whether the thread may have children at all."""
    return limits.children > 0 and len(thread.ancestors) < limits.depth


def make_event_children(draft: StepBuilder) -> None:
    """Children for the events that wait, the first ones first, as far as there is room."""
    while draft.thread.waiting_events and len(draft.thread.children) < draft.limits.children:
        first, *others = draft.thread.waiting_events
        draft.change(waiting_events=tuple(others))
        _make_child(draft, first)
        if all(event.call_id != first.call_id for event in others):
            draft.change(ended=without(draft.thread.ended, first.call_id))


def _make_child(draft: StepBuilder, event: WaitingEvent) -> None:
    """A child with our history up to the event, and the event. It refers to that history, and copies none of it."""
    thread = draft.thread
    # No user watches there, and untrusted text decides: permissions that the user gave here do not apply there.
    child = next_child(draft, event.upto, for_event=True, allowed=())
    draft.change(children=(*thread.children, child.id))
    draft.journal(ChildMade(child.id, event.call_id, event.seq))
    subscription = thread.subscriptions.get(event.call_id) or thread.ended[event.call_id]
    draft.do(MakeChild(child, event.seq, subscription.arguments))


def next_child(draft: StepBuilder, upto: int, *, allowed: tuple[str, ...], **more: Any) -> Thread:
    """A child with our history up to a line, and with what is left of our budget."""
    thread = draft.thread
    used = thread.usage_of_all
    draft.change(children_made=thread.children_made + 1)
    return Thread(
        id=f"{thread.id}-{thread.children_made:06}",  # so that they sort in the order in which they were made
        user_id=thread.user_id,
        ancestors=(*thread.ancestors, thread.id),
        inherits=Inherited(thread.id, upto),
        calls_made=thread.calls_made,  # so that its calls have other ids than those it inherits
        allowed=allowed,
        missing_toolsets=thread.missing_toolsets,  # the journal it inherits says so
        found_toolsets=thread.found_toolsets,
        granted=Granted(
            thread.granted.slices - used.requests,
            thread.granted.tokens - used.input_tokens - used.output_tokens,
            thread.granted.cost - used.cost,
        ),
        **more,
    )


def receive_event_for_child(draft: StepBuilder, event: EventForChild) -> None:
    """The event this thread was made for."""
    draft.journal(Began(event.parent, event.call_id, event.name, event.arguments, event.text, event.final))
    draft.wake()
