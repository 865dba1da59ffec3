"""JSON values supplied by another party: a call's arguments, a view's content, a tool's schema.

What a field of type `Json` or `JsonObject` holds can be written as JSON again and comes back equal, whether it came from
a peer or was built in Python. It is not copied: who changes it afterwards loses that promise.
"""

from math import isfinite
from typing import Annotated, Any

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

MAX_DEPTH = 64
"""How deep arrays and objects may nest in one field. Far beyond real use, far below what overflows a recursive reader."""

MAX_INTEGER_BITS = 1024
"""Integers end where floats do, near 1.8e308: longer ones cost quadratic time and few readers keep them."""


def check_json(root: object) -> None:
    """Raise PydanticCustomError, whose message completes "it …", for what JSON or this protocol cannot carry."""
    # Level by level instead of recursively, so that hostile nesting costs a comparison and not the stack.
    level: list[Any] = [root]
    depth = 0
    while level:
        depth += 1
        below: list[Any] = []
        for value in level:
            kind = type(value)
            if kind is str:
                if not value.isascii():
                    _check_text(value)
            elif kind is int:
                if value.bit_length() > MAX_INTEGER_BITS:
                    raise PydanticCustomError("json_value", "holds an integer beyond 1.8e308")
            elif value is None or kind is bool:
                pass
            elif kind is dict:
                _check_keys(value)
                below.extend(value.values())
            elif kind is list:
                below.extend(value)
            elif kind is not float:
                raise PydanticCustomError("json_value", "holds a {kind}, which is not JSON", {"kind": kind.__name__})
            elif not isfinite(value):
                # The JSON reader takes NaN, Infinity and 1e999; JSON has none of them, and no peer could read our answer.
                raise PydanticCustomError("json_value", "holds a number that is not finite, which is not JSON")
            if depth > MAX_DEPTH and (kind is dict or kind is list):
                raise PydanticCustomError("json_value", "is nested deeper than {limit} levels", {"limit": MAX_DEPTH})
        level = below


def _check_keys(value: dict[Any, Any]) -> None:
    for key in value:
        if type(key) is not str:
            raise PydanticCustomError(
                "json_value", "holds a {kind} as a key, which is not JSON", {"kind": type(key).__name__}
            )
        if not key.isascii():
            _check_text(key)


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("json_value", "holds a lone surrogate, which is not UTF-8") from None


def _json(value: Any) -> Any:
    check_json(value)
    return value


def _json_object(value: dict[str, Any]) -> dict[str, Any]:
    check_json(value)
    return value


Json = Annotated[Any, AfterValidator(_json)]
JsonObject = Annotated[dict[str, Any], AfterValidator(_json_object)]
