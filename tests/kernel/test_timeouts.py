"""How long a call is waited for (RUN-7)."""

import math
from dataclasses import replace

import pytest

from rapkit.kernel.effects import HideAuthorization, Invoke, SetTimer, Withdraw
from rapkit.kernel.entries import Answered, Happened
from rapkit.kernel.incoming import (
    AnswerFor,
    CancelCall,
    ChooseFor,
    CloseThread,
    Correction,
    Incoming,
    SetAside,
    TimerDue,
    Undelivered,
    UserMessage,
)
from rapkit.kernel.limits import ThreadLimits, Timeouts
from rapkit.protocol import OAuthRequest, ToolResult, UserChoice
from tests.kernel.thread_driver import calling, demolish, forecast, storms, want

SOON = ThreadLimits(timeouts=Timeouts(call=30.0, long_running=300.0), remember_expired=1000.0)
TIMED_OUT = (
    "Error: The call of 'forecast' timed out after 30 s. It may still be running, and if its result comes you will be shown it. "
    "Go on without it, or tell the user."
)


def choice(number: int = 1) -> UserChoice:
    return UserChoice(
        group_id="t1",
        id="c1_t1",
        prompt="?",
        choices=("a", "b"),
        default=1,
        response_url=f"http://weather.test/{number}",
    )


OAUTH = OAuthRequest(group_id="t1", id="c1_t1", auth_url="http://provider.test/a")


def test_no_call_runs_out_of_time_unless_that_is_wanted() -> None:
    """RUN-7"""
    talk = calling(forecast(), want("survey", city="Oslo"))
    assert talk.ledger.timers == {}


@pytest.mark.parametrize(
    ("timeouts", "expected"),
    [
        (Timeouts(call=30.0), {"call/c1_t1": 1030.0, "call/c2_t1": 1300.0}),
        (Timeouts(call=30.0, long_running=math.inf), {"call/c1_t1": 1030.0}),
        (Timeouts(long_running=300.0), {"call/c2_t1": 1300.0}),
        (Timeouts(call=30.0, long_running=90.0), {"call/c1_t1": 1030.0, "call/c2_t1": 1090.0}),
        (Timeouts(tools={"forecast": 5.0}), {"call/c1_t1": 1005.0}),
        (Timeouts(call=30.0, long_running=300.0, tools={"forecast": None, "survey": 7.0}), {"call/c2_t1": 1007.0}),
        (Timeouts(call=30.0, tools={"forecast": math.inf, "survey": math.inf}), {}),
    ],
    ids=[
        "all, and ten times as much for those that take long",
        "all but those that take long",
        "those that take long",
        "both",
        "one",
        "one, and another never",
        "neither",
    ],
)
def test_how_much_time_a_call_has(timeouts: Timeouts, expected: dict[str, float]) -> None:
    """RUN-7"""
    talk = calling(forecast(), want("survey", city="Oslo"), limits=ThreadLimits(timeouts=timeouts))
    assert talk.ledger.timers == expected


def test_a_call_that_ran_out_of_time_is_answered_and_one_late_result_is_taken() -> None:
    """RUN-7"""
    talk = calling(forecast(), limits=SOON)
    assert talk.goes_on_until(1030.0) == (Answered("c1_t1", "forecast", TIMED_OUT, by="runtime"),)
    assert talk.effects == (Withdraw("c1_t1"), SetTimer("call/c1_t1", None), SetTimer("expired/c1_t1", 2030.0))
    assert talk.is_asked()
    assert talk.shown()[-1] == f"c1_t1: {TIMED_OUT}"
    assert talk.thread.live_calls == {"c1_t1"}
    talk.says("It takes long.")

    talk.result("c1_t1", "sunny")
    assert talk.is_asked()
    assert talk.shown()[-2:] == [
        "model calls c1_t1-r5: forecast Oslo, result:c1_t1 (the call is finished)",
        "c1_t1-r5: sunny",
    ]
    talk.says("Sunny.")
    talk.result("c1_t1", "rainy")
    assert talk.ignored()[-1].what == "tool_result"
    assert talk.ledger.timers == {}


def test_a_call_that_ran_out_of_time_is_forgotten_in_the_end() -> None:
    """RUN-7"""
    talk = calling(forecast(), limits=SOON)
    talk.goes_on_until(1030.0)
    talk.says("It takes long.")
    assert talk.goes_on_until(2030.0) == ()
    assert talk.thread.live_calls == frozenset()
    assert talk.ledger.timers == {}
    assert not talk.is_asked()


