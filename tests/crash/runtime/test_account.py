"""The account of a crash test is itself tested: each way a runtime could be broken is made up, and must be complained about."""

import json
from dataclasses import replace
from typing import Any

import pytest

from rapkit.kernel.entries import (
    Answered,
    Began,
    ChildEnded,
    ChildMade,
    ChoiceAsked,
    ChoiceMadeEntry,
    ClosedEntry,
    Happened,
    Ignored,
    JournalEntry,
    MadeCall,
    ModelSaid,
    Released,
    Unsubscribed,
    UserSaid,
    ViewChanged,
)
from rapkit.kernel.thread import Inherited, Pending, Thread
from tests.crash.history import Death
from tests.crash.runtime.account import account
from tests.crash.runtime.evidence import Effect, Evidence, Heard, Journal, Run, heard_in, runs_in
from tests.crash.runtime.ledger import Spoken, Wish
from tests.crash.runtime.model import command

T, CHILD = "thr_1", "thr_1-1"
UNKNOWN = "Error: the server was interrupted while pay ran, and it is not known whether it took effect."
FIRST = command("c#0", ("a_pay", {"key": "c.1", "seconds": 0.0}))
SECOND = command("c#1", ("a_count", {"key": "c.2", "last": 2}), ("a_apart", {"key": "c.3", "last": 1}))
PAY = MadeCall("call_1", "a_pay", {"key": "c.1", "seconds": 0.0})
COUNT = MadeCall("call_2", "a_count", {"key": "c.2", "last": 2})
APART = MadeCall("call_3", "a_apart", {"key": "c.3", "last": 1})

ENTRIES: tuple[JournalEntry, ...] = (
    UserSaid(FIRST),  # 1
    ModelSaid("heard", (PAY,)),
    Answered("call_1", "a_pay", "pay c.1"),  # 3
    ModelSaid("heard"),
    UserSaid(SECOND),  # 5
    ModelSaid("heard", (COUNT, APART)),
    Happened("call_2", "a_count", "c.2/1", True, fate="early"),  # 7
    Answered("call_2", "a_count", "subscribed", subscription=True),
    Released((7,), "call_2", "a_count"),  # 9
    Answered("call_3", "a_apart", "subscribed", subscription=True),
    Happened("call_3", "a_apart", "c.3/1", final=True, fate="threaded"),  # 11
    ChildMade(CHILD, "call_3", 11),
    Unsubscribed("call_3", "the subscription ended with its final event"),  # 13
    Happened("call_2", "a_count", "c.2/2", True, True),
    Unsubscribed("call_2", "the subscription ended with its final event"),  # 15
    ViewChanged("view c"),
    ChoiceAsked("call_1", "Shall we?", ("Yes", "No"), 0),  # 17
    ModelSaid("heard"),
    ChildEnded(CHILD),  # 19
)
CHILD_ENTRIES: tuple[JournalEntry, ...] = (
    Began(T, "call_3", "a_apart", {"key": "c.3", "last": 1}, "c.3/1", True),
    ModelSaid("heard"),
    ClosedEntry("the thread itself"),
)


def told(what: str, call: str, text: str, at: float) -> Heard:
    return Heard(f"msg_{what}_{call}_{text}", what, T, call, text, at, at + 0.1)


HEARD = (
    told("tool_result", "call_1", "pay c.1", 2.0),
    told("subscription_event", "call_2", "c.2/1", 4.0),
    told("tool_result", "call_2", "subscribed", 5.0),
    told("tool_result", "call_3", "subscribed", 6.0),
    told("subscription_event", "call_3", "c.3/1", 7.0),
    told("subscription_event", "call_2", "c.2/2", 8.0),
    told("view_update", "", "view c", 9.0),
    told("user_choice", "call_1", "Shall we?", 10.0),
)


def journal(entries: tuple[JournalEntry, ...] = ENTRIES, **changes: Any) -> Journal:
    return Journal(
        Thread(T, length=len(entries), calls_made=3, views=("view c",)),
        entries,
        **{"views": frozenset({"view c"}), **changes},
    )


