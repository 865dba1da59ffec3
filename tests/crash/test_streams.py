"""The account itself is tested: every promise about subscriptions that is broken is made up, and must be complained about."""

import json
from dataclasses import replace
from typing import Any

from tests.crash.history import Call, Death, Delivery, Effect, Emission, History, Stream
from tests.crash.invariants import account

COUNT = Call(1, "count", 0.0, "stream_1", "call_1", "model_1")
PLAIN = Call(2, "count_plainly", 0.0, "stream_2", "call_2")
NEWS = Call(3, "news", 0.0, "stream_3", "call_3")


def confirmed(call: Call, at: float = 2.0, text: str | None = None, subscription: bool = True) -> Delivery:
    message = {"type": "tool_result", "group_id": call.group_id, "id": call.id, "call_id": call.call_id}
    told = text or f"Subscribed to {call.tool}. The id of the subscription is {call.id}."
    return Delivery(at, call.path, f"msg_{call.n}", json.dumps({**message, "text": told, "subscription": subscription}))


def event(
    call: Call, text: str, at: float = 3.0, final: bool = False, id: str | None = None, **changes: Any
) -> Delivery:
    message = {"type": "subscription_event", "group_id": call.group_id, "tool_call_id": call.id, "text": text}
    body = json.dumps({**message, "final": final, **changes})
    return Delivery(at, call.path, id or f"msg_{call.n}_{text}", body)


def late_event(call: Call, text: str, final: bool = False) -> Delivery:
    """One that was sent before the cancellation, and arrived after it."""
    return replace(event(call, text, at=4.1, final=final), began=3.0)


def mark(call: Call, at: float = 4.0) -> Delivery:
    return Delivery(at, f"/mark/{call.n}", f"mark_{call.n}", "{}")


def killed(*times: float) -> tuple[Death, ...]:
    return tuple(Death(at, 10) for at in times)


COUNTED = History(
    streams=(Stream(COUNT, 1.0, acknowledged=True, last=3),),
    deliveries=(confirmed(COUNT), event(COUNT, "1"), event(COUNT, "2"), event(COUNT, "3", final=True)),
)
SAID_SO = History(
    streams=(Stream(PLAIN, 1.0, acknowledged=True, last=1),),
    deliveries=(confirmed(PLAIN), event(PLAIN, "1"), event(PLAIN, "The subscription has ended.", final=True)),
)
HEARD = History(
    streams=(Stream(NEWS, 1.0, acknowledged=True, topic="weather"),),
    emissions=tuple(Emission("weather", n, at=0.2 + n, acknowledged_at=0.3 + n, last=n == 5) for n in range(6)),
    deliveries=(confirmed(NEWS, at=2.5), *(event(NEWS, str(n), at=0.4 + n, final=n == 5) for n in (2, 3, 4, 5))),
)
CANCELLED = replace(
    COUNTED,
    streams=(Stream(COUNT, 1.0, acknowledged=True, last=3, cancelled_at=3.5, silent_from=3.8),),
    deliveries=(confirmed(COUNT), event(COUNT, "1"), mark(COUNT)),
)


def complaint(history: History) -> str:
    (only,) = account(history)
    return only


def without(history: History, *places: int) -> History:
    return replace(history, deliveries=tuple(d for n, d in enumerate(history.deliveries) if n not in places))


def test_good_subscriptions_are_not_complained_about() -> None:
    for good in (COUNTED, SAID_SO, HEARD, CANCELLED):
        assert account(good) == []


def test_a_subscription_that_was_acknowledged_and_never_confirmed_is_missed() -> None:
    assert "neither ended nor was cancelled (SUB-6)" in complaint(without(COUNTED, 0, 1, 2, 3))


def test_a_subscription_that_stops_half_way_is_missed() -> None:
    assert "neither ended nor was cancelled (SUB-6)" in complaint(without(COUNTED, 3))
    assert "neither ended nor was cancelled (SUB-6)" in complaint(without(HEARD, 4))


def test_an_event_that_is_missing_is_noticed() -> None:
    assert "did not count from 1 to 3: ['1', '3']" in complaint(without(COUNTED, 2))
    assert "missed 4: ['2', '3', '5']" in complaint(without(HEARD, 3))


