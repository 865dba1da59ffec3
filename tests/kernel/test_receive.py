"""Mail in order, the user's messages, and the end of a thread."""

from copy import deepcopy

import pytest

from rapkit.kernel.effects import Invoke, MakeChild, SetTimer, TellCancelled, TellClosed, Withdraw, Write
from rapkit.kernel.entries import Answered, ClosedEntry, Ignored, UserSaid
from rapkit.kernel.incoming import (
    AnswerFor,
    AnswerUndelivered,
    CancelCall,
    ChildClosed,
    ChildReport,
    ChooseFor,
    CloseThread,
    Correction,
    EventForChild,
    Grant,
    Incoming,
    ParentMessage,
    SetAside,
    Task,
    TimerDue,
    Undelivered,
    UserMessage,
    WakeUp,
)
from rapkit.kernel.limits import Confirmations, ThreadLimits
from rapkit.kernel.receive import call_of, name_of, receive
from rapkit.kernel.reply import worker_lost
from rapkit.kernel.thread import Status, Thread
from rapkit.protocol import OAuthRequest, SubscriptionEvent, ToolResult, UserChoice, ViewUpdate
from tests.kernel.thread_driver import ThreadDriver, calling, demolish, forecast, storms, subscribed, want
from tests.kernel.tools import SERVER

ALL: list[tuple[Incoming, str, str | None]] = [
    (UserMessage("Hello"), "user", None),
    (ToolResult(group_id="t", id="c", text=""), "tool_result", "c"),
    (SubscriptionEvent(group_id="t", tool_call_id="c", text=""), "subscription_event", "c"),
    (OAuthRequest(group_id="t", id="c", auth_url="http://a.test"), "oauth", "c"),
    (
        UserChoice(group_id="t", id="c", prompt="?", choices=("a",), default=0, response_url="http://a.test"),
        "user_choice",
        "c",
    ),
    (ViewUpdate(group_id="t", view_type="v", content=1), "view_update", None),
    (CloseThread(), "close", None),
    (CancelCall("c"), "cancel", "c"),
    (ChooseFor("c", 1), "choice", "c"),
    (Undelivered("c", "?"), "undelivered", "c"),
    (AnswerUndelivered("c", "?"), "answer_undelivered", "c"),
    (EventForChild("p", "c", "storms", {}, "A storm!"), "event_for_child", "c"),
    (ChildClosed("k"), "child_closed", None),
    (TimerDue("expired/c"), "timer", None),
    (TimerDue("call/c"), "timer", None),
    (TimerDue("of a kind that is not ours"), "timer", None),
    (AnswerFor("c", "Oslo"), "answer", "c"),
    (WakeUp("news", "2030-01-31 09:00 UTC", "Read them."), "schedule", None),
    (Grant(slices=1), "grant", None),
    (Task("p", "Count."), "task", None),
    (ParentMessage("p", "Faster."), "parent", None),
    (ChildReport("k", "Done."), "report", None),
    (SetAside("tool_result", "poison", "c"), "set_aside", "c"),
]


def made_for_an_event(limits: ThreadLimits | None = None) -> ThreadDriver:
    parent = subscribed(limits)
    parent.event("c1_t1", "A storm!", associative=False)
    (made,) = [effect for effect in parent.effects if isinstance(effect, MakeChild)]
    return parent.child(made)


def tells_parent(by: str) -> Write:
    return Write("t1", ChildClosed("t1-000001", by), once="closed/t1-000001")


def test_what_piled_up_is_applied_in_order_and_one_completion_answers_it() -> None:
    talk = calling(forecast())
    entries = talk.hears(talk.a_result("c1_t1"), UserMessage("And?"), UserMessage("Hurry!"))
    assert [type(entry) for entry in entries] == [Answered, UserSaid, UserSaid]
    assert talk.shown()[-3:] == ["c1_t1: sunny", "And?", "Hurry!"]


def test_a_message_keeps_the_id_under_which_it_was_sent() -> None:
    assert ThreadDriver().hears(UserMessage("Hello", "m1")) == (UserSaid("Hello", "m1"),)