def test_a_call_of_which_the_model_knows_that_it_runs_runs_out_of_time_too() -> None:
    """RUN-7"""
    talk = calling(forecast(), limits=SOON)
    talk.user("Well?")
    talk.says("It runs.")
    talk.goes_on_until(1030.0)
    assert talk.is_asked()
    assert talk.shown()[-1] == f"c1_t1-r5: {TIMED_OUT}"


def test_a_subscription_has_so_much_time_to_be_confirmed_and_none_after_that() -> None:
    """RUN-7"""
    talk = calling(storms(), limits=SOON)
    assert talk.ledger.timers == {"call/c1_t1": 1030.0}
    talk.result("c1_t1", "Subscribed.", subscription=True)
    assert talk.ledger.timers == {}


def test_a_subscription_that_is_confirmed_late_is_one_with_all_that_came_early() -> None:
    """RUN-7, SUB-10"""
    talk = calling(storms(), limits=SOON)
    talk.event("c1_t1", "one")
    talk.goes_on_until(1030.0)
    assert talk.event("c1_t1", "two") == (Happened("c1_t1", "storms", "two", True, fate="early"),)
    talk.result("c1_t1", "Subscribed.", subscription=True)
    assert list(talk.thread.subscriptions) == ["c1_t1"]
    assert [line for line in talk.shown() if line.endswith((": one", ": two"))] == ["c1_t1-e3: one", "c1_t1-e5: two"]


ENDS: list[tuple[str, Incoming]] = [
    ("result", ToolResult(group_id="t1", id="c1_t1", text="sunny")),
    ("subscription", ToolResult(group_id="t1", id="c1_t1", text="Subscribed.", subscription=True)),
    ("cancelled", CancelCall("c1_t1")),
    ("closed", CloseThread()),
    ("undelivered", Undelivered("c1_t1", "nobody is there")),
    ("changed", Undelivered("c1_t1", "409", Correction("It is gone."))),
    ("lost result", SetAside("tool_result", "poison", "c1_t1")),
    ("bad question", SetAside("user_choice", "poison", "c1_t1")),
    ("timed out", TimerDue("call/c1_t1")),
]


@pytest.mark.parametrize("asked", [(), (choice(),), (OAUTH,), (choice(), OAUTH)], ids=["", "choice", "oauth", "both"])
@pytest.mark.parametrize(("what", "end"), ENDS, ids=[what for what, _ in ENDS])
def test_no_timer_is_left_behind_by_a_call_however_it_ends(
    what: str, end: Incoming, asked: tuple[Incoming, ...]
) -> None:
    """RUN-7"""
    limits = ThreadLimits(timeouts=Timeouts(call=30.0), question_timeout=100.0)
    talk = calling(forecast(), limits=limits)
    talk.hears(*asked)
    talk.now = 1200.0
    while "c1_t1" in talk.thread.pending:
        talk.hears(end)
        assert len(talk.journal) < 20
    assert talk.ledger.timers.keys() <= {"expired/c1_t1"}
    assert talk.thread.timers == {}


def test_a_call_that_is_made_and_answered_in_one_step_sets_no_timer_that_stays() -> None:
    talk = calling(forecast(), limits=SOON)
    talk.hears(Undelivered("c1_t1", "409", Correction()), talk.a_result("c1_t1"))
    assert talk.ledger.timers == {}


def test_a_call_that_is_sent_again_for_a_newer_toolset_gets_no_more_time_by_that() -> None:
    talk = calling(forecast(), limits=SOON)
    talk.now = 1010.0
    talk.hears(Undelivered("c1_t1", "409", Correction()))
    assert talk.effects == (Invoke("c1_t1"),)
    assert talk.ledger.timers == {"call/c1_t1": 1030.0}


# Waiting for people


def test_a_call_that_waits_for_a_person_does_not_run_out_of_time_and_has_all_of_it_after_that() -> None:
    """RUN-7"""
    talk = calling(forecast(), limits=SOON)
    talk.now = 1020.0
    talk.hears(choice(1), choice(2))
    assert talk.ledger.timers == {}
    talk.now = 5000.0
    talk.hears(ChooseFor("c1_t1", 0))
    assert talk.ledger.timers == {}
    talk.hears(ChooseFor("c1_t1", None))
    assert talk.ledger.timers == {"call/c1_t1": 5030.0}


