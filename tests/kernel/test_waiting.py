"""A model that waits: for a time, or for whatever happens."""

import re

import pytest

from rapkit.kernel.completion import WantedCall
from rapkit.kernel.effects import Invoke, SetTimer, Spawn
from rapkit.kernel.entries import Answered, WokenUp
from rapkit.kernel.incoming import (
    CancelCall,
    ChildClosed,
    ChildReport,
    ChooseFor,
    CloseThread,
    Grant,
    Incoming,
    ParentMessage,
    TimerDue,
    Undelivered,
    UserMessage,
    WakeUp,
)
from rapkit.kernel.limits import ThreadLimits
from rapkit.kernel.thread import Status, Thread
from rapkit.protocol import OAuthRequest, SubscriptionEvent, ToolResult, UserChoice, ViewUpdate
from tests.kernel.thread_driver import ThreadDriver, calling, forecast, storms, subscribed, want

SLEEP = want("sleep", seconds=60)
SCHEDULE = WakeUp("news", "2030-01-31 09:00 Europe/Berlin", "Read them.")
OVER = "60 seconds have passed. It is Thursday 1970-01-01 00:17:40 UTC."


def until(time: str, **more: str) -> WantedCall:
    return want("sleep_until", time=time, **more)


def waiting(call: WantedCall, limits: ThreadLimits | None = None) -> ThreadDriver:
    """A thread with a subscription `c1_t1`, a call `c2_t1` that runs, and a child, whose model waits with `c4_t1`."""
    talk = subscribed(limits)
    talk.user("And Oslo?")
    talk.says("", forecast())
    talk.user("And count them.")
    talk.says("", want("spawn_thread", task="Count."))
    assert isinstance(talk.effects[0], Spawn)
    talk.says("", call)
    assert talk.thread.pending["c4_t1"].awaits == "time"
    assert not talk.is_asked()
    return talk


# The time


def test_a_sleep_is_over_when_its_time_is() -> None:
    talk = calling(SLEEP)
    assert talk.effects == (SetTimer("call/c1_t1", 1060.0),)
    assert talk.status() is Status.WAITING
    assert talk.thread.live_calls == frozenset()
    assert not talk.is_asked()

    assert talk.goes_on_until(1060.0) == (Answered("c1_t1", "sleep", OVER, by="runtime"),)
    assert talk.is_asked()
    assert talk.shown()[-1] == f"c1_t1: {OVER}"
    assert talk.effects == (SetTimer("call/c1_t1", None),)


@pytest.mark.parametrize(
    ("call", "at"),
    [
        (want("sleep", seconds=0), 1000.0),
        (want("sleep", seconds=0.5), 1000.5),
        (until("1970-01-02T00:00"), 86400.0),
        (until("1970-01-02T00:00", timezone="Europe/Berlin"), 86400.0 - 3600),
        (want("wait_for_event", at_most_seconds=5), 1005.0),
        (want("wait_for_event"), None),
    ],
)
def test_how_long_a_model_waits(call: WantedCall, at: float | None) -> None:
    talk = calling(call)
    assert talk.ledger.timers == ({} if at is None else {"call/c1_t1": at})
    assert list(talk.thread.pending) == ["c1_t1"]


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (until("1970-01-01T00:00"), "That is over: it is Thursday 1970-01-01 00:16:40 UTC."),
        (until("1970-01-01T00:16:40"), "That is over: it is"),
        (until("1990-01-01T00:00"), "That is more than ten years away. It is"),
        (until("soon"), "'soon' is no date and time. Write it like 2030-01-31T09:00. It is"),
        (until("1971-01-01", timezone="Here"), "'Here' is no IANA time zone. Write one like Europe/Berlin. It is"),
        (until("0001-01-01T00:00+14:00"), ""),
        (until("9999-12-31T23:59-14:00"), ""),
        (until("0001-01-01T00:00", timezone="Asia/Tokyo"), ""),
        (want("sleep"), "The arguments do not fit"),
        (want("sleep", seconds=-1), "The arguments do not fit"),
        (want("sleep", seconds="60"), "The arguments do not fit"),
        (want("sleep", seconds=1e18), "The arguments do not fit"),
        (want("wait_for_event", at_most_seconds=-1), "The arguments do not fit"),
    ],
    ids=range(13),
)
def test_a_time_that_cannot_be_waited_for_is_refused(call: WantedCall, problem: str) -> None:
    talk = calling(call)
    assert re.match(f"Error: {re.escape(problem)}", talk.answers()[-1].text or "")
    assert talk.is_asked()
    assert talk.effects == ()


# What ends it early

WAKES: list[tuple[str, Incoming]] = [
    ("user", UserMessage("Well?")),
    ("schedule", SCHEDULE),
    ("result", ToolResult(group_id="t1", id="c2_t1", text="sunny")),
    ("event", SubscriptionEvent(group_id="t1", tool_call_id="c1_t1", text="!", associative=True)),
    ("report", ChildReport("t1-000001", "Seven.")),
    ("end of a child", ChildClosed("t1-000001", "the user")),
    ("message of the parent", ParentMessage("t0", "Faster.")),
    ("undelivered", Undelivered("c2_t1", "nobody is there")),
    ("cancelled", CancelCall("c2_t1")),
]


