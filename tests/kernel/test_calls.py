"""Calls: answered in time, late, twice or never, and cancelled."""

import pytest

from rapkit.kernel.effects import HideAuthorization, Invoke, SetTimer, TellCancelled, Withdraw
from rapkit.kernel.entries import Answered, Ignored, Unsubscribed
from rapkit.kernel.incoming import (
    CancelCall,
    CloseThread,
    Correction,
    Incoming,
    SetAside,
    TimerDue,
    Undelivered,
    UserMessage,
)
from rapkit.kernel.limits import ThreadLimits
from rapkit.kernel.projection import STILL_RUNNING
from rapkit.kernel.thread import Status
from rapkit.protocol import ImageContent, OAuthRequest, TextContent, TextSegment, ToolResult
from tests.kernel.thread_driver import calling, forecast, storms, subscribed

CALLED = "model calls c1_t1: forecast Oslo"
GONE = Ignored("tool_result", "no call waits for it", "c1_t1")


def test_parallel_calls_are_all_made_and_the_model_goes_on_once_all_are_answered() -> None:
    talk = calling(forecast("Oslo"), forecast("Bergen"))
    assert talk.effects == (Invoke("c1_t1"), Invoke("c2_t1"))
    assert talk.status() is Status.WAITING

    talk.result("c2_t1", "rain")
    assert not talk.is_asked()
    talk.result("c1_t1", "sun")
    assert talk.is_asked()
    assert talk.shown()[-2:] == ["c1_t1: sun", "c2_t1: rain"]


def test_a_result_that_comes_twice_counts_once() -> None:
    """CB-8"""
    talk = calling(forecast())
    talk.result("c1_t1", "sunny")
    talk.says("It is sunny.")

    assert talk.result("c1_t1", "rainy") == (GONE,)
    assert not talk.is_asked()
    assert [answer.text for answer in talk.answers()] == ["sunny"]


def test_a_result_for_a_call_nobody_made_enters_no_conversation() -> None:
    """CB-8"""
    talk = calling(forecast())
    before = talk.conversation()
    assert talk.result("c7_t1") == (Ignored("tool_result", "no call waits for it", "c7_t1"),)
    assert talk.conversation() == before
    assert not talk.is_asked()


@pytest.mark.parametrize(
    "end",
    [
        ToolResult(group_id="t1", id="c1_t1", text="sunny"),
        ToolResult(group_id="t1", id="c1_t1", text="Subscribed.", subscription=True),
        Undelivered("c1_t1", "connection refused"),
        Undelivered("c1_t1", "409", Correction("city: unknown; known are place")),
        SetAside("tool_result", "it ended three workers", "c1_t1"),
        SetAside("user_choice", "its response_url is another server's", "c1_t1"),
        CancelCall("c1_t1"),
        CloseThread(),
    ],
)
def test_a_call_is_sent_no_more_once_it_has_ended(end: Incoming) -> None:
    """INV-6: a server whose acknowledgement was lost would do the same work again."""
    talk = calling(forecast(), forecast("Bergen"))
    talk.hears(end)
    assert "c1_t1" not in talk.thread.pending
    assert talk.effects.count(Withdraw("c1_t1")) == 1


def test_a_call_that_goes_on_is_not_withdrawn() -> None:
    talk = calling(forecast(), forecast("Bergen"))
    talk.hears(Undelivered("c1_t1", "409", Correction()), talk.a_result("c2_t1"), UserMessage("Well?"))
    assert talk.effects == (Invoke("c1_t1"), Withdraw("c2_t1"))


def test_content_wins_over_text_and_what_people_see_changes_nothing() -> None:
    """CB-13"""
    talk = calling(forecast())
    image = ImageContent(data="aGk=", mediaType="image/png")
    content = (TextContent(text="a map"), image)
    talk.hears(
        ToolResult(group_id="t1", id="c1_t1", text="plain", content=content, display_as=(TextSegment(content="!"),))
    )
    heard = talk.conversation()[-1]
    assert heard.answers[0].content == content  # type: ignore[union-attr]
    assert talk.answers()[0].display_as == (TextSegment(content="!"),)


# Interruption


