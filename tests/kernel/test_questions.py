"""What the model asks the user, and how long questions of all kinds are open."""

from typing import Any

import pytest

from rapkit.kernel.effects import HideAuthorization, SendChoice, SetTimer, TellCancelled, Withdraw
from rapkit.kernel.entries import Answered, AuthorizationExpired, ChoiceAsked, ChoiceMadeEntry, Ignored
from rapkit.kernel.incoming import AnswerFor, CancelCall, ChooseFor, CloseThread, Incoming, UserMessage, WakeUp
from rapkit.kernel.limits import ThreadLimits
from rapkit.protocol import OAuthRequest, UserChoice
from tests.kernel.thread_driver import ThreadDriver, calling, forecast, storms, subscribed, want
from tests.kernel.tools import SERVER

WHERE = want("ask_user", question="Where?", choices=["Oslo", "Bergen"])
SOON = ThreadLimits(question_timeout=100.0)


def oauth() -> OAuthRequest:
    return OAuthRequest(group_id="t1", id="c1_t1", auth_url="http://provider.test/a")


def choice(number: int = 1) -> UserChoice:
    return UserChoice(
        group_id="t1",
        id="c1_t1",
        prompt=f"Question {number}?",
        choices=("yes", "no"),
        default=1,
        response_url=f"{SERVER}/{number}",
    )


def chosen(number: int, selected: int) -> SendChoice:
    return SendChoice("c1_t1", SERVER, f"{SERVER}/{number}", selected)


# Of the model


def test_the_model_asks_the_user_and_waits() -> None:
    talk = calling(WHERE)
    assert talk.journal[-1] == ChoiceAsked("c1_t1", "Where?", ("Oslo", "Bergen"), None)
    assert talk.does() == ()
    assert talk.thread.live_calls == frozenset()
    assert not talk.is_asked()


@pytest.mark.parametrize(
    ("answer", "entry", "text"),
    [
        (ChooseFor("c1_t1", 1), ChoiceMadeEntry("c1_t1", 1), "Bergen"),
        (AnswerFor("c1_t1", "Tromsø"), ChoiceMadeEntry("c1_t1", text="Tromsø"), "Tromsø"),
        (
            ChooseFor("c1_t1", None),
            ChoiceMadeEntry("c1_t1", dismissed=True),
            "The user dismissed the question and gave no answer.",
        ),
    ],
    ids=["chosen", "in words", "dismissed"],
)
def test_the_users_answer_is_the_calls(answer: Incoming, entry: ChoiceMadeEntry, text: str) -> None:
    talk = calling(WHERE)
    assert talk.hears(answer) == (entry, Answered("c1_t1", "ask_user", text, by="runtime"))
    assert talk.does() == ()
    assert talk.is_asked()
    assert talk.shown()[-1] == f"c1_t1: {text}"
    assert talk.thread.choices == {}


def test_an_empty_answer_is_one() -> None:
    talk = calling(WHERE)
    talk.hears(AnswerFor("c1_t1", ""))
    assert talk.shown()[-1] == "c1_t1: (no output)"


def test_a_question_without_choices_is_answered_in_words() -> None:
    talk = calling(want("ask_user", question="Where?"))
    (ignored,) = talk.hears(ChooseFor("c1_t1", 0))
    assert isinstance(ignored, Ignored)
    talk.hears(AnswerFor("c1_t1", "Oslo"))
    assert talk.shown()[-1] == "c1_t1: Oslo"


def test_the_next_message_of_the_user_answers_what_the_model_asked() -> None:
    talk = calling(WHERE, want("ask_user", question="When?"), forecast())
    talk.user("In Oslo, now.")
    assert talk.is_asked()
    assert talk.thread.choices == {}
    assert list(talk.thread.pending) == ["c3_t1"]
    below = "The user answered with the message that follows."
    assert talk.shown()[-4:-2] == [f"c1_t1: {below}", f"c2_t1: {below}"]
    assert talk.shown()[-1] == "In Oslo, now."