def test_the_thread_that_was_given_is_left_as_it_was() -> None:
    talk = subscribed()
    before = deepcopy(talk.thread)
    mail: list[Incoming] = [talk.an_event("c1_t1", final=True), UserMessage("Hello"), CloseThread()]
    receive(talk.thread, mail, 0.0, ThreadLimits())
    assert talk.thread == before


def test_an_empty_message_of_the_user_is_still_shown() -> None:
    talk = ThreadDriver()
    talk.user("  ")
    assert talk.shown() == ["(no output)"]


# The end


def test_a_closed_thread_withdraws_what_has_not_left_and_tells_the_servers() -> None:
    """CLO-1, SUB-19: every server of the end, and of each call the one that has it."""
    talk = subscribed()
    talk.user()
    talk.says("", forecast())
    assert talk.hears(CloseThread()) == (ClosedEntry("the user"),)
    assert talk.effects == (
        Withdraw("c2_t1"),
        TellClosed(),
        TellCancelled("c1_t1", SERVER),
        TellCancelled("c2_t1", SERVER),
    )
    assert talk.thread.cancelled_by_close == {"c1_t1": SERVER, "c2_t1": SERVER}
    assert talk.status() is Status.CLOSED
    assert talk.thread.live_calls == frozenset()
    assert not talk.is_asked()


def test_an_agent_that_is_told_to_cancels_nothing_when_a_thread_is_closed() -> None:
    """SUB-19"""
    talk = subscribed(ThreadLimits(cancel_on_close=False))
    talk.hears(CloseThread())
    assert talk.effects == (TellClosed(),)
    assert talk.thread.cancelled_by_close == {}


def test_a_call_that_was_not_sent_is_not_cancelled_when_its_thread_is_closed() -> None:
    """SUB-19: it waits for permission, or was made in the very reply that closes the thread."""
    talk = calling(demolish(), limits=ThreadLimits(confirmations=Confirmations("always")))
    talk.hears(CloseThread())
    assert talk.effects == (TellClosed(),)
    child = made_for_an_event()
    child.says("", forecast(), want("close_thread"))
    assert child.thread.closed
    assert not [effect for effect in child.effects if isinstance(effect, Invoke | TellCancelled)]


def test_a_closed_thread_takes_no_result_of_a_call_that_was_given_up() -> None:
    """Its server is not told to cancel what is given up, unless it says that it is a subscription."""
    talk = calling(forecast())
    talk.hears(Undelivered("c1_t1", "timed out"))
    talk.hears(CloseThread())
    assert talk.effects == (SetTimer("expired/c1_t1", None), TellClosed())
    assert talk.thread.cancelled_by_close == {"c1_t1": SERVER}


def test_a_call_is_not_sent_again_by_a_thread_that_is_closed_meanwhile() -> None:
    talk = calling(forecast())
    talk.hears(Undelivered("c1_t1", "409", Correction()), CloseThread())
    assert not [effect for effect in talk.effects if isinstance(effect, Invoke)]


@pytest.mark.parametrize(("message", "name", "call_id"), ALL)
def test_a_closed_thread_ignores_whatever_comes(message: Incoming, name: str, call_id: str | None) -> None:
    """SUB-18"""
    talk = ThreadDriver()
    talk.hears(CloseThread())
    assert talk.hears(message) == (Ignored(name, "the thread is closed", call_id),)
    assert talk.effects == ()
    assert (name_of(message), call_of(message)) == (name, call_id)


@pytest.mark.parametrize("message", [message for message, _, _ in ALL])
def test_whatever_was_accepted_is_in_the_journal(message: Incoming) -> None:
    """Timers aside: nobody sent them."""
    step = receive(Thread("t1"), [message], 0.0, ThreadLimits())
    assert bool(step.entries) == (not isinstance(message, TimerDue))


def test_what_follows_the_end_in_one_batch_is_ignored() -> None:
    talk = subscribed()
    talk.hears(CloseThread(by="the model"), talk.an_event("c1_t1"))
    assert talk.journal[-2] == ClosedEntry("the model")
    assert isinstance(talk.journal[-1], Ignored)


def test_a_child_tells_its_parent_that_it_is_closed() -> None:
    child = made_for_an_event()
    child.hears(CloseThread())
    assert child.effects == (TellClosed(), tells_parent("the user"))


# A child that was made for one event