def test_an_event_under_two_ids_is_noticed() -> None:
    confirmation, one, *rest = COUNTED.deliveries
    twice = replace(COUNTED, deliveries=(confirmation, one, event(COUNT, "1", id="msg_other"), *rest))
    heard_twice = replace(
        HEARD, deliveries=(*HEARD.deliveries[:2], event(NEWS, "2", id="other"), *HEARD.deliveries[2:])
    )

    assert "did not count" in complaint(twice)
    assert "heard things twice, or not in order: [2, 2, 3, 4, 5]" in complaint(heard_twice)


def test_the_same_event_again_after_a_death_is_a_retransmission() -> None:
    again = replace(event(COUNT, "1"), at=3.2)
    confirmation, one, *rest = COUNTED.deliveries
    repeated = replace(COUNTED, deliveries=(confirmation, one, again, *rest))

    assert account(replace(repeated, deaths=killed(3.1))) == []
    assert "again, though nobody had died" in complaint(repeated)


def test_events_that_overtake_each_other_are_noticed() -> None:
    confirmation, one, two, three = COUNTED.deliveries
    swapped = replace(COUNTED, deliveries=(confirmation, two, one, three))
    late = replace(COUNTED, deliveries=(*COUNTED.deliveries, replace(two, at=3.2)), deaths=killed(3.1))

    assert "did not count from 1 to 3: ['2', '1', '3']" in complaint(swapped)
    assert "got msg_1_2 again after a later message" in complaint(late)


def test_an_event_before_the_confirmation_is_noticed() -> None:
    confirmation, one, *rest = COUNTED.deliveries
    early = replace(COUNTED, deliveries=(one, confirmation, *rest))
    assert "instead of its confirmation (SUB-2)" in "\n".join(account(early))


def test_a_confirmation_that_does_not_name_the_subscription_is_noticed() -> None:
    nameless = replace(COUNTED, deliveries=(confirmed(COUNT, text="Subscribed."), *COUNTED.deliveries[1:]))
    assert "was confirmed without its id" in complaint(nameless)


def test_a_second_confirmation_is_noticed() -> None:
    again = replace(confirmed(COUNT), id="msg_other")
    twice = replace(COUNTED, deliveries=(COUNTED.deliveries[0], again, *COUNTED.deliveries[1:]))
    assert "(SUB-3)" in "\n".join(account(twice))


def test_a_subscription_that_is_refused_for_no_reason_is_noticed() -> None:
    refused = replace(COUNTED, deliveries=(confirmed(COUNT, text="Error: Cancelled.", subscription=False),))
    given_up = "Error: count was interrupted 3 times and given up. Tell the user."
    lost = replace(COUNTED, deliveries=(confirmed(COUNT, text=given_up, subscription=False),))

    assert "was refused" in complaint(refused)
    assert account(replace(refused, streams=(replace(COUNTED.streams[0], cancelled_at=1.5),))) == []
    assert account(replace(lost, deaths=killed(1.1, 1.2, 1.3))) == []
    assert "was refused" in complaint(replace(lost, deaths=killed(1.1, 1.2)))
    assert "was refused, and got 1 events" in "\n".join(
        account(replace(lost, deliveries=(*lost.deliveries, event(COUNT, "1"))))
    )


def test_an_event_with_the_ids_of_another_is_noticed() -> None:
    wrongs: list[dict[str, Any]] = [{"group_id": "stream_2"}, {"tool_call_id": "call_9"}, {"type": "view_update"}]
    for wrong in wrongs:
        strange = replace(
            COUNTED, deliveries=(*COUNTED.deliveries[:2], event(COUNT, "2", **wrong), COUNTED.deliveries[3])
        )
        assert "(SUB-3)" in complaint(strange)