def child(entries: tuple[JournalEntry, ...] = CHILD_ENTRIES) -> Journal:
    thread = Thread(CHILD, ancestors=(T,), inherits=Inherited(T, 10), for_event=True, length=len(entries), closed=True)
    return Journal(thread, entries)


GOOD = Evidence(
    journals={T: journal(), CHILD: child()},
    threads=(T,),
    spoken=(Spoken(T, FIRST, 1.0, 1.1), Spoken(T, SECOND, 3.0, 3.1)),
    heard=HEARD,
    invoked={(T, f"call_{n}"): frozenset({f"msg_{n}"}) for n in (1, 2, 3)},
    runs=(Run(T, 1, 10, 1.0, 2.0), Run(T, 2, 11, 2.1, 3.0)),
    effects=(Effect(1.5, 20, "start", "c.1", (T, "call_1")), Effect(1.6, 20, "end", "c.1", (T, "call_1"))),
)


def complaints(evidence: Evidence) -> str:
    found = "\n".join(account(evidence))
    assert found, "nothing was complained about"
    return found


def with_entries(*entries: JournalEntry) -> Evidence:
    return replace(GOOD, journals={T: journal(entries), CHILD: child()})


def without(*numbers: int) -> Evidence:
    """The journal with lines blanked, so that the others keep their numbers."""
    return with_entries(
        *(ModelSaid("heard") if number in numbers else entry for number, entry in enumerate(ENTRIES, 1))
    )


def changed(number: int, entry: JournalEntry) -> Evidence:
    return with_entries(*ENTRIES[: number - 1], entry, *ENTRIES[number:])


def test_a_good_run_is_not_complained_about() -> None:
    assert account(GOOD) == []


# Acknowledged: once in the journal, in order


def test_an_acknowledged_thread_that_is_not_there_is_missed() -> None:
    assert "thread thr_9 was acknowledged, and is not in the store" in complaints(replace(GOOD, threads=(T, "thr_9")))


def test_a_thread_that_was_made_twice_is_one_too_many() -> None:
    twin = Journal(Thread("thr_2"), ())
    assert "thr_2 is in the store, and nobody was told of it" in complaints(
        replace(GOOD, journals={**GOOD.journals, "thr_2": twin})
    )


@pytest.mark.parametrize("number", [3, 7, 14, 16, 17], ids=["result", "early event", "event", "view", "question"])
def test_an_acknowledged_callback_that_is_not_in_the_journal_is_missed(number: int) -> None:
    assert "which is not in its journal" in complaints(without(number))


def test_an_acknowledged_message_of_the_user_that_is_not_in_the_journal_is_missed() -> None:
    lost = Spoken(T, command("c#2"), 20.0, 20.1)
    assert "c#2" in complaints(replace(GOOD, spoken=(*GOOD.spoken, lost)))


def test_what_was_acknowledged_and_ignored_is_in_the_journal_too() -> None:
    late = told("tool_result", "call_1", "late", 30.0)
    ignored = with_entries(*ENTRIES, Ignored("tool_result", "no call waits for it", "call_1"))

    assert account(replace(ignored, heard=(*HEARD, late))) == []
    assert "was told 0 that it can be" in complaints(ignored)


def test_what_was_not_acknowledged_may_be_lost() -> None:
    unheard = Heard("msg_9", "subscription_event", T, "call_2", "c.2/3", 40.0)
    unsaid = Spoken(T, command("c#9"), 40.0)
    assert account(replace(GOOD, heard=(*HEARD, unheard), spoken=(*GOOD.spoken, unsaid))) == []


def test_a_message_that_stands_in_the_journal_twice_is_one_too_many() -> None:
    again = with_entries(*ENTRIES, UserSaid(FIRST))
    assert "2 times, and was told it 1 times" in complaints(again)


