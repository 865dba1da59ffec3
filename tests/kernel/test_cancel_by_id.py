import pytest

from tests.kernel.thread_driver import ThreadDriver, calling, forecast, storms, want


def _subscribed_to(*cities: str) -> ThreadDriver:
    talk = calling(*(storms(city) for city in cities))
    for number in range(1, len(cities) + 1):
        talk.result(f"c{number}_t1", "Subscribed.", subscription=True)
    return talk


@pytest.mark.parametrize("given", ["c2_t1", "c2_", "c2"])
def test_the_model_cancels_a_subscription_by_the_beginning_of_its_id(given: str) -> None:
    talk = _subscribed_to("Oslo", "Bergen")
    talk.says("", want("cancel_subscription", tool_call_id=given))
    assert list(talk.thread.subscriptions) == ["c1_t1"]
    assert talk.shown()[-1] == "c3_t1: The subscription c2_t1 is cancelled. No more events of it will come."


@pytest.mark.parametrize("given", ["c", "c1_t1-e5", "c7", "call_0"])
def test_a_model_that_names_no_active_subscription_is_told_which_there_are(given: str) -> None:
    talk = _subscribed_to("Oslo", "Bergen")
    talk.says("", want("cancel_subscription", tool_call_id=given))
    assert list(talk.thread.subscriptions) == ["c1_t1", "c2_t1"]
    assert talk.answers()[-1].text == (
        f"Error: {given!r} is no active subscription of this thread. Active: c1_t1, c2_t1."
    )


def test_the_model_cancels_a_call_by_the_beginning_of_its_id_and_is_told_which_run_if_it_names_none() -> None:
    talk = calling(forecast("Oslo"), forecast("Bergen"))
    talk.user("Stop it.")
    talk.says("", want("cancel_tool_call", tool_call_id="c7"))
    assert talk.answers()[-1].text == "Error: 'c7' is no running call of this thread. Running: c1_t1, c2_t1."
    talk.says("", want("cancel_tool_call", tool_call_id="c1"))
    assert talk.shown()[-1] == "c4_t1: The call c1_t1 is cancelled. Its result will not come."
    assert list(talk.thread.pending) == ["c2_t1"]