def test_the_user_is_answered_while_a_call_is_pending_and_the_late_result_names_the_call() -> None:
    """RUN-6"""
    talk = calling(forecast())

    talk.user("Are you there?")
    assert talk.is_asked()
    assert talk.shown() == ["How is it?", CALLED, f"c1_t1: {STILL_RUNNING}", "Are you there?"]
    talk.says("Yes.")
    assert list(talk.thread.pending) == ["c1_t1"]

    talk.result("c1_t1", "sunny")
    assert talk.is_asked()
    assert talk.shown() == [
        "How is it?",
        CALLED,
        f"c1_t1: {STILL_RUNNING}",
        "Are you there?",
        "model: Yes.",
        "model calls c1_t1-r5: forecast Oslo, result:c1_t1 (the call is finished)",
        "c1_t1-r5: sunny",
    ]


def test_a_result_right_behind_the_users_message_comes_after_it() -> None:
    """RUN-6: the model sees both in order."""
    talk = calling(forecast())
    talk.hears(UserMessage("Are you there?"), talk.a_result("c1_t1"))
    assert talk.shown()[-3:] == [
        "Are you there?",
        "model calls c1_t1-r4: forecast Oslo, result:c1_t1 (the call is finished)",
        "c1_t1-r4: sunny",
    ]


def test_a_late_result_waits_for_the_calls_that_were_made_since() -> None:
    talk = calling(forecast())
    talk.user("And Bergen?")
    talk.says("", forecast("Bergen"))

    talk.result("c1_t1", "sunny")
    assert not talk.is_asked()
    talk.result("c2_t1", "rainy")
    assert talk.is_asked()
    assert [line for line in talk.shown() if "sunny" in line or "rainy" in line] == [
        "c2_t1: rainy",
        "c1_t1-r5: sunny",
    ]


def test_a_late_confirmation_says_that_the_subscription_is_active() -> None:
    talk = calling(storms())
    talk.user()
    talk.result("c1_t1", "Subscribed.", subscription=True)
    assert "result:c1_t1 (subscription is active)" in talk.shown()[-2]
    assert list(talk.thread.subscriptions) == ["c1_t1"]


def test_an_interruption_cancels_what_is_pending_if_so_configured() -> None:
    talk = calling(forecast(), limits=ThreadLimits(cancel_on_interrupt=True))
    talk.user("Stop")
    assert talk.effects == (Withdraw("c1_t1"), TellCancelled("c1_t1"))
    assert talk.shown()[-2:] == ["c1_t1: Error: Cancelled. The user cancelled this call.", "Stop"]
    assert talk.result("c1_t1") == (GONE,)


# Cancelling


def test_the_user_cancels_a_call_and_its_result_is_ignored() -> None:
    """CAN-4"""
    talk = calling(forecast())
    talk.hears(CancelCall("c1_t1"))
    assert talk.effects == (Withdraw("c1_t1"), TellCancelled("c1_t1"))
    assert talk.shown()[-1] == "c1_t1: Error: Cancelled. The user cancelled this call."
    assert talk.is_asked()
    assert talk.result("c1_t1") == (GONE,)


def test_the_user_cancels_a_subscription_and_the_model_is_not_asked() -> None:
    """SUB-15"""
    talk = subscribed()
    assert talk.hears(CancelCall("c1_t1")) == (Unsubscribed("c1_t1", "cancelled by the user", by_user=True),)
    assert talk.effects == (TellCancelled("c1_t1"),)
    assert not talk.is_asked()
    assert talk.event("c1_t1") == (Ignored("subscription_event", "no such subscription is active", "c1_t1"),)


def test_the_model_learns_with_what_comes_next_that_the_user_cancelled_its_subscription() -> None:
    """SUB-15"""
    talk = subscribed()
    talk.hears(CancelCall("c1_t1"))
    talk.user("Hello")
    assert talk.shown()[-2:] == [
        "(The user has cancelled the subscription c1_t1. No more events of it will come.)",
        "Hello",
    ]


def test_the_model_is_not_told_twice_of_a_subscription_that_ended_otherwise() -> None:
    """SUB-14, SUB-16"""
    talk = subscribed()
    talk.event("c1_t1", final=True)
    assert not [line for line in talk.shown() if "cancelled" in line]


def test_what_is_not_there_cannot_be_cancelled() -> None:
    talk = calling(forecast())
    talk.hears(CancelCall("c7_t1"))
    assert talk.ignored()[-1].call_id == "c7_t1"
    assert talk.effects == ()


# Subscriptions


def test_a_result_that_says_so_makes_the_call_a_subscription() -> None:
    """SUB-10"""
    talk = calling(storms())
    talk.result("c1_t1", "Subscribed.", subscription=True)
    assert list(talk.thread.subscriptions) == ["c1_t1"]
    assert talk.thread.pending == {}
    assert talk.is_asked()