def test_a_question_stays_open_when_a_schedule_speaks_and_is_answered_late() -> None:
    talk = calling(WHERE)
    talk.hears(WakeUp("news", "09:00", "Read them."))
    talk.says("Read.")
    talk.hears(ChooseFor("c1_t1", 0))
    assert talk.is_asked()
    assert talk.shown()[-2:] == [
        "model calls c1_t1-r7: ask_user Where?, ['Oslo', 'Bergen'], result:c1_t1 (the call is finished)",
        "c1_t1-r7: Oslo",
    ]


def test_a_question_that_nobody_answers_is_over_in_the_end() -> None:
    talk = calling(WHERE, limits=SOON)
    assert talk.ledger.timers == {"call/c1_t1": 1100.0}
    talk.goes_on_until(1100.0)
    assert talk.shown()[-1] == "c1_t1: The user did not answer in time."
    assert talk.ledger.timers == {}


@pytest.mark.parametrize("end", [CancelCall("c1_t1"), CloseThread()], ids=["cancelled", "closed"])
def test_a_question_of_the_models_ends_with_its_call_and_no_server_hears_of_it(end: Incoming) -> None:
    talk = calling(WHERE, limits=SOON)
    talk.hears(end)
    assert talk.thread.choices == {}
    assert not [effect for effect in talk.does() if isinstance(effect, TellCancelled | Withdraw)]
    assert talk.ledger.timers == {}


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"question": ""},
        {"question": "?" * 10_001},
        {"question": "?", "choices": [""]},
        {"question": "?", "choices": ["x" * 1001]},
        {"question": "?", "choices": ["x"] * 101},
    ],
    ids=range(6),
)
def test_a_question_that_could_not_be_kept_is_refused(arguments: dict[str, Any]) -> None:
    talk = calling(want("ask_user", **arguments))
    assert talk.thread.choices == {}
    assert "The arguments do not fit" in (talk.answers()[-1].text or "")


def test_only_a_question_of_the_models_is_answered_in_words() -> None:
    talk = calling(forecast())
    talk.hears(choice())
    assert talk.hears(AnswerFor("c1_t1", "yes")) == (
        Ignored("answer", "this question is answered with one of its choices", "c1_t1"),
    )
    assert talk.hears(AnswerFor("c9_t1", "yes")) == (Ignored("answer", "no question of this call is open", "c9_t1"),)
    assert len(talk.thread.choices["c1_t1"]) == 1


# Of tools, and how long they are open


def test_questions_are_open_for_ever_unless_that_is_not_wanted() -> None:
    """CHO-1"""
    talk = calling(forecast())
    talk.hears(choice(), oauth())
    assert talk.ledger.timers == {}


def test_the_default_stands_for_a_question_that_nobody_answered_in_time_and_is_sent_once() -> None:
    """CHO-1"""
    talk = calling(forecast(), limits=SOON)
    talk.hears(choice())
    assert talk.ledger.timers == {"call/c1_t1": 1100.0}
    assert talk.goes_on_until(1100.0) == (ChoiceMadeEntry("c1_t1", 1, dismissed=True, expired=True),)
    assert talk.does() == (chosen(1, 1), SetTimer("call/c1_t1", None))
    assert list(talk.thread.pending) == ["c1_t1"]
    talk.hears(ChooseFor("c1_t1", 0))
    assert talk.ignored()[-1].reason == "no question of this call is open"
    assert talk.does() == ()


def test_an_answer_in_time_takes_the_timer_away() -> None:
    """CHO-1"""
    talk = calling(forecast(), limits=SOON)
    talk.hears(choice())
    talk.hears(ChooseFor("c1_t1", 0))
    assert talk.does() == (chosen(1, 0), SetTimer("call/c1_t1", None))


def test_each_of_several_questions_has_its_time_from_when_it_can_be_answered() -> None:
    """CHO-1"""
    talk = calling(forecast(), limits=SOON)
    talk.hears(choice(1), choice(2))
    talk.now = 1090.0
    talk.hears(ChooseFor("c1_t1", 0))
    assert talk.ledger.timers == {"call/c1_t1": 1190.0}
    talk.goes_on_until(1190.0)
    assert talk.does() == (chosen(2, 1), SetTimer("call/c1_t1", None))


