"""A model that goes on for ever by itself is stopped; whatever comes from outside lets it go on."""

import pytest

from rapkit.kernel.budgets import used_up
from rapkit.kernel.entries import ParkedEntry
from rapkit.kernel.incoming import ChildReport, Grant, Incoming, ParentMessage, UserMessage, WakeUp
from rapkit.kernel.limits import ThreadLimits
from rapkit.kernel.thread import Status
from rapkit.protocol import SubscriptionEvent
from tests.kernel.thread_driver import ThreadDriver, forecast, subscribed, want

THREE = ThreadLimits(requests_per_message=3)


def looping(limits: ThreadLimits = THREE, times: int = 3) -> ThreadDriver:
    """A thread with a subscription `c1_t1` whose model has called a tool so often since the user said something."""
    talk = subscribed(limits)
    talk.user("Go on.")
    for _ in range(times):
        assert used_up(talk.thread, limits) is None
        talk.says("", forecast())
        talk.result(f"c{talk.thread.calls_made}_t1")
    return talk


def test_a_model_that_calls_tools_for_ever_is_stopped() -> None:
    reason = used_up(looping().thread, THREE)

    assert reason == (
        "The model was asked 3 times without anything new from outside, and the limit (requests_per_message) is 3. "
        "Write to the thread to go on."
    )


def test_the_result_of_a_call_it_made_before_does_not_let_it_go_on() -> None:
    talk = looping(times=2)
    talk.says("", forecast())
    talk.result("c4_t1")
    talk.has_no_budget(used_up(talk.thread, THREE) or "")
    assert talk.status() is Status.PARKED
    assert isinstance(talk.journal[-1], ParkedEntry)
    assert used_up(talk.thread, THREE) is not None


@pytest.mark.parametrize(
    "message",
    [
        UserMessage("And?"),
        WakeUp("news", "09:00", "Read."),
        SubscriptionEvent(group_id="t1", tool_call_id="c1_t1", text="storm", associative=True),
        ParentMessage("t0", "And?"),
        Grant(),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_comes_from_outside_lets_a_stopped_thread_go_on(message: Incoming) -> None:
    talk = looping()
    talk.has_no_budget(used_up(talk.thread, THREE) or "")

    talk.hears(message)

    assert talk.is_asked()
    assert talk.thread.asks_at == 0.0
    assert used_up(talk.thread, THREE) is None


@pytest.mark.parametrize(("seconds", "goes_on"), [(60, True), (59, False)])
def test_only_a_long_wait_counts_as_something_from_outside(seconds: int, goes_on: bool) -> None:
    """So that an agent may look at something every few minutes for years, but not every second."""
    talk = looping(times=2)
    talk.says("", want("sleep", seconds=seconds))

    talk.goes_on_until(talk.now + seconds)

    assert talk.is_asked()
    assert (used_up(talk.thread, THREE) is None) is goes_on


def test_reports_of_children_that_it_made_are_of_its_own_doing() -> None:
    talk = looping(times=2)
    talk.says("", want("spawn_thread", task="Look."))
    child = talk.spawned()
    assert used_up(child.thread, THREE) is None

    talk.hears(ChildReport(child.thread.id, "Done."))

    assert talk.is_asked()
    assert used_up(talk.thread, THREE) is not None


def test_a_child_that_speaks_of_an_event_brings_something_from_outside() -> None:
    talk = looping()
    talk.event("c1_t1", associative=False)
    assert used_up(talk.thread, THREE) is None  # the event itself

    talk.says("", forecast())
    talk.hears(ChildReport(talk.thread.children[0], "A storm."))

    assert talk.thread.requests == 0


def test_zero_is_no_limit() -> None:
    assert (
        used_up(looping(ThreadLimits(requests_per_message=0), times=20).thread, ThreadLimits(requests_per_message=0))
        is None
    )


def test_there_is_a_limit_unless_somebody_wants_none() -> None:
    assert ThreadLimits().requests_per_message == 500