def test_a_subscription_has_one_result_and_no_second() -> None:
    """SUB-11"""
    talk = subscribed()
    (ignored,) = talk.result("c1_t1", "again", subscription=True)
    assert isinstance(ignored, Ignored)
    assert not talk.is_asked()
    assert len(talk.answers()) == 1


def test_a_thread_has_twenty_subscriptions_unless_it_is_given_another_limit() -> None:
    """SUB-17"""
    talk = calling(*(storms(f"City {number}") for number in range(25)))
    cancelled = 0
    for number in range(25):
        talk.result(f"c{number + 1}_t1", "Subscribed.", subscription=True)
        cancelled += sum(isinstance(effect, TellCancelled) for effect in talk.effects)
    assert (len(talk.thread.subscriptions), cancelled) == (20, 5)
    talk.says("", storms("Bergen"))
    assert (talk.answers()[-1].text or "").startswith(
        "Error: This thread has 20 active subscriptions, and may not have more."
    )


def test_one_subscription_too_many_is_cancelled_at_once_and_the_model_told() -> None:
    """SUB-17"""
    talk = calling(storms("Oslo"), storms("Bergen"), limits=ThreadLimits(subscriptions=1))
    talk.result("c1_t1", "Subscribed.", subscription=True)
    talk.event("c2_t1", "early")
    talk.result("c2_t1", "Subscribed.", subscription=True)
    assert talk.effects == (Withdraw("c2_t1"), TellCancelled("c2_t1"))
    assert list(talk.thread.subscriptions) == ["c1_t1"]
    assert talk.shown()[-1].startswith("c2_t1: Error: This subscription was cancelled at once")
    assert talk.ignored()[-1].seqs == (4,)


# What does not get there


def test_a_stale_call_that_still_fits_is_sent_once_more() -> None:
    """DIS-10"""
    talk = calling(forecast())
    talk.hears(Undelivered("c1_t1", "409", Correction()))
    assert talk.effects == (Invoke("c1_t1"),)
    assert list(talk.thread.pending) == ["c1_t1"]


def test_a_call_that_is_stale_again_is_not_sent_a_third_time() -> None:
    """DIS-10"""
    talk = calling(forecast())
    talk.hears(Undelivered("c1_t1", "409", Correction()))
    talk.hears(Undelivered("c1_t1", "409", Correction()))
    assert not [effect for effect in talk.effects if isinstance(effect, Invoke)]
    assert talk.shown()[-1].startswith("c1_t1: Error: The call of 'forecast' could not be delivered: 409.")


def test_a_stale_call_that_no_longer_fits_is_an_error_for_the_model() -> None:
    """DIS-10"""
    talk = calling(forecast())
    talk.hears(Undelivered("c1_t1", "409", Correction("The city is unknown."), refused=True))
    expected = "c1_t1: Error: The tool 'forecast' has changed. The city is unknown. The server refused the call: nothing was executed."
    assert talk.shown()[-1] == expected
    assert talk.is_asked()


def test_a_call_that_is_answered_before_it_is_sent_again_is_not_sent_again() -> None:
    talk = calling(forecast())
    talk.hears(Undelivered("c1_t1", "409", Correction()), talk.a_result("c1_t1"))
    assert talk.effects == (Withdraw("c1_t1"),)


@pytest.mark.parametrize(
    ("refused", "advice"),
    [
        (
            True,
            "The server refused the call: nothing was executed. The same call would be refused again. Do without it, ",
        ),
        (False, "Whether the call was executed is not known. Try again later, or do without it."),
    ],
    ids=["refused", "not answered"],
)
def test_only_what_was_not_refused_is_worth_trying_again(refused: bool, advice: str) -> None:
    """INV-6"""
    talk = calling(forecast())
    talk.hears(Undelivered("c1_t1", "it answered so", refused=refused))

    assert f"could not be delivered: it answered so. {advice}" in talk.shown()[-1]


def test_an_undelivered_call_is_an_error_for_the_model_and_one_late_result_is_taken() -> None:
    """INV-6"""
    talk = calling(forecast())
    talk.hears(Undelivered("c1_t1", "connection refused"))
    assert SetTimer("expired/c1_t1", talk.now + talk.limits.remember_expired) in talk.effects
    assert "could not be delivered: connection refused." in talk.shown()[-1]
    assert talk.thread.live_calls == {"c1_t1"}
    talk.says("It is down.")

    talk.result("c1_t1", "sunny")
    assert talk.effects == (SetTimer("expired/c1_t1", None),)
    assert talk.is_asked()
    assert talk.shown()[-2:] == [
        "model calls c1_t1-r5: forecast Oslo, result:c1_t1 (the call is finished)",
        "c1_t1-r5: sunny",
    ]
    assert talk.thread.live_calls == frozenset()
    assert talk.result("c1_t1") == (GONE,)


