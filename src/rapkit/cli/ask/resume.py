"""Find out what `rapkit ask --resume` has to wait for."""

from typing import Any

from rapkit.cli.agent_api import AgentApi
from rapkit.cli.ask.answer_wait import WaitStart
from rapkit.cli.threads.journal_reader import read_journal
from rapkit.errors import ConfigError

_RECENT = 200


def beginning_of(api: AgentApi, thread: Any) -> WaitStart:
    """Where the answer is waited for that is next, if the thread is at work; else that of its last answer, which is there already.

    Being at work is to run, or to have a call that the model waits for, or one whose question was answered since it last spoke. That may
    be for the last message, or for an event that came after it. `ConfigError` if there was never anything to answer.
    """
    entries = _recent(api, thread)
    said = [entry for entry in entries if _is_said(entry)]
    at_work = _is_at_work(thread, entries[entries.index(said[-1]) :] if said else entries)
    if not said:
        if at_work:
            return WaitStart(heard=True)
        raise ConfigError(
            f"Nobody has said anything in thread {thread['thread_id']}, so there is no answer to wait for."
        )
    if at_work or said[-1]["kind"] == "user":
        return _after(said[-1])
    return _after(said[-2]) if len(said) > 1 else WaitStart(heard=True)


def _recent(api: AgentApi, thread: Any) -> list[Any]:
    """The last entries of the thread as it was when it was looked at: what has happened since is not yet in its status."""
    entries: list[Any] = []
    for after in (max(0, thread["length"] - _RECENT), 0):
        entries = [each for each in read_journal(api, thread["thread_id"], after) if each["seq"] <= thread["length"]]
        if sum(map(_is_said, entries)) > 1 or not after:
            break
    return entries


def _is_said(entry: Any) -> bool:
    """Whether it begins or ends a turn: a message, an answer, or that the thread stopped instead."""
    return entry["kind"] in ("user", "parked") or (entry["kind"] == "assistant" and not entry["calls"])


def _is_at_work(thread: Any, since: list[Any]) -> bool:
    chosen = {entry["call_id"] for entry in since if entry["kind"] == "chosen"}
    return thread["status"] == "running" or any(
        not call["still_running_shown"] or call["call_id"] in chosen for call in thread["pending_calls"]
    )


def _after(entry: Any) -> WaitStart:
    if entry["kind"] == "user":
        return WaitStart(str(entry["seq"] - 1), entry["id"])
    return WaitStart(str(entry["seq"]), heard=True)
