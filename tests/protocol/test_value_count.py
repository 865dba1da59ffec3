import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapkit.protocol.value_count import ValueCount


def counted(body: bytes, size: int = 7) -> int:
    count = ValueCount()
    for start in range(0, len(body), size):
        count.feed(body[start : start + size])
    return count.values


def values_in(value: Any) -> int:
    """Counted in what a reader makes of it; an empty array or object counts twice."""
    if isinstance(value, dict | list):
        items = value.values() if isinstance(value, dict) else value
        return 1 + (sum(map(values_in, items)) if value else 1)
    return 1


@pytest.mark.parametrize(
    ("body", "values"),
    [
        (b"0", 1),
        (b"[0,0]", 3),
        (b'{"a":[1,{"b":null}]}', 5),
        (b'{"text":"a, [b], {c}"}', 2),
        (rb'{"text":"\",[\\"}', 2),
        (rb'["\\","\\\"",",",[]]', 6),
    ],
)
def test_values_are_counted_and_what_stands_in_strings_is_not(body: bytes, values: int) -> None:
    assert [counted(body, size) for size in (1, 2, 3, 100)] == [values] * 4


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a,[{"\\\n é'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='a,"\\'), inner),
)


@given(json_values, st.integers(1, 20), st.booleans())
def test_any_json_is_counted_in_any_parts(value: Any, size: int, indented: bool) -> None:
    body = json.dumps(value, indent=1 if indented else None).encode()

    assert counted(body, size) == values_in(value)
