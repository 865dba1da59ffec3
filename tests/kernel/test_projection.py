"""What a model is shown of a journal. Most of it is shown by the tests of what happens; here are the corners."""

import pytest

from rapkit.kernel.conversation import Heard, Said, SaidCall, ToolAnswer
from rapkit.kernel.entries import (
    Answered,
    ChoiceAsked,
    Happened,
    JournalEntry,
    MadeCall,
    ModelSaid,
    Released,
    UserSaid,
    ViewChanged,
)
from rapkit.kernel.projection import STILL_RUNNING, Numbered, Stretch, content_of, project
from rapkit.kernel.thread import Pending, Subscription, Thread
from rapkit.protocol import ImageContent, TextContent
from tests.kernel.strict_provider import accept, accept_question

CALL = MadeCall("c1_t1", "forecast", {"city": "Oslo"})
CALLED = SaidCall("c1_t1", "forecast", {"city": "Oslo"})
CUT = "(What was said before is not shown.)"


def stretch(*entries: JournalEntry, first: int = 1, inherited: bool = False) -> Stretch:
    return Stretch([Numbered(seq, entry) for seq, entry in enumerate(entries, first)], inherited)


def text(text: str) -> tuple[TextContent]:
    return (TextContent(text=text),)


def test_roles_alternate_and_neighbours_are_joined() -> None:
    shown = project([stretch(UserSaid("a"), UserSaid("b"), ModelSaid("c"), ModelSaid(" "), ModelSaid("d"))])
    assert shown == (Heard(texts=("a", "b")), Said("c\n\nd"))


def test_what_is_for_people_is_not_shown() -> None:
    shown = project([stretch(UserSaid("a"), ViewChanged("plan"), ChoiceAsked("c1_t1", "?", ("x",), 0))])
    assert shown == (Heard(texts=("a",)),)


def test_a_text_and_an_event_behind_it_are_one_thing_that_was_said() -> None:
    shown = project([stretch(UserSaid("a"), ModelSaid("b"), Happened("c1_t1", "storms", "!"))])
    pair = SaidCall("c1_t1-e3", "storms", {"kind": "interrupt:c1_t1 (subscription remains active)"})
    assert shown == (
        Heard(texts=("a",)),
        Said("b", (pair,)),
        Heard((ToolAnswer("c1_t1-e3", "storms", text("!")),)),
    )


@pytest.mark.parametrize(
    ("answered", "content"),
    [
        (Answered("c", "t", "hi"), text("hi")),
        (Answered("c", "t", ""), text("(no output)")),
        (Answered("c", "t", "\n"), text("(no output)")),
        (Answered("c", "t", "hi", ()), text("hi")),
        (Answered("c", "t", None, ()), text("(no output)")),
        (Answered("c", "t", "hi", (TextContent(text=" "),)), text("(no output)")),
    ],
)
def test_an_answer_is_never_blank(answered: Answered, content: tuple[TextContent]) -> None:
    """CB-13"""
    assert content_of(answered) == content


def test_an_image_needs_no_text() -> None:
    """CB-13"""
    image = ImageContent(data="aGk=", mediaType="image/png")
    assert content_of(Answered("c", "t", "hi", (image,))) == (image,)


# Journals that begin in the middle


def test_an_answer_whose_call_is_not_shown_stands_for_itself() -> None:
    shown = project([stretch(Answered("c1_t1", "forecast", "sunny"), first=9)])
    accept_question(shown)
    pair = SaidCall("c1_t1-r9", "forecast", {"kind": "result:c1_t1 (the call is finished)"})
    assert shown == (
        Heard(texts=(CUT,)),
        Said(calls=(pair,)),
        Heard((ToolAnswer("c1_t1-r9", "forecast", text("sunny")),)),
    )


def test_a_call_the_thread_still_knows_is_echoed_though_it_is_not_shown() -> None:
    known = Thread("t1", subscriptions={"c1_t1": Subscription("storms", {"city": "Oslo"}, 0.0)})
    shown = project([stretch(Happened("c1_t1", "storms", "!"), first=9)], known)
    said = shown[1]
    assert isinstance(said, Said)
    assert said.calls[0].arguments == {"city": "Oslo", "kind": "interrupt:c1_t1 (subscription remains active)"}


def test_an_early_event_that_lies_too_far_back_is_not_lost_without_a_word() -> None:
    shown = project([stretch(Released((3,), "c1_t1", "storms"), first=900)])
    accept_question(shown)
    assert shown[-1] == Heard(
        (ToolAnswer("c1_t1-e3", "storms", text("(Something happened, too long ago to be shown.)")),)
    )


@pytest.mark.parametrize("lines", [stretch(), stretch(ViewChanged("plan")), stretch(ModelSaid("a"))])
def test_a_model_that_is_asked_always_has_something_to_reply_to(lines: Stretch) -> None:
    shown = project([lines], Thread("t1", wants_model=True))
    accept_question(shown)


# Inherited journals


def test_calls_that_are_not_answered_are_the_parents_alone() -> None:
    other = MadeCall("c2_t1", "forecast", {"city": "Bergen"})
    before = stretch(
        UserSaid("a"),
        ModelSaid("b", (CALL, other), thoughts=("…",)),
        Answered("c2_t1", "forecast", "rain"),
        inherited=True,
    )
    shown = project([before, stretch(UserSaid("c"))])
    accept(shown)
    assert shown == (
        Heard(texts=("a",)),
        Said("b", (SaidCall("c2_t1", "forecast", {"city": "Bergen"}),)),
        Heard((ToolAnswer("c2_t1", "forecast", text("rain")),), ("c",)),
    )


def test_an_inherited_turn_of_which_nothing_is_left_is_left_out() -> None:
    shown = project([stretch(UserSaid("a"), ModelSaid("", (CALL,)), inherited=True), stretch(UserSaid("b"))])
    assert shown == (Heard(texts=("a", "b")),)


def test_ones_own_calls_are_still_running() -> None:
    known = Thread("t1", pending={"c1_t1": Pending("forecast", {"city": "Oslo"}, "", "", 0.0)})
    shown = project([stretch(UserSaid("a"), ModelSaid("", (CALL,)))], known)
    assert shown == (
        Heard(texts=("a",)),
        Said(calls=(CALLED,)),
        Heard((ToolAnswer("c1_t1", "forecast", text(STILL_RUNNING)),)),
    )


def test_a_second_answer_in_time_is_not_put_in_the_place_of_the_first() -> None:
    """SUB-11"""
    answers = (Answered("c1_t1", "forecast", "one"), Answered("c1_t1", "forecast", "two"))
    shown = project([stretch(UserSaid("a"), ModelSaid("", (CALL,)), *answers)])
    accept(shown)
    assert shown[2] == Heard((ToolAnswer("c1_t1", "forecast", text("one")),))
