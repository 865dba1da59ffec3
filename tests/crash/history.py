"""What happened in a crash test, and what must never have happened. Pure data: `test_history.py` shows what is caught.

Times are `time.monotonic()`, which all processes of one machine share.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

REPEATABLE = frozenset({"quick", "slow", "put", "block", "refuse", "fail"})
UNREPEATABLE = frozenset({"pay", "stamp"})

_MOST_RUNS = 3
_SLACK = 0.05


@dataclass(frozen=True, slots=True)
class Call:
    """An invocation; `n` is its number, by which the handler and the callback URL know it."""

    n: int
    tool: str
    seconds: float
    group_id: str
    id: str
    call_id: str | None = None

    @property
    def path(self) -> str:
        return f"/cb/{self.n}"


@dataclass(frozen=True, slots=True)
class Sent:
    """A call that was sent at least once."""

    call: Call
    at: float
    acknowledged: bool


@dataclass(frozen=True, slots=True)
class Delivery:
    """A callback that reached the sink."""

    at: float
    path: str
    id: str
    body: str
    answer: str = "200"

    @property
    def accepted(self) -> bool:
        """Whether the sender was told that it arrived, if sink and sender lived that long."""
        return self.answer in ("200", "slow")


@dataclass(frozen=True, slots=True)
class Effect:
    """A handler's trace: it started, or it ended."""

    at: float
    pid: int
    what: str
    n: int


@dataclass(frozen=True, slots=True)
class Death:
    """A process that was killed, told to stop or made to stand still; `at` is before it felt anything."""

    at: float
    pid: int
    who: str = "server"


@dataclass(frozen=True, slots=True)
class History:
    sent: tuple[Sent, ...] = ()
    deliveries: tuple[Delivery, ...] = ()
    effects: tuple[Effect, ...] = ()
    deaths: tuple[Death, ...] = ()

    def deaths_between(self, start: float, end: float, *who: str) -> int:
        return sum(1 for death in self.deaths if start - _SLACK <= death.at <= end + _SLACK and death.who in who)

    @property
    def by_path(self) -> dict[str, list[Delivery]]:
        found: dict[str, list[Delivery]] = defaultdict(list)
        for delivery in self.deliveries:
            found[delivery.path].append(delivery)
        return found

    def unanswered(self) -> list[Sent]:
        """Acknowledged calls whose result nobody has accepted yet."""
        answered = {delivery.path for delivery in self.deliveries if delivery.accepted}
        return [sent for sent in self.sent if sent.acknowledged and sent.call.path not in answered]

    def summary(self) -> str:
        acknowledged = sum(sent.acknowledged for sent in self.sent)
        ids = {delivery.id for delivery in self.deliveries}
        texts = [_text(delivery) for delivery in {delivery.id: delivery for delivery in self.deliveries}.values()]
        deaths = Counter(death.who for death in self.deaths)
        answers = Counter(delivery.answer for delivery in self.deliveries)
        return (
            f"{len(self.sent)} sent, {acknowledged} acknowledged, {len(ids)} results, "
            f"{len(self.deliveries) - len(ids)} retransmissions (sink: {dict(answers)}), "
            f"{sum('not known whether' in text for text in texts)} 'not known', "
            f"{sum('given up' in text for text in texts)} given up, "
            f"{sum(effect.what == 'start' for effect in self.effects)} runs, deaths: {dict(deaths)}"
        )


def account(history: History, *, one_worker: bool = True) -> list[str]:
    """Everything that must not be so, in words. `one_worker` if all deaths are known and no process stood still for long."""
    complaints = [
        *_lost(history),
        *_unsolicited(history),
        *_contradictory(history),
        *_misaddressed(history),
        *_wrong(history),
        *_run_twice(history),
    ]
    if one_worker:
        complaints += [*_at_once(history), *_sent_again_for_nothing(history)]
    return complaints


def _lost(history: History) -> Iterator[str]:
    for sent in history.unanswered():
        yield f"{_name(sent.call)} was acknowledged and never answered (INV-11, INV-13)"


def _unsolicited(history: History) -> Iterator[str]:
    known = {sent.call.path for sent in history.sent}
    for path in history.by_path.keys() - known:
        yield f"a result came to {path}, which was never sent"


