"""How much a thread may use, and what happens when it has."""

import pytest

from rapkit.kernel.budgets import accounts, used_up
from rapkit.kernel.completion import Usage
from rapkit.kernel.effects import MakeChild, TellClosed
from rapkit.kernel.entries import ClosedEntry, Failed, GrantedEntry, ParkedEntry, UserSaid
from rapkit.kernel.incoming import ChildClosed, ChildReport, Grant, Incoming, UserMessage, WakeUp
from rapkit.kernel.limits import ThreadLimits
from rapkit.kernel.thread import Granted, Status, Thread
from tests.kernel.thread_driver import ThreadDriver, forecast, subscribed, want

USED = Usage(requests=3, input_tokens=800, output_tokens=200, cost=1.5)


def used(granted: Granted | None = None) -> Thread:
    return Thread("t1", usage=USED, granted=granted or Granted())


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (ThreadLimits(), None),
        (ThreadLimits(slices=4, tokens=1001, cost=1.51), None),
        (
            ThreadLimits(slices=3),
            "The thread has used 3 slices, its children included, and its budget is 3 slices. Grant it more to go on.",
        ),
        (
            ThreadLimits(tokens=1000),
            "The thread has used 1,000 tokens, its children included, and its budget is 1,000 tokens. Grant it more to go on.",
        ),
        (
            ThreadLimits(cost=1.25),
            "The thread has used $1.50, its children included, and its budget is $1.25. Grant it more to go on.",
        ),
        (
            ThreadLimits(slices=0, cost=1.0),
            "The thread has used 3 slices, its children included, and its budget is 0 slices. Grant it more to go on.",
        ),
    ],
    ids=["without end", "enough", "slices", "tokens", "cost", "several"],
)
def test_a_thread_that_has_used_its_budget_says_so(limits: ThreadLimits, reason: str | None) -> None:
    assert used_up(used(), limits) == reason


@pytest.mark.parametrize(
    ("limits", "granted", "goes_on"),
    [
        (ThreadLimits(slices=3), Granted(slices=1), True),
        (ThreadLimits(slices=1), Granted(slices=2), False),
        (ThreadLimits(tokens=1000), Granted(tokens=1), True),
        (ThreadLimits(tokens=1000), Granted(slices=9, cost=9.0), False),
        (ThreadLimits(cost=1.0), Granted(cost=0.75), True),
    ],
    ids=range(5),
)
def test_what_was_granted_comes_on_top(limits: ThreadLimits, granted: Granted, goes_on: bool) -> None:
    assert (used_up(used(granted), limits) is None) == goes_on


def test_what_was_used_is_told_in_full() -> None:
    told = [
        (each.name, each.used, each.limit)
        for each in accounts(used(Granted(tokens=5)), ThreadLimits(tokens=10, cost=2.0))
    ]
    assert told == [("slices", 3, None), ("tokens", 1000, 15), ("cost", 1.5, 2.0)]


def test_every_reply_and_every_summary_is_counted() -> None:
    talk = ThreadDriver()
    talk.user()
    talk.says("Hello.", usage=USED)
    talk.user()
    talk.is_summarised(usage=USED)
    assert talk.thread.usage == USED + USED


# When there is nothing left


def test_a_thread_without_a_budget_stops_and_what_was_said_to_it_is_kept() -> None:
    talk = ThreadDriver()
    talk.user("Hello")
    assert talk.has_no_budget("No money.") == (ParkedEntry("No money."),)
    assert talk.status() is Status.PARKED
    assert talk.thread.asks_at is None
    assert talk.shown() == ["Hello"]


def test_a_grant_lets_it_go_on_by_itself() -> None:
    talk = ThreadDriver()
    talk.user("Hello")
    talk.has_no_budget()
    assert talk.hears(Grant(slices=2, tokens=5, cost=0.5)) == (GrantedEntry(2, 5, 0.5),)
    assert talk.thread.granted == Granted(2, 5, 0.5)
    assert talk.thread.asks_at == 0.0
    assert talk.status() is Status.IDLE
    talk.says("Hello!")
    assert talk.thread.parked is None