def test_a_message_nobody_sent_is_one_too_many() -> None:
    assert "and was told it 0 times" in complaints(with_entries(*ENTRIES, UserSaid(command("c#7"))))


def test_a_wish_that_was_taken_is_granted_once_or_ignored() -> None:
    choice, cancel = Wish("choice", T, "call_1", True, 0), Wish("cancel", T, "call_2", True)
    made = ChoiceMadeEntry("call_1", 0)
    ignored = Ignored("cancel", "no such call is pending", "call_2")
    granted = replace(with_entries(*ENTRIES, made, ignored), wishes=(choice, cancel))

    assert account(granted) == []
    assert "taken 1 times and done 0 times" in complaints(replace(GOOD, wishes=(cancel,)))
    assert "taken 1 times and done 2 times" in complaints(replace(with_entries(*ENTRIES, made, made), wishes=(choice,)))
    assert account(replace(GOOD, wishes=(replace(cancel, acknowledged=False),))) == []


def test_a_thread_that_was_acknowledged_to_be_closed_is() -> None:
    assert "acknowledged to be closed, and is not" in complaints(replace(GOOD, closed=frozenset({T})))


def test_a_journal_in_another_order_than_that_of_acceptance_is_wrong() -> None:
    swapped = list(ENTRIES)
    swapped[2], swapped[4] = swapped[4], swapped[2]
    assert "has them the other way round" in complaints(with_entries(*swapped))


def test_what_was_accepted_at_the_same_time_has_no_order() -> None:
    heard = tuple(replace(each, at=1.0, answered=50.0) for each in HEARD)
    spoken = tuple(replace(each, begun=1.0, answered=50.0) for each in GOOD.spoken)
    assert account(replace(GOOD, heard=heard, spoken=spoken)) == []


# Calls: made once, sent once, answered once


def test_a_call_with_two_results_has_one_too_many() -> None:
    late = told("tool_result", "call_1", "pay c.1", 30.0)
    twice = with_entries(*ENTRIES, Answered("call_1", "a_pay", "pay c.1", late=True))
    assert "(a_pay c.1) has 2 results, not one" in complaints(replace(twice, heard=(*HEARD, late)))


def test_a_call_without_a_result_is_missed_unless_it_was_cancelled_or_its_thread_closed() -> None:
    unanswered = replace(without(3), heard=HEARD[1:])
    cancel = MadeCall("call_4", "cancel_tool_call", {"tool_call_id": "call_1"})
    done = Answered("call_4", "cancel_tool_call", "The call call_1 is cancelled.", by="runtime")
    cancelled = with_entries(*unanswered.journals[T].entries, ModelSaid("heard", (cancel,)), done)

    assert "(a_pay c.1) never got a result" in complaints(unanswered)
    assert account(replace(cancelled, heard=HEARD[1:])) == []


def test_a_result_for_a_call_that_was_never_made_is_wrong() -> None:
    heard = (*HEARD, told("tool_result", "call_9", "x", 30.0))
    wrong = replace(with_entries(*ENTRIES, Answered("call_9", "a_pay", "x")), heard=heard)
    assert "call_9, which was never called" in complaints(wrong)


def test_an_outcome_that_is_not_known_needs_a_death() -> None:
    unknown = changed(3, Answered("call_1", "a_pay", UNKNOWN))
    assert "it should have been 'pay c.1'" in complaints(unknown)
    assert account(replace(unknown, deaths=(Death(1.5, 20, "a"),))) == []


def test_a_choice_that_was_made_may_only_come_too_late_if_a_server_died() -> None:
    ask = replace(PAY, name="a_ask")
    late = Answered("call_1", "a_ask", "Error: 'Shall we?': nobody answered in time.")
    entries = (UserSaid(command("c#0", ("a_ask", {"key": "c.1"}))), ModelSaid("heard", (ask,)), late, *ENTRIES[3:])
    spoken = (replace(GOOD.spoken[0], text=command("c#0", ("a_ask", {"key": "c.1"}))), GOOD.spoken[1])
    wish = Wish("choice", T, "call_1", True, 0)
    chosen = replace(with_entries(*entries, ChoiceMadeEntry("call_1", 0)), spoken=spoken, wishes=(wish,))

    assert account(replace(with_entries(*entries), spoken=spoken)) == []
    assert "the user chose" in complaints(chosen)
    assert account(replace(chosen, deaths=(Death(1.5, 20, "a"),))) == []


