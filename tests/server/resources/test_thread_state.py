"""The dict of a thread: what is put in comes back the same, or is refused at once."""

import enum
import json
import math
from collections import OrderedDict
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rapkit.errors import ToolError
from rapkit.mailbox import Record
from rapkit.server.resources.thread_state import LARGEST_STATE, LONGEST_KEY, ThreadState

keys = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=LONGEST_KEY)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def kept(**values: Any) -> ThreadState:
    """A state as the next call finds it."""
    return ThreadState(
        Record("state", key, json.dumps(value, separators=(",", ":")).encode()) for key, value in values.items()
    )


def after(changed: dict[str, bytes | None]) -> ThreadState:
    """The state as the next call finds it if these changes were kept."""
    bodies = {key: body for key, body in changed.items() if body is not None}
    return ThreadState(Record("state", key, body) for key, body in bodies.items())


def test_it_is_a_dict() -> None:
    state = ThreadState()
    state["city"] = "Oslo"
    state.update(days=3, tags=["cold"])

    assert state == {"city": "Oslo", "days": 3, "tags": ["cold"]}
    assert (len(state), list(state), "city" in state, state.get("none")) == (3, ["city", "days", "tags"], True, None)
    assert state.pop("days") == 3
    assert state.setdefault("seen", []) == []
    assert repr(state) == "{'city': 'Oslo', 'tags': ['cold'], 'seen': []}"
    with pytest.raises(KeyError):
        state["days"]
    with pytest.raises(KeyError):
        del state["days"]


def test_only_what_was_changed_is_to_be_kept() -> None:
    state = kept(same=1, read=[1], set_again=2, changed=3, gone=4)

    assert state["read"] == [1]
    state["set_again"] = 2
    state["changed"] = 30
    state["new"] = None
    del state["gone"]
    state["for_a_moment"] = 1
    del state["for_a_moment"]

    assert state.take() == {"changed": b"30", "new": b"null", "gone": None}
    assert state.take() == {}


def test_a_state_nobody_touches_has_not_changed() -> None:
    assert kept(a=1).take() == {}
    assert ThreadState().take() == {}


def test_a_change_deep_inside_is_noticed() -> None:
    state = kept(list=[1], nest={"a": {"b": []}})
    mine = ["mine"]

    state["list"].append(2)
    state["nest"]["a"]["b"].append("x")
    state["own"] = mine
    mine.append("too")

    assert state.take() == {"list": b"[1,2]", "nest": b'{"a":{"b":["x"]}}', "own": b'["mine","too"]'}
    state["list"].pop()
    assert state.take() == {"list": b"[1]"}


def test_a_key_deleted_and_set_again_is_what_it_was_set_to() -> None:
    state = kept(a=[1])
    old = state["a"]
    del state["a"]
    state["a"] = [2]
    old.append("nobody sees this")

    assert state.take() == {"a": b"[2]"}
    state.clear()
    assert state.take() == {"a": None}


@settings(deadline=None)  # the machine may be busy
@given(st.dictionaries(keys, values, max_size=5))
def test_what_json_can_hold_comes_back_the_same(values: dict[str, Any]) -> None:
    state = ThreadState()
    state.update(values)

    again = after(state.take())

    assert again == values
    assert again.take() == {}
    assert [type(again[key]) for key in values] == [type(value) for value in values.values()]


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize("value", [Colour.RED, OrderedDict(a=1), 10**30, "\ud800", {"": ""}])
def test_what_is_as_good_as_json_is_taken(value: object) -> None:
    state = ThreadState()
    state["x"] = value

    assert after(state.take())["x"] == value


@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        {1: "a"},
        {None: "a"},
        {(1, 2): "a"},
        [{"deep": (1,)}],
        {1, 2},
        b"bytes",
        datetime(2024, 1, 1),
        object(),
        Exception,
        math.sin,
    ],
)
def test_what_would_come_back_as_something_else_is_refused(value: object) -> None:
    state = kept(x="before")

    with pytest.raises(TypeError, match=r"state\['x'\] cannot be kept: .* can be kept\."):
        state["x"] = value

    assert state == {"x": "before"}
    assert state.take() == {}


def test_the_refusal_says_what_it_is_that_is_not_json() -> None:
    with pytest.raises(TypeError, match="datetime is not JSON"):
        ThreadState()["x"] = [datetime(2024, 1, 1)]


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def circular() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value", [math.nan, [math.inf], nested(100_000), circular()], ids=["nan", "inf", "deep", "circular"]
)
def test_values_json_has_no_words_for_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"state\['x'\] cannot be kept"):
        ThreadState()["x"] = value


@pytest.mark.parametrize("key", ["", "x" * (LONGEST_KEY + 1), "half \ud800", "nul \0"])
def test_keys_that_cannot_be_kept_are_refused(key: str) -> None:
    state = ThreadState()

    with pytest.raises(ValueError, match="key of the state"):
        state[key] = 1

    assert len(state) == 0


def test_a_key_is_a_text() -> None:
    state: Any = ThreadState()

    with pytest.raises(TypeError, match="is a text, not int"):
        state[1] = 1


def test_too_much_is_refused_when_it_is_set() -> None:
    state = ThreadState()
    state["a"] = "x" * (LARGEST_STATE - 100)

    with pytest.raises(ToolError, match=r"would have 6[56],\d\d\d bytes, and 65,536 can be kept"):
        state["b"] = "x" * 100

    assert list(state) == ["a"]
    state["a"] = ""  # what is replaced or deleted makes room
    state["b"] = "x" * (LARGEST_STATE - 100)
    del state["b"]
    state["c"] = "x" * (LARGEST_STATE - 100)
    assert set(state.take()) == {"a", "c"}


def test_long_keys_count_too() -> None:
    state = ThreadState()

    with pytest.raises(ToolError):
        state.update({f"{number:0{LONGEST_KEY}}": 0 for number in range(1000)})

    assert len(state) < LARGEST_STATE / LONGEST_KEY


def test_too_much_is_noticed_at_the_end_if_it_grew_inside() -> None:
    state = kept(log=[], other="x" * 1000)
    state["log"].append("x" * LARGEST_STATE)

    with pytest.raises(ToolError, match=r"66,\d\d\d bytes"):
        state.take()


def test_what_is_moved_from_one_key_to_another_is_not_counted_twice() -> None:
    large = "x" * (LARGEST_STATE - 100)
    state = kept(a=[], b=[large])
    state["a"].append(state["b"].pop())

    assert set(state.take()) == {"a", "b"}


def test_what_stops_being_json_inside_is_noticed_at_the_end() -> None:
    state = kept(log=[])
    state["log"].append(object())

    with pytest.raises(TypeError, match=r"state\['log'\] cannot be kept: object is not JSON"):
        state.take()


def test_a_state_that_calls_at_once_made_too_large_together_can_be_made_smaller() -> None:
    half = "x" * (LARGEST_STATE - 100)
    state = kept(a=half, b=half)

    state["a"] = "x"

    assert state.take() == {"a": b'"x"'}
    with pytest.raises(ToolError):
        state["c"] = half
