"""Child threads that a model makes, and what they and their parents say to each other."""

from dataclasses import replace

import pytest

from rapkit.kernel.builtins import offered_builtins
from rapkit.kernel.completion import Usage, WantedCall
from rapkit.kernel.conversation import Heard, Said
from rapkit.kernel.effects import Invoke, Spawn, TellClosed, Withdraw, Write
from rapkit.kernel.entries import ChildEnded, ChildMade, ClosedEntry, ParentSaid, ParkedEntry, Reported, Tasked
from rapkit.kernel.incoming import (
    CancelCall,
    ChildClosed,
    ChildReport,
    CloseThread,
    Incoming,
    ParentMessage,
    SetAside,
    Undelivered,
)
from rapkit.kernel.limits import ThreadLimits
from rapkit.kernel.receive import receive
from rapkit.kernel.reply import worker_lost
from rapkit.kernel.thread import Inherited, Status, Subscription, Thread
from tests.kernel.thread_driver import ThreadDriver, calling, forecast, storms, subscribed, want

OURS = "It has stopped: "


def spawn(task: str = "Count the storms.") -> WantedCall:
    return want("spawn_thread", task=task)


def parent_of_one(limits: ThreadLimits | None = None) -> tuple[ThreadDriver, ThreadDriver]:
    """A thread that has made one child, and that child, which has heard its task."""
    parent = ThreadDriver(limits=limits or ThreadLimits())
    parent.user("Count the storms and write a poem.")
    parent.says("I let a child count.", spawn())
    child = parent.spawned()
    parent.says("I wait.")
    return parent, child


def close(thread_id: str | None = None) -> WantedCall:
    return want("close_thread", **({"thread_id": thread_id} if thread_id else {}))


# Making one


def test_a_child_is_made_and_the_model_goes_on_at_once() -> None:
    parent = ThreadDriver(Thread("t1", user_id="u1", allowed=("demolish",)))
    parent.user("Count the storms.")
    _, made, _ = parent.says("Well.", spawn(" Count the storms. \n"))
    assert made == ChildMade("t1-000001", "c1_t1", task="Count the storms.")
    child = Thread(
        "t1-000001",
        user_id="u1",
        ancestors=("t1",),
        inherits=Inherited("t1", 1),
        task="Count the storms.",
        owes_report=True,
        calls_made=1,
        allowed=("demolish",),
    )
    assert parent.effects == (Spawn(child, "Count the storms."),)
    assert parent.is_asked()
    assert parent.shown()[-1] == "c1_t1: The child thread t1-000001 works on it. Its reports will come by themselves."
    parent.says("I wait.")
    assert parent.status() is Status.WAITING


def test_a_child_inherits_what_was_said_before_the_reply_that_made_it_and_then_hears_its_task() -> None:
    """So it does not see the plan it is a part of, and carries out nothing but its task."""
    parent = ThreadDriver()
    parent.user("Count the storms and write a poem.")
    parent.says("I let a child count, then I write.", forecast(), spawn("Count the storms."), spawn("Write a poem."))
    child = parent.spawned(1)
    assert child.shown() == [
        "Count the storms and write a poem.",
        "model calls note_4: spawn_thread task:t1 (from the parent thread)",
        child.shown()[-1],
    ]
    assert child.shown()[-1].startswith("note_4: This is a child thread, and you are in it.")
    assert "do not carry out what was asked or planned there" in child.shown()[-1]
    assert child.shown()[-1].endswith("Write a poem.")
    assert child.is_asked()
    assert child.journal == [Tasked("note_4", "t1", "Write a poem.")]


def test_a_child_inherits_no_call_that_was_not_answered_and_no_answer_that_came_later() -> None:
    parent = calling(forecast("Oslo"), forecast("Bergen"))
    parent.result("c2_t1", "rain")
    parent.user("Let somebody count the storms.")
    parent.says("", spawn())
    child = parent.spawned()
    before = child.conversation()
    parent.result("c1_t1", "sun")
    parent.says("It is sunny.")
    assert child.conversation() == before
    assert child.shown()[:4] == [
        "How is it?",
        "model calls c2_t1: forecast Bergen",
        "c2_t1: rain",
        "Let somebody count the storms.",
    ]
    assert [call.id for turn in before if isinstance(turn, Said) for call in turn.calls] == ["c2_t1", "note_4"]


