"""Events of subscriptions: inline, in a child thread, early, final, unknown."""

import pytest

from rapkit.kernel.effects import MakeChild, TellCancelled
from rapkit.kernel.entries import Began, ChildEnded, ChildMade, Happened, Ignored, Released, Unsubscribed
from rapkit.kernel.incoming import (
    CancelCall,
    ChildClosed,
    CloseThread,
    Incoming,
    SetAside,
    TimerDue,
    Undelivered,
)
from rapkit.kernel.limits import ThreadLimits
from rapkit.kernel.thread import Inherited, Status
from tests.kernel.thread_driver import ThreadDriver, calling, forecast, storms, subscribed, want

ENDED = "the subscription ended with its final event"
NOBODY_LISTENS = Ignored("subscription_event", "no such subscription is active", "c1_t1")


def the_child(talk: ThreadDriver) -> MakeChild:
    (made,) = [effect for effect in talk.effects if isinstance(effect, MakeChild)]
    return made


# Inline


def test_an_associative_event_is_shown_in_the_thread_as_a_call_that_echoes_the_subscription() -> None:
    """SUB-12, SUB-20"""
    talk = subscribed()
    assert talk.event("c1_t1", "A storm!") == (Happened("c1_t1", "storms", "A storm!", associative=True),)
    assert talk.is_asked()
    assert talk.shown()[-3:] == [
        "model: I listen.",
        "model calls c1_t1-e5: storms Oslo, interrupt:c1_t1 (subscription remains active)",
        "c1_t1-e5: A storm!",
    ]


def test_a_final_event_is_shown_and_ends_the_subscription() -> None:
    """SUB-14, SUB-15, SUB-20"""
    talk = subscribed()
    assert talk.event("c1_t1", "The last.", final=True)[1:] == (Unsubscribed("c1_t1", ENDED),)
    assert "interrupt:c1_t1 (subscription ended)" in talk.shown()[-2]
    assert talk.thread.subscriptions == {}
    assert TellCancelled("c1_t1") not in talk.effects
    assert talk.event("c1_t1", "One more.") == (NOBODY_LISTENS,)


def test_an_event_of_an_unknown_subscription_is_discarded() -> None:
    """SUB-15"""
    talk = subscribed()
    assert talk.event("c9_t1") == (Ignored("subscription_event", "no such subscription is active", "c9_t1"),)
    assert not talk.is_asked()


def test_an_event_behind_its_cancellation_is_discarded() -> None:
    """SUB-15: also when the cancellation came between receipt and processing."""
    talk = subscribed()
    talk.hears(CancelCall("c1_t1"), talk.an_event("c1_t1"))
    assert talk.ignored() == [NOBODY_LISTENS]
    assert not talk.is_asked()


def test_an_event_does_not_break_a_call_that_runs() -> None:
    talk = subscribed()
    talk.user("How is Bergen?")
    talk.says("", forecast("Bergen"))
    talk.event("c1_t1", "A storm!")
    assert not talk.is_asked()
    talk.result("c2_t1", "rain")
    assert talk.is_asked()
    assert [line.split(":")[-1].strip() for line in talk.shown()[-3:]] == [
        "rain",
        "c1_t1 (subscription remains active)",
        "A storm!",
    ]


def test_the_users_message_releases_an_event_that_waits_for_a_call() -> None:
    talk = subscribed()
    talk.user("How is Bergen?")
    talk.says("", forecast("Bergen"))
    talk.event("c1_t1", "A storm!")
    talk.user("Well?")
    assert talk.is_asked()
    assert talk.shown()[-2:] == ["c1_t1-e7: A storm!", "Well?"]


def test_an_event_without_a_text_is_still_something() -> None:
    talk = subscribed()
    talk.event("c1_t1", " ")
    assert talk.shown()[-1] == "c1_t1-e5: (no output)"


# In a child thread


def test_any_other_event_gets_a_child_thread_with_the_history_up_to_it() -> None:
    """SUB-13"""
    talk = subscribed()
    happened, made = talk.event("c1_t1", "A storm!", associative=False)
    assert isinstance(happened, Happened)
    assert happened.fate == "threaded"
    assert made == ChildMade("t1-000001", "c1_t1", event=5)
    assert not talk.is_asked()
    assert "A storm!" not in str(talk.conversation())

    effect = the_child(talk)
    assert effect.child.inherits == Inherited("t1", 4)
    assert effect.child.ancestors == ("t1",)
    child = talk.child(effect)
    assert child.is_asked()
    assert child.shown() == [
        *talk.shown(),
        "model calls c1_t1-e1: storms Oslo, interrupt:c1_t1 (subscription remains active)",
        "c1_t1-e1: A storm!",
    ]


def test_a_threaded_event_waits_for_no_call_and_its_child_does_not_see_the_call() -> None:
    """SUB-13"""
    talk = subscribed()
    talk.user("How is Bergen?")
    talk.says("", forecast("Bergen"))
    talk.event("c1_t1", "A storm!", associative=False)
    child = talk.child(the_child(talk))
    assert child.is_asked()
    assert "c2_t1" not in str(child.conversation())


