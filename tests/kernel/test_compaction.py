"""Making room: what was said long ago is summarised, and everything else stays as it is."""

import pytest

from rapkit.kernel.compaction import (
    compacted,
    cut,
    is_due,
    lines_since,
    not_compacted,
    room_for,
    shrink_window,
    summary_question,
)
from rapkit.kernel.completion import Reply, Usage
from rapkit.kernel.conversation import Heard, Said, SaidCall, ToolAnswer
from rapkit.kernel.effects import MakeChild
from rapkit.kernel.entries import (
    Answered,
    Failed,
    JournalEntry,
    LiveCall,
    MadeCall,
    ModelSaid,
    Summary,
    UserSaid,
    ViewChanged,
)
from rapkit.kernel.incoming import CancelCall, ChildReport, ChooseFor
from rapkit.kernel.limits import ThreadLimits
from rapkit.kernel.projection import NOT_PERMITTED_YET, STILL_RUNNING, Numbered
from rapkit.kernel.thread import Summarised, Thread
from rapkit.protocol import TextContent
from tests.kernel.memory_journals import seen
from tests.kernel.thread_driver import ThreadDriver, demolish, forecast, storms, subscribed, want

FEW = ThreadLimits(window=8)
"""A quarter of this stays: two lines, and what belongs to them."""

PLENTY = 500_000
"""Characters."""

SUMMARY = "(This is a summary of what was said before:)\n\n"
SUBSCRIBED = "This subscription is active. Its events will come by themselves."


def chat(talk: ThreadDriver, turns: int, first: int = 1) -> ThreadDriver:
    for number in range(first, first + turns):
        talk.user(f"question {number}")
        talk.says(f"answer {number}")
    return talk


# When


@pytest.mark.parametrize(
    ("thread", "limits", "window", "estimate", "due"),
    [
        (Thread("t"), ThreadLimits(), None, 10**9, False),
        (Thread("t", shown=2), ThreadLimits(), None, 95_999, False),
        (Thread("t", shown=2), ThreadLimits(), None, 96_000, True),
        (Thread("t", shown=2), ThreadLimits(), 1000, 749, False),
        (Thread("t", shown=2), ThreadLimits(), 1000, 750, True),
        (Thread("t", shown=2), ThreadLimits(context_window=2000), 1000, 750, False),
        (Thread("t", shown=2), ThreadLimits(context_window=500), 1000, 375, True),
        (Thread("t", shown=2, room=600), ThreadLimits(context_window=2000), 1000, 449, False),
        (Thread("t", shown=2, room=600), ThreadLimits(context_window=2000), 1000, 450, True),
        (Thread("t", shown=2, room=600), ThreadLimits(), 500, 375, True),
        (Thread("t", shown=2), ThreadLimits(compaction=False), 1000, 750, False),
        (Thread("t", shown=500), ThreadLimits(), None, 0, False),
        (Thread("t", shown=501), ThreadLimits(), None, 0, True),
        (Thread("t", shown=600, summary=Summarised(550, 540, 100)), ThreadLimits(), None, 0, False),
        (Thread("t", shown=601, summary=Summarised(550, 540, 100)), ThreadLimits(), None, 0, True),
        (Thread("t", shown=9, compact_after=10), ThreadLimits(), 1000, 750, False),
        (Thread("t", shown=10, compact_after=10), ThreadLimits(), 1000, 750, True),
    ],
    ids=range(17),
)
def test_when_room_is_made(thread: Thread, limits: ThreadLimits, window: int | None, estimate: int, due: bool) -> None:
    """At three quarters of what the model takes, whoever knows that; or when there are too many lines."""
    assert is_due(thread, limits, room_for(thread, limits, window), estimate) == due


def test_how_many_tokens_the_last_completion_took_is_known() -> None:
    talk = ThreadDriver()
    talk.user()
    talk.says("Hello.", usage=Usage(1, 700, 50))
    assert talk.thread.context == 750
    talk.user()
    talk.is_summarised()
    assert talk.thread.context == 0


# Where


def lines(*entries: JournalEntry) -> list[Numbered]:
    return [Numbered(seq, entry) for seq, entry in enumerate(entries, 1)]


