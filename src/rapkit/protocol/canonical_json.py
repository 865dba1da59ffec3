"""Canonical JSON: equal values have equal texts, however their sender wrote them.

Two requests are compared by it. A sender that retries may write keys in another order, 1.0 instead of 1, or an escape instead of a letter.
"""

import json
from typing import Any

_encode = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), check_circular=False).encode


def canonical_json(value: Any) -> str:
    """A parsed JSON value with sorted keys, without spaces, and with one form for each number."""
    return _encode(_with_one_number_form(value))


def _with_one_number_form(value: Any) -> Any:
    kind = type(value)
    if kind is float:
        return int(value) if value.is_integer() else value
    if kind is dict:
        return {key: _with_one_number_form(each) for key, each in value.items()}
    if kind is list:
        return [_with_one_number_form(each) for each in value]
    return value
