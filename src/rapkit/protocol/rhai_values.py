"""Rhai's operators and functions on values. Unit is None; values are never changed in place."""

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rapkit.protocol.rhai_tokens import CannotRender, fail, in_range

LONGEST_STRING = 10_000
_LONGEST_SUBJECT = 100_000

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Char(str):
    """A character, which is no string: it can be added to one, but nothing else to it."""


def char(text: str) -> str:
    """A character."""
    return Char(text) if len(text) == 1 else fail()


def operate(sign: str, one: Any, other: Any) -> Any:
    """The value of a binary operator."""
    if sign in _COMPARISONS:
        return _compare(sign, one, other)
    if sign == "+":
        return _add(one, other)
    if sign == "in":
        return _contains(other, one)
    if not (_is_number(one) and _is_number(other)):
        fail()
    in_range(one), in_range(other)
    try:
        return in_range(_calculate(sign, one, other))
    except (ZeroDivisionError, OverflowError):
        return fail()


def _calculate(sign: str, one: Any, other: Any) -> int | float:
    whole = isinstance(one, int) and isinstance(other, int)
    match sign:
        case "-":
            return one - other  # type: ignore[no-any-return]
        case "*":
            return one * other  # type: ignore[no-any-return]
        case "/":
            if not whole:
                return one / other  # type: ignore[no-any-return]
            quotient: int = abs(one) // abs(other)
            return quotient if (one < 0) == (other < 0) else -quotient
        case "%":
            rest = abs(one) % abs(other)
            return -rest if one < 0 else rest  # type: ignore[no-any-return]
    return fail()


def _add(one: Any, other: Any) -> Any:
    if _is_string(one) or _is_string(other) or (isinstance(one, Char) and isinstance(other, Char)):
        parts = text_of(one), text_of(other)
        return "".join(parts) if sum(map(len, parts)) <= LONGEST_STRING else fail()
    if _is_number(one) and _is_number(other):
        return in_range(in_range(one) + in_range(other))
    return fail()


def _compare(sign: str, one: Any, other: Any) -> bool:
    for is_kind in (_is_number, _is_text, _is_bool):
        if is_kind(one) and is_kind(other):
            return _COMPARISONS[sign](one, other)
    if one is None and other is None:
        return sign == "=="
    if isinstance(one, list | Mapping) and isinstance(other, list | Mapping):
        fail()  # Rhai compares them; no line of text needs that, and they can be large
    return sign == "!="


def item_of(value: Any, index: Any) -> Any:
    """What stands at an index; negative ones count from the end. A key that a map does not have is unit."""
    if isinstance(value, Mapping):
        return value.get(index) if _is_text(index) else fail()
    if not isinstance(value, list | str) or isinstance(value, Char) or not isinstance(index, int) or _is_bool(index):
        fail()
    if not -len(value) <= index < len(value):
        fail()
    return Char(value[index]) if isinstance(value, str) else value[index]


def property_of(value: Any, name: str) -> Any:
    """A property: of a map what stands under that key; of strings and arrays their length."""
    if isinstance(value, Mapping):
        return value.get(name)
    return _len(value) if name == "len" else fail()


def call(name: str, value: Any, given: Sequence[Any]) -> Any:
    """The value of a function, called as a method of its first argument."""
    if isinstance(value, str | list) and len(value) > _LONGEST_SUBJECT:
        fail()
    function = _FUNCTIONS.get((name, len(given)))
    return fail() if function is None else function(value, *given)


def _len(value: Any) -> int:
    return len(value) if _is_string(value) or isinstance(value, list | Mapping) else fail()


def _string(value: Any) -> str:
    return str(value) if _is_string(value) else fail()


def _part(value: Any) -> str:
    return str(value) if _is_text(value) and value else fail()


def _split(value: Any, by: Any) -> list[str]:
    text = _string(value)
    if isinstance(by, int) and not _is_bool(by):
        at = max(0, len(text) + by) if by < 0 else by
        return [text[:at], text[at:]]
    return text.split(_part(by))


def _sub_string(value: Any, start: Any, length: Any = _LONGEST_SUBJECT) -> str:
    if not all(isinstance(each, int) and not _is_bool(each) for each in (start, length)):
        fail()
    text = _string(value)
    first = max(0, len(text) + start) if start < 0 else start
    return text[first : first + max(0, length)]


def _contains(value: Any, wanted: Any) -> bool:
    if isinstance(value, list):
        return any(_compare("==", each, wanted) for each in value)
    if not _is_text(wanted):
        fail()
    return wanted in value if isinstance(value, Mapping) else str(wanted) in _string(value)


def _type_of(value: Any) -> str:
    kinds = ((bool, "bool"), (int, "i64"), (float, "f64"), (Char, "char"), (str, "string"), (list, "array"))
    if value is None:
        return "()"
    return next((name for kind, name in kinds if isinstance(value, kind)), "map")


_FUNCTIONS: dict[tuple[str, int], Callable[..., Any]] = {
    ("len", 0): _len,
    ("is_empty", 0): lambda value: not _len(value),
    ("split", 0): lambda value: _string(value).split(),
    ("split", 1): _split,
    ("sub_string", 1): _sub_string,
    ("sub_string", 2): _sub_string,
    ("contains", 1): _contains,
    ("starts_with", 1): lambda value, part: _string(value).startswith(_part(part)),
    ("ends_with", 1): lambda value, part: _string(value).endswith(_part(part)),
    ("index_of", 1): lambda value, part: _string(value).find(_part(part)),
    ("to_upper", 0): lambda value: _string(value).upper(),
    ("to_lower", 0): lambda value: _string(value).lower(),
    ("to_string", 0): lambda value: _add("", value),
    ("type_of", 0): _type_of,
}
"""By name, and how many arguments they take besides the value. Those that change it in place, such as `trim`, are not among them."""


def _is_string(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, Char)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def text_of(value: Any) -> str:
    """A value as a part of the line."""
    if value is None:
        return ""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"#{document_of(value)}" if isinstance(value, Mapping) else document_of(value)


def document_of(value: Any) -> str:
    """A value as JSON."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (RecursionError, TypeError, ValueError):
        raise CannotRender from None  # too deep, too large a number, or no JSON
