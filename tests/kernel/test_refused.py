"""What becomes of a call whose server's message had to be refused: it does not hang (CB-15)."""

import pytest

from rapkit.kernel.entries import Answered, Happened
from rapkit.kernel.incoming import CallbackRefused
from tests.kernel.thread_driver import ThreadDriver, calling, forecast, subscribed


def only_call(talk: ThreadDriver) -> str:
    (call_id,) = talk.thread.pending or talk.thread.subscriptions
    return call_id


@pytest.mark.parametrize("what", ["tool_result", ""])
def test_a_call_whose_answer_was_refused_is_given_up_and_told_why(what: str) -> None:
    talk = calling(forecast())
    call_id = only_call(talk)

    (answered,) = talk.hears(CallbackRefused(call_id, "it is too large.", what))

    assert isinstance(answered, Answered)
    assert (answered.call_id, answered.by) == (call_id, "runtime")
    assert answered.text is not None
    assert answered.text.startswith("Error: ")
    assert "it is too large." in answered.text
    assert talk.is_asked()


def test_a_real_answer_may_still_follow() -> None:
    talk = calling(forecast())
    call_id = only_call(talk)
    talk.hears(CallbackRefused(call_id, "it is too large.", "tool_result"))

    (late,) = talk.result(call_id, "sunny")

    assert isinstance(late, Answered)
    assert (late.text, late.late) == ("sunny", True)


def test_a_repetition_settles_nothing_twice() -> None:
    talk = calling(forecast())
    call_id = only_call(talk)
    talk.hears(CallbackRefused(call_id, "it is too large."))

    assert talk.hears(CallbackRefused(call_id, "it is too large.")) == ()
    talk.result(call_id)
    assert talk.hears(CallbackRefused(call_id, "it is too large.")) == ()


@pytest.mark.parametrize("what", ["view_update", "subscription_event", "oauth", "user_choice"])
def test_what_is_no_answer_ends_no_call(what: str) -> None:
    talk = calling(forecast())

    assert talk.hears(CallbackRefused(only_call(talk), "it is too large.", what)) == ()
    assert talk.thread.pending


@pytest.mark.parametrize("what", ["subscription_event", ""])
def test_a_refused_event_is_told_once_until_one_can_be_used(what: str) -> None:
    talk = subscribed()
    call_id = only_call(talk)
    refused = CallbackRefused(call_id, "it is too large.", what)

    (told,) = talk.hears(refused)
    assert isinstance(told, Happened)
    assert (told.call_id, told.associative, told.final, told.fate) == (call_id, True, False, "shown")
    assert told.text.startswith("Error: ")
    assert talk.is_asked()
    assert talk.hears(refused) == ()

    talk.event(call_id, "a small one", associative=True)
    assert len(talk.hears(refused)) == 1
    assert call_id in talk.thread.subscriptions


def test_a_further_result_of_a_subscription_that_was_refused_is_nothing() -> None:
    talk = subscribed()

    assert talk.hears(CallbackRefused(only_call(talk), "it is too large.", "tool_result")) == ()
