"""The tools every thread has. Most run within the turn: their result is there before anything else can happen (SUB-16)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rapkit.call_ids import find_call
from rapkit.kernel.calls import cancel_subscription
from rapkit.kernel.cancellation import cancel_pending
from rapkit.kernel.child_threads import close_child, report, send_to_child, spawn, task_summary
from rapkit.kernel.completion import ModelTool
from rapkit.kernel.entries import MadeCall
from rapkit.kernel.events import may_have_children
from rapkit.kernel.limits import ThreadLimits
from rapkit.kernel.step_builder import StepBuilder
from rapkit.kernel.thread import OpenChoice, Pending, Thread
from rapkit.kernel.time_text import format_time, parse_time
from rapkit.kernel.user_requests import ask_user
from rapkit.protocol import ArgumentChecker

_LONGEST_SLEEP = 10 * 365 * 24 * 3600.0
_MOST_LISTED = 20


class BuiltinRefused(Exception):
    """A call of a built-in tool that makes no sense; the text is for the model."""


@dataclass(frozen=True)
class Builtin:
    """A built-in tool: its definition for the model, and its implementation.

    `run` gives the text of its result, None if that comes later, or raises Refused. `is_for` says which threads are offered it.
    """

    tool: ModelTool
    run: Callable[[StepBuilder, MadeCall], str | None]
    is_for: Callable[[Thread, ThreadLimits], bool] = lambda _thread, _limits: True

    @cached_property
    def checker(self) -> ArgumentChecker:
        """Checks arguments; compiled when first used."""
        return ArgumentChecker(self.tool.input_schema)


def offered_builtins(thread: Thread, limits: ThreadLimits) -> tuple[ModelTool, ...]:
    """The built-in tools that a thread is offered; the same ones for its whole lifetime."""
    return tuple(each.tool for each in BUILTINS.values() if each.is_for(thread, limits))


# Calls


def too_many_calls(draft: StepBuilder) -> str | None:
    """Why there may not be another call that waits, if there may not: each is part of the state, which is written at every step."""
    waiting = len(draft.thread.pending)
    if waiting < draft.limits.calls:
        return None
    return (
        f"This thread has {waiting} calls that are not answered, and may not have more. "
        "Wait for them, or cancel some with cancel_tool_call."
    )


def _cancel_subscription(draft: StepBuilder, call: MadeCall) -> str:
    given = call.arguments["tool_call_id"]
    call_id = find_call(given, draft.thread.subscriptions)
    if call_id is None:
        active = ", ".join(draft.thread.subscriptions) or "none"
        raise BuiltinRefused(f"{given!r} is no active subscription of this thread. Active: {active}.")
    cancel_subscription(draft, call_id, "cancelled by the model")
    return f"The subscription {call_id} is cancelled. No more events of it will come."


def _cancel_tool_call(draft: StepBuilder, call: MadeCall) -> str:
    given = call.arguments["tool_call_id"]
    running = [id for id, each in draft.thread.pending.items() if each.detached]
    call_id = find_call(given, (*running, *draft.thread.subscriptions))
    if call_id in draft.thread.subscriptions:
        raise BuiltinRefused(f"{call_id!r} is a subscription. Use cancel_subscription.")
    if call_id is None:
        raise BuiltinRefused(f"{given!r} is no running call of this thread. Running: {', '.join(running) or 'none'}.")
    cancel_pending(draft, call_id)
    return f"The call {call_id} is cancelled. Its result will not come."


# Time


def _sleep(draft: StepBuilder, call: MadeCall) -> None:
    _wait(draft, call, draft.now + call.arguments["seconds"])


def _sleep_until(draft: StepBuilder, call: MadeCall) -> None:
    now = draft.now
    try:
        until = parse_time(call.arguments["time"], call.arguments.get("timezone"), now)
    except (ValueError, OverflowError) as error:
        raise BuiltinRefused(f"{error} It is {format_time(now)}.") from None
    if until <= now:
        raise BuiltinRefused(f"That is over: it is {format_time(now)}.")
    if until > now + _LONGEST_SLEEP:
        raise BuiltinRefused(f"That is more than ten years away. It is {format_time(now)}.")
    _wait(draft, call, until)


def _wait_for_event(draft: StepBuilder, call: MadeCall) -> None:
    seconds = call.arguments.get("at_most_seconds")
    if seconds is None and draft.thread.parent is not None and not draft.thread.waits:
        raise BuiltinRefused("Nothing is left that could happen here. Report to the parent thread, or end your turn.")
    _wait(draft, call, None if seconds is None else draft.now + seconds)


def _wait(draft: StepBuilder, call: MadeCall, until: float | None) -> None:
    """Sleep until then, or until anything else wakes the thread."""
    draft.add_pending(call.id, _pending(draft, call, awaits="time", until=until))


def _pending(draft: StepBuilder, call: MadeCall, **more: Any) -> Pending:
    return Pending(
        call.name, call.arguments, "", call.name, draft.now, provider_id=call.provider_id, since=draft.now, **more
    )


# People


def _ask_user(draft: StepBuilder, call: MadeCall) -> None:
    if problem := too_many_calls(draft):
        raise BuiltinRefused(problem)
    draft.add_pending(call.id, _pending(draft, call, awaits="user"))
    choices = tuple(call.arguments.get("choices") or ())
    ask_user(draft, call.id, OpenChoice(call.arguments["question"], choices, None, "", "", draft.now))


# Relatives


def _spawn_thread(draft: StepBuilder, call: MadeCall) -> str:
    thread = draft.thread
    task = call.arguments["task"].strip()
    if not may_have_children(thread, draft.limits):
        raise BuiltinRefused("This thread may have no child threads. Do it here.")
    if not task:
        raise BuiltinRefused("A child thread needs a task.")
    if task_summary(task) == thread.task:
        raise BuiltinRefused("That is what this thread was made for. Do it here.")
    if len(thread.spawned) >= draft.limits.children:
        raise BuiltinRefused(
            f"This thread has {len(thread.spawned)} open child threads, and may not have more. "
            "Close one with close_thread, or wait for one to end."
        )
    # What is said with this call is left out: it is the plan the child is a part of, and would carry out again.
    child = spawn(draft, call.id, task, upto=draft.spawn_point)
    return f"The child thread {child} works on it. Its reports will come by themselves."


def _send_message_to_child(draft: StepBuilder, call: MadeCall) -> str:
    child = _open_child(draft, call.arguments["thread_id"])
    send_to_child(draft, child, call.id, call.arguments["text"])
    return f"The child thread {child} will see it."


def _report_to_parent(draft: StepBuilder, call: MadeCall) -> str:
    if draft.thread.parent is None:
        raise BuiltinRefused("This thread has no parent. What you say here is read by the user.")
    if call.arguments.get("done"):
        draft.close_at_end("the thread itself, which is done", call.arguments["text"])
        return "The parent thread will see it, and this thread is closed."
    report(draft, call.arguments["text"])
    return "The parent thread will see it."


def _close_thread(draft: StepBuilder, call: MadeCall) -> str:
    child = call.arguments.get("thread_id")
    if child and child != draft.thread.id:
        close_child(draft, _open_child(draft, child))
        return f"The child thread {child} is being closed."
    if draft.thread.parent is None:
        raise BuiltinRefused(
            "This is the user's own conversation, which only the user closes. Name a child thread to close that."
        )
    draft.close_at_end("the thread itself", None)
    return "This thread is closed."


def _open_child(draft: StepBuilder, child: str) -> str:
    thread = draft.thread
    open_ones = [*(id for id, each in thread.spawned.items() if not each.closing), *thread.children]
    if child not in open_ones:
        listed = ", ".join(open_ones[:_MOST_LISTED]) or "none"
        raise BuiltinRefused(f"{child!r} is no open child of this thread. Open: {listed}.")
    return child


def _has_parent(thread: Thread, _limits: ThreadLimits) -> bool:
    return thread.parent is not None


# What the model is told


def _object(required: tuple[str, ...], **properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


_SECONDS = {"type": "number", "minimum": 0, "maximum": _LONGEST_SLEEP}
_CALL_ID = _object(("tool_call_id",), tool_call_id=_text("The id of the tool call."))

BUILTINS: dict[str, Builtin] = {
    builtin.tool.name: builtin
    for builtin in (
        Builtin(
            ModelTool(
                "cancel_subscription",
                "Cancel a subscription of this thread, by the id of the tool call that started it.",
                _CALL_ID,
            ),
            _cancel_subscription,
        ),
        Builtin(
            ModelTool("cancel_tool_call", "Cancel a tool call that is still running, by its id.", _CALL_ID),
            _cancel_tool_call,
        ),
        Builtin(
            ModelTool(
                "sleep",
                "Wait for some seconds. Whatever happens meanwhile (a message, an event, a result) ends it early.",
                _object(("seconds",), seconds=_SECONDS),
            ),
            _sleep,
        ),
        Builtin(
            ModelTool(
                "sleep_until",
                "Wait until a date and time. Whatever happens meanwhile (a message, an event, a result) ends it early.",
                _object(
                    ("time",),
                    time=_text("ISO 8601, such as 2030-01-31T09:00."),
                    timezone=_text("An IANA time zone, such as Europe/Berlin; UTC if there is none."),
                ),
            ),
            _sleep_until,
        ),
        Builtin(
            ModelTool(
                "wait_for_event",
                "Do nothing until something happens: an event of a subscription, a result, a report, a message.",
                _object((), at_most_seconds=_SECONDS),
            ),
            _wait_for_event,
        ),
        Builtin(
            ModelTool(
                "ask_user",
                "Ask the user something and wait for the answer, however long that takes.",
                _object(
                    ("question",),
                    question={"type": "string", "minLength": 1, "maxLength": 10_000},
                    choices={
                        "type": "array",
                        "items": {"type": "string", "minLength": 1, "maxLength": 1000},
                        "maxItems": 100,
                        "description": "Answers to choose from; the user may answer something else.",
                    },
                ),
            ),
            _ask_user,
        ),
        Builtin(
            ModelTool(
                "spawn_thread",
                "Begin a child thread that works on a task by itself, at the same time as this one. It knows what was said here so far, "
                "and reports back. Say in the task all that is wanted of it.",
                _object(("task",), task={"type": "string", "minLength": 1, "maxLength": 100_000}),
            ),
            _spawn_thread,
            may_have_children,
        ),
        Builtin(
            ModelTool(
                "send_message_to_child",
                "Say something to an open child thread of this one.",
                _object(
                    ("thread_id", "text"), thread_id=_text("The id of the child thread."), text=_text("What to say.")
                ),
            ),
            _send_message_to_child,
            may_have_children,
        ),
        Builtin(
            ModelTool(
                "report_to_parent",
                "Tell the thread that made this one something: a result, progress, a question. Before you say that you are done, cancel "
                "the subscriptions of this thread with cancel_subscription.",
                _object(
                    ("text",),
                    text=_text("What to tell."),
                    done={
                        "type": "boolean",
                        "description": "true if nothing is left to do: then this thread is closed.",
                    },
                ),
            ),
            _report_to_parent,
            _has_parent,
        ),
        Builtin(
            ModelTool(
                "close_thread",
                "Close a child thread of this one, or this one if it is a child. Threads it has made go on. Before you close this one, "
                "cancel its subscriptions with cancel_subscription; a child that you close should have cancelled its own.",
                _object((), thread_id=_text("The id of the child thread; without it, this thread.")),
            ),
            _close_thread,
            lambda thread, limits: _has_parent(thread, limits) or may_have_children(thread, limits),
        ),
    )
}

RESERVED = frozenset((*BUILTINS, "receive_event__injected"))
"""Names no server's tool may have: ours, and the one under which other runtimes show events to their models."""