def _contradictory(history: History) -> Iterator[str]:
    for path, deliveries in history.by_path.items():
        if len(ids := {delivery.id for delivery in deliveries}) > 1:
            yield f"{path} got {len(ids)} results, not one (CB-5): {sorted(ids)}"
        if len({delivery.body for delivery in deliveries}) > 1:
            yield f"{path} got different bodies: {sorted({delivery.body for delivery in deliveries})}"
        if "" in ids:
            yield f"{path} got a message without webhook-id"
    for id, paths in _paths_by_id(history).items():
        if len(paths) > 1:
            yield f"message {id} went to several calls (INV-12): {sorted(paths)}"


def _paths_by_id(history: History) -> dict[str, set[str]]:
    paths: dict[str, set[str]] = defaultdict(set)
    for delivery in history.deliveries:
        paths[delivery.id].add(delivery.path)
    return paths


def _misaddressed(history: History) -> Iterator[str]:
    for sent, delivery in _pairs(history):
        message, call = json.loads(delivery.body), sent.call
        found = (message.get("type"), message.get("group_id"), message.get("id"), message.get("call_id"))
        if found != ("tool_result", call.group_id, call.id, call.call_id):
            yield f"{_name(call)} got a message with {found} (CB-2, INV-12)"


def _wrong(history: History) -> Iterator[str]:
    ended = {effect.n for effect in history.effects if effect.what == "end"}
    for sent, delivery in _pairs(history):
        call, text = sent.call, _text(delivery)
        if _is_answer(call, text):
            if call.n not in ended:
                yield f"{_name(call)} was answered {text!r}, and its handler never came to the end"
            continue
        deaths = history.deaths_between(sent.at, delivery.at, "server")
        unknown = call.tool in UNREPEATABLE and "not known whether it took effect" in text and deaths >= 1
        given_up = call.tool in REPEATABLE and "interrupted 3 times and given up" in text and deaths >= _MOST_RUNS
        if not text.startswith("Error: ") or not (unknown or given_up):
            yield f"{_name(call)} was answered {text!r}, with {deaths} deaths of the server meanwhile"


def _is_answer(call: Call, text: str) -> bool:
    match call.tool:
        case "refuse":
            return text == f"Error: refuse {call.n}"
        case "fail":
            return re.fullmatch(r"Error: the tool failed unexpectedly \(reference \w+\)\. .*", text) is not None
    return text == f"{call.tool} {call.n}"


def _run_twice(history: History) -> Iterator[str]:
    starts = Counter(effect.n for effect in history.effects if effect.what == "start")
    calls = {sent.call.n: sent.call for sent in history.sent}
    for n, count in starts.items():
        if n not in calls:
            yield f"a handler ran for call {n}, which was never sent"
        elif calls[n].tool in UNREPEATABLE and count > 1:
            yield f"{_name(calls[n])} ran {count} times, and may run once"


def _at_once(history: History) -> Iterator[str]:
    """Runs of one call that overlap: the second began though the first had neither ended nor died; in one process INV-17 is broken."""
    died = {death.pid: death.at for death in history.deaths}
    for n, effects in _by_call(history).items():
        starts = [effect for effect in effects if effect.what == "start"]
        for before, after in pairwise(starts):
            ended = any(e.what == "end" and e.pid == before.pid and before.at <= e.at <= after.at for e in effects)
            dead = died.get(before.pid, float("inf")) <= after.at
            if before.pid == after.pid or not (ended or dead):
                yield f"call {n} ran in {before.pid} and in {after.pid} at once"


def _sent_again_for_nothing(history: History) -> Iterator[str]:
    for path, deliveries in history.by_path.items():
        ordered = sorted(deliveries, key=lambda delivery: delivery.at)
        for before, after in pairwise(ordered):
            if before.accepted and not history.deaths_between(before.at, after.at, "server", "sink"):
                yield f"{path} was answered 200 and sent again, though nobody had died"


def _pairs(history: History) -> Iterator[tuple[Sent, Delivery]]:
    sent = {each.call.path: each for each in history.sent}
    for delivery in history.deliveries:
        if delivery.path in sent:
            yield sent[delivery.path], delivery


def _by_call(history: History) -> dict[int, list[Effect]]:
    effects: dict[int, list[Effect]] = defaultdict(list)
    for effect in sorted(history.effects, key=lambda effect: effect.at):
        effects[effect.n].append(effect)
    return effects


def _text(delivery: Delivery) -> str:
    return str(json.loads(delivery.body).get("text"))


def _name(call: Call) -> str:
    return f"call {call.n} ({call.tool}, {call.group_id}/{call.id})"
