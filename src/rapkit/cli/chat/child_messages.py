"""Show what the model says in child threads to a user who follows only the parent."""

from dataclasses import dataclass
from typing import Any

from rapkit.cli.agent_api import AgentApi, StreamEvent
from rapkit.cli.reconnecting_stream import ConnectionLost, Reconnected
from rapkit.cli.threads.thread_lookup import path_of
from rapkit.errors import RapkitError

LAST_WORDS = "last_words"
_LAST_ENTRIES = 20


@dataclass(frozen=True, slots=True)
class ChildMessage:
    """Something the model said in a thread, in line `seq` of its journal."""

    seq: int
    text: str


def last_words(api: AgentApi, thread_id: str) -> ChildMessage | None:
    """What was said last in a thread; None if that was long ago, or cannot be read: then going there is the way to see it. Blocks."""
    found = None
    try:
        cursor: int | None = max(0, api.get(path_of(thread_id))["length"] - _LAST_ENTRIES)
        while cursor is not None:
            page = api.get(path_of(thread_id, "history"), cursor=cursor)
            for entry in page["entries"]:
                if entry["kind"] == "assistant" and entry["text"].strip():
                    found = ChildMessage(entry["seq"], entry["text"].strip())
            cursor = page["next_cursor"]
    except RapkitError:
        return None
    return found


def with_last_words(api: AgentApi, entry: dict[str, Any]) -> dict[str, Any]:
    """An entry of a parent; one that says that a child was closed, with what was said there last. Blocks."""
    words = last_words(api, entry["thread_id"]) if entry["kind"] == "child_closed" else None
    return {**entry, LAST_WORDS: words} if words else entry


def told_with_last_words(
    api: AgentApi, happened: StreamEvent | ConnectionLost | Reconnected
) -> StreamEvent | ConnectionLost | Reconnected:
    """The same for whatever happens to a parent."""
    match happened:
        case StreamEvent("entry", entry, id) if entry["kind"] == "child_closed":
            return StreamEvent("entry", with_last_words(api, entry), id)
    return happened