@pytest.mark.parametrize("call", [SLEEP, until("1971-01-01"), want("wait_for_event")], ids=lambda call: call.name)
@pytest.mark.parametrize(("what", "message"), WAKES, ids=[what for what, _ in WAKES])
def test_whatever_wakes_the_thread_ends_the_wait(what: str, message: Incoming, call: WantedCall) -> None:
    talk = waiting(call)
    talk.now += 30
    talk.hears(message)
    assert talk.is_asked()
    assert talk.ledger.timers.keys() <= {"expired/c2_t1"}
    expected = "c4_t1: Interrupted by what follows. 30 seconds have passed. It is Thursday 1970-01-01 00:17:10 UTC."
    shown = talk.shown()
    assert shown[shown.index(expected) - 1].startswith(f"model calls c4_t1: {call.name}")
    assert shown[-1] != expected, "what it was interrupted by is shown behind it"


LETS_SLEEP: list[tuple[str, Incoming]] = [
    ("view", ViewUpdate(group_id="t1", view_type="plan", content=1)),
    (
        "choice",
        UserChoice(group_id="t1", id="c2_t1", prompt="?", choices=("a",), default=0, response_url="http://a.test"),
    ),
    ("choice made", ChooseFor("c2_t1", 0)),
    ("oauth", OAuthRequest(group_id="t1", id="c2_t1", auth_url="http://a.test")),
    ("threaded event", SubscriptionEvent(group_id="t1", tool_call_id="c1_t1", text="!", associative=False)),
    ("early event", SubscriptionEvent(group_id="t1", tool_call_id="c2_t1", text="!", associative=True)),
    ("grant", Grant(slices=1)),
    ("stale result", ToolResult(group_id="t1", id="c9_t1", text="sunny")),
    ("stale timer", TimerDue("call/c9_t1")),
    ("stranger", ChildReport("t9", "Hello.")),
]


@pytest.mark.parametrize(("what", "message"), LETS_SLEEP, ids=[what for what, _ in LETS_SLEEP])
def test_what_does_not_wake_the_thread_lets_it_wait(what: str, message: Incoming) -> None:
    talk = waiting(SLEEP)
    talk.hears(message)
    assert not talk.is_asked()
    assert talk.ledger.timers["call/c4_t1"] == 1060.0


def test_the_end_of_a_child_that_was_made_for_an_event_lets_it_wait() -> None:
    talk = waiting(SLEEP)
    talk.event("c1_t1", associative=False)
    talk.hears(ChildClosed("t1-000002"))
    assert not talk.is_asked()
    assert "c4_t1" in talk.thread.pending


@pytest.mark.parametrize("end", [CancelCall("c4_t1"), CloseThread()], ids=["cancelled", "closed"])
def test_a_wait_that_is_ended_by_the_user_leaves_no_timer(end: Incoming) -> None:
    talk = waiting(SLEEP)
    talk.hears(end)
    assert "c4_t1" not in talk.thread.pending
    assert talk.ledger.timers == {}
    assert talk.is_asked() == (not talk.thread.closed)


def test_a_message_of_the_user_only_interrupts_a_wait_where_it_cancels_calls() -> None:
    talk = calling(SLEEP, forecast(), limits=ThreadLimits(cancel_on_interrupt=True))
    talk.user("Well?")
    assert [(answer.text or "").split(".")[0] for answer in talk.answers()] == [
        "Error: Cancelled",
        "Interrupted by what follows",
    ]


# Beside other calls


def test_a_model_that_sleeps_beside_a_call_goes_on_when_that_is_answered() -> None:
    talk = calling(SLEEP, forecast())
    assert Invoke("c2_t1") in talk.effects
    talk.now += 5
    talk.result("c2_t1")
    assert talk.is_asked()
    assert (talk.shown()[-2].split(".")[0], talk.shown()[-1]) == (
        "c1_t1: Interrupted by what follows",
        "c2_t1: sunny",
    )


def test_a_model_that_sleeps_beside_a_call_waits_for_both_if_the_sleep_ends_first() -> None:
    talk = calling(SLEEP, forecast())
    talk.goes_on_until(1060.0)
    assert not talk.is_asked()
    talk.result("c2_t1")
    assert talk.is_asked()
    assert talk.shown()[-2:] == [f"c1_t1: {OVER}", "c2_t1: sunny"]


def test_the_first_of_two_sleeps_that_is_over_ends_both() -> None:
    talk = calling(SLEEP, want("sleep", seconds=90), want("wait_for_event"))
    talk.goes_on_until(1060.0)
    assert talk.is_asked()
    assert talk.ledger.timers == {}
    assert [answer.call_id for answer in talk.answers()] == ["c1_t1", "c2_t1", "c3_t1"]