def called(*ids: str) -> ModelSaid:
    return ModelSaid("", tuple(MadeCall(id, "forecast", {}) for id in ids))


def answered(id: str, *, late: bool = False) -> Answered:
    return Answered(id, "forecast", "sunny", late=late)


U, M = UserSaid("?"), ModelSaid("!")

CUTS: list[tuple[str, list[JournalEntry], int]] = [
    ("nothing", [], 0),
    ("the last line stays", [U], 0),
    ("a quarter of the window stays", [U, M, U, M, U], 3),
    ("an answer keeps its call", [U, M, U, called("a"), answered("a")], 3),
    ("two answers keep their calls", [U, called("a", "b"), answered("a"), answered("b")], 1),
    ("an answer before keeps nothing", [U, called("a"), answered("a"), M, U], 3),
    (
        "calls keep the answers that keep other calls",
        [U, called("a"), called("b"), answered("a"), M, answered("b")],
        1,
    ),
    ("a late answer stands for itself", [U, called("a"), U, M, answered("a", late=True)], 3),
    ("all hangs together", [called("a"), U, U, U, U, answered("a")], 0),
]


@pytest.mark.parametrize(("what", "entries", "upto"), CUTS, ids=[what for what, _, _ in CUTS])
def test_where_it_is_cut(what: str, entries: list[JournalEntry], upto: int) -> None:
    where = cut(lines(*entries), [1] * len(entries), FEW, PLENTY)
    assert where.upto == upto
    assert where.shown_behind == len(entries) - upto
    behind = {call.id for entry in entries[upto:] if isinstance(entry, ModelSaid) for call in entry.calls}
    assert where.calls_behind == behind


@pytest.mark.parametrize(
    ("sizes", "upto"),
    [([1, 1, 1, 1], 2), ([1, 1, 999, 1], 2), ([1, 1, 1000, 1], 3), ([1, 1, 1, 9999], 3), ([1, 9999, 1, 1], 2)],
    ids=range(5),
)
def test_not_more_stays_than_there_is_room_for(sizes: list[int], upto: int) -> None:
    """A quarter of 4000 characters; but the last line stays, because it is what is to be answered."""
    assert cut(lines(U, M, M, U), sizes, FEW, 4000).upto == upto


def test_what_is_to_be_answered_stays_though_lines_that_are_not_for_models_lie_behind_it() -> None:
    numbered = lines(U, M, UserSaid("a long question"), ViewChanged("plan"), ViewChanged("plan"))
    where = cut(numbered, [1, 1, 9999, 1, 1], FEW, 4000)
    assert (where.upto, where.shown_behind) == (2, 1)


def test_lines_are_told_by_their_numbers_not_by_their_places() -> None:
    numbered = [Numbered(7, U), Numbered(12, M), Numbered(13, U), Numbered(20, U)]
    assert cut(numbered, [1] * 4, FEW, PLENTY).upto == 12


# What comes of it


def test_a_summary_takes_the_place_of_what_was_said_before_it() -> None:
    talk = chat(ThreadDriver(limits=FEW), 5)
    talk.user("question 6")
    where = talk.is_summarised("Five questions were answered.")
    assert where.upto == 9
    assert talk.journal[-1] == Summary("Five questions were answered.", 9)
    assert talk.is_asked()
    assert talk.shown() == [f"{SUMMARY}Five questions were answered.", "model: answer 5", "question 6"]
    assert lines_since(talk.thread) == 2
    talk.says("answer 6")
    assert talk.shown()[-1] == "model: answer 6"
    assert [type(entry) for entry in talk.journal[:2]] == [UserSaid, ModelSaid]  # nothing is rewritten


def test_a_summary_is_summarised_with_what_was_said_since() -> None:
    talk = chat(ThreadDriver(limits=FEW), 5)
    talk.user("question 6")
    talk.is_summarised("Five.")
    talk.says("answer 6")
    chat(talk, 3, first=7)
    talk.user("question 10")
    assert talk.is_summarised("Nine.").upto == 18
    assert talk.shown() == [f"{SUMMARY}Nine.", "model: answer 9", "question 10"]
    assert talk.thread.summary == Summarised(21, 18, 17)