def test_ids_of_a_child_are_other_than_those_it_inherits() -> None:
    _, child = parent_of_one()
    child.says("", forecast())
    assert list(child.thread.pending) == ["c3_t1-000001"]  # the parent's was c1_t1, its own task note_2


def test_grandchildren_inherit_from_both() -> None:
    _, child = parent_of_one()
    child.says("I let two count.", spawn("Count those of May."))
    grandchild = child.spawned()
    assert grandchild.thread.ancestors == ("t1", "t1-000001")
    assert [line for line in grandchild.shown() if not line.startswith("note")] == [
        "Count the storms and write a poem.",
        "model calls note_2: spawn_thread task:t1 (from the parent thread)",
        "model calls note_4: spawn_thread task:t1-000001 (from the parent thread)",
    ]


def test_a_child_does_not_hand_its_own_task_on() -> None:
    _, child = parent_of_one()
    child.says("", spawn(" Count the storms."))
    assert child.answers()[-1].text == "Error: That is what this thread was made for. Do it here."
    assert not child.thread.spawned
    child.says("", spawn("Count those of May."))
    assert list(child.thread.spawned) == ["t1-000001-000001"]


def test_a_long_task_is_heard_in_full_and_kept_in_short() -> None:
    """The state of a thread is written at every step; its journal only once."""
    task = "Count. " * 500
    parent = calling(spawn(task))
    child = parent.spawned()
    assert child.shown()[-1].endswith(task.strip())
    assert max(len(parent.thread.spawned[child.thread.id].task), len(child.thread.task)) < 1100
    child.says("", spawn(task))
    assert child.answers()[-1].text == "Error: That is what this thread was made for. Do it here."


@pytest.mark.parametrize("task", ["", "  \n"])
def test_a_child_needs_a_task(task: str) -> None:
    talk = calling(spawn(task))
    assert (talk.answers()[-1].text or "").startswith("Error: ")
    assert talk.thread.spawned == {}


def test_a_thread_has_only_so_many_children_at_once() -> None:
    talk = calling(spawn("One."), spawn("Two."), spawn("Three."), limits=ThreadLimits(children=2))
    assert list(talk.thread.spawned) == ["t1-000001", "t1-000002"]
    assert talk.answers()[-1].text == (
        "Error: This thread has 2 open child threads, and may not have more. Close one with close_thread, or wait for one to end."
    )
    talk.hears(ChildClosed("t1-000001", "the user"))
    talk.says("", spawn("Three."))
    assert list(talk.thread.spawned) == ["t1-000002", "t1-000003"]


def test_children_for_events_take_no_room_of_those_the_model_makes_nor_the_other_way_round() -> None:
    talk = subscribed(ThreadLimits(children=1))
    talk.user("Count, too.")
    talk.says("", spawn())
    talk.says("Yes.")
    talk.event("c1_t1", associative=False)
    assert (list(talk.thread.spawned), talk.thread.children) == (["t1-000001"], ("t1-000002",))


@pytest.mark.parametrize("limits", [ThreadLimits(depth=0), ThreadLimits(children=0)], ids=["depth", "children"])
def test_where_no_children_are_allowed_the_tools_for_them_are_not_offered_and_refused(limits: ThreadLimits) -> None:
    names = [tool.name for tool in offered_builtins(Thread("t1"), limits)]
    assert not {"spawn_thread", "send_message_to_child", "close_thread", "report_to_parent"} & set(names)
    talk = calling(spawn(), limits=limits)
    assert talk.answers()[-1].text == "Error: This thread may have no child threads. Do it here."


