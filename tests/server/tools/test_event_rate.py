"""How fast events leave."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapkit.protocol import parse_invocation
from rapkit.server.invocation import StoredCall
from rapkit.server.subscriptions.event import Occurrence
from rapkit.server.subscriptions.event_batcher import EventBatcher
from rapkit.server.subscriptions.subscription_state import SubscriptionState
from rapkit.server.tools.event_rate import DEFAULT_RATE, EventRate
from rapkit.server.tools.tool import SubscriptionTraits

T0 = 1_000_000.0
BODY = json.dumps(
    {"operation": "watch", "arguments": {}, "id": "c1", "callback_url": "https://a.example/cb", "group_id": "t1"}
).encode()
STANDING = SubscriptionState(StoredCall("tools", "default", parse_invocation(BODY), BODY, "https://me.example"))
EVENT = Occurrence("x", None, associative=False, final=False)


def departures(pace: EventRate, arrivals: list[float]) -> list[float]:
    """When events that come at these times leave, as seconds after the first."""
    mark, left = 0.0, []
    for at in arrivals:
        left.append(round(pace.opens(mark, T0 + at) - T0, 6))
        mark = pace.advance(mark, T0 + at)
    return left


def test_twenty_leave_at_once_and_then_ten_a_second() -> None:
    """SUB-8"""
    left = departures(EventRate(DEFAULT_RATE), [0.0] * 25)

    assert left == [0.0] * 20 + [0.1, 0.2, 0.3, 0.4, 0.5]


def test_what_comes_slowly_is_not_delayed() -> None:
    arrivals = [number * 0.1 for number in range(200)]

    assert departures(EventRate(DEFAULT_RATE), arrivals) == [round(at, 6) for at in arrivals]


def test_room_for_a_burst_comes_back_with_time() -> None:
    left = departures(EventRate(10), [0.0] * 20 + [1.0] * 12)

    assert left[20:] == [1.0] * 10 + [1.1, 1.2]


def test_a_slow_pace_has_no_bursts() -> None:
    assert departures(EventRate(0.5), [0.0, 0.0, 0.0, 7.0]) == [0.0, 2.0, 4.0, 7.0]
    assert departures(EventRate(0.1), [0.0, 1.0]) == [0.0, 10.0]


def test_without_a_rate_everything_leaves_when_it_comes() -> None:
    assert departures(EventRate(None), [0.0] * 1000) == [0.0] * 1000


@pytest.mark.parametrize("batch", [False, True])
def test_a_clock_that_was_set_back_does_not_hold_events_until_it_has_caught_up(batch: bool) -> None:
    outflow = EventBatcher(SubscriptionTraits(rate=10, batch=batch), 1_000_000)
    before, _ = outflow.send(STANDING, [EVENT] * 25, T0)
    back = T0 - 3600
    after, left = outflow.send(before, [EVENT], back)
    held = [each.not_before for each in left] if not batch else [outflow.flush_at(after, back)]

    assert len(held) == 1
    assert (held[0] or back) - back < 120
    later, left = outflow.flush(after, back)
    assert all((each.not_before or back) - back < 120 for each in left)
    _, left = outflow.send(later, [EVENT], back + 120)
    assert [each.not_before for each in left] == [None]


def test_however_many_come_together_the_last_of_them_keep_to_the_rate() -> None:
    """SUB-8: that their mark is far ahead is no sign that the clock was set back."""
    outflow = EventBatcher(SubscriptionTraits(rate=10), 1_000_000)
    _, left = outflow.send(STANDING, [EVENT] * 5000, T0)

    assert [each.not_before for each in left[:20]] == [None] * 20
    assert [round((each.not_before or T0) - T0, 1) for each in left[20:]] == [
        round(number / 10, 1) for number in range(1, 4981)
    ]


@pytest.mark.parametrize("rate", [0.2, 1.0, 3.0, 10.0, 250.0])
@given(gaps=st.lists(st.floats(0, 5), min_size=1, max_size=60))
def test_order_is_kept_and_no_second_sees_more_than_its_share(rate: float, gaps: list[float]) -> None:
    """SUB-8: whatever comes when; delayed, and by no more than it takes."""
    arrivals, at = [], 0.0
    for gap in gaps:
        at += gap
        arrivals.append(at)
    left = departures(EventRate(rate), arrivals)

    assert left == sorted(left)
    assert all(leaves >= round(came, 6) for came, leaves in zip(arrivals, left, strict=True))
    for number, begin in enumerate(left):
        within = [leaves for leaves in left[number:] if leaves < begin + 10]
        assert len(within) <= 10 * rate + max(1.0, 2 * rate) + 1e-3