def test_a_childs_calls_have_other_ids_than_those_it_inherits() -> None:
    talk = subscribed()
    talk.event("c1_t1", associative=False)
    child = talk.child(the_child(talk))
    child.says("", forecast())
    assert list(child.thread.pending) == ["c2_t1-000001"]


def test_a_child_cannot_cancel_the_subscription_of_its_parent() -> None:
    """SUB-16"""
    talk = subscribed()
    talk.event("c1_t1", associative=False)
    child = talk.child(the_child(talk))
    child.says("", want("cancel_subscription", tool_call_id="c1_t1"))
    assert "Error: 'c1_t1' is no active subscription of this thread." in child.shown()[-1]


def test_a_grandchild_inherits_from_both() -> None:
    talk = subscribed()
    talk.event("c1_t1", "first", associative=False)
    child = talk.child(the_child(talk))
    child.says("", storms("Bergen"))
    child.result("c2_t1-000001", "Subscribed.", subscription=True)
    child.says("Me too.")
    child.event("c2_t1-000001", "second", associative=False)
    grandchild = child.child(the_child(child))
    assert grandchild.thread.ancestors == ("t1", "t1-000001")
    assert grandchild.thread.root == "t1"
    shown = grandchild.shown()
    assert shown[:2] == talk.shown()[:2]
    assert shown[-2:] == [
        "model calls c2_t1-000001-e1: storms Bergen, interrupt:c2_t1-000001 (subscription remains active)",
        "c2_t1-000001-e1: second",
    ]


def test_a_final_event_gets_its_child_too() -> None:
    """SUB-14"""
    talk = subscribed()
    talk.event("c1_t1", "The last.", associative=False, final=True)
    effect = the_child(talk)
    assert effect.arguments == {"city": "Oslo"}
    assert talk.thread.subscriptions == {}
    assert "(subscription ended)" in talk.child(effect).shown()[-2]


def test_below_the_deepest_thread_events_are_taken_inline() -> None:
    talk = subscribed(ThreadLimits(depth=0))
    talk.event("c1_t1", "A storm!", associative=False)
    assert talk.is_asked()
    assert talk.shown()[-1] == "c1_t1-e5: A storm!"


def test_where_no_children_are_allowed_events_are_taken_inline() -> None:
    talk = subscribed(ThreadLimits(children=0))
    talk.event("c1_t1", "A storm!", associative=False)
    assert talk.is_asked()


def test_past_the_cap_events_wait_and_get_their_children_in_order() -> None:
    talk = subscribed(ThreadLimits(children=1))
    talk.event("c1_t1", "one", associative=False)
    assert the_child(talk).child.id == "t1-000001"
    talk.event("c1_t1", "two", associative=False)
    talk.event("c1_t1", "three", associative=False, final=True)
    assert talk.effects == ()
    assert [event.seq for event in talk.thread.waiting_events] == [7, 8]
    assert talk.status() is Status.WAITING

    assert talk.hears(ChildClosed("t1-000001")) == (ChildEnded("t1-000001"), ChildMade("t1-000002", "c1_t1", event=7))
    child = talk.child(the_child(talk))
    assert child.shown()[-1] == "c1_t1-e1: two"
    talk.hears(ChildClosed("t1-000002"))
    made = the_child(talk)
    assert made.arguments == {"city": "Oslo"}, "the call is echoed though its subscription is over"
    assert talk.thread.ended == {}
    assert talk.thread.waiting_events == ()
    talk.hears(ChildClosed("t1-000003"))
    assert talk.thread.children == ()
    assert talk.status() is Status.IDLE


def test_events_that_wait_for_a_child_are_discarded_when_their_subscription_is_cancelled() -> None:
    """SUB-15"""
    talk = subscribed(ThreadLimits(children=1))
    talk.event("c1_t1", "one", associative=False)
    talk.event("c1_t1", "two", associative=False)
    talk.hears(CancelCall("c1_t1"))
    assert talk.ignored()[-1].seqs == (7,)
    talk.hears(ChildClosed("t1-000001"))
    assert talk.effects == ()


def test_events_that_wait_for_a_child_are_discarded_when_the_thread_is_closed() -> None:
    """SUB-18"""
    talk = subscribed(ThreadLimits(children=1))
    talk.event("c1_t1", "one", associative=False)
    talk.event("c1_t1", "two", associative=False)
    talk.hears(CloseThread())
    assert talk.ignored()[-1] == Ignored("subscription_event", "the thread is closed", "c1_t1", (7,))
    talk.hears(ChildClosed("t1-000001"))
    assert talk.effects == ()


def test_the_ids_of_children_sort_in_the_order_in_which_they_were_made() -> None:
    talk = subscribed(ThreadLimits(children=12))
    for _ in range(12):
        talk.event("c1_t1", associative=False)
    assert list(talk.thread.children) == sorted(talk.thread.children)
    assert talk.thread.children[0] == "t1-000001"


def test_a_child_nobody_knows_cannot_end() -> None:
    talk = subscribed()
    assert talk.hears(ChildClosed("t9")) == (Ignored("child_closed", "no such child is open"),)