def test_grants_add_up() -> None:
    talk = ThreadDriver()
    talk.hears(Grant(slices=2), Grant(slices=3, cost=0.5))
    assert talk.thread.granted == Granted(5, 0, 0.5)
    assert not talk.is_asked()


def test_a_grant_does_not_revive_a_thread_that_has_stopped_for_another_reason() -> None:
    talk = ThreadDriver()
    talk.user("Hello")
    talk.fails(retryable=False)
    talk.hears(Grant(slices=2))
    assert talk.status() is Status.PARKED
    assert talk.thread.asks_at is None


@pytest.mark.parametrize("message", [UserMessage("And?"), WakeUp("news", "09:00", "Read.")], ids=["user", "schedule"])
def test_who_writes_to_a_thread_without_a_budget_is_told_again_and_the_message_is_kept(message: Incoming) -> None:
    talk = ThreadDriver()
    talk.user("Hello")
    talk.has_no_budget()
    talk.hears(message)
    assert talk.thread.asks_at == 0.0  # so that whoever asks the model looks whether there is a budget now
    assert talk.has_no_budget() == (ParkedEntry("No money."),)
    assert len(talk.shown()) == 2
    talk.hears(Grant(slices=1))
    assert talk.is_asked()


def test_a_result_that_comes_meanwhile_is_kept() -> None:
    talk = ThreadDriver()
    talk.user("Hello")
    talk.says("", forecast())
    talk.user("Well?")
    talk.has_no_budget()
    talk.result("c1_t1")
    talk.has_no_budget()
    talk.hears(Grant(slices=1))
    assert talk.shown()[-1] == "c1_t1-r5: sunny"
    assert talk.thread.asks_at == 0.0


def test_a_thread_that_goes_on_by_a_grant_bears_as_many_failures_as_any() -> None:
    talk = subscribed(ThreadLimits(attempts=2))
    talk.user("Hello")
    talk.has_no_budget()
    talk.event("c1_t1")
    talk.has_no_budget()
    talk.hears(Grant(slices=1))
    talk.fails()
    assert talk.is_asked()
    assert talk.thread.parked is None


def test_a_thread_may_know_when_there_is_more() -> None:
    talk = ThreadDriver()
    talk.user("Hello")
    talk.has_no_budget("No money today.", until=5000.0)
    assert talk.status() is Status.PARKED
    assert talk.thread.asks_at == 5000.0
    talk.says("Hello!")
    assert not talk.is_asked()
    assert talk.status() is Status.IDLE


def test_a_message_is_not_left_waiting_for_that() -> None:
    talk = ThreadDriver()
    talk.user("Hello")
    talk.has_no_budget("No money today.", until=5000.0)
    assert talk.hears(UserMessage("And?")) == (UserSaid("And?"),)
    assert talk.thread.asks_at == 0.0


# Relatives


def test_a_child_made_for_an_event_is_closed_because_nobody_would_grant_it_anything() -> None:
    parent = subscribed()
    parent.event("c1_t1", associative=False)
    (made,) = [effect for effect in parent.effects if isinstance(effect, MakeChild)]
    child = parent.child(made)
    child.has_no_budget("No money.")
    by = "the thread itself, which was made for one event. No money."
    assert child.journal[-1] == ClosedEntry(by)
    assert TellClosed() in child.effects
    assert child.written()[0].message == ChildClosed("t1-000001", by)
    parent.takes_mail_of(child)
    assert parent.thread.children == ()
    assert not parent.is_asked()


def test_a_child_made_for_an_event_waits_where_it_is_known_when_there_is_more() -> None:
    parent = subscribed()
    parent.event("c1_t1", associative=False)
    (made,) = [effect for effect in parent.effects if isinstance(effect, MakeChild)]
    child = parent.child(made)
    assert child.has_no_budget("No money today.", until=5000.0) == (Failed("No money today."),)
    assert (child.thread.asks_at, child.thread.parked) == (5000.0, None)