def test_children_of_children_are_made_only_so_deep() -> None:
    limits = ThreadLimits(depth=1)
    _, child = parent_of_one(limits)
    names = [tool.name for tool in offered_builtins(child.thread, limits)]
    assert "spawn_thread" not in names
    assert {"report_to_parent", "close_thread"} <= set(names)
    child.says("", spawn("Count those of May."))
    assert child.answers()[-1].text == "Error: This thread may have no child threads. Do it here."


def test_only_a_child_is_offered_a_word_with_its_parent() -> None:
    _, child = parent_of_one()
    assert "report_to_parent" in [tool.name for tool in offered_builtins(child.thread, ThreadLimits())]
    assert "report_to_parent" not in [tool.name for tool in offered_builtins(Thread("t1"), ThreadLimits())]
    talk = calling(want("report_to_parent", text="Done."))
    assert talk.answers()[-1].text == "Error: This thread has no parent. What you say here is read by the user."
    assert talk.written() == []


# From child to parent


def test_a_report_wakes_the_parent_and_says_from_whom_it_is_and_about_what() -> None:
    parent, child = parent_of_one()
    child.says("", want("report_to_parent", text="Seven so far."))
    assert child.is_asked()
    assert parent.takes_mail_of(child) == (Reported("note_2", "t1-000001", "Seven so far.", "Count the storms."),)
    assert parent.is_asked()
    assert parent.shown()[-2:] == [
        "model calls note_2: spawn_thread Count the storms., report:t1-000001 (open)",
        "note_2: Seven so far.",
    ]
    assert list(parent.thread.spawned) == ["t1-000001"]


def test_a_report_waits_for_a_call_that_is_awaited() -> None:
    parent, child = parent_of_one()
    parent.user("And the weather?")
    parent.says("", forecast())
    child.says("Seven.")
    parent.takes_mail_of(child)
    assert not parent.is_asked()
    parent.result("c2_t1", "sun")
    assert parent.is_asked()
    assert parent.shown()[-3:] == [
        "c2_t1: sun",
        "model calls note_3: spawn_thread Count the storms., report:t1-000001 (open)",
        "note_3: Seven.",
    ]


def test_each_report_has_a_name_of_its_own_so_that_it_comes_once() -> None:
    _, child = parent_of_one()
    child.says("", want("report_to_parent", text="Six."), want("report_to_parent", text="Six."))
    assert len({write.once for write in child.written()}) == 2


def test_a_child_that_ends_its_turn_without_a_word_to_its_parent_has_reported_what_it_said_last_once() -> None:
    _, child = parent_of_one()
    child.says("", forecast())
    assert child.written() == []
    child.result("c3_t1-000001")
    child.says("There were seven.")
    assert child.written() == [
        Write("t1", ChildReport("t1-000001", "There were seven."), once="report/t1-000001/note_4")
    ]
    child.user("Are you sure?")
    child.says("Yes.")
    assert child.written() == []
    assert child.status() is Status.IDLE


@pytest.mark.parametrize("text", ["", " \n"])
def test_a_child_that_has_nothing_to_say_reports_that(text: str) -> None:
    _, child = parent_of_one()
    child.says(text)
    (write,) = child.written()
    assert write.message == ChildReport("t1-000001", "(It ended its turn and said nothing.)")


def test_a_child_that_has_told_its_parent_does_not_do_so_again_by_itself() -> None:
    _, child = parent_of_one()
    child.says("", want("report_to_parent", text="Seven."))
    child.says("I have reported.")
    assert child.written() == []


@pytest.mark.parametrize("what", ["a subscription", "a call", "a child"])
def test_a_child_that_still_waits_for_something_has_not_reported_yet(what: str) -> None:
    _, child = parent_of_one()
    match what:
        case "a subscription":
            child.says("", storms())
            child.result("c3_t1-000001", "Subscribed.", subscription=True)
        case "a call":
            child.says("", forecast())
            child.user("Hurry!")
        case "a child":
            child.says("", spawn("Count those of May."))
    child.says("I wait.")
    assert child.written() == []
    assert child.thread.owes_report


