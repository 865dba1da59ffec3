"""What holds for calls: each is made once, sent once, and answered once."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from rapkit.kernel.builtins import RESERVED
from rapkit.kernel.entries import (
    Answered,
    ChoiceMadeEntry,
    JournalEntry,
    MadeCall,
    ParentSaid,
    Tasked,
    UserSaid,
    WokenUp,
)
from tests.crash.runtime.evidence import Evidence, Journal
from tests.crash.runtime.model import Calls, calls_of, scheduled_call
from tests.crash.runtime.times import timed_out

_UNREPEATABLE = re.compile(r"\w_(pay|hold|wipe)")
_SUBSCRIBING = re.compile(r"\w_(count|apart)")
_UNKNOWN = "it is not known whether"
_GIVEN_UP = "and given up"
_TOO_LATE = "nobody answered in time"
_NOT_OFFERED = "Error: There is no tool"  # of a server that was down when the thread began
_LABELS = ("Yes", "No")
_BY_THE_USER = ("The user cancelled", "The user was asked whether this call may be made")


def account_calls(evidence: Evidence) -> Iterator[str]:
    for journal in evidence.journals.values():
        yield from _asked_for(journal)
        yield from _answers(evidence, journal)
    yield from _sent(evidence)
    yield from _run(evidence)


def _asked_for(journal: Journal) -> Iterator[str]:
    """The model may be asked twice; what it says has its effect once."""
    made = Counter(what for call in journal.made if (what := _what(call.name, call.arguments)) is not None)
    for what, count in made.items():
        if count > 1:
            yield f"thread {journal.id}: the call with the key {what} was made {count} times"
    ids = Counter(call.id for call in journal.made)
    yield from (f"thread {journal.id}: {count} calls have the id {id}" for id, count in ids.items() if count > 1)
    if journal.thread.closed:
        return
    for entry in journal.entries:
        for name, arguments in _wanted(entry):
            if (what := _what(name, arguments)) is not None and not made[what]:
                yield f"thread {journal.id}: somebody asked for {name} {what}, and it was never made"


def _wanted(entry: JournalEntry) -> Calls:
    match entry:
        case UserSaid(text) | Tasked(text=text) | ParentSaid(text=text):
            return calls_of(text)
        case WokenUp(schedule, due):
            return [scheduled_call(schedule, due)]
    return []


def _what(name: str, arguments: dict[str, Any]) -> str | None:
    """What tells a call from all others, if anything does: its key, or what is unlike all else that is asked for."""
    if name in ("close_thread", "cancel_tool_call", "cancel_subscription"):
        return None
    return str(arguments.get("key") or [name, *arguments.values()])


def _answers(evidence: Evidence, journal: Journal) -> Iterator[str]:
    made = {call.id: call for call in journal.made}
    for entry in journal.entries:
        if isinstance(entry, Answered) and entry.call_id not in made:
            yield f"thread {journal.id}: a result for {entry.call_id}, which was never called"
    cancelled = {call.arguments.get("tool_call_id") for call in journal.made if call.name == "cancel_tool_call"}
    for call in made.values():
        answers = journal.answers(call.id)
        if len(answers) > (2 if timed_out(call, answers) else 1):
            yield f"{_named(journal, call)} has {len(answers)} results, not one"
        elif not answers and journal.closed_at is None and call.id not in cancelled:
            yield f"{_named(journal, call)} never got a result"
        for answer in answers:
            if problem := _wrong(evidence, journal, call, answer):
                yield f"{_named(journal, call)} was answered {answer.text!r}: {problem}"


def _wrong(evidence: Evidence, journal: Journal, call: MadeCall, answer: Answered) -> str | None:
    text = answer.text or ""
    if call.name in RESERVED:
        return None if answer.by == "runtime" else "a tool cannot answer for the runtime"
    if answer.by == "runtime":
        if any(each in text for each in _BY_THE_USER) or timed_out(call, [answer]):
            return None
        unseen = text.startswith(_NOT_OFFERED) and evidence.died_between(call.name.split("_", 1)[0], 0.0)
        return None if unseen else "nobody cancelled it"
    if _SUBSCRIBING.fullmatch(call.name):
        return None if answer.subscription else "it is no subscription"
    server, name = call.name.split("_", 1)
    expected = {
        "chain": f"chain {call.arguments['key']} {call.arguments.get('left')}",
        "refuse": f"Error: refuse {call.arguments['key']}",
    }.get(name, f"{name} {call.arguments['key']}")
    if name == "ask" and text in (f"{expected} {label}" for label in _LABELS):
        return _other_choice(journal, call, text)
    if text == expected and name != "ask":
        return None
    died = evidence.died_between(server, 0.0)
    if text.startswith("Error: ") and died and (_UNKNOWN in text or _GIVEN_UP in text):
        return None
    if name == "ask" and text.startswith("Error: ") and _TOO_LATE in text:
        chosen = any(isinstance(entry, ChoiceMadeEntry) and entry.call_id == call.id for entry in journal.entries)
        return "the user chose" if chosen and not died else None
    return f"it should have been {expected!r}"


def _other_choice(journal: Journal, call: MadeCall, text: str) -> str | None:
    made = [entry for entry in journal.entries if isinstance(entry, ChoiceMadeEntry) and entry.call_id == call.id]
    chosen = [_LABELS[entry.selected] for entry in made if entry.selected is not None]
    return None if chosen and text.endswith(f" {chosen[0]}") else f"the user chose {chosen}"


def _sent(evidence: Evidence) -> Iterator[str]:
    """Every call has had one place in the outbox: however often it was POSTed, it was under one id."""
    made = {(journal.id, call.id) for journal in evidence.journals.values() for call in journal.made}
    for (thread, call_id), ids in evidence.invoked.items():
        if (thread, call_id) not in made:
            yield f"{thread}/{call_id} was sent to a server, and is in no journal"
        if len(ids) > 1:
            yield f"{thread}/{call_id} was sent to a server as {len(ids)} different messages"
    for journal in evidence.journals.values():
        for call in journal.made:
            answered = any(answer.by == "tool" for answer in journal.answers(call.id))
            if answered and (journal.id, call.id) not in evidence.invoked:
                yield f"{_named(journal, call)} has a result, and was never sent"


def _run(evidence: Evidence) -> Iterator[str]:
    starts = Counter((effect.call, effect.key) for effect in evidence.effects if effect.what == "start")
    names = {
        (journal.id, call.id): (call.name, call.arguments.get("key"))
        for journal in evidence.journals.values()
        for call in journal.made
    }
    for (call, key), count in starts.items():
        name, made_with = names.get(call, ("", None))
        if made_with != key:
            yield f"a handler ran for {call} with the key {key}, which is not how it was called"
        elif _UNREPEATABLE.fullmatch(name) and count > 1:
            yield f"{call} ({name} {key}) ran {count} times, and may run once"


def _named(journal: Journal, call: MadeCall) -> str:
    return f"{journal.id}/{call.id} ({call.name} {call.arguments.get('key', '')})"