def test_two_sleeps_that_are_over_at_the_same_time_are_each_answered_once() -> None:
    talk = calling(SLEEP, want("sleep", seconds=60))
    talk.goes_on_until(2000.0)
    assert [answer.call_id for answer in talk.answers()] == ["c1_t1", "c2_t1"]
    assert talk.ledger.timers == {}


@pytest.mark.parametrize("sleep_first", [True, False])
def test_a_wrong_call_beside_a_sleep_ends_it_at_once(sleep_first: bool) -> None:
    calls = [SLEEP, want("no_such_tool")]
    talk = calling(*(calls if sleep_first else calls[::-1]))
    assert talk.is_asked()
    assert talk.ledger.timers == {}
    assert len(talk.answers()) == 2


# Waiting for what cannot happen


def child_of(parent: ThreadDriver) -> ThreadDriver:
    parent.user("Count.")
    parent.says("", want("spawn_thread", task="Count."))
    return parent.spawned()


def test_a_child_does_not_wait_for_what_cannot_happen() -> None:
    child = child_of(ThreadDriver())
    child.says("", want("wait_for_event"))
    assert (
        child.answers()[-1].text
        == "Error: Nothing is left that could happen here. Report to the parent thread, or end your turn."
    )
    assert child.is_asked()
    child.says("", want("wait_for_event", at_most_seconds=5))
    assert not child.is_asked()


def test_a_child_waits_for_a_child_of_its_own_until_that_has_reported() -> None:
    child = child_of(ThreadDriver())
    child.says("", want("spawn_thread", task="Count those of May."))
    grandchild = child.spawned()
    child.says("", want("wait_for_event"))
    assert child.status() is Status.WAITING
    grandchild.says("", want("report_to_parent", text="Seven."))
    child.takes_mail_of(grandchild)
    assert child.is_asked()
    assert not child.thread.waits
    child.says("", want("wait_for_event"))
    assert (child.answers()[-1].text or "").startswith("Error: Nothing is left")
    child.says("", want("send_message_to_child", thread_id=grandchild.thread.id, text="And those of June?"))
    child.says("", want("wait_for_event"))
    assert child.status() is Status.WAITING


def test_a_child_whose_own_child_has_reported_is_not_waited_for_in_vain() -> None:
    """It has nothing left to wait for: what it says last is its report, though its child is still open."""
    child = child_of(ThreadDriver())
    child.says("", want("spawn_thread", task="Count those of May."))
    grandchild = child.spawned()
    child.says("I wait.")
    assert child.written() == []
    grandchild.says("", want("report_to_parent", text="Seven."))
    child.takes_mail_of(grandchild)
    child.says("Seven in all.")
    assert [write.message for write in child.written()] == [ChildReport("t1-000001", "Seven in all.")]


def test_a_user_who_cancels_a_subscription_ends_the_wait_for_its_events() -> None:
    talk = waiting(want("wait_for_event"))
    talk.hears(CancelCall("c1_t1"))
    assert talk.is_asked()
    assert talk.thread.pending.keys() == {"c2_t1"}


def test_a_user_who_cancels_a_subscription_asks_nothing_of_a_model_that_does_not_wait() -> None:
    talk = subscribed()
    talk.hears(CancelCall("c1_t1"))
    assert not talk.is_asked()


def test_a_subscription_that_is_confirmed_ends_a_wait_in_the_same_reply() -> None:
    talk = calling(storms(), want("wait_for_event"))
    talk.result("c1_t1", "Subscribed.", subscription=True)
    assert talk.is_asked()
    talk.says("", want("wait_for_event"))
    talk.event("c1_t1", "storm")
    assert talk.is_asked()
    assert talk.shown()[-1] == "c1_t1-e6: storm"


# Schedules


def test_a_schedule_speaks_to_the_thread_like_a_user_who_is_not_there() -> None:
    talk = ThreadDriver()
    assert talk.hears(SCHEDULE) == (WokenUp("news", "2030-01-31 09:00 Europe/Berlin", "Read them."),)
    assert talk.is_asked()
    assert talk.shown() == ["(The schedule 'news', due 2030-01-31 09:00 Europe/Berlin:)\n\nRead them."]


def test_a_schedule_interrupts_a_call_and_cancels_nothing() -> None:
    talk = calling(forecast(), want("ask_user", question="Where?"), limits=ThreadLimits(cancel_on_interrupt=True))
    talk.hears(SCHEDULE)
    assert talk.is_asked()
    assert talk.effects == ()
    assert list(talk.thread.pending) == ["c1_t1", "c2_t1"]
    assert list(talk.thread.choices) == ["c2_t1"]


def test_a_schedule_revives_a_thread_that_has_stopped() -> None:
    talk = ThreadDriver()
    talk.user()
    talk.fails(retryable=False)
    talk.hears(SCHEDULE)
    assert talk.is_asked()
    assert (talk.thread.failures, talk.thread.parked) == (0, None)


def test_a_schedule_without_a_text_is_shown_all_the_same() -> None:
    talk = ThreadDriver(Thread("t1"))
    talk.hears(WakeUp("news", "09:00", " "))
    assert talk.shown() == ["(The schedule 'news', due 09:00:)\n\n(no output)"]