def test_a_child_that_is_written_to_by_its_parent_owes_a_report_again() -> None:
    parent, child = parent_of_one()
    child.says("Seven.")
    parent.takes_mail_of(child)
    parent.says("", want("send_message_to_child", thread_id="t1-000001", text="Only big ones."))
    assert parent.written() == [Write("t1-000001", ParentMessage("t1", "Only big ones."), once="parent/c3_t1")]
    assert child.takes_mail_of(parent) == (ParentSaid("note_4", "t1", "Only big ones."),)
    assert child.shown()[-2:] == [
        "model calls note_4: spawn_thread message:t1 (from the parent thread)",
        "note_4: Only big ones.",
    ]
    child.says("Two.")
    (write,) = child.written()
    assert write.message == ChildReport("t1-000001", "Two.")


def test_a_child_made_for_an_event_owes_no_report_but_may_give_one() -> None:
    parent = subscribed()
    parent.event("c1_t1", associative=False)
    child = parent.child(parent.effects[-1])  # type: ignore[arg-type]
    child.hears(ParentMessage("t1", "Well?"))
    assert not child.thread.owes_report
    child.says("", want("report_to_parent", text="It is bad."))
    assert parent.takes_mail_of(child) == (Reported("note_2", "t1-000001", "It is bad."),)
    assert parent.is_asked()
    child.says("Done.")
    assert [type(write.message) for write in child.written()] == [ChildClosed]


@pytest.mark.parametrize("message", [ChildReport("t9", "Hello."), ChildClosed("t9", "the user", "Bye.")])
def test_only_its_own_children_are_heard(message: Incoming) -> None:
    talk = subscribed()
    talk.hears(message)
    assert talk.ignored()[-1].reason == "no such child is open"
    assert not talk.is_asked()


# A child that stops


def test_a_parent_is_told_that_a_child_has_stopped_and_again_what_it_says_when_it_goes_on() -> None:
    parent, child = parent_of_one()
    child.fails("The account is closed.", retryable=False)
    (write,) = child.written()
    reason = "The model failed: The account is closed. Write to the thread to try again."
    assert write.message == ChildReport("t1-000001", f"{OURS}{reason}", Usage(requests=1))
    assert child.status() is Status.PARKED
    parent.takes_mail_of(child)
    assert parent.is_asked()
    assert list(parent.thread.spawned) == ["t1-000001"]
    child.user("Go on.")
    child.says("Seven.")
    (write,) = child.written()
    assert write.message == ChildReport("t1-000001", "Seven.", Usage(requests=1))


@pytest.mark.parametrize("how", ["failures", "mistakes", "budget", "lost"])
def test_a_parent_is_told_though_the_child_had_reported_something_before(how: str) -> None:
    _, child = parent_of_one(ThreadLimits(mistakes=1))
    child.says("", want("report_to_parent", text="I begin."))
    match how:
        case "failures":
            child.fails(retryable=False)
        case "mistakes":
            child.says("", want("no_such_tool"))
        case "budget":
            child.has_no_budget()
        case "lost":
            child._apply(worker_lost(child.thread, 3, child.now, child.limits))
    (write,) = child.written()
    assert isinstance(write.message, ChildReport)
    assert write.message.text.startswith(OURS)
    assert not child.thread.owes_report


def test_a_parent_is_told_once_however_often_a_child_that_has_stopped_is_woken_in_vain() -> None:
    _, child = parent_of_one(ThreadLimits(attempts=2))
    child.says("", storms())
    child.result("c3_t1-000001", "Subscribed.", subscription=True)
    child.fails(retryable=False)
    assert len(child.written()) == 1
    for _ in range(3):
        child.event("c3_t1-000001")
        assert child.is_asked()
        child.fails()
        assert child.status() is Status.PARKED
        assert child.written() == []
    assert len([entry for entry in child.journal if isinstance(entry, ParkedEntry)]) == 1