def test_an_end_that_comes_early_twice_or_not_at_all_is_noticed() -> None:
    early = replace(COUNTED, deliveries=(confirmed(COUNT), event(COUNT, "1", final=True)))
    twice = replace(COUNTED, deliveries=(*COUNTED.deliveries[:2], event(COUNT, "2", final=True), COUNTED.deliveries[3]))
    never = replace(COUNTED, deliveries=(*COUNTED.deliveries[:3], event(COUNT, "3")))
    without_a_word = replace(SAID_SO, deliveries=(confirmed(PLAIN), event(PLAIN, "1", final=True)))

    unheard = replace(HEARD, deliveries=(*HEARD.deliveries[:2], event(NEWS, "3", at=3.4, final=True)))

    assert "ended too early" in complaint(early)
    assert "ended too early" in complaint(unheard)
    assert "something after its final event (SUB-4)" in complaint(twice)
    assert "did not say that it ended" in "\n".join(account(never))
    assert "ended too early" in complaint(without_a_word)


def test_an_event_after_the_end_is_noticed() -> None:
    more = replace(COUNTED, deliveries=(*COUNTED.deliveries, event(COUNT, "4")))
    assert "something after its final event (SUB-4)" in "\n".join(account(more))


def test_what_was_begun_after_a_cancellation_is_noticed() -> None:
    new = replace(CANCELLED, deliveries=(*CANCELLED.deliveries, event(COUNT, "2", at=4.1)))
    old = replace(CANCELLED, deliveries=(*CANCELLED.deliveries, event(COUNT, "1", at=4.1)))
    late = replace(CANCELLED, deliveries=(mark(COUNT), confirmed(COUNT, at=4.1)))

    assert "was cancelled, and got '2' after that (SUB-5)" in complaint(new)
    assert "was cancelled, and got '1' after that (SUB-5)" in complaint(replace(old, deaths=killed(3.9)))
    assert "was cancelled, and got 'Subscribed" in complaint(late)


def test_one_message_may_have_been_on_its_way_when_a_subscription_was_cancelled() -> None:
    late = replace(CANCELLED, deliveries=(*CANCELLED.deliveries, late_event(COUNT, "2")))
    later = replace(late, deliveries=(*late.deliveries, late_event(COUNT, "3", final=True)))
    again = replace(late, deliveries=(*late.deliveries, late_event(COUNT, "2")), deaths=killed(4.0))

    assert account(late) == []
    assert "got '3' after that (SUB-5)" in complaint(later)
    assert "got '2' after that (SUB-5)" in complaint(again)


def test_a_cancellation_before_the_confirmation_is_answered() -> None:
    sorry = confirmed(COUNT, text="Error: Cancelled.", subscription=False)
    assert account(replace(CANCELLED, deliveries=(mark(COUNT), sorry))) == []


def test_a_cancelled_subscription_still_has_no_gap() -> None:
    assert "did not count" in complaint(
        replace(CANCELLED, deliveries=(confirmed(COUNT), event(COUNT, "2"), mark(COUNT)))
    )


def test_what_was_emitted_after_the_confirmation_must_arrive() -> None:
    assert "missed 3: ['4', '5']" in complaint(without(HEARD, 1, 2))
    # Nobody knows whether 2 was before or after: it was sent when the subscription was under way.
    assert account(without(HEARD, 1)) == []


def test_what_was_emitted_before_the_subscription_must_not_arrive() -> None:
    confirmation, *events = HEARD.deliveries
    older = replace(HEARD, deliveries=(confirmation, event(NEWS, "0"), event(NEWS, "1"), *events))
    assert "heard of 0, which was before it subscribed" in complaint(older)


def test_an_event_may_be_set_aside_when_three_servers_were_lost_on_it() -> None:
    gap = without(HEARD, 3)
    assert account(replace(gap, deaths=killed(4.3, 4.5, 4.7))) == []
    assert "missed 4" in complaint(replace(gap, deaths=killed(4.3, 4.5)))
    assert "missed 4" in complaint(replace(gap, deaths=killed(1.3, 1.5, 1.7)))


def test_a_generator_that_runs_twice_at_once_is_noticed() -> None:
    twice = (Effect(1.1, 10, "start", 1), Effect(1.2, 11, "start", 1))
    stopped = (Effect(1.1, 10, "start", 1), Effect(1.15, 10, "stop", 1), Effect(1.2, 10, "start", 1))

    assert "ran in 10 and in 11 at once" in complaint(replace(COUNTED, effects=twice))
    assert account(replace(COUNTED, effects=twice, deaths=killed(1.15))) == []
    assert account(replace(COUNTED, effects=stopped)) == []