def test_a_call_that_is_given_up_and_answered_at_once_needs_no_timer() -> None:
    talk = calling(forecast())
    talk.hears(Undelivered("c1_t1", "connection refused"), talk.a_result("c1_t1"))
    assert talk.effects == (Withdraw("c1_t1"), SetTimer("expired/c1_t1", None))


def test_an_expired_call_may_still_become_a_subscription() -> None:
    talk = calling(storms())
    talk.hears(Undelivered("c1_t1", "connection refused"))
    talk.result("c1_t1", "Subscribed.", subscription=True)
    assert talk.thread.subscriptions["c1_t1"].arguments == {"city": "Oslo"}


def test_an_expired_call_is_forgotten_in_the_end() -> None:
    talk = calling(forecast())
    talk.hears(Undelivered("c1_t1", "connection refused"))
    talk.hears(TimerDue("expired/c1_t1"))
    assert talk.thread.live_calls == frozenset()
    assert talk.result("c1_t1") == (GONE,)


def test_a_timer_that_is_due_does_not_come_for_ever_though_its_call_is_gone() -> None:
    talk = calling(forecast())
    assert talk.hears(TimerDue("expired/c9_t1")) == ()
    assert talk.effects == (SetTimer("expired/c9_t1", None),)


def test_a_timer_of_another_kind_touches_no_call() -> None:
    talk = calling(forecast())
    talk.hears(Undelivered("c1_t1", "connection refused"))
    talk.hears(TimerDue("c1_t1"))
    assert talk.thread.live_calls == {"c1_t1"}


def test_that_a_call_was_not_delivered_matters_no_more_once_it_is_answered() -> None:
    talk = calling(forecast())
    talk.result("c1_t1")
    talk.hears(Undelivered("c1_t1", "timed out"))
    assert talk.ignored()[-1].what == "undelivered"
    assert talk.shown()[-1] == "c1_t1: sunny"


def test_a_result_that_cannot_be_processed_is_an_error_for_the_model() -> None:
    talk = calling(forecast())
    ignored, answered = talk.hears(SetAside("tool_result", "it ended three workers", "c1_t1"))
    assert isinstance(ignored, Ignored)
    assert isinstance(answered, Answered)
    assert talk.is_asked()
    assert "could not be processed: it ended three workers" in talk.shown()[-1]


def test_a_question_that_cannot_be_answered_ends_its_call() -> None:
    talk = calling(forecast())
    talk.hears(SetAside("user_choice", "its response_url is another server's", "c1_t1"))
    assert talk.effects == (Withdraw("c1_t1"), TellCancelled("c1_t1"))
    assert talk.ignored() == [Ignored("user_choice", "its response_url is another server's", "c1_t1")]
    assert talk.is_asked()
    assert talk.shown()[-1] == (
        "c1_t1: Error: The tool asked the user a question, but it cannot be answered: "
        "its response_url is another server's"
    )
    assert talk.result("c1_t1") == (GONE,)


@pytest.mark.parametrize("call_id", ["c1_t1", "c9_t1", None])
def test_a_question_that_cannot_be_answered_changes_nothing_where_no_call_waits_for_it(call_id: str | None) -> None:
    talk = subscribed()
    before = talk.thread.subscriptions
    assert talk.hears(SetAside("user_choice", "poison", call_id)) == (Ignored("user_choice", "poison", call_id),)
    assert talk.effects == ()
    assert talk.thread.subscriptions == before
    assert not talk.is_asked()


@pytest.mark.parametrize("what", ["subscription_event", "user"])
def test_other_messages_that_cannot_be_processed_are_noted(what: str) -> None:
    talk = calling(forecast())
    assert talk.hears(SetAside(what, "poison", "c1_t1")) == (Ignored(what, "poison", "c1_t1"),)
    assert list(talk.thread.pending) == ["c1_t1"]


def test_an_answer_takes_back_what_the_call_asked_the_user() -> None:
    """OAU-1: the URL is not kept longer than needed."""
    talk = calling(forecast())
    talk.hears(OAuthRequest(group_id="t1", id="c1_t1", auth_url="http://provider.test/a"))
    talk.result("c1_t1")
    assert talk.effects == (Withdraw("c1_t1"), HideAuthorization("c1_t1"))
    assert talk.thread.authorizing == {}