def test_a_parent_that_says_something_to_a_child_that_has_stopped_hears_if_it_stops_again() -> None:
    """It would wait in vain."""
    parent, child = parent_of_one()
    child.fails(retryable=False)
    parent.takes_mail_of(child)
    parent.says("", want("send_message_to_child", thread_id="t1-000001", text="Go on."))
    child.takes_mail_of(parent)
    child.fails(retryable=False)
    parent.takes_mail_of(child)
    assert parent.shown()[-1].split(": ")[1] == OURS.removesuffix(": ")
    assert not parent.thread.waits


def test_a_thread_of_the_users_own_tells_nobody_that_it_has_stopped() -> None:
    talk = ThreadDriver()
    talk.user()
    talk.fails(retryable=False)
    assert talk.effects == ()


@pytest.mark.parametrize("what", ["task", "parent"])
def test_a_parent_is_told_that_a_child_could_not_take_what_it_was_told(what: str) -> None:
    parent, child = parent_of_one()
    fresh = replace(child, thread=replace(child.thread, wants_model=False))
    fresh.hears(SetAside(what, "it ended three workers"))
    assert parent.takes_mail_of(fresh)
    assert parent.shown()[-1] == "note_2: It could not take what it was told: it ended three workers"


# Closing


def test_a_child_that_is_done_says_so_and_is_closed() -> None:
    parent, child = parent_of_one()
    entries = child.says("Bye.", want("report_to_parent", text="Seven.", done=True))
    by = "the thread itself, which is done"
    assert entries[-1] == ClosedEntry(by)
    assert child.effects == (
        TellClosed(),
        Write("t1", ChildClosed("t1-000001", by, "Seven."), once="closed/t1-000001"),
    )
    assert child.status() is Status.CLOSED
    assert not child.is_asked()

    ended, heard = parent.takes_mail_of(child)
    assert ended == ChildEnded("t1-000001", by)
    assert heard == Reported("note_2", "t1-000001", "Seven.", "Count the storms.", closed=True)
    assert parent.thread.spawned == {}
    assert parent.shown()[-2:] == [
        "model calls note_2: spawn_thread Count the storms., report:t1-000001 (closed now)",
        "note_2: Seven.",
    ]


def test_what_is_said_with_the_last_word_is_not_done_any_more() -> None:
    _, child = parent_of_one()
    child.says("", forecast(), want("report_to_parent", text="Seven.", done=True), forecast("Bergen"))
    assert not [effect for effect in child.effects if isinstance(effect, Invoke)]
    assert [effect for effect in child.effects if isinstance(effect, Withdraw)]
    assert child.thread.pending == {}


def test_the_first_last_word_counts() -> None:
    _, child = parent_of_one()
    done = want("report_to_parent", text="Seven.", done=True)
    child.says("", close(), done, want("report_to_parent", text="Eight.", done=True), close())
    closed = child.written()[-1].message
    assert isinstance(closed, ChildClosed)
    assert closed.report == "Seven."


@pytest.mark.parametrize("thread_id", [None, "t1-000001"])
def test_a_child_may_close_itself(thread_id: str | None) -> None:
    parent, child = parent_of_one()
    child.says("", close(thread_id))
    assert child.thread.closed
    parent.takes_mail_of(child)
    assert parent.is_asked()
    assert parent.shown()[-1] == "note_2: It was closed by the thread itself."


def test_a_parent_is_told_that_somebody_else_has_closed_its_child() -> None:
    parent, child = parent_of_one()
    child.hears(CloseThread())
    parent.takes_mail_of(child)
    assert parent.is_asked()
    assert parent.shown()[-1] == "note_2: It was closed by the user."
    assert parent.status() is Status.IDLE


def test_a_parent_that_closes_its_child_is_not_told_so() -> None:
    parent, child = parent_of_one()
    parent.user("Stop counting.")
    parent.says("", close("t1-000001"))
    assert parent.written() == [Write("t1-000001", CloseThread("its parent thread"), once="close")]
    assert parent.answers()[-1].text == "The child thread t1-000001 is being closed."
    child.takes_mail_of(parent)
    parent.says("Stopped.")
    assert parent.thread.waits  # until it has heard of it
    assert parent.takes_mail_of(child) == (ChildEnded("t1-000001", "its parent thread"),)
    assert not parent.is_asked()
    assert parent.thread.spawned == {}