def test_a_child_made_for_an_event_closes_itself_when_it_is_done() -> None:
    child = made_for_an_event()
    child.says("Seen.")
    assert child.thread.closed
    by = "the thread itself, because it was made for one event and nothing is left to do"
    assert child.effects == (TellClosed(), tells_parent(by))


def test_it_goes_on_while_it_waits_for_something() -> None:
    child = made_for_an_event()
    child.says("", forecast())
    child.user("Well?")
    child.says("I wait.")
    assert not child.thread.closed
    child.result("c2_t1-000001")
    child.says("Done.")
    assert child.thread.closed


def test_it_closes_when_its_last_subscription_is_cancelled() -> None:
    child = made_for_an_event()
    child.says("", storms())
    child.result("c2_t1-000001", "Subscribed.", subscription=True)
    child.says("I listen.")
    assert not child.thread.closed
    child.hears(CancelCall("c2_t1-000001"))
    assert child.thread.closed


def test_it_closes_when_its_own_last_child_does() -> None:
    child = made_for_an_event()
    child.says("", storms())
    child.result("c2_t1-000001", "Subscribed.", subscription=True)
    child.says("I listen.")
    child.event("c2_t1-000001", associative=False, final=True)
    assert not child.thread.closed
    child.hears(ChildClosed("t1-000001-000001"))
    assert child.thread.closed


def test_it_closes_if_its_event_could_not_be_processed() -> None:
    parent = subscribed()
    parent.event("c1_t1", associative=False)
    (made,) = [effect for effect in parent.effects if isinstance(effect, MakeChild)]
    child = ThreadDriver(made.child, parent=parent)
    child.hears(SetAside("event_for_child", "it ended three workers", "c1_t1"))
    assert child.thread.closed


@pytest.mark.parametrize("retryable", [True, False])
def test_it_asks_a_model_that_fails_for_ever_because_nobody_would_revive_it(retryable: bool) -> None:
    """RUN-4"""
    child = made_for_an_event(ThreadLimits(attempts=2))
    pauses = []
    for _ in range(1100):
        child.fails("The account is closed.", retryable=retryable)
        assert child.is_asked()
        pauses.append(child.thread.retry_at - child.now)
    assert pauses[:12] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]
    assert set(pauses[12:]) == {900}
    child.says("Seen.")
    assert child.thread.closed


def test_its_failures_do_not_fill_the_journal() -> None:
    child = made_for_an_event(ThreadLimits(attempts=3))
    told = [number for number in range(1, 101) if child.fails()]
    assert told == [1, 2, 3, 4, 8, 16, 32, 64]


def test_it_waits_for_longer_if_the_provider_says_so() -> None:
    child = made_for_an_event()
    child.fails(retry_after=1800.0)
    assert child.thread.retry_at == child.now + 1800


def test_it_closes_when_its_model_gets_nothing_right() -> None:
    child = made_for_an_event(ThreadLimits(mistakes=2))
    child.says("", forecast(), storms())
    child.result("c3_t1-000001", "Subscribed.", subscription=True)
    child.user("Well?")
    child.says("", want("weather"))
    child.says("", want("weather"))
    assert child.thread.closed
    by = "the thread itself, which was made for one event. The model made 2 wrong calls in a row."
    assert child.journal[-1] == ClosedEntry(by)
    cancels = (TellCancelled("c3_t1-000001", SERVER), TellCancelled("c2_t1-000001", SERVER))
    assert child.effects == (Withdraw("c2_t1-000001"), TellClosed(), *cancels, tells_parent(by))


def test_it_closes_when_its_model_ends_its_workers() -> None:
    child = made_for_an_event()
    step = worker_lost(child.thread, 3, 0.0, ThreadLimits())
    assert step.thread.status is Status.CLOSED
    by = (
        "the thread itself, which was made for one event. "
        "Asking the model failed 3 times: the process was lost or stopped meanwhile, or made a mistake that its log tells of."
    )
    assert step.entries == (ClosedEntry(by),)
    assert step.effects == (TellClosed(), tells_parent(by))


def test_any_other_thread_stays_open() -> None:
    talk = ThreadDriver()
    talk.user()
    talk.says("Hello.")
    assert talk.status() is Status.IDLE
