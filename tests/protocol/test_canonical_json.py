import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapkit.protocol.canonical_json import canonical_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(max_size=5), below, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a": 1, "b": 2}', '{"b":2,"a":1}'),
        ("[1, -0.0, 1e2, 1e22]", "[1.0, 0, 100, 10000000000000000000000]"),
        ("[0.1, 1e-7]", "[0.10, 0.0000001]"),
        (r'"\u00fc\/"', '"ü/"'),
        ('{"a": {"c": [1.0], "b": null}}', '{"a": {"b": null, "c": [1]}}'),
    ],
)
def test_the_same_value_has_the_same_text(one: str, other: str) -> None:
    """Item 2 · INV-17"""
    assert canonical_json(json.loads(one)) == canonical_json(json.loads(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, "1"), (1, True), (0, False), (None, {}), ([], {}), ({"a": None}, {}), (1, 1.5), (2**53, 2**53 + 1)],
)
def test_another_value_has_another_text(one: Any, other: Any) -> None:
    """Item 2 · INV-17"""
    assert canonical_json(one) != canonical_json(other)


@given(VALUES)
def test_the_text_is_the_value(value: Any) -> None:
    assert json.loads(canonical_json(value)) == value
