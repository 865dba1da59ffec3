"""What holds for every message: it has an id, it says one thing to one address, it is repeated for a reason, and it does not overtake."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.crash.history import Delivery, History


def account_messages(history: History, *, one_worker: bool) -> Iterator[str]:
    by_id: dict[str, list[Delivery]] = defaultdict(list)
    for delivery in history.deliveries:
        by_id[delivery.id].append(delivery)
    for delivery in by_id.pop("", ()):
        yield f"{delivery.path} got a message without webhook-id"
    for id, deliveries in by_id.items():
        if contradictory := list(_contradictory(id, deliveries)):
            yield from contradictory
        elif one_worker:
            yield from _sent_again_for_nothing(history, deliveries)
    if one_worker:
        yield from _overtaken(history)


def _contradictory(id: str, deliveries: list[Delivery]) -> Iterator[str]:
    if len(paths := {delivery.path for delivery in deliveries}) > 1:
        yield f"message {id} went to several calls (INV-12): {sorted(paths)}"
    elif len(bodies := {delivery.body for delivery in deliveries}) > 1:
        yield f"{deliveries[0].path} got different bodies under one id: {sorted(bodies)}"


def _sent_again_for_nothing(history: History, deliveries: list[Delivery]) -> Iterator[str]:
    for before, after in pairwise(deliveries):
        if before.accepted and not history.deaths_between(before.began, after.at, "server", "sink"):
            yield f"{before.path} answered 200 and was sent {before.id} again, though nobody had died"


def _overtaken(history: History) -> Iterator[str]:
    """Only what was sent last is ever sent again: what comes next is sent when that has arrived."""
    for path, deliveries in history.by_path.items():
        done: set[str] = set()
        for before, after in pairwise(deliveries):
            if before.id != after.id:
                done.add(before.id)
            if after.id in done:
                yield f"{path} got {after.id} again after a later message"
