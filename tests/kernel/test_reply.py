"""What the model said, and its failures."""

import pytest

from rapkit.kernel.completion import Reply, Usage, WantedCall
from rapkit.kernel.effects import Invoke
from rapkit.kernel.entries import Failed, MadeCall, ModelSaid, ParkedEntry
from rapkit.kernel.limits import ThreadLimits
from rapkit.kernel.reply import reply, worker_lost
from rapkit.kernel.thread import Status
from tests.kernel.thread_driver import ThreadDriver, calling, forecast, storms, subscribed, want
from tests.kernel.tools import CATALOG, SERVER

UNKNOWN = (
    "Error: There is no tool 'weather'. There are: cancel_subscription, cancel_tool_call, sleep, sleep_until, wait_for_event, ask_user, "
    "spawn_thread, send_message_to_child, close_thread, forecast, storms, survey, demolish."
)


def asked(limits: ThreadLimits | None = None) -> ThreadDriver:
    talk = ThreadDriver(limits=limits or ThreadLimits())
    talk.user("Hello")
    return talk


def test_a_text_ends_the_turn() -> None:
    talk = asked()
    assert talk.says("Hello.") == (ModelSaid("Hello."),)
    assert talk.effects == ()
    assert talk.status() is Status.IDLE
    assert not talk.is_asked()


def test_calls_get_ids_of_ours_and_keep_the_providers() -> None:
    talk = asked()
    (said,) = talk.says("", want("forecast", "call_0", city="Oslo"), want("forecast", "call_0", city="Bergen"))
    assert isinstance(said, ModelSaid)
    assert [(call.id, call.provider_id) for call in said.calls] == [("c1_t1", "call_0"), ("c2_t1", "call_0")]
    pending = talk.thread.pending["c2_t1"]
    assert (pending.server, pending.operation, pending.arguments) == (SERVER, "forecast", {"city": "Bergen"})
    assert pending.provider_id == "call_0"


def test_thoughts_and_usage_are_kept() -> None:
    talk = asked()
    said = Reply("Hm.", thoughts=({"sig": "x"},), usage=Usage(1, 10, 5, 0.5), model="m")
    step = reply(talk.thread, said, CATALOG, 0.0, ThreadLimits(), id_suffix="t1")
    assert step.entries == (ModelSaid("Hm.", (), ({"sig": "x"},), "m", Usage(1, 10, 5, 0.5)),)
    again = reply(step.thread, said, CATALOG, 0.0, ThreadLimits(), id_suffix="t1")
    assert again.thread.usage == Usage(2, 20, 10, 1.0)


# Wrong calls


def test_an_unknown_tool_never_leaves_and_the_model_is_told_what_exists() -> None:
    """INV-2"""
    talk = asked()
    talk.says("", want("weather"))
    assert talk.effects == ()
    assert talk.is_asked()
    assert talk.shown()[-1] == f"c1_t1: {UNKNOWN}"


def test_arguments_that_do_not_fit_never_leave_and_the_model_is_told_why() -> None:
    """INV-3"""
    talk = asked()
    talk.says("", want("forecast", town="Oslo"))
    assert talk.effects == ()
    assert talk.is_asked()
    expected = "c1_t1: Error: The arguments do not fit: town: unknown; known are city; city: required, but missing"
    assert sorted(talk.shown()[-1]) == sorted(expected)


@pytest.mark.parametrize("name", ["forecast", "cancel_subscription"])
def test_arguments_that_are_no_json_never_leave(name: str) -> None:
    """INV-3"""
    talk = asked()
    (said, _) = talk.says("", WantedCall("x", name, None, "The arguments are not valid JSON: line 1."))
    assert said == ModelSaid("", (MadeCall("c1_t1", name, {}, "x"),))
    assert talk.shown()[-1] == "c1_t1: Error: The arguments are not valid JSON: line 1."
    assert talk.effects == ()


def test_a_wrong_call_beside_a_right_one_is_answered_and_the_right_one_made() -> None:
    talk = asked()
    talk.says("", want("weather"), forecast())
    assert talk.effects == (Invoke("c2_t1"),)
    assert not talk.is_asked()
    talk.result("c2_t1")
    assert talk.shown()[-2:] == [f"c1_t1: {UNKNOWN}", "c2_t1: sunny"]


def test_a_model_that_gets_nothing_right_is_parked() -> None:
    talk = asked(ThreadLimits(mistakes=3))
    for _ in range(2):
        talk.says("", want("weather"))
        assert talk.is_asked()
    talk.says("", want("cancel_subscription", tool_call_id="c9_t1"), want("weather"))
    assert talk.status() is Status.PARKED
    assert not talk.is_asked()
    assert isinstance(talk.journal[-1], ParkedEntry)

    talk.user("Try again")
    assert talk.is_asked()
    talk.says("", want("weather"))
    assert talk.is_asked(), "the user gives it all its tries again"


