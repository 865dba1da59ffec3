"""How much of a journal a model is shown."""

import pytest

from rapkit.kernel.conversation import Conversation, Heard, Said, ToolAnswer
from rapkit.kernel.entries import Answered, Happened, JournalEntry, MadeCall, ModelSaid, UserSaid
from rapkit.kernel.projection import Numbered, Stretch, project
from rapkit.kernel.window import ANSWER_CHARS, TOTAL_CHARS
from rapkit.protocol import ContentItem, ImageContent, TextContent
from tests.kernel.strict_provider import accept_question

BIG = "begin " + "x" * 3_000_000 + " end"


def stretch(*entries: JournalEntry) -> Stretch:
    return Stretch([Numbered(seq, entry) for seq, entry in enumerate(entries, 1)])


def called(number: int, *content: str | ContentItem, **arguments: str) -> tuple[JournalEntry, JournalEntry]:
    """A call and its answer."""
    items = tuple(TextContent(text=item) if isinstance(item, str) else item for item in content)
    call = MadeCall(f"c{number}_t1", "forecast", arguments)
    return ModelSaid("", (call,)), Answered(call.id, call.name, None, items)


def texts(conversation: Conversation) -> list[str]:
    """Everything that was heard."""
    heard = [turn for turn in conversation if isinstance(turn, Heard)]
    answers = [answer for turn in heard for answer in turn.answers]
    return [text for turn in heard for text in turn.texts] + [text for answer in answers for text in _texts(answer)]


def _texts(answer: ToolAnswer) -> list[str]:
    return [item.text for item in answer.content if isinstance(item, TextContent)]


def size(conversation: Conversation) -> int:
    return len(str(conversation))


@pytest.mark.parametrize(
    "entries",
    [
        (UserSaid("a"), *called(1, BIG)),
        (UserSaid("a"), Happened("c1_t1", "storms", BIG)),
        (UserSaid("a"), Answered("c1_t1", "forecast", BIG, late=True)),
        (UserSaid(BIG),),
    ],
)
def test_of_what_is_too_long_the_beginning_and_the_end_are_shown(entries: tuple[JournalEntry, ...]) -> None:
    shown = project([stretch(*entries)])
    accept_question(shown)
    assert size(shown) < ANSWER_CHARS + 1000
    (long,) = (text for text in texts(shown) if len(text) > 1000)
    assert long.startswith("begin x")
    assert long.endswith("x end")
    left_out = len(BIG) - ANSWER_CHARS
    assert f"{left_out} characters are left out here, because it is too long; the whole is in the history" in long


def test_the_texts_of_one_answer_are_bounded_together() -> None:
    image = ImageContent(data="aGk=", mediaType="image/png")
    shown = project([stretch(UserSaid("a"), *called(1, *["z" * 900] * 10, image))], answer_chars=1000)
    accept_question(shown)
    assert sum(text.count("z") for text in texts(shown)) == 1000
    last = shown[-1]
    assert isinstance(last, Heard)
    assert last.answers[0].content[-1] == image


def test_what_just_fits_is_shown_as_it_is() -> None:
    shown = project([stretch(UserSaid("a"), *called(1, "x" * 1000))], answer_chars=1000, total_chars=1003)
    assert texts(shown) == ["a", "x" * 1000]


def test_of_a_conversation_that_is_too_long_the_oldest_answers_are_left_out_first() -> None:
    calls = [entry for number in range(20) for entry in called(number, chr(97 + number) * 150_000)]
    shown = project([stretch(UserSaid("a"), *calls)])
    accept_question(shown)
    assert size(shown) < TOTAL_CHARS
    answers = texts(shown)[1:]
    assert len(answers) == 20
    assert answers[0] == ("[150000 characters are left out here, because it is too long; the whole is in the history]")
    assert answers[-1] == "t" * 150_000
    noted = [answer.startswith("[") for answer in answers]
    assert noted == sorted(noted, reverse=True)


def test_answers_that_came_last_are_left_out_only_as_far_as_need_be() -> None:
    calls = tuple(MadeCall(f"c{number}_t1", "forecast", {}) for number in range(10))
    answers = (Answered(call.id, call.name, "x" * 1000) for call in calls)
    shown = project([stretch(UserSaid("a"), ModelSaid("", calls), *answers)], total_chars=8000)
    accept_question(shown)
    assert [text.startswith("[") for text in texts(shown)[1:]] == [True] * 3 + [False] * 7


def test_images_of_answers_that_are_left_out_stay() -> None:
    image = ImageContent(data="aGk=", mediaType="image/png")
    entries = (UserSaid("a"), *called(1, "x" * 1000, image), *called(2, "y" * 1000))
    shown = project([stretch(*entries)], total_chars=1500)
    accept_question(shown)
    first = shown[2]
    assert isinstance(first, Heard)
    assert first.answers[0].content[1] == image


def test_the_beginning_seldom_changes_while_a_conversation_grows() -> None:
    """Providers cache it, and bind thoughts to it."""
    entries: list[JournalEntry] = [UserSaid("a")]
    changes, before = 0, project([stretch(*entries)])
    for number in range(100):
        entries += called(number, "x" * 1000)
        shown = project([stretch(*entries)], total_chars=20_000)
        accept_question(shown)
        changes += shown[: len(before)] != before
        before = shown
    assert changes < 25


def test_when_there_is_nothing_else_to_leave_out_the_oldest_turns_are() -> None:
    calls = [entry for number in range(20) for entry in called(number, "ok", city="x" * 1000)]
    shown = project([stretch(UserSaid("a"), *calls)], total_chars=5000)
    accept_question(shown)
    assert size(shown) < 6000
    assert shown[0] == Heard(texts=("(What was said before is not shown.)",))
    assert shown[-1] == Heard((ToolAnswer("c19_t1", "forecast", (TextContent(text="ok"),)),))


def test_what_is_to_be_replied_to_is_never_left_out_as_a_whole() -> None:
    shown = project([stretch(UserSaid("a"), *called(1, "ok", city="x" * 1000), UserSaid("b"))], total_chars=10)
    accept_question(shown)
    assert isinstance(shown[1], Said)
    assert texts(shown)[-2:] == ["b", "ok"]