def test_no_line_is_lost_between_a_summary_and_what_is_shown() -> None:
    talk = chat(ThreadDriver(limits=FEW), 5)
    talk.user("question 6")
    where = talk.is_summarised()
    before = [line.seq for line in lines(*talk.journal) if line.seq <= where.upto]
    assert [*before, *(line.seq for line in seen(talk.thread, talk.journal))] == list(range(1, 12))


def test_calls_that_go_on_are_named_under_their_own_ids_and_can_be_cancelled() -> None:
    talk = subscribed(FEW)
    talk.user("And Oslo?")
    talk.says("", forecast(), demolish())
    chat(talk, 4)
    talk.user("Well?")
    talk.is_summarised()
    summary = talk.journal[-1]
    assert isinstance(summary, Summary)
    assert summary.live == (
        LiveCall("c2_t1", "forecast", {"city": "Oslo"}),
        LiveCall("c3_t1", "demolish", {"city": "Oslo"}),
        LiveCall("c1_t1", "storms", {"city": "Oslo"}, subscription=True),
    )
    assert talk.shown() == [
        f"{SUMMARY}All was said.",
        "model calls c2_t1: forecast Oslo",
        "model calls c3_t1: demolish Oslo",
        "model calls c1_t1: storms Oslo",
        f"c2_t1: {STILL_RUNNING}",
        f"c3_t1: {NOT_PERMITTED_YET}",
        f"c1_t1: {SUBSCRIBED}",
        "model: answer 4",
        "Well?",
    ]
    talk.says("", want("cancel_tool_call", tool_call_id="c2_t1"), want("cancel_subscription", tool_call_id="c1_t1"))
    assert list(talk.thread.pending) == ["c3_t1"]
    assert talk.thread.subscriptions == {}


def test_what_comes_later_for_a_call_from_before_echoes_it_and_the_rest_stays_as_it_was() -> None:
    """SUB-20"""
    talk = subscribed(FEW)
    talk.user("And Oslo?")
    talk.says("", forecast())
    chat(talk, 4)
    talk.user("Well?")
    talk.is_summarised()
    talk.says("I wait.")
    before = talk.shown()
    talk.event("c1_t1", "storm", final=True)
    talk.result("c2_t1", "sun")
    assert talk.shown()[: len(before)] == before
    assert [line.split(": ", 1)[1] for line in talk.shown()[len(before) :]] == [
        "storms Oslo, interrupt:c1_t1 (subscription ended)",
        "storm",
        "forecast Oslo, result:c2_t1 (the call is finished)",
        "sun",
    ]


def test_a_call_that_ended_before_is_not_named() -> None:
    talk = subscribed(FEW)
    talk.hears(CancelCall("c1_t1"))
    chat(talk, 4)
    talk.user("Well?")
    talk.is_summarised()
    assert talk.shown() == [f"{SUMMARY}All was said.", "model: answer 4", "Well?"]


def test_a_call_that_is_shown_anyway_is_not_named_twice() -> None:
    talk = chat(ThreadDriver(limits=FEW), 4)
    talk.user("And Oslo?")
    talk.says("", forecast())
    talk.user("Well?")
    talk.is_summarised()
    assert talk.shown() == [
        f"{SUMMARY}All was said.",
        "model calls c1_t1: forecast Oslo",
        f"c1_t1: {STILL_RUNNING}",
        "Well?",
    ]


def test_a_call_that_still_goes_on_at_the_next_summary_is_named_again() -> None:
    talk = subscribed(FEW)
    for _ in range(3):
        chat(talk, 4)
        talk.user("Well?")
        talk.is_summarised()
        talk.says("I listen.")
    assert [line for line in talk.shown() if "c1_t1" in line] == [
        "model calls c1_t1: storms Oslo",
        f"c1_t1: {SUBSCRIBED}",
    ]


def test_an_event_that_came_early_is_shown_though_its_line_is_summarised() -> None:
    talk = ThreadDriver(limits=FEW)
    talk.user("Hello")
    talk.says("", storms())
    talk.event("c1_t1", "early storm")
    chat(talk, 3)
    talk.result("c1_t1", "Subscribed.", subscription=True)
    talk.is_summarised()
    assert "c1_t1-e3: early storm" in talk.shown()