@pytest.mark.parametrize("good", [Reply("Sorry."), Reply("", (forecast(),))])
def test_something_right_in_between_forgives_what_was_wrong(good: Reply) -> None:
    talk = asked(ThreadLimits(mistakes=2))
    talk.says("", want("weather"))
    talk.says(good.text, *good.calls)
    assert talk.thread.mistakes == 0


def test_a_call_past_the_cap_on_subscriptions_is_refused_before_it_is_made() -> None:
    """SUB-17"""
    talk = subscribed(ThreadLimits(subscriptions=1))
    talk.user("Bergen too")
    talk.says("", storms("Bergen"), forecast())
    assert talk.effects == (Invoke("c3_t1"),)
    assert "This thread has 1 active subscriptions, and may not have more." in talk.answers()[-1].text  # type: ignore[operator]


# A model that fails


def test_a_failure_of_the_model_is_shown_and_it_is_asked_again_after_longer_and_longer() -> None:
    """RUN-4"""
    talk = asked(ThreadLimits(attempts=10))
    pauses = []
    for _ in range(8):
        assert talk.fails("Overloaded.") == (Failed("Overloaded."),)
        assert talk.is_asked()
        pauses.append(talk.thread.retry_at - talk.now)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert talk.shown() == ["Hello"], "the input stays"
    talk.says("Here I am.")
    assert (talk.thread.failures, talk.thread.retry_at) == (0, 0)


def test_the_provider_may_ask_for_a_longer_pause_but_not_for_ever() -> None:
    talk = asked()
    talk.fails(retry_after=30.0)
    assert talk.thread.retry_at == talk.now + 30
    talk.fails(retry_after=1800.0)
    assert talk.thread.retry_at == talk.now + 1800
    talk.fails(retry_after=1e9)
    assert talk.thread.retry_at == talk.now + 3600
    assert talk.thread.failures == 3


def test_a_thread_can_bear_any_number_of_failures() -> None:
    talk = asked(ThreadLimits(attempts=5000))
    for _ in range(1100):
        talk.fails()
    assert talk.is_asked()


def test_a_thread_whose_model_keeps_failing_is_parked_and_says_why() -> None:
    """RUN-4"""
    talk = asked(ThreadLimits(attempts=2))
    talk.fails("Overloaded.")
    talk.fails("Overloaded.")
    assert talk.status() is Status.PARKED
    assert talk.thread.parked == "The model failed: Overloaded. Write to the thread to try again."
    assert not talk.is_asked()


def test_a_failure_that_will_not_pass_parks_at_once() -> None:
    talk = asked()
    talk.fails("The key is wrong.", retryable=False)
    assert talk.status() is Status.PARKED


def parked(limits: ThreadLimits) -> ThreadDriver:
    talk = subscribed(limits)
    talk.user("Hello")
    talk.fails("No key.", retryable=False)
    return talk


def test_the_user_revives_a_parked_thread_with_all_its_attempts() -> None:
    """RUN-4"""
    talk = parked(ThreadLimits(attempts=2))
    talk.user("Now?")
    assert talk.status() is not Status.PARKED
    talk.fails()
    assert talk.is_asked()


def test_other_mail_gives_a_parked_thread_one_attempt() -> None:
    talk = parked(ThreadLimits(attempts=3))
    talk.event("c1_t1", "A storm!")
    assert talk.is_asked()
    talk.fails()
    assert talk.status() is Status.PARKED
    talk.event("c1_t1", "Another!")
    talk.says("I see.")
    talk.user("Hello")
    talk.fails()
    assert talk.is_asked(), "success forgives"


def test_mail_that_does_not_wake_leaves_a_thread_parked() -> None:
    talk = parked(ThreadLimits())
    talk.event("c1_t1", "A storm!", associative=False)
    talk.result("c9_t1")
    assert talk.status() is Status.PARKED


def test_a_model_that_ends_its_workers_is_asked_no_more() -> None:
    talk = asked()
    step = worker_lost(talk.thread, 3, 0.0, ThreadLimits())
    assert step.thread.parked == (
        "Asking the model failed 3 times: the process was lost or stopped meanwhile, or made a mistake that its log tells of. "
        "Write to the thread to try again."
    )
    assert not step.thread.wants_model


def test_calls_go_on_while_a_thread_is_parked() -> None:
    talk = calling(forecast(), limits=ThreadLimits(attempts=1))
    talk.user("Well?")
    talk.fails()
    assert list(talk.thread.pending) == ["c1_t1"]
    talk.result("c1_t1")
    assert talk.is_asked()
