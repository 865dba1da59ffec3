"""The rows of the table: what is sent, and what its sender has to see."""

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.hardening.clients.clients import Answer, Driver, Fields
from tests.hardening.clients.endpoints import FAR_TOO_LARGE, LIMIT, Callbacks, Endpoint

SLOW = {"pieces": "8", "pause": "0.4"}
"""A body that comes steadily, and takes longer than `PAUSE`."""

_sessions = itertools.count()

Origin = Callable[[str], str]
"""A URL of a process as its senders know it: as it is, or behind a proxy."""


@dataclass(frozen=True)
class Exchange:
    """A request, and what its answer has to be: a status, and for a message that is taken, that it arrived."""

    request: Fields
    status: int
    arrived: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Case:
    """A row: the requests it makes, one after another, by the same client. `needs` is what a client has to be able to do.

    `endpoint` is the only one that it concerns, or None if it concerns both.
    """

    name: str
    exchanges: Callable[[Endpoint], Iterator[Exchange]]
    needs: frozenset[str] = frozenset()
    endpoint: str | None = None

    def run(self, driver: Driver, endpoint: Endpoint, origin: Origin) -> list[str]:
        """What went wrong, exchange by exchange; empty if nothing did."""
        session = f"{next(_sessions)}"
        problems = []
        for exchange in self.exchanges(endpoint):
            request = {**exchange.request, "session": session, "url": origin(str(exchange.request["url"]))}
            problem = _problem(driver.send(request), exchange.status)
            problems += [problem] if problem else []
            if not problem:
                exchange.arrived()
        return problems


def _problem(answer: Answer, status: int) -> str:
    """What is wrong with an answer; "" if it is as it has to be."""
    if answer["status"] != status:
        seen = answer["error"] or f"{answer['status']} {answer['body'][:200]}"
        return f"instead of {status} the client saw: {seen}"
    if status == 200:
        return ""
    try:
        document = json.loads(answer["body"])
    except ValueError:
        return f"the body of the {status} cannot be read: {answer['body'][:200]!r}"
    if answer["headers"].get("content-type") != "application/problem+json" or document["status"] != status:
        return f"the {status} is no problem document of ours: {answer['headers']} {answer['body'][:200]}"
    return ""


def taken(size: int, **how: str) -> Callable[[Endpoint], Iterator[Exchange]]:
    """A message of so many bytes, which is taken."""

    def exchanges(endpoint: Endpoint) -> Iterator[Exchange]:
        message = endpoint.message()
        new_mails = max(0, size - len(message.head) - len(message.tail))
        body = {"head": message.head, "fill": str(new_mails), "tail": message.tail}
        request = {"url": message.url, "method": "POST", "header": message.headers, **body, **how}
        yield Exchange(request, 200, lambda: message.arrived(new_mails))

    return exchanges


def too_large(size: int, **how: str) -> Callable[[Endpoint], Iterator[Exchange]]:
    """A message past the limit."""

    def exchanges(endpoint: Endpoint) -> Iterator[Exchange]:
        (exchange,) = taken(size, **how)(endpoint)
        yield Exchange(exchange.request, 413)

    return exchanges


def refused(name: str, **how: str) -> Callable[[Endpoint], Iterator[Exchange]]:
    """A request that is refused for what is in its head."""

    def exchanges(endpoint: Endpoint) -> Iterator[Exchange]:
        wanted = endpoint.refused()[name]
        body = {"head": wanted.head, "fill": str(wanted.new_mails), "tail": wanted.tail}
        request = {"url": wanted.url, "method": wanted.method, "header": wanted.headers, **body, **how}
        yield Exchange(request, wanted.status)

    return exchanges


def one_after_another(
    *parts: Callable[[Endpoint], Iterator[Exchange]],
) -> Callable[[Endpoint], Iterator[Exchange]]:
    """Several requests on one connection, if the client keeps it."""
    return lambda endpoint: itertools.chain.from_iterable(part(endpoint) for part in parts)


CHUNKED, EXPECT, CLOSE, HTTP10 = {"chunked": "1"}, {"expect": "1"}, {"close": "1"}, {"http10": "1"}
_EXPECT, _REFUSED_EXPECT = frozenset({"expect"}), frozenset({"refused expect"})
_HTTP10, _DECLARED_PACE = frozenset({"http10"}), frozenset({"declared pace"})

CASES = [
    Case("small", taken(300)),
    Case("small chunked", taken(300, **CHUNKED)),
    Case("small close", taken(300, **CLOSE)),
    Case("small http10", taken(300, **HTTP10), _HTTP10),
    Case("large", taken(LIMIT)),
    Case("large chunked", taken(LIMIT, **CHUNKED)),
    Case("large expect", taken(LIMIT, **EXPECT), _EXPECT),
    Case("large close", taken(LIMIT, **CLOSE)),
    Case("large http10", taken(LIMIT, **HTTP10), _HTTP10),
    Case("slow", taken(LIMIT // 2, **SLOW), _DECLARED_PACE),
    Case("slow chunked", taken(LIMIT // 2, **SLOW, **CHUNKED)),
    Case("too large by a byte", too_large(LIMIT + 1)),
    Case("too large", too_large(FAR_TOO_LARGE)),
    Case("too large chunked", too_large(FAR_TOO_LARGE, **CHUNKED)),
    Case("too large expect", too_large(FAR_TOO_LARGE, **EXPECT), _REFUSED_EXPECT),
    Case("too large close", too_large(FAR_TOO_LARGE, **CLOSE)),
    Case("too large http10", too_large(FAR_TOO_LARGE, **HTTP10), _HTTP10),
    Case("no token", refused("no token")),
    Case("no token chunked", refused("no token", **CHUNKED)),
    Case("no token expect", refused("no token", **EXPECT), _REFUSED_EXPECT),
    Case("unknown path", refused("unknown path")),
    Case("unknown callback", refused("unknown callback"), endpoint=Callbacks.name),
    Case("wrong method", refused("wrong method")),
    Case("closed thread", refused("closed thread"), endpoint=Callbacks.name),
    Case("taken after taken", one_after_another(taken(300), taken(300))),
    Case("taken after refused", one_after_another(refused("unknown path"), taken(300))),
    Case("taken after too large", one_after_another(too_large(FAR_TOO_LARGE), taken(300))),
]
