"""Tools every thread has."""

import pytest

from rapkit.kernel.builtins import BUILTINS, RESERVED
from rapkit.kernel.completion import WantedCall
from rapkit.kernel.effects import TellCancelled, Withdraw
from rapkit.kernel.entries import Answered, ModelSaid, Unsubscribed
from rapkit.kernel.limits import ThreadLimits
from tests.kernel.thread_driver import ThreadDriver, calling, forecast, storms, subscribed, want


def test_all_names_of_ours_are_reserved() -> None:
    assert set(BUILTINS) | {"receive_event__injected"} == RESERVED


def test_a_model_that_calls_the_name_for_injected_events_is_refused() -> None:
    """Other runtimes show events as calls of that tool; a model that has seen such a conversation may imitate it."""
    talk = ThreadDriver()
    talk.user()
    talk.says("", want("receive_event__injected", original_tool_call_id="c1_t1"))
    (refused,) = talk.answers()
    assert (refused.by, talk.effects) == ("runtime", ())
    assert (refused.text or "").startswith("Error: There is no tool 'receive_event__injected'.")


@pytest.mark.parametrize("name", ["close_thread", "report_to_parent"])
def test_a_model_is_told_to_cancel_its_subscriptions_before_it_ends_a_thread(name: str) -> None:
    """SUB-22"""
    assert "cancel_subscription" in BUILTINS[name].tool.description


def test_the_model_cancels_a_subscription_within_its_turn() -> None:
    """SUB-16, CAN-1"""
    talk = subscribed()
    talk.user("Stop listening")
    entries = talk.says("", want("cancel_subscription", tool_call_id="c1_t1"))
    assert [type(entry) for entry in entries] == [ModelSaid, Unsubscribed, Answered]
    assert talk.effects == (TellCancelled("c1_t1"),)
    assert talk.thread.subscriptions == {}
    assert talk.is_asked()
    assert talk.shown()[-1] == "c2_t1: The subscription c1_t1 is cancelled. No more events of it will come."


def test_room_that_a_cancellation_makes_can_be_used_in_the_same_turn() -> None:
    """SUB-16, SUB-17"""
    talk = subscribed(ThreadLimits(subscriptions=1))
    talk.user("Bergen instead")
    talk.says("", want("cancel_subscription", tool_call_id="c1_t1"), storms("Bergen"))
    assert list(talk.thread.pending) == ["c3_t1"]


@pytest.mark.parametrize("call_id", ["c9_t1", "c2_t1"])
def test_only_an_active_subscription_can_be_cancelled(call_id: str) -> None:
    """SUB-16"""
    talk = subscribed()
    talk.user("And Oslo?")
    talk.says("", forecast())
    talk.user("Stop listening")
    talk.says("", want("cancel_subscription", tool_call_id=call_id))
    expected = f"Error: {call_id!r} is no active subscription of this thread. Active: c1_t1."
    assert talk.answers()[-1].text == expected
    assert talk.effects == ()


def test_the_model_cancels_a_call_that_is_still_running_and_its_result_is_ignored() -> None:
    """CAN-4"""
    talk = calling(forecast())
    talk.user("Never mind")
    talk.says("", want("cancel_tool_call", tool_call_id="c1_t1"))
    assert talk.effects == (Withdraw("c1_t1"), TellCancelled("c1_t1"))
    assert talk.thread.pending == {}
    assert talk.shown()[-1] == "c2_t1: The call c1_t1 is cancelled. Its result will not come."
    talk.result("c1_t1")
    assert talk.ignored()[-1].call_id == "c1_t1"


def test_a_subscription_is_no_running_call() -> None:
    talk = subscribed()
    talk.user("Stop")
    talk.says("", want("cancel_tool_call", tool_call_id="c1_t1"))
    assert talk.answers()[-1].text == "Error: 'c1_t1' is a subscription. Use cancel_subscription."
    assert list(talk.thread.subscriptions) == ["c1_t1"]


def test_a_call_of_the_same_turn_cannot_be_cancelled_in_it() -> None:
    talk = calling(forecast(), want("cancel_tool_call", tool_call_id="c1_t1"))
    assert list(talk.thread.pending) == ["c1_t1"]
    assert talk.answers()[-1].text == "Error: 'c1_t1' is no running call of this thread. Running: none."


def test_a_model_that_cancels_what_is_not_there_again_and_again_is_stopped() -> None:
    talk = subscribed(ThreadLimits(mistakes=3))
    talk.user("Stop")
    for _ in range(3):
        talk.says("", want("cancel_subscription", tool_call_id="c9_t1"))
    assert talk.thread.parked is not None


@pytest.mark.parametrize("call", [forecast(), want("ask_user", question="Where?")], ids=lambda call: call.name)
def test_there_are_not_more_calls_than_there_may_be(call: WantedCall) -> None:
    """Each is part of the state, which is written at every step."""
    talk = calling(forecast(), forecast(), call, limits=ThreadLimits(calls=2))
    assert list(talk.thread.pending) == ["c1_t1", "c2_t1"]
    assert talk.answers()[-1].text == (
        "Error: This thread has 2 calls that are not answered, and may not have more. "
        "Wait for them, or cancel some with cancel_tool_call."
    )
    assert talk.thread.choices == {}
    talk.user("Well?")
    talk.says("", want("cancel_tool_call", tool_call_id="c1_t1"), call)
    assert list(talk.thread.pending) == ["c2_t1", "c5_t1"]


@pytest.mark.parametrize("name", ["cancel_subscription", "cancel_tool_call"])
def test_their_arguments_are_checked_too(name: str) -> None:
    """INV-3"""
    talk = subscribed()
    talk.user("Stop")
    talk.says("", want(name, id="c1_t1"))
    assert "Error: The arguments do not fit" in talk.shown()[-1]
