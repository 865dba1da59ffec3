"""Tools every thread has. They run within the turn: their result is there before anything else can happen (SUB-16)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rapkit.kernel.calls import cancel_pending, cancel_subscription
from rapkit.kernel.completion import Tool
from rapkit.kernel.draft import Draft

RESERVED = frozenset(
    (
        "cancel_subscription",
        "cancel_tool_call",
        "spawn_thread",
        "report_to_parent",
        "send_message_to_child",
        "close_thread",
        "sleep",
        "sleep_until",
        "wait_for_event",
        "ask_user",
    )
)
"""Names no server's tool may have."""

_ONE_CALL_ID = {
    "type": "object",
    "properties": {"tool_call_id": {"type": "string", "description": "The id of the tool call."}},
    "required": ["tool_call_id"],
    "additionalProperties": False,
}


class Refused(Exception):
    """A call of a built-in tool that makes no sense; the text is for the model."""


@dataclass(frozen=True, slots=True)
class Builtin:
    """A tool of our own: what the model is told of it, and what it does. It gives the text of its result, or raises Refused."""

    tool: Tool
    run: Callable[[Draft, dict[str, Any]], str]


def _cancel_subscription(draft: Draft, arguments: dict[str, Any]) -> str:
    call_id = arguments["tool_call_id"]
    if call_id not in draft.thread.subscriptions:
        active = ", ".join(draft.thread.subscriptions) or "none"
        raise Refused(f"{call_id!r} is no active subscription of this thread. Active: {active}.")
    cancel_subscription(draft, call_id, "cancelled by the model")
    return f"The subscription {call_id} is cancelled. No more events of it will come."


def _cancel_tool_call(draft: Draft, arguments: dict[str, Any]) -> str:
    call_id = arguments["tool_call_id"]
    if call_id in draft.thread.subscriptions:
        raise Refused(f"{call_id!r} is a subscription. Use cancel_subscription.")
    call = draft.thread.pending.get(call_id)
    if call is None or not call.detached:
        running = ", ".join(id for id, each in draft.thread.pending.items() if each.detached) or "none"
        raise Refused(f"{call_id!r} is no running call of this thread. Running: {running}.")
    cancel_pending(draft, call_id)
    return f"The call {call_id} is cancelled. Its result will not come."


BUILTINS: dict[str, Builtin] = {
    builtin.tool.name: builtin
    for builtin in (
        Builtin(
            Tool(
                "cancel_subscription",
                "Cancel a subscription of this thread, by the id of the tool call that started it.",
                _ONE_CALL_ID,
            ),
            _cancel_subscription,
        ),
        Builtin(
            Tool(
                "cancel_tool_call",
                "Cancel a tool call that is still running, by its id.",
                _ONE_CALL_ID,
            ),
            _cancel_tool_call,
        ),
    )
}