# Those who inherit


def test_a_child_that_was_there_before_sees_what_it_always_saw() -> None:
    parent = chat(ThreadDriver(limits=FEW), 3)
    parent.user("Count.")
    parent.says("", want("spawn_thread", task="Count."))
    child = parent.spawned()
    before = child.conversation()
    parent.is_summarised()
    assert child.conversation() == before
    assert child.shown()[0] == "question 1"


def test_a_child_that_is_made_after_it_inherits_the_summary_and_no_call_of_its_parent() -> None:
    parent = subscribed(FEW)
    chat(parent, 4)
    parent.user("Well?")
    parent.is_summarised()
    parent.says("I listen.")
    parent.event("c1_t1", "storm", associative=False)
    (made,) = [effect for effect in parent.effects if isinstance(effect, MakeChild)]
    child = parent.child(made)
    assert child.shown() == [
        f"{SUMMARY}All was said.",
        "model: answer 4",
        "Well?",
        "model: I listen.",
        "model calls c1_t1-e1: storms Oslo, interrupt:c1_t1 (subscription remains active)",
        "c1_t1-e1: storm",
    ]


def test_the_summary_of_a_child_stands_for_all_it_inherits_too() -> None:
    parent = chat(ThreadDriver(limits=FEW), 3)
    parent.user("Count.")
    parent.says("", want("spawn_thread", task="Count."))
    child = parent.spawned()
    where = child.is_summarised("The parent asked much.")
    assert where.upto == 0
    assert child.shown()[0] == f"{SUMMARY}The parent asked much."
    assert child.shown()[1].startswith("model calls note_2: spawn_thread task:t1")
    assert "question 1" not in child.shown()
    assert parent.shown()[0] == "question 1"


def test_a_grandchild_inherits_no_further_than_to_a_summary() -> None:
    parent = chat(ThreadDriver(limits=FEW), 3)
    parent.user("Count.")
    parent.says("", want("spawn_thread", task="Count."))
    child = parent.spawned()
    child.is_summarised("The parent asked much.")
    child.says("", want("spawn_thread", task="Count those of May."))
    grandchild = child.spawned()
    assert grandchild.shown()[0] == f"{SUMMARY}The parent asked much."
    assert "question 1" not in grandchild.shown()


# Where nothing can be cut, or nobody sums up


def test_where_nothing_can_be_cut_nothing_is_summarised_again() -> None:
    """Not even if lines that are not for models lie between: the model would be asked for the same summary for ever."""
    talk = subscribed(FEW)
    chat(talk, 3)
    talk.user("question 4")
    talk.is_summarised()
    talk.fails()
    talk.says("", forecast(), forecast())
    talk.result("c2_t1")
    talk.result("c3_t1", "x" * 10_000)
    talk.is_summarised()
    summary = talk.thread.summary
    assert summary is not None
    for _ in range(3):
        talk.fails()
        kept = seen(talk.thread, talk.journal)
        assert cut(kept, [10**6] * len(kept), FEW, PLENTY).upto <= summary.upto


def test_a_summary_that_fails_is_not_tried_again_at_once_and_the_model_is_asked_without() -> None:
    talk = chat(ThreadDriver(limits=FEW), 5)
    talk.user("question 6")
    step = not_compacted(talk.thread, "no answer", Usage(1, 10, 5), talk.now, FEW)
    assert step.entries == (Failed("What was said so far could not be summarised: no answer"),)
    assert step.thread.wants_model
    assert step.thread.failures == 0
    assert step.thread.usage == Usage(1, 10, 5)
    assert not is_due(step.thread, FEW, 1000, 10**9)
    talk._apply(step)
    talk.says("answer 6")
    assert not is_due(talk.thread, FEW, 1000, 10**9)
    talk.user("question 7")
    assert is_due(talk.thread, FEW, 1000, 10**9)


