"""What a model may want next, well or badly said."""

from collections.abc import Callable
from datetime import UTC, datetime

from hypothesis import strategies as st

from rapkit.kernel.completion import WantedCall
from rapkit.kernel.thread import Thread

wishes = st.lists(
    st.sampled_from(
        [
            *["forecast"] * 3,
            *["storms"] * 5,
            "no_such_tool",
            "bad arguments",
            "no arguments",
            *["cancel_subscription", "cancel_tool_call"] * 2,
            "wait a while",
            *["survey", "demolish", "sleep", "wait_for_event", "ask_user", "spawn_thread"] * 2,
            *["sleep_until", "bad sleep_until", "ask in words", "own task"],
            *["report_to_parent", "send_message_to_child"] * 2,
            *["last report", "close_thread", "close self"],
        ]
    ),
    max_size=4,
)


def wanted(wish: str, thread: Thread, now: float, victim: int, name: Callable[[str], str]) -> WantedCall:
    """The call a model makes that has a wish; `victim` picks whom or what it is about, `name` gives new names."""
    live = [*thread.pending, *thread.subscriptions, f"c{thread.calls_made + 1}_{thread.id}"]
    relatives = [*thread.spawned, *thread.children, *thread.ancestors, "nobody"]
    relative = relatives[victim % len(relatives)]
    match wish:
        case "sleep":
            return WantedCall("call_0", wish, {"seconds": victim})
        case "wait_for_event":
            return WantedCall("call_0", wish, {})
        case "wait a while":
            return WantedCall("call_0", "wait_for_event", {"at_most_seconds": victim})
        case "sleep_until" | "bad sleep_until":
            then = datetime.fromtimestamp(now + 500, UTC).isoformat()
            return WantedCall("call_0", "sleep_until", {"time": then if wish == "sleep_until" else "tomorrow"})
        case "ask_user":
            return WantedCall("call_0", wish, {"question": "Where?", "choices": ["Oslo", "Bergen"]})
        case "ask in words":
            return WantedCall("call_0", "ask_user", {"question": "Where?"})
        case "spawn_thread":
            return WantedCall("call_0", wish, {"task": name("task")})
        case "own task":
            return WantedCall("call_0", "spawn_thread", {"task": thread.task or name("task")})
        case "send_message_to_child":
            return WantedCall("call_0", wish, {"thread_id": relative, "text": name("message")})
        case "report_to_parent":
            return WantedCall("call_0", wish, {"text": name("report")})
        case "last report":
            return WantedCall("call_0", "report_to_parent", {"text": name("report"), "done": True})
        case "close_thread":
            return WantedCall("call_0", wish, {"thread_id": relative})
        case "close self":
            return WantedCall("call_0", "close_thread", {})
        case "cancel_subscription" | "cancel_tool_call":
            return WantedCall("call_0", wish, {"tool_call_id": live[victim % len(live)]})
        case "bad arguments":
            return WantedCall("call_0", "storms", {"town": "Oslo"})
        case "no arguments":
            return WantedCall("call_0", "storms", None, "No JSON.")
        case _:
            return WantedCall("call_0", wish, {"city": "Oslo"})
