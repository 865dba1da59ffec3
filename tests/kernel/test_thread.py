"""A thread between two messages."""

import pytest
from pydantic import ValidationError

from rapkit.kernel.completion import Usage
from rapkit.kernel.thread import (
    EarlyEvent,
    Expired,
    Granted,
    Inherited,
    OpenChoice,
    Pending,
    SpawnedChild,
    Status,
    Subscription,
    Summarised,
    Thread,
    WaitingEvent,
    dump_thread,
    load_thread,
)

PENDING = Pending("forecast", {"city": None}, "http://a.test", "forecast", 1.5)
FULL = Thread(
    "t1-1",
    user_id="u1",
    ancestors=("t0", "t1"),
    inherits=Inherited("t1", 7),
    for_event=True,
    length=9,
    calls_made=4,
    children_made=2,
    pending={
        "call_0": Pending("sleep", {"seconds": 3}, "", "sleep", 1.0, awaits="time", since=1.0, until=4.0),
        "c1_t1": PENDING,
        "c2_t1": Pending("s", {}, "", "s", 0.0, "p", True, True, (EarlyEvent(3, True, False),)),
    },
    subscriptions={"c3_t1": Subscription("storms", {"deep": [{"x": [1, 2.5, None]}]}, 2.0, "http://a.test")},
    expired={"c4_t1": Expired("forecast", {}, "http://a.test", (EarlyEvent(4, False, True),))},
    choices={"c1_t1": (OpenChoice("Which?", ("a", "b"), 1, "http://a.test/c", "http://a.test", 3.0),)},
    authorizing={"c1_t1": 2.5},
    views=("plan",),
    task="Count.",
    owes_report=True,
    shown=5,
    spawned={"t1-1-2": SpawnedChild("Count.", closing=True)},
    allowed=("demolish",),
    timers={"c1_t1": 30.5},
    granted=Granted(1, 2, 0.5),
    context=77,
    summary=Summarised(6, 4, 3),
    compact_after=8,
    children=("t1-1-1",),
    waiting_events=(WaitingEvent(5, "c9_t1", 4),),
    ended={"c9_t1": Subscription("storms", {}, 1.0)},
    wants_model=True,
    retry_at=12.5,
    failures=1,
    mistakes=1,
    parked="why",
    usage=Usage(1, 2, 3, 0.25),
)


@pytest.mark.parametrize("thread", [Thread("t1"), FULL])
def test_a_thread_is_the_same_after_it_was_stored(thread: Thread) -> None:
    assert load_thread(dump_thread(thread)) == thread


def test_a_thread_that_just_began_takes_little_room() -> None:
    assert dump_thread(Thread("t1")) == b'{"id":"t1"}'


@pytest.mark.parametrize("state", [b"", b"[]", b"{}", b'{"id":1}'])
def test_anything_else_is_no_thread(state: bytes) -> None:
    with pytest.raises(ValidationError):
        load_thread(state)


@pytest.mark.parametrize(
    ("thread", "status"),
    [
        (Thread("t"), Status.IDLE),
        (Thread("t", expired={"c": Expired("x", {})}), Status.IDLE),
        (Thread("t", pending={"c": PENDING}), Status.WAITING),
        (Thread("t", subscriptions={"c": Subscription("x", {}, 0.0)}), Status.WAITING),
        (Thread("t", children=("k",)), Status.WAITING),
        (Thread("t", spawned={"k": SpawnedChild("Count.")}), Status.WAITING),
        (Thread("t", children=("k",), parked="why"), Status.PARKED),
        (Thread("t", parked="why", closed=True), Status.CLOSED),
    ],
)
def test_what_a_thread_is_doing(thread: Thread, status: Status) -> None:
    assert thread.status is status


def test_relatives() -> None:
    assert (FULL.parent, FULL.root) == ("t1", "t0")
    assert (Thread("t").parent, Thread("t").root) == (None, "t")


def test_calls_that_may_call_back() -> None:
    """CB-8, SUB-15; one that was never sent may not."""
    assert FULL.live_calls == {"c1_t1", "c2_t1", "c3_t1", "c4_t1"}
    assert Thread("t", pending={"c": PENDING}, closed=True).live_calls == frozenset()


def test_a_thread_is_free_when_it_waits_for_no_call() -> None:
    assert Thread("t").is_free
    assert not FULL.is_free
    assert Thread("t", pending={"c2_t1": FULL.pending["c2_t1"]}).is_free
