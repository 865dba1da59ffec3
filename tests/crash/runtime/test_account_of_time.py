"""The account of what takes time is tested like the rest of it: each way it could go wrong is made up, and must be complained about."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from rapkit.kernel.entries import (
    Answered,
    ChildEnded,
    ChildMade,
    ChoiceAsked,
    ChoiceMadeEntry,
    ClosedEntry,
    Ignored,
    JournalEntry,
    LiveCall,
    MadeCall,
    ModelSaid,
    ParentSaid,
    Reported,
    Summary,
    Tasked,
    UserSaid,
    WokenUp,
)
from rapkit.kernel.thread import Inherited, SpawnedChild, Summarised, Thread
from rapkit.kernel.user_requests import NO, YES, YES_ALWAYS
from tests.crash.history import Death
from tests.crash.runtime.account import account
from tests.crash.runtime.evidence import Effect, Evidence, Heard, Journal, Sample, Timetable
from tests.crash.runtime.ledger import Spoken, Wish
from tests.crash.runtime.model import command, scheduled_call

T, CHILD, OFTEN = "thr_1", "thr_1-000001", "thr_2"
TASK, MESSAGE = command("task", ("report_to_parent", {"text": "so far"})), command("more")
SLEEP = MadeCall("call_1", "sleep", {"seconds": 1.6})
LATE = MadeCall("call_2", "a_late", {"key": "w.1", "seconds": 0.8})
WIPE = MadeCall("call_3", "a_wipe", {"key": "w.2"})
ASK = MadeCall("call_4", "ask_user", {"question": "What now?", "choices": ["Go on", "Stop"]})
SPAWN = MadeCall("call_5", "spawn_thread", {"task": TASK})
SEND = MadeCall("call_7", "send_message_to_child", {"thread_id": CHILD, "text": MESSAGE})
SAID = command("w#0", *((call.name, call.arguments) for call in (SLEEP, LATE, WIPE, ASK, SPAWN)))
SLEPT = "2 seconds have passed. It is Monday 2026-11-16 09:00:00 UTC."
TIMED_OUT = (
    "Error: The call of 'a_late' timed out after 0.4 s. It may still be running, and if its result comes you will be shown it. "
    "Go on without it, or tell the user."
)
DECLINED = "Error: The user was asked whether this call may be made, and declined."
PERMITTED = 'May the agent call a_wipe with {"key": "w.2"}?'


def by_us(call: MadeCall, text: str) -> Answered:
    return Answered(call.id, call.name, text, by="runtime")


ENTRIES: tuple[JournalEntry, ...] = (
    UserSaid(SAID),  # 1
    ModelSaid("heard", (SLEEP, LATE, WIPE, ASK, SPAWN)),
    ChoiceAsked("call_3", PERMITTED, (YES, NO), 1),  # 3
    ChoiceAsked("call_4", "What now?", ("Go on", "Stop")),
    ChildMade(CHILD, "call_5", task=TASK),  # 5
    by_us(SPAWN, f"The child thread {CHILD} works on it."),
    by_us(SLEEP, SLEPT),  # 7
    by_us(LATE, TIMED_OUT),
    ChoiceMadeEntry("call_3", 0),  # 9
    Answered("call_3", "a_wipe", "wipe w.2"),
    ChoiceMadeEntry("call_4", text="This."),  # 11
    by_us(ASK, "This."),
    Answered("call_2", "a_late", "late w.1", late=True),  # 13
    ModelSaid("heard"),
    Reported("note_6", CHILD, "so far", TASK),  # 15
    ModelSaid("heard", (SEND,)),
    by_us(SEND, "The child thread will see it."),  # 17
    Summary("{}", 14),
    ModelSaid("heard"),  # 19
    ChildEnded(CHILD, "the thread itself"),
    Reported("note_8", CHILD, "done", TASK, closed=True),  # 21
    ModelSaid("heard"),
)
CHILD_ENTRIES: tuple[JournalEntry, ...] = (
    Tasked("note_6", T, TASK),  # 1
    ModelSaid("heard", (MadeCall("call_7", "report_to_parent", {"text": "so far"}),)),
    Answered("call_7", "report_to_parent", "The parent thread will see it.", by="runtime"),  # 3
    ModelSaid("heard and rested"),
    ParentSaid("note_8", T, MESSAGE),  # 5
    ModelSaid("heard", (MadeCall("call_9", "report_to_parent", {"text": "done", "done": True}),)),
    Answered("call_9", "report_to_parent", "It will see it.", by="runtime"),  # 7
    ClosedEntry("the thread itself"),
)
DUE = ("2026-11-16 09:00 UTC", "2026-11-16 09:02 UTC")
PUTS = [MadeCall(f"call_{number}", *scheduled_call("often", due)) for number, due in enumerate(DUE, 1)]
OFTEN_ENTRIES: tuple[JournalEntry, ...] = (
    WokenUp("often", DUE[0], command("often")),
    ModelSaid("heard", (PUTS[0],)),
    Answered("call_1", "a_put", f"put {PUTS[0].arguments['key']}"),
    WokenUp("often", DUE[1], command("often")),
    ModelSaid("heard", (PUTS[1],)),
    Answered("call_2", "a_put", f"put {PUTS[1].arguments['key']}"),
)


def heard(thread: str, call: str, text: str, at: float) -> Heard:
    return Heard(f"msg_{thread}_{call}_{text}", "tool_result", thread, call, text, at, at + 0.1)


def journal(entries: tuple[JournalEntry, ...] = ENTRIES) -> Journal:
    summed_up = [(number, entry) for number, entry in enumerate(entries, 1) if isinstance(entry, Summary)]
    summary = Summarised(summed_up[-1][0], summed_up[-1][1].upto, 3) if summed_up else None
    return Journal(Thread(T, length=len(entries), summary=summary), entries)


def child(entries: tuple[JournalEntry, ...] = CHILD_ENTRIES) -> Journal:
    closed = any(isinstance(entry, ClosedEntry) for entry in entries)
    thread = Thread(CHILD, ancestors=(T,), inherits=Inherited(T, 1), task=TASK, length=len(entries), closed=closed)
    return Journal(thread, entries)


def often(entries: tuple[JournalEntry, ...] = OFTEN_ENTRIES, id: str = OFTEN) -> Journal:
    return Journal(Thread(id, length=len(entries)), entries)


GOOD = Evidence(
    journals={T: journal(), CHILD: child(), OFTEN: often()},
    threads=(T,),
    spoken=(Spoken(T, SAID, 1.0, 1.1),),
    wishes=(Wish("choice", T, "call_3", True, 0), Wish("answer", T, "call_4", True, "This.")),
    heard=(
        heard(T, "call_3", "wipe w.2", 3.0),
        heard(T, "call_2", "late w.1", 4.0),
        heard(OFTEN, "call_1", "put", 5.0),
        heard(OFTEN, "call_2", "put", 6.0),
    ),
    invoked={call: frozenset({"msg"}) for call in ((T, "call_2"), (T, "call_3"), (OFTEN, "call_1"), (OFTEN, "call_2"))},
    effects=(Effect(2.0, 20, "start", "w.2", (T, "call_3")),),
    timetables=(Timetable("often", DUE),),
    samples=tuple(Sample(T, number, entry) for number, entry in enumerate(ENTRIES[:9], 1)),
)


def complaints(evidence: Evidence) -> str:
    found = "\n".join(account(evidence))
    assert found, "nothing was complained about"
    return found


def changed(number: int, *entries: JournalEntry, of: tuple[JournalEntry, ...] = ENTRIES) -> tuple[JournalEntry, ...]:
    """With another line, or several, in the place of one; without any, the others keep their numbers all the same."""
    return (*of[: number - 1], *(entries or (ModelSaid("heard"),)), *of[number:])


def with_entries(entries: tuple[JournalEntry, ...], children: tuple[JournalEntry, ...] = CHILD_ENTRIES) -> Evidence:
    return replace(GOOD, journals={T: journal(entries), CHILD: child(children), OFTEN: often()}, samples=())


def with_often(*entries: JournalEntry) -> Evidence:
    return replace(GOOD, journals={**GOOD.journals, OFTEN: often(entries)})


def test_a_good_run_is_not_complained_about() -> None:
    assert account(GOOD) == []


# Time


def test_a_sleep_that_ends_twice_or_never_is_wrong() -> None:
    assert "(sleep ) has 2 results, not one" in complaints(with_entries((*ENTRIES, by_us(SLEEP, SLEPT))))
    assert "(sleep ) never got a result" in complaints(with_entries(changed(7)))


def test_a_sleep_may_be_interrupted_but_does_not_end_too_early() -> None:
    early = SLEPT.replace("2", "0", 1)
    assert "ended too early" in complaints(with_entries(changed(7, by_us(SLEEP, early))))
    assert account(with_entries(changed(7, by_us(SLEEP, f"Interrupted by what follows. {early}")))) == []
    assert "ended with 'Good morning'" in complaints(with_entries(changed(7, by_us(SLEEP, "Good morning"))))


def test_a_call_that_timed_out_has_one_error_and_one_late_result_at_most() -> None:
    again = Answered("call_2", "a_late", "late w.1", late=True)
    late = heard(T, "call_2", "again", 9.0)
    assert account(replace(with_entries(changed(13)), heard=(GOOD.heard[0], *GOOD.heard[2:]))) == []
    assert "has 3 results" in complaints(replace(with_entries((*ENTRIES, again)), heard=(*GOOD.heard, late)))
    assert "has 3 results" in complaints(with_entries((*ENTRIES, by_us(LATE, TIMED_OUT))))
    assert "has 2 results" in complaints(with_entries(changed(8, replace(again, late=False))))
    assert "has 2 results" in complaints(with_entries(changed(13, replace(again, late=False))))


def test_only_what_has_a_time_times_out() -> None:
    wipe = Answered("call_3", "a_wipe", TIMED_OUT.replace("a_late", "a_wipe"), by="runtime")
    assert "nobody cancelled it" in complaints(with_entries(changed(10, wipe)))


def test_a_tool_is_only_missing_if_its_server_was_down() -> None:
    missing = Answered("call_1", "a_put", "Error: There is no tool 'a_put'.", by="runtime")
    entries = (*OFTEN_ENTRIES[:2], missing, *OFTEN_ENTRIES[3:])
    unseen = replace(with_often(*entries), heard=(*GOOD.heard[:2], GOOD.heard[3]))
    assert "nobody cancelled it" in complaints(unseen)
    assert account(replace(unseen, deaths=(Death(1.0, 20, "a"),))) == []


@pytest.mark.parametrize("key", ["call/call_1", "expired/call_2"])
def test_a_timer_of_what_is_over_is_left_behind(key: str) -> None:
    left = replace(journal(), timers=frozenset({key}))
    assert "has timers of what is over" in complaints(replace(GOOD, journals={**GOOD.journals, T: left}))


def test_a_timer_that_is_waited_for_and_not_there_is_missed() -> None:
    waiting = replace(journal(), thread=replace(journal().thread, timers={"call_1": 1.0}))
    found = complaints(replace(GOOD, journals={**GOOD.journals, T: waiting}))
    assert "waits for timers that are not there" in found
    assert "still has timers" in found


# Questions


def test_a_question_that_is_answered_twice_is_answered_once_too_often() -> None:
    twice = replace(with_entries((*ENTRIES, ChoiceMadeEntry("call_4", 0))), wishes=(*GOOD.wishes, wish("choice", 0)))
    assert "call_4 asked 1 times, and was answered 2 times" in complaints(twice)


def wish(what: str, said: str | int | None, call: str = "call_4") -> Wish:
    return Wish("choice" if what == "choice" else "answer", T, call, True, said)


def test_two_people_who_are_both_told_that_their_answer_counts_are_told_a_lie() -> None:
    both = (*GOOD.wishes, wish("answer", "That."))
    assert "call_4 asked 1 times, and 2 people were told that theirs counts" in complaints(replace(GOOD, wishes=both))


def test_an_answer_nobody_gave_is_wrong() -> None:
    other = with_entries(changed(11, ChoiceMadeEntry("call_4", text="That.")))
    assert "and nobody said that" in complaints(other)


def test_an_answer_that_is_not_what_the_model_is_told_is_wrong() -> None:
    assert "gave the model 'That.'" in complaints(with_entries(changed(12, by_us(ASK, "That."))))
    assert "gave the model 'This.'" in complaints(with_entries(changed(11)))


def test_nobody_need_answer_in_time() -> None:
    expired = changed(11, ChoiceMadeEntry("call_4", dismissed=True, expired=True))
    unanswered = (*expired[:11], by_us(ASK, "The user did not answer in time."), *expired[12:])
    assert account(replace(with_entries(unanswered), wishes=GOOD.wishes[:1])) == []
    # Somebody did, and it was overtaken: a process died with the answer in its hands.
    assert account(with_entries(unanswered)) == []
    assert "taken 1 times and done 0 times" in complaints(with_entries(changed(11)))


def declined(*, sent: bool = False, ran: bool = False) -> Evidence:
    entries = (*ENTRIES[:8], ChoiceMadeEntry("call_3", 1), by_us(WIPE, DECLINED), *ENTRIES[10:])
    invoked = {call: ids for call, ids in GOOD.invoked.items() if sent or call != (T, "call_3")}
    wishes = (Wish("choice", T, "call_3", True, 1), GOOD.wishes[1])
    effects = GOOD.effects if ran else ()
    evidence = with_entries(entries)
    return replace(evidence, wishes=wishes, invoked=invoked, effects=effects, heard=GOOD.heard[1:])


def test_what_is_not_permitted_is_neither_sent_nor_carried_out() -> None:
    assert account(declined()) == []
    assert "(a_wipe w.2) was sent, and the user said No" in complaints(declined(sent=True))
    assert "(a_wipe w.2) was carried out, and the user said No" in complaints(declined(sent=True, ran=True))


def test_what_is_carried_out_before_anybody_answered_was_not_permitted() -> None:
    assert "and the user said None" in complaints(replace(with_entries(changed(9)), wishes=GOOD.wishes[1:]))


def test_what_is_permitted_is_carried_out_once() -> None:
    assert "ran 2 times, and may run once" in complaints(replace(GOOD, effects=GOOD.effects * 2))
    refused = with_entries(changed(10, by_us(WIPE, DECLINED)))
    assert "and the user said Yes" in complaints(replace(refused, heard=GOOD.heard[1:]))


def test_a_call_that_must_be_permitted_is_not_made_without_a_question() -> None:
    unasked = changed(9, of=changed(3))
    assert "(a_wipe w.2) was made without a question" in complaints(
        replace(with_entries(unasked), wishes=GOOD.wishes[1:])
    )


def test_a_permission_that_is_remembered_must_have_been_given() -> None:
    first = MadeCall("call_10", "b_wipe", {"key": "w.3"})
    then = MadeCall("call_11", "b_wipe", {"key": "w.4"})
    asked = ChoiceAsked("call_10", 'May the agent call b_wipe with {"key": "w.3"}?', (YES, YES_ALWAYS, NO), 2)

    def chosen(selected: int) -> Evidence:
        more = (
            ModelSaid("heard", (first,)),
            asked,
            ChoiceMadeEntry("call_10", selected),
            Answered("call_10", "b_wipe", "wipe w.3"),
            ModelSaid("heard", (then,)),
            Answered("call_11", "b_wipe", "wipe w.4"),
        )
        return replace(
            with_entries((*ENTRIES, *more)),
            wishes=(*GOOD.wishes, wish("choice", selected, "call_10")),
            heard=(*GOOD.heard, heard(T, "call_10", "wipe w.3", 8.0), heard(T, "call_11", "wipe w.4", 9.0)),
            invoked={**GOOD.invoked, (T, "call_10"): frozenset({"m"}), (T, "call_11"): frozenset({"n"})},
        )

    too_late = chosen(1)
    entries = too_late.journals[T].entries
    too_late = replace(
        too_late, journals={**too_late.journals, T: journal((*entries[:22], *entries[26:], *entries[22:26]))}
    )

    assert account(chosen(1)) == []
    assert "and nobody said that it may be" in complaints(too_late)
    assert "(b_wipe w.4) was made without a question, and nobody said that it may be" in complaints(chosen(0))


# Relatives


def test_a_child_that_was_made_twice_is_one_too_many() -> None:
    twin = replace(child(), thread=replace(child().thread, id="thr_1-000002"))
    again = with_entries((*ENTRIES, ChildMade("thr_1-000002", "call_5", task=TASK), ChildEnded("thr_1-000002")))
    found = complaints(replace(again, journals={**again.journals, "thr_1-000002": twin}))
    assert "one call has made two threads" in found
    assert f"made 2 threads for {TASK}" in found


def test_a_child_that_was_wanted_is_made() -> None:
    assert "wanted a thread for" in complaints(with_entries(changed(5)))


@pytest.mark.parametrize(
    "entries",
    [
        CHILD_ENTRIES[1:],
        (CHILD_ENTRIES[1], CHILD_ENTRIES[0], *CHILD_ENTRIES[2:]),
        (CHILD_ENTRIES[0], *CHILD_ENTRIES),
        (Tasked("note_6", T, command("another")), *CHILD_ENTRIES[1:]),
    ],
    ids=["without", "not first", "twice", "another"],
)
def test_a_child_begins_with_its_task(entries: tuple[JournalEntry, ...]) -> None:
    assert "and begins with" in complaints(with_entries(ENTRIES, entries))


def test_a_report_that_is_heard_twice_or_never_is_wrong() -> None:
    again = Reported("note_9", CHILD, "so far", TASK)
    assert "heard 'so far' from thr_1-000001 2 times, which said it 1 times" in complaints(
        with_entries((*ENTRIES, again))
    )
    assert "never heard 'so far' from thr_1-000001" in complaints(with_entries(changed(15)))
    assert "heard 'what?'" in complaints(with_entries((*ENTRIES, replace(again, text="what?"))))


def test_what_a_child_says_last_may_be_its_report() -> None:
    rested = Reported("note_9", CHILD, "heard and rested", TASK)
    assert account(with_entries((*ENTRIES, rested))) == []
    assert "2 times, which said it 1 times" in complaints(with_entries((*ENTRIES, rested, rested)))


def test_a_child_that_rests_has_reported() -> None:
    silent = replace(child(), thread=replace(child().thread, closed=False, owes_report=True))
    assert "never said anything to its parent" in complaints(replace(GOOD, journals={**GOOD.journals, CHILD: silent}))


def test_a_message_of_the_parent_is_heard_once() -> None:
    again = (*CHILD_ENTRIES[:5], CHILD_ENTRIES[4], *CHILD_ENTRIES[5:])
    assert "from its parent 2 times, which said it 1 times" in complaints(with_entries(ENTRIES, again))
    open_child = CHILD_ENTRIES[:4]
    assert "was told 1 things by its parent, and heard 0" in complaints(with_entries(ENTRIES, open_child))
    closed_before = (*CHILD_ENTRIES[:4], CHILD_ENTRIES[7], Ignored("parent", "the thread is closed"))
    assert account(with_entries(changed(21), closed_before)) == []


def test_a_closed_child_is_known_as_closed_by_its_parent() -> None:
    assert "was told 0 times that thr_1-000001 was closed" in complaints(with_entries(changed(20)))
    still = replace(journal(), thread=replace(journal().thread, spawned={CHILD: SpawnedChild(TASK)}))
    assert "still has children it made" in complaints(replace(GOOD, journals={**GOOD.journals, T: still}))


# Schedules


def test_a_time_of_a_schedule_that_is_missing_is_missed() -> None:
    assert "was due 1 times at 2026-11-16 09:02 UTC, and was told 0 times" in complaints(with_often(*OFTEN_ENTRIES[:3]))


def test_a_time_of_a_schedule_that_is_told_twice_or_was_not_due_is_one_too_many() -> None:
    twice = with_often(*OFTEN_ENTRIES, OFTEN_ENTRIES[3])
    assert "was due 1 times at 2026-11-16 09:02 UTC, and was told 2 times" in complaints(twice)
    early = with_often(*OFTEN_ENTRIES, WokenUp("often", "2026-11-16 09:04 UTC", command("often")))
    assert "was due 0 times at 2026-11-16 09:04 UTC, and was told 1 times" in complaints(early)
    unknown = with_often(*OFTEN_ENTRIES, WokenUp("never", DUE[0], command("never")))
    assert "there is no schedule never" in complaints(unknown)


def test_what_the_model_is_to_do_at_a_time_is_done() -> None:
    assert "somebody asked for a_put often@2026-11-16_09:02_UTC, and it was never made" in complaints(
        with_often(*OFTEN_ENTRIES[:4])
    )


def test_the_times_of_a_schedule_are_told_in_order_and_in_one_thread() -> None:
    assert "out of order" in complaints(with_often(*OFTEN_ENTRIES[3:], *OFTEN_ENTRIES[:3]))
    two = {OFTEN: often(OFTEN_ENTRIES[:3]), "thr_3": often(OFTEN_ENTRIES[3:], "thr_3")}
    apart = replace(
        GOOD,
        journals={**GOOD.journals, **two},
        heard=(*GOOD.heard[:3], heard("thr_3", "call_2", "put", 6.0)),
        invoked={("thr_3", "call_2") if call == (OFTEN, "call_2") else call: ids for call, ids in GOOD.invoked.items()},
    )
    assert "schedule often has 2 threads, not one" in complaints(apart)
    new_thread = (Timetable("often", DUE, new_thread=True),)
    assert account(replace(apart, timetables=new_thread)) == []
    assert "wants a thread for each" in complaints(replace(GOOD, timetables=new_thread))


# Summaries


def test_a_summary_is_about_what_stands_before_it() -> None:
    assert "the summary in line 18 goes up to line 18" in complaints(with_entries(changed(18, Summary("{}", 18))))
    backwards = (*ENTRIES, Summary("{}", 9))
    assert "goes up to line 9, and the one before to 14" in complaints(with_entries(backwards))


def test_a_summary_tells_of_calls_that_were_made() -> None:
    made_up = Summary("{}", 14, (LiveCall("call_99", "a_put", {}),))
    assert "tells of calls nobody made: ['call_99']" in complaints(with_entries(changed(18, made_up)))


def test_a_thread_knows_its_last_summary() -> None:
    forgotten = replace(journal(), thread=replace(journal().thread, summary=None))
    assert "is summed up as None says" in complaints(replace(GOOD, journals={**GOOD.journals, T: forgotten}))


@pytest.mark.parametrize(
    "rewrite",
    [
        lambda entries: changed(1, UserSaid(SAID + " "), of=entries),
        lambda entries: entries[:5],
    ],
    ids=["changed", "gone"],
)
def test_a_journal_is_never_rewritten(
    rewrite: Callable[[tuple[JournalEntry, ...]], tuple[JournalEntry, ...]],
) -> None:
    rewritten = replace(with_entries(rewrite(ENTRIES)), samples=GOOD.samples)
    assert "of thr_1 was " in complaints(rewritten)