def test_a_child_with_a_task_tells_its_parent_and_reports_once_it_goes_on() -> None:
    parent = ThreadDriver()
    parent.user("Hello")
    parent.says("", want("spawn_thread", task="Count."))
    child = parent.spawned()
    child.has_no_budget("No money.")
    assert child.written()[0].message == ChildReport("t1-000001", "It has stopped: No money.")
    parent.takes_mail_of(child)
    assert parent.shown()[-1] == "note_2: It has stopped: No money."
    child.hears(Grant(slices=1))
    child.says("Seven.", usage=USED)
    assert child.written()[0].message == ChildReport("t1-000001", "Seven.", USED)


def test_a_child_has_what_its_parent_had_left() -> None:
    parent = subscribed()
    parent.hears(Grant(slices=10, tokens=100, cost=2.0))
    parent.user("Hello")
    parent.says("", want("spawn_thread", task="Count."), usage=USED)
    child = parent.spawned()
    left = Granted(7, -900, 0.5)
    assert child.thread.granted == left
    parent.event("c1_t1", associative=False)
    (made,) = [effect for effect in parent.effects if isinstance(effect, MakeChild)]
    assert made.child.granted == left
    assert used_up(child.thread, ThreadLimits(tokens=901)) is None
    assert used_up(child.thread, ThreadLimits(tokens=900)) == (
        "The thread has used 0 tokens, its children included, and its budget is 0 tokens. Grant it more to go on."
    )


def test_what_children_take_counts_as_soon_as_they_tell_and_once() -> None:
    parent = subscribed()
    parent.user("Hello")
    parent.says("", want("spawn_thread", task="Count."), usage=USED)
    child = parent.spawned()
    child.says("", want("spawn_thread", task="Count those of May."), usage=USED)
    grandchild = child.spawned()
    grandchild.says("Seven.", usage=USED)
    child.takes_mail_of(grandchild)
    child.says("", want("report_to_parent", text="Seven so far."), usage=USED)
    parent.takes_mail_of(child)
    assert parent.thread.usage == USED
    assert parent.thread.usage_of_all == USED + USED + USED + USED
    assert used_up(parent.thread, ThreadLimits(slices=12)) is not None
    child.says("", want("report_to_parent", text="Seven.", done=True), usage=USED)
    parent.takes_mail_of(child)
    assert parent.thread.spawned == {}
    assert parent.thread.usage_of_all == USED + USED + USED + USED + USED


def test_what_a_child_took_that_was_made_for_an_event_counts_when_it_is_closed() -> None:
    parent = subscribed()
    parent.event("c1_t1", associative=False)
    (made,) = [effect for effect in parent.effects if isinstance(effect, MakeChild)]
    child = parent.child(made)
    child.says("A storm.", usage=USED)
    parent.takes_mail_of(child)
    assert parent.thread.usage_of_all == USED


def test_a_failure_of_the_model_counts_as_asking_it() -> None:
    talk = ThreadDriver()
    talk.user()
    talk.fails()
    talk.fails(retryable=False)
    assert talk.thread.usage == Usage(requests=2)
    assert used_up(talk.thread, ThreadLimits(slices=2)) is not None


# Woken in vain


def test_a_thread_without_a_budget_says_so_once_however_often_it_is_woken_in_vain() -> None:
    talk = subscribed(ThreadLimits(attempts=3))
    talk.user("Hello")
    talk.fails()
    assert talk.has_no_budget() == (ParkedEntry("No money."),)
    for _ in range(3):
        talk.event("c1_t1")
        assert talk.thread.asks_at == 0.0
        assert talk.thread.failures == 1  # the model has not failed
        assert talk.has_no_budget() == ()
        assert talk.status() is Status.PARKED
    talk.hears(Grant(slices=1))
    assert talk.has_no_budget() == (ParkedEntry("No money."),)


def test_an_event_does_not_wait_until_there_is_more_but_tries() -> None:
    talk = subscribed()
    talk.user("Hello")
    talk.has_no_budget(until=5000.0)
    talk.event("c1_t1")
    assert talk.thread.asks_at == 0.0


def test_who_grants_nothing_lets_a_thread_go_on_if_it_can() -> None:
    """Its limits may be others by now."""
    talk = ThreadDriver()
    talk.user("Hello")
    talk.has_no_budget()
    assert talk.hears(Grant()) == ()
    assert talk.thread.asks_at == 0.0
    assert talk.has_no_budget() == ()  # everybody knows
    assert talk.thread.granted == Granted()