def test_a_cancellation_nobody_asked_for_is_wrong() -> None:
    gone = changed(3, Answered("call_1", "a_pay", "Error: The call could not be delivered.", by="runtime"))
    assert "nobody cancelled it" in complaints(gone)


def test_a_reply_that_was_journaled_twice_makes_its_calls_twice() -> None:
    again = replace(PAY, id="call_4")
    twice = with_entries(*ENTRIES, ModelSaid("heard", (again,)), Answered("call_4", "a_pay", "pay c.1"))
    assert "the key c.1 was made 2 times" in complaints(twice)


def test_what_the_user_asked_for_and_the_model_never_did_is_missed() -> None:
    assert "somebody asked for a_pay c.1, and it was never made" in complaints(without(2, 3))


def test_a_call_that_was_sent_under_two_ids_had_two_places_in_the_outbox() -> None:
    twice = {**GOOD.invoked, (T, "call_1"): frozenset({"msg_1", "msg_1b"})}
    assert "as 2 different messages" in complaints(replace(GOOD, invoked=twice))


def test_a_call_that_was_sent_and_is_in_no_journal_must_not_be() -> None:
    more = {**GOOD.invoked, (T, "call_9"): frozenset({"msg_9"})}
    assert "is in no journal" in complaints(replace(GOOD, invoked=more))


def test_a_call_that_must_not_be_repeated_runs_once() -> None:
    assert "ran 2 times, and may run once" in complaints(replace(GOOD, effects=GOOD.effects * 2))


# Events


def test_an_event_that_is_missing_is_missed() -> None:
    fewer = replace(changed(14, Happened("call_2", "a_count", "c.2/3", True, True)), heard=HEARD[:5] + HEARD[6:])
    assert "had the events ['c.2/1', 'c.2/3']" in complaints(fewer)


def test_an_event_after_the_last_one_is_wrong() -> None:
    heard = (*HEARD, told("subscription_event", "call_2", "c.2/3", 30.0))
    more = replace(with_entries(*ENTRIES, Happened("call_2", "a_count", "c.2/3", True)), heard=heard)
    assert "had the event c.2/3 after its end" in complaints(more)


def test_an_event_with_two_places_or_none_is_wrong() -> None:
    assert "has 2 places" in complaints(with_entries(*ENTRIES, Released((7,), "call_2", "a_count")))
    assert "has 0 places" in complaints(without(9))


def test_a_thread_for_an_event_after_the_subscription_was_cancelled_is_wrong() -> None:
    cancelled = Unsubscribed("call_3", "cancelled by the user")
    order = (*ENTRIES[:11], cancelled, ENTRIES[11], *ENTRIES[13:])
    assert "had a thread made for an event after it was cancelled" in complaints(with_entries(*order))


def test_a_child_that_is_not_there_is_missed_and_so_is_its_parents_entry() -> None:
    assert "made the thread thr_1-1, which is not there" in complaints(replace(GOOD, journals={T: journal()}))
    orphan = replace(child(), thread=replace(child().thread, id="thr_1-2"))
    assert "its parent thr_1 never made it" in complaints(replace(GOOD, journals={**GOOD.journals, "thr_1-2": orphan}))


def test_a_child_that_begins_with_another_event_is_wrong() -> None:
    other = child((Began(T, "call_3", "a_apart", {}, "c.3/2", True), *CHILD_ENTRIES[1:]))
    assert "begins with" in complaints(replace(GOOD, journals={T: journal(), CHILD: other}))


