"""Lines of the journal, as they are stored."""

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rapkit.kernel.completion import Usage
from rapkit.kernel.entries import (
    Answered,
    AuthorizationAsked,
    AuthorizationExpired,
    Began,
    ChildEnded,
    ChildMade,
    ChoiceAsked,
    ChoiceMadeEntry,
    ClosedEntry,
    Failed,
    GrantedEntry,
    Happened,
    Ignored,
    JournalEntry,
    LiveCall,
    MadeCall,
    ModelSaid,
    ParentSaid,
    ParkedEntry,
    Released,
    Reported,
    Summary,
    Tasked,
    ToolsetFound,
    ToolsetMissing,
    Unsubscribed,
    UserSaid,
    ViewChanged,
    WokenUp,
    dump_entry,
    load_entry,
)
from rapkit.protocol import ImageContent, OtherSegment, TextContent, TextSegment

EACH: list[JournalEntry] = [
    UserSaid("Hello"),
    WokenUp("news", "2030-01-31 09:00 UTC", "Read them."),
    Tasked("note_1", "t1", "Count."),
    ParentSaid("note_1", "t1", "Faster."),
    Reported("note_1", "t1-1", "Done.", "Count.", True),
    Summary(
        "All was said.", 7, (LiveCall("c1_t1", "x", {"a": None}, True),), {"t1-000001": "Count."}, Usage(1, 2, 3, 0.1)
    ),
    GrantedEntry(1, 2, 0.5),
    AuthorizationExpired("c1_t1"),
    ChoiceMadeEntry("c1_t1", text="Oslo", expired=True),
    ChildMade("t1-1", "c1_t1", task="Count."),
    ChildEnded("t1-1", "the user"),
    ModelSaid("…", (MadeCall("c1_t1", "x", {"a": [None, 1.5]}, "p"),), ({"sig": None}, None), "m", Usage(1, 2, 3, 0.1)),
    Answered(
        "c1_t1",
        "x",
        "hi",
        (TextContent(text=""), ImageContent(data="aGk=", mediaType="image/png")),
        (TextSegment(content="hi"), OtherSegment(type="chart", content={"a": None})),
        subscription=True,
        late=True,
        by="runtime",
    ),
    Answered("c1_t1", "x", content=()),
    Happened("c1_t1", "x", "!", True, True, "early"),
    Released((1, 2), "c1_t1", "x"),
    ChildMade("t1-1", "c1_t1", 3),
    ChildEnded("t1-1"),
    Began("t1", "c1_t1", "x", {"a": {}}, "!", True),
    ChoiceAsked("c1_t1", "?", ("a", "b"), 1),
    ChoiceMadeEntry("c1_t1", 1, True),
    AuthorizationAsked("c1_t1"),
    ViewChanged("plan"),
    Unsubscribed("c1_t1", "why"),
    ToolsetMissing("http://tools", "why"),
    ToolsetFound("http://tools"),
    Failed("why"),
    ParkedEntry("why"),
    ClosedEntry("the user"),
    Ignored("tool_result", "why"),
    Ignored("subscription_event", "why", "c1_t1", (1, 2)),
]


@pytest.mark.parametrize("entry", EACH, ids=lambda entry: entry.kind)
def test_a_line_is_the_same_after_it_was_stored(entry: JournalEntry) -> None:
    assert load_entry(dump_entry(entry)) == entry


def test_every_kind_of_line_is_tried() -> None:
    assert {type(entry) for entry in EACH} == set(get_args(JournalEntry))
    assert len({entry.kind for entry in EACH}) == len(get_args(JournalEntry))


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), json, max_size=3), st.lists(json, max_size=3), st.text())
def test_arguments_and_thoughts_may_be_any_json(arguments: dict[str, Any], thoughts: list[Any], text: str) -> None:
    entry = ModelSaid(text, (MadeCall("c1_t1", text, arguments),), tuple(thoughts))
    assert load_entry(dump_entry(entry)) == entry


@pytest.mark.parametrize("body", [b"", b"{}", b'{"kind":"nonsense"}', b'{"kind":"user"}'])
def test_anything_else_is_no_line(body: bytes) -> None:
    with pytest.raises(ValidationError):
        load_entry(body)