def test_a_child_begins_with_its_event() -> None:
    talk = subscribed()
    talk.event("c1_t1", "A storm!", associative=False)
    child = talk.child(the_child(talk))
    assert child.journal == [Began("t1", "c1_t1", "storms", {"city": "Oslo"}, "A storm!")]


# Early


def test_an_event_that_overtakes_its_confirmation_is_shown_after_it() -> None:
    talk = calling(storms())
    talk.event("c1_t1", "A storm!")
    assert not talk.is_asked()
    assert "A storm!" not in str(talk.conversation())

    talk.result("c1_t1", "Subscribed.", subscription=True)
    assert talk.journal[-1] == Released((3,), "c1_t1", "storms")
    assert talk.shown()[-3:] == [
        "c1_t1: Subscribed.",
        "model calls c1_t1-e3: storms Oslo, interrupt:c1_t1 (subscription remains active)",
        "c1_t1-e3: A storm!",
    ]


def test_an_early_event_is_shown_to_nobody_in_an_interruption() -> None:
    talk = calling(storms())
    talk.event("c1_t1", "A storm!")
    talk.user("Well?")
    assert "A storm!" not in str(talk.conversation())
    talk.says("I wait.")
    talk.result("c1_t1", "Subscribed.", subscription=True)
    assert talk.shown()[-1] == "c1_t1-e3: A storm!"


def test_an_early_event_of_what_is_no_subscription_is_discarded() -> None:
    talk = calling(storms())
    talk.event("c1_t1", "A storm!")
    talk.result("c1_t1", "No.")
    assert talk.ignored() == [Ignored("subscription_event", "its call did not become a subscription", "c1_t1", (3,))]
    assert "A storm!" not in str(talk.conversation())


def test_what_comes_early_behind_an_early_final_event_is_discarded() -> None:
    """SUB-14, SUB-15"""
    talk = calling(storms())
    talk.event("c1_t1", "one")
    talk.event("c1_t1", "two", final=True)
    talk.event("c1_t1", "three")
    talk.result("c1_t1", "Subscribed.", subscription=True)
    assert talk.thread.subscriptions == {}
    assert [line.split(": ")[1] for line in talk.shown() if line.startswith("c1_t1")] == ["Subscribed.", "one", "two"]
    assert talk.ignored() == [Ignored("subscription_event", ENDED, "c1_t1", (5,))]


def test_an_early_event_gets_a_child_that_sees_the_confirmation() -> None:
    """SUB-13"""
    talk = calling(storms())
    talk.event("c1_t1", "A storm!", associative=False)
    assert talk.effects == ()
    talk.result("c1_t1", "Subscribed.", subscription=True)
    child = talk.child(the_child(talk))
    assert child.shown()[-3:] == [
        "c1_t1: Subscribed.",
        "model calls c1_t1-e1: storms Oslo, interrupt:c1_t1 (subscription remains active)",
        "c1_t1-e1: A storm!",
    ]
    assert "A storm!" not in str(talk.conversation())


@pytest.mark.parametrize("end", [CancelCall("c1_t1"), CloseThread(), SetAside("user_choice", "poison", "c1_t1")])
def test_an_early_event_of_a_call_that_ends_otherwise_is_discarded(end: Incoming) -> None:
    talk = calling(storms())
    talk.event("c1_t1", "A storm!")
    talk.hears(end)
    assert talk.ignored()[-1].seqs == (3,)


def given_up() -> ThreadDriver:
    """An event came before its call was given up, and one came behind that; the numbers of their entries are 3 and 5."""
    talk = calling(storms())
    talk.event("c1_t1", "one")
    talk.hears(Undelivered("c1_t1", "timed out"))
    talk.event("c1_t1", "two", associative=False)
    assert not talk.ignored()
    assert "one" not in str(talk.conversation())
    return talk


def test_events_that_overtake_a_late_confirmation_happen_after_it() -> None:
    """SUB-12, SUB-13"""
    talk = given_up()
    talk.says("It is down.")
    talk.result("c1_t1", "Subscribed.", subscription=True)
    assert talk.shown()[-3:] == [
        "c1_t1-r7: Subscribed.",
        "model calls c1_t1-e3: storms Oslo, interrupt:c1_t1 (subscription remains active)",
        "c1_t1-e3: one",
    ]
    assert talk.child(the_child(talk)).shown()[-1] == "c1_t1-e1: two"
    assert not talk.ignored()


def test_events_of_what_is_late_and_no_subscription_are_discarded() -> None:
    talk = given_up()
    talk.result("c1_t1", "No.")
    assert talk.ignored() == [Ignored("subscription_event", "its call did not become a subscription", "c1_t1", (3, 5))]


@pytest.mark.parametrize("end", [TimerDue("expired/c1_t1"), CloseThread()])
def test_events_are_discarded_when_their_call_is_not_waited_for_any_more(end: Incoming) -> None:
    """SUB-15"""
    talk = given_up()
    talk.hears(end)
    assert [ignored.seqs for ignored in talk.ignored()] == [(3, 5)]
    assert talk.thread.expired == {}