def test_what_a_child_says_before_it_is_closed_is_heard_all_the_same() -> None:
    parent, child = parent_of_one()
    parent.user("Stop counting.")
    parent.says("", close("t1-000001"))
    parent.says("Stopped.")
    child.says("", want("report_to_parent", text="Seven.", done=True))
    parent.takes_mail_of(child)
    assert parent.is_asked()
    assert parent.shown()[-1] == "note_3: Seven."


def test_a_child_that_is_being_closed_is_open_to_the_model_no_more() -> None:
    parent, _ = parent_of_one()
    parent.user("Stop counting.")
    parent.says("", close("t1-000001"), close("t1-000001"))
    assert len(parent.written()) == 1
    assert parent.answers()[-1].text == "Error: 't1-000001' is no open child of this thread. Open: none."


def test_a_child_made_for_an_event_may_be_closed_and_makes_room_for_the_next() -> None:
    talk = subscribed(ThreadLimits(children=1))
    talk.event("c1_t1", "first", associative=False)
    talk.event("c1_t1", "second", associative=False)
    talk.user("Stop that.")
    talk.says("", close("t1-000001"))
    talk.hears(ChildClosed("t1-000001", "its parent thread"))
    assert talk.thread.children == ("t1-000002",)


def test_the_children_of_a_thread_that_is_closed_go_on() -> None:
    parent, child = parent_of_one()
    parent.hears(CloseThread())
    assert parent.written() == []
    child.says("Seven.")
    assert child.status() is Status.IDLE
    parent.takes_mail_of(child)
    assert parent.ignored()[-1].reason == "the thread is closed"


def test_the_users_own_conversation_is_not_for_the_model_to_close() -> None:
    for thread_id in (None, "t1"):
        talk = calling(close(thread_id))
        assert "only the user closes" in (talk.answers()[-1].text or "")
        assert not talk.thread.closed


@pytest.mark.parametrize("relative", ["t1", "t1-000001-000001", "t1-000002", "t9"])
@pytest.mark.parametrize("tool", ["send_message_to_child", "close_thread"])
def test_only_direct_relatives_talk(relative: str, tool: str) -> None:
    """Neither a grandchild, nor a sibling, nor a parent is a child."""
    parent, child = parent_of_one()
    child.says("", spawn("Count those of May."))
    grandchild = child.spawned()
    speaker = {"t1": grandchild, "t1-000002": child}.get(relative, parent)
    if not speaker.is_asked():
        speaker.user()
    arguments = {"thread_id": relative} | ({"text": "Hello"} if tool == "send_message_to_child" else {})
    speaker.says("", WantedCall("p", tool, arguments))
    assert speaker.written() == []
    assert f"Error: {relative!r} is no open child of this thread. Open: " in (speaker.answers()[-1].text or "")


def test_a_call_that_was_given_up_in_a_child_is_no_business_of_its_parent() -> None:
    _, child = parent_of_one()
    child.says("", forecast())
    child.hears(Undelivered("c3_t1", "nobody is there"))
    assert child.written() == []
    assert isinstance(child.conversation()[-1], Heard)


@pytest.mark.parametrize(("owes_report", "asked"), [(True, True), (False, False)], ids=["owes", "has told"])
def test_a_child_that_owes_a_report_does_not_come_to_rest_without_a_word(owes_report: bool, asked: bool) -> None:
    subscribed = {"c1_t1": Subscription("storms", {}, 0.0, "http://a")}
    child = Thread("t1-000001", ancestors=("t1",), task="Watch.", owes_report=owes_report, subscriptions=subscribed)

    step = receive(child, [CancelCall("c1_t1")], 1.0, ThreadLimits())

    assert step.thread.wants_model == asked
