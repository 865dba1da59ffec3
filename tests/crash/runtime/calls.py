"""What holds for calls: each is made once, sent once, and answered once."""

import re
from collections import Counter
from collections.abc import Iterator

from rapkit.kernel.builtins import RESERVED
from rapkit.kernel.entries import Answered, ChoiceMadeEntry, MadeCall, UserSaid
from tests.crash.runtime.evidence import Evidence, Journal
from tests.crash.runtime.model import calls_of

_UNREPEATABLE = re.compile(r"\w_(pay|hold)")
_SUBSCRIBING = re.compile(r"\w_(count|apart)")
_UNKNOWN = "it is not known whether"
_GIVEN_UP = "and given up"
_TOO_LATE = "nobody answered in time"


def account_calls(evidence: Evidence) -> Iterator[str]:
    for journal in evidence.journals.values():
        yield from _asked_for(journal)
        yield from _answers(evidence, journal)
    yield from _sent(evidence)
    yield from _run(evidence)


def _asked_for(journal: Journal) -> Iterator[str]:
    """The model may be asked twice; what it says has its effect once."""
    made = Counter(call.arguments.get("key") for call in journal.made if call.name not in RESERVED)
    for key, count in made.items():
        if count > 1:
            yield f"thread {journal.id}: the call with the key {key} was made {count} times"
    if journal.thread.closed:
        return
    for entry in journal.entries:
        for name, arguments in calls_of(entry.text) if isinstance(entry, UserSaid) else ():
            if name not in RESERVED and not made[arguments["key"]]:
                yield f"thread {journal.id}: the user asked for {name} {arguments['key']}, and it was never made"
    ids = Counter(call.id for call in journal.made)
    yield from (f"thread {journal.id}: {count} calls have the id {id}" for id, count in ids.items() if count > 1)


def _answers(evidence: Evidence, journal: Journal) -> Iterator[str]:
    made = {call.id: call for call in journal.made}
    for entry in journal.entries:
        if isinstance(entry, Answered) and entry.call_id not in made:
            yield f"thread {journal.id}: a result for {entry.call_id}, which was never called"
    cancelled = {call.arguments.get("tool_call_id") for call in journal.made if call.name == "cancel_tool_call"}
    for call in made.values():
        answers = journal.answers(call.id)
        if len(answers) > 1:
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
        return None if "The user cancelled" in text else "nobody cancelled it"
    if _SUBSCRIBING.fullmatch(call.name):
        return None if answer.subscription else "it is no subscription"
    server, name = call.name.split("_", 1)
    expected = {
        "chain": f"chain {call.arguments['key']} {call.arguments.get('left')}",
        "refuse": f"Error: refuse {call.arguments['key']}",
    }.get(name, f"{name} {call.arguments['key']}")
    if text == expected or (name == "ask" and text in (f"{expected} Yes", f"{expected} No")):
        return None
    died = evidence.died_between(server, 0.0)
    if text.startswith("Error: ") and died and (_UNKNOWN in text or _GIVEN_UP in text):
        return None
    if name == "ask" and text.startswith("Error: ") and _TOO_LATE in text:
        chosen = any(isinstance(entry, ChoiceMadeEntry) and entry.call_id == call.id for entry in journal.entries)
        return "the user chose" if chosen and not died else None
    return f"it should have been {expected!r}"


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