def test_what_was_not_authorised_in_time_is_shown_no_more_and_its_call_goes_on() -> None:
    """OAU-1: whether the user has authorised it we do not know."""
    talk = calling(forecast(), limits=SOON)
    talk.hears(oauth())
    assert talk.goes_on_until(1100.0) == (AuthorizationExpired("c1_t1"),)
    assert set(talk.does()) == {HideAuthorization("c1_t1"), SetTimer("call/c1_t1", None)}
    assert not talk.is_asked()
    assert talk.thread.live_calls == {"c1_t1"}
    talk.result("c1_t1")
    assert talk.is_asked()


def test_an_answer_that_names_another_question_is_ignored() -> None:
    """CHO-1: a choice that was made for the first question is none for the second."""
    talk = calling(forecast())
    talk.hears(choice(1), choice(2))
    talk.now = 1010.0
    talk.hears(ChooseFor("c1_t1", 0, asked_at=1000.0), ChooseFor("c1_t1", 0, asked_at=1000.0))
    assert [effect for effect in talk.does() if isinstance(effect, SendChoice)] == [chosen(1, 0)]
    assert talk.ignored()[-1].reason == "it is the answer to another question, which is over"
    talk.hears(ChooseFor("c1_t1", 0, asked_at=1010.0))
    assert chosen(2, 0) in talk.does()


def test_words_that_name_another_question_are_ignored() -> None:
    talk = calling(want("ask_user", question="Where?"))
    talk.hears(AnswerFor("c1_t1", "Oslo", asked_at=999.0))
    assert not talk.is_asked()
    assert talk.ignored()[-1].reason == "it is the answer to another question, which is over"
    talk.hears(AnswerFor("c1_t1", "Oslo", asked_at=1000.0))
    assert talk.answers()[-1].text == "Oslo"


def test_where_to_authorise_is_shown_anew_for_as_long_again() -> None:
    """OAU-1"""
    talk = calling(forecast(), limits=SOON)
    talk.hears(oauth())
    talk.now = 1050.0
    talk.hears(oauth())
    assert talk.ledger.timers == {"call/c1_t1": 1150.0}


def test_a_subscription_goes_on_though_nobody_authorised_it_or_answered() -> None:
    """OAU-1, CHO-1"""
    talk = subscribed(SOON)
    talk.hears(oauth())
    talk.now = 1050.0
    talk.hears(choice())
    assert talk.goes_on_until(1100.0) == (AuthorizationExpired("c1_t1"),)
    assert talk.does() == (HideAuthorization("c1_t1"), SetTimer("call/c1_t1", 1150.0))
    assert len(talk.thread.choices["c1_t1"]) == 1
    talk.goes_on_until(1150.0)
    assert talk.does() == (chosen(1, 1), SetTimer("call/c1_t1", None))
    assert list(talk.thread.subscriptions) == ["c1_t1"]
    assert not talk.is_asked()


@pytest.mark.parametrize(
    ("first", "second", "over"),
    [
        (oauth(), choice(), AuthorizationExpired("c1_t1")),
        (choice(), oauth(), ChoiceMadeEntry("c1_t1", 1, dismissed=True, expired=True)),
    ],
    ids=["authorization", "choice"],
)
def test_what_was_asked_first_is_over_first(first: Incoming, second: Incoming, over: object) -> None:
    """OAU-1, CHO-1"""
    talk = calling(forecast(), limits=SOON)
    talk.hears(first)
    talk.now = 1099.0
    talk.hears(second)
    assert talk.ledger.timers == {"call/c1_t1": 1100.0}
    assert talk.goes_on_until(1100.0)[0] == over


def test_a_question_keeps_its_time_when_the_user_writes() -> None:
    talk = calling(forecast(), limits=SOON)
    talk.hears(choice())
    talk.now = 1050.0
    talk.hears(UserMessage("Well?"))
    assert talk.ledger.timers == {"call/c1_t1": 1100.0}


def test_a_final_event_takes_a_question_and_its_timer_away() -> None:
    talk = ThreadDriver(limits=SOON)
    talk.user()
    talk.says("", storms())
    talk.result("c1_t1", "Subscribed.", subscription=True)
    talk.hears(choice(), oauth())
    talk.event("c1_t1", final=True)
    assert (talk.thread.choices, talk.thread.authorizing, talk.ledger.timers) == ({}, {}, {})