def test_a_closed_child_its_parent_does_not_know_of_is_wrong() -> None:
    assert "was told 0 times that thr_1-1 was closed" in complaints(without(19))


def test_nothing_but_ignored_things_comes_after_the_end_of_a_thread() -> None:
    assert "is closed, and has" in complaints(
        replace(GOOD, journals={T: journal(), CHILD: child((*CHILD_ENTRIES, ModelSaid("heard")))})
    )


# What fits together, and comes to an end


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"unread": 1}, "has 1 unread letters"),
        ({"busy": True}, "is still busy"),
        ({"live": frozenset({"call_1"})}, "records of ['call_1']"),
        ({"views": frozenset()}, "has the views ['view c'], and records of []"),
        ({"wrong": "said twice in a row"}, "nothing a provider would take: said twice in a row"),
    ],
)
def test_what_is_left_or_does_not_fit_is_complained_about(changes: dict[str, Any], expected: str) -> None:
    assert expected in complaints(replace(GOOD, journals={T: journal(**changes), CHILD: child()}))


def test_a_thread_that_still_waits_is_complained_about() -> None:
    pending = {"call_1": Pending("a_pay", {}, "a", "pay", 1.0)}
    waiting = replace(journal(), thread=replace(journal().thread, pending=pending), live=frozenset({"call_1"}))
    parked = replace(journal(), thread=replace(journal().thread, parked="The process was lost 4 times."))

    assert "still has pending calls" in complaints(replace(GOOD, journals={T: waiting, CHILD: child()}))
    assert "still has a reason to be parked" in complaints(replace(GOOD, journals={T: parked, CHILD: child()}))


def test_a_journal_of_another_length_than_the_thread_counts_is_wrong() -> None:
    longer = replace(journal(), thread=replace(journal().thread, length=20))
    assert "has 19 lines in its journal, and counts 20" in complaints(
        replace(GOOD, journals={T: longer, CHILD: child()})
    )


def test_what_lies_in_a_store_is_complained_about() -> None:
    assert complaints(replace(GOOD, left=("a POST is left",))) == "a POST is left"


# One worker


def test_two_runs_of_a_thread_at_once_are_one_too_many() -> None:
    overlapping = (Run(T, 1, 10, 1.0, 2.0), Run(T, 2, 11, 1.9, 3.0))
    assert "was run by 10 and by 11 at once" in complaints(replace(GOOD, runs=overlapping))


def test_a_run_whose_process_died_has_ended() -> None:
    taken_over = (Run(T, 1, 10, 1.0), Run(T, 2, 11, 1.9, 3.0))
    assert account(replace(GOOD, runs=taken_over, deaths=(Death(1.8, 10, "runtime"),))) == []
    assert "at once" in complaints(replace(GOOD, runs=taken_over, deaths=(Death(1.95, 10, "runtime"),)))


# Reading the trace


def test_a_message_that_is_sent_again_is_one_message_acknowledged_when_it_first_was() -> None:
    ids = {"message": "m", "type": "tool_result", "thread": T, "call": "call_1", "text": "x"}
    lines = [
        {"what": "heard", "at": 1.0, **ids},
        {"what": "answered", "at": 1.1, "status": 503, **ids},
        {"what": "heard", "at": 2.0, **ids},
        {"what": "answered", "at": 2.1, "status": 200, **ids},
        {"what": "answered", "at": 3.1, "status": 200, **ids},
    ]
    assert heard_in(lines) == (Heard("m", "tool_result", T, "call_1", "x", 1.0, 2.1),)


def test_a_run_lasts_from_its_claim_to_its_first_release() -> None:
    box = {"box": T, "epoch": 1, "pid": 10}
    lines = [
        json.loads(json.dumps({"what": what, "at": at, **box})) for what, at in (("claimed", 1.0), ("released", 2.0))
    ]
    assert runs_in(lines) == (Run(T, 1, 10, 1.0, 2.0),)