def test_a_model_that_takes_less_has_half_as_much_from_then_on() -> None:
    talk = chat(ThreadDriver(limits=FEW), 5)
    talk.user("question 6")
    step = shrink_window(talk.thread, 128_000, 9000, talk.now, FEW)
    assert step is not None
    assert step.entries == ()
    assert step.thread.wants_model
    assert step.thread.usage == Usage(requests=1)
    talk._apply(step)
    assert room_for(talk.thread, FEW, None) == 4500
    talk.says("answer 6")
    assert room_for(talk.thread, FEW, 200_000) == 4500
    assert room_for(talk.thread, FEW, 4000) == 4000
    again = shrink_window(talk.thread, 4500, 9000, talk.now, FEW)
    assert again is not None
    assert again.thread.room == 2250


def test_a_model_that_takes_less_is_asked_for_a_summary_though_that_has_just_failed() -> None:
    talk = chat(ThreadDriver(limits=FEW), 5)
    talk.user("question 6")
    talk._apply(not_compacted(talk.thread, "no answer", Usage(), talk.now, FEW))
    step = shrink_window(talk.thread, 10_000, 5000, talk.now, FEW)
    assert step is not None
    assert is_due(step.thread, FEW, room_for(step.thread, FEW, 10_000), 5000)


@pytest.mark.parametrize(("room", "tokens"), [(999, 5000), (5000, 999)], ids=["room", "tokens"])
def test_a_model_that_takes_next_to_nothing_cannot_be_asked(room: int, tokens: int) -> None:
    assert shrink_window(Thread("t", wants_model=True), room, tokens, 0.0, FEW) is None
    assert shrink_window(Thread("t", wants_model=True), room + 1, tokens + 1, 0.0, FEW) is not None


def test_open_children_are_named_with_a_summary_but_not_to_those_who_inherit_it() -> None:
    talk = ThreadDriver(limits=FEW)
    talk.user("Go")
    talk.says("", want("spawn_thread", task="Count."), want("spawn_thread", task="Write."))
    talk.says("", want("close_thread", thread_id="t1-000002"))
    talk.says("They work.")
    chat(talk, 4)
    talk.user("Well?")
    talk.is_summarised()
    summary = talk.journal[-1]
    assert isinstance(summary, Summary)
    assert summary.children == {"t1-000001": "Count."}
    assert talk.shown()[1] == "(Open child threads then:)\n- t1-000001: Count."
    talk.says("", want("spawn_thread", task="Sing."))
    assert not [line for line in talk.spawned().shown() if "t1-000001" in line]


def test_a_summary_that_was_written_ends_the_failures_before_it() -> None:
    talk = chat(ThreadDriver(limits=FEW), 5)
    talk.user("question 6")
    talk.fails()
    where = cut(seen(talk.thread, talk.journal), [1] * 11, FEW, PLENTY)
    step = compacted(talk.thread, Reply("Five.", usage=Usage(1, 10, 5)), where, talk.now, FEW)
    assert step.thread.failures == 0
    assert step.thread.usage == Usage(2, 10, 5)  # the failure was a request too
    assert step.effects == ()


def test_the_model_is_asked_for_a_summary_behind_what_it_is_of_and_without_tools() -> None:
    call = SaidCall("c1_t1", "forecast", {})
    heard = Heard((ToolAnswer("c1_t1", "forecast", (TextContent(text="sunny"),)),), ("Well?",))
    now = "(Write the summary of everything above now.)"
    for conversation, expected in [
        ((), (Heard(texts=(now,)),)),
        ((Heard(texts=("a",)), Said("b")), (Heard(texts=("a",)), Said("b"), Heard(texts=(now,)))),
        (
            (Heard(texts=("a",)), Said(calls=(call,)), heard),
            (Heard(texts=("a",)), Said(calls=(call,)), Heard(heard.answers, ("Well?", now))),
        ),
    ]:
        question = summary_question(conversation)
        assert question.conversation == expected
        assert question.tools == ()
        assert question.for_summary


def test_permission_and_reports_outlive_a_summary() -> None:
    talk = ThreadDriver(limits=FEW)
    talk.user("Go")
    talk.says("", demolish(), want("spawn_thread", task="Count."))
    chat(talk, 4)
    talk.user("Well?")
    talk.is_summarised()
    talk.says("I wait.")
    talk.hears(ChooseFor("c1_t1", 1), ChildReport("t1-000001", "Seven."))
    declined, _, report = talk.shown()[-3:]
    assert declined.startswith("c1_t1-r")
    assert report.endswith(": Seven.")