def test_a_call_that_waits_to_be_authorised_has_all_its_time_from_then_on() -> None:
    """RUN-7, OAU-1: that it was authorised nobody tells us."""
    talk = calling(forecast(), limits=SOON)
    talk.now = 1020.0
    talk.hears(OAUTH)
    assert talk.ledger.timers == {"call/c1_t1": 1050.0}
    talk.goes_on_until(1050.0)
    assert list(talk.thread.expired) == ["c1_t1"]
    assert talk.does().count(HideAuthorization("c1_t1")) == 1
    assert talk.is_asked()


def test_a_call_has_all_its_time_again_when_where_to_authorise_it_is_shown_no_more() -> None:
    """RUN-7, OAU-1"""
    talk = calling(forecast(), limits=replace(SOON, question_timeout=100.0))
    talk.hears(OAUTH)
    assert talk.ledger.timers == {"call/c1_t1": 1100.0}
    talk.goes_on_until(1100.0)
    assert talk.ledger.timers == {"call/c1_t1": 1130.0}
    talk.goes_on_until(1130.0)
    assert list(talk.thread.expired) == ["c1_t1"]


def test_a_call_that_waits_to_be_permitted_has_its_time_from_then_on() -> None:
    """RUN-7, DIS-11"""
    talk = calling(demolish(), limits=SOON)
    assert talk.ledger.timers == {}
    talk.now = 5000.0
    talk.hears(ChooseFor("c1_t1", 0))
    assert talk.ledger.timers == {"call/c1_t1": 5030.0}


def test_a_question_of_the_models_does_not_run_out_of_time() -> None:
    """RUN-7"""
    talk = calling(want("ask_user", question="Where?"), limits=SOON)
    assert talk.ledger.timers == {}
    talk.hears(AnswerFor("c1_t1", "Oslo"))
    assert talk.ledger.timers == {}


@pytest.mark.parametrize("what", ["question", "authorization", "answer"])
def test_what_has_come_when_a_timer_is_due_puts_it_off(what: str) -> None:
    """RUN-7: nothing is given up because nobody was there to take what has come."""
    talk = calling(forecast(), limits=replace(SOON, question_timeout=100.0))
    before: list[Incoming] = [choice(1)] if what == "answer" else []
    talk.hears(*before)
    messages: dict[str, Incoming] = {"question": choice(1), "authorization": OAUTH, "answer": ChooseFor("c1_t1", 0)}
    (at,) = talk.ledger.timers.values()
    talk.now = at + 5
    talk.hears(messages[what], TimerDue("call/c1_t1"))
    assert list(talk.thread.pending) == ["c1_t1"]
    assert talk.answers() == []
    assert (len(talk.thread.choices), len(talk.thread.authorizing)) == (what == "question", what == "authorization")
    assert talk.ledger.timers == {"call/c1_t1": talk.now + (30.0 if what == "answer" else 100.0)}


def test_a_call_that_is_permitted_when_its_question_is_over_is_made_and_has_all_its_time() -> None:
    """RUN-7, DIS-11"""
    talk = calling(demolish(), limits=replace(SOON, question_timeout=100.0))
    talk.now = 1100.0
    talk.hears(ChooseFor("c1_t1", 0), TimerDue("call/c1_t1"))
    assert Invoke("c1_t1") in talk.does()
    assert talk.ledger.timers == {"call/c1_t1": 1130.0}


def test_a_result_that_has_come_when_its_time_is_over_counts() -> None:
    """RUN-7"""
    talk = calling(forecast(), limits=SOON)
    talk.now = 1030.0
    talk.hears(talk.a_result("c1_t1"), TimerDue("call/c1_t1"))
    assert [(answer.text, answer.late) for answer in talk.answers()] == [("sunny", False)]
    assert talk.ledger.timers == {}


def test_a_result_behind_a_timer_is_late_and_the_timer_of_its_being_late_is_gone_with_it() -> None:
    """RUN-7"""
    talk = calling(forecast(), limits=SOON)
    talk.now = 1030.0
    talk.hears(TimerDue("call/c1_t1"), talk.a_result("c1_t1"), UserMessage("Well?"))
    assert [answer.late for answer in talk.answers()] == [False, True]
    assert talk.ledger.timers == {}


@pytest.mark.parametrize("key", ["call/c9_t1", "call/", "expired/c1_t1", "c1_t1", ""])
def test_a_timer_of_nothing_is_taken_away_and_touches_nothing(key: str) -> None:
    talk = calling(forecast(), limits=SOON)
    assert talk.hears(TimerDue(key)) == ()
    assert talk.effects == (SetTimer(key, None),)
    assert talk.ledger.timers == {"call/c1_t1": 1030.0}
