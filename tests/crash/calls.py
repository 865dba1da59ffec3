"""What holds for every call that ends in a result, and which results the simple tools may give."""

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.crash.consents import CONSENTING
from tests.crash.dialogues import ASKING
from tests.crash.history import Call, Effect, History, Sent

REPEATABLE = frozenset({"quick", "slow", "put", "block", "refuse", "fail", "watch"})
UNREPEATABLE = frozenset({"pay", "stamp", "hold"})
PROGRAMS = frozenset({"watch", "hold"})
"""These run a program that never ends by itself."""

_DEFERRING = {**dict.fromkeys(ASKING, "user_choice"), **dict.fromkeys(CONSENTING, "oauth")}


def account_calls(history: History, *, one_worker: bool) -> Iterator[str]:
    yield from _unsolicited(history)
    for sent in history.unanswered():
        yield f"{sent.call.name} was acknowledged and never answered (INV-11, INV-13)"
    for sent in history.sent:
        yield from _contradictory(history, sent.call)
        yield from _misaddressed(history, sent.call)
        if sent.call.tool in REPEATABLE | UNREPEATABLE:
            yield from _wrong(history, sent)
    yield from _run_twice(history)
    yield from _left_over(history)
    if one_worker:
        yield from _at_once(history)


def _unsolicited(history: History) -> Iterator[str]:
    known = {call.path for call in history.calls} | {stream.mark for stream in history.streams}
    for path in history.by_path.keys() - known:
        yield f"a message came to {path}, which was never sent"


def _contradictory(history: History, call: Call) -> Iterator[str]:
    messages = history.messages(call)
    results = [message for message in messages if message.type == "tool_result"]
    if len(results) > 1:
        yield f"{call.name} got {len(results)} results, not one (CB-5): {[result.text for result in results]}"
    elif results and messages[-1] is not results[0]:
        yield f"{call.name} got a message after its result"


def _misaddressed(history: History, call: Call) -> Iterator[str]:
    expected = {"tool_result", _DEFERRING.get(call.tool, "tool_result")}
    for delivery in history.messages(call):
        message = delivery.message
        found = (message.get("group_id"), message.get("id"), message.get("call_id"))
        if found != (call.group_id, call.id, call.call_id) or delivery.type not in expected:
            yield f"{call.name} got a message with {delivery.type, *found} (CB-2, INV-12)"


def _wrong(history: History, sent: Sent) -> Iterator[str]:
    call = sent.call
    for result in history.results(call):
        if _is_answer(call, result.text):
            if not history.traces[call.n, "end"]:
                yield f"{call.name} was answered {result.text!r}, and its handler never came to the end"
            continue
        unknown = call.tool in UNREPEATABLE and history.may_be_unknown(sent.at, result)
        given_up = call.tool in REPEATABLE and history.may_be_given_up(sent.at, result)
        cancelled = sent.cancelled_at is not None and result.text == "Error: Cancelled."
        if not result.text.startswith("Error: ") or not (unknown or given_up or cancelled):
            deaths = history.deaths_between(sent.at, result.at, "server")
            yield f"{call.name} was answered {result.text!r}, with {deaths} deaths of the server meanwhile"


def _is_answer(call: Call, text: str) -> bool:
    match call.tool:
        case "refuse":
            return text == f"Error: refuse {call.n}"
        case "fail":
            return re.fullmatch(r"Error: the tool failed unexpectedly \(reference \w+\)\. .*", text) is not None
    return call.tool not in PROGRAMS and text == f"{call.tool} {call.n}"


def _run_twice(history: History) -> Iterator[str]:
    calls = {call.n: call for call in history.calls}
    for (n, what), count in history.traces.items():
        if what == "start" and n not in calls:
            yield f"a handler ran for call {n}, which was never sent"
        elif what == "start" and calls[n].tool in UNREPEATABLE and count > 1:
            yield f"{calls[n].name} ran {count} times, and may run once"


def _left_over(history: History) -> Iterator[str]:
    """Programs end before their call does, and before it runs again (CAN-3)."""
    for orphan in history.orphans:
        yield f"call {orphan.n} was answered, and process {orphan.pid}, which it had started, was still alive"
    for n, what in history.traces:
        if what == "leftover":
            yield f"call {n} ran again while a program of its last run was still alive"


def _at_once(history: History) -> Iterator[str]:
    """Runs of one call that overlap: the second began though the first had neither ended nor died; in one process INV-17 is broken."""
    died = {death.pid: death.at for death in history.deaths}
    for n, effects in _by_call(history).items():
        starts = [effect for effect in effects if effect.what == "start"]
        for before, after in pairwise(starts):
            between = {e.what for e in effects if e.pid == before.pid and before.at <= e.at <= after.at}
            dead = died.get(before.pid, float("inf")) <= after.at
            elsewhere = before.pid != after.pid and ("end" in between or dead)
            if "stop" not in between and not elsewhere:
                yield f"call {n} ran in {before.pid} and in {after.pid} at once"


def _by_call(history: History) -> dict[int, list[Effect]]:
    effects: dict[int, list[Effect]] = defaultdict(list)
    for effect in sorted(history.effects, key=lambda effect: effect.at):
        effects[effect.n].append(effect)
    return effects
