"""From JSON to dataclasses, by their type hints.

By hand, because a short command should not spend two tenths of a second on loading a validation library to read one answer. Fields that are
not known are ignored, and so are kinds that are not known where a union has a member for those: an agent may be newer than its client.
"""

import dataclasses
import json
import types
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from rapkit.errors import InvalidAnswer

T = TypeVar("T")
Reader = Callable[[Any, str], Any]

WHOLE = "whole"
"""In the metadata of a field: it holds the object as it came, not what is under its name."""

_TAGS = ("kind", "type")
_NOT_ONE = "The answer is not one of an agent"


def parse_json(text: bytes | str) -> Any:
    """A JSON document; `InvalidAnswer` if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidAnswer(f"{_NOT_ONE}: it is not JSON.") from None


def decode(kind: type[T], value: object) -> T:
    """A dataclass from a JSON object; `InvalidAnswer` says which field does not fit."""
    hint: Any = kind
    read: T = _reader(hint)(value, "")
    return read


def decode_union(union: Any, value: object) -> Any:
    """The member of a union of dataclasses that the `kind` or `type` of an object names."""
    return _reader(union)(value, "")


@cache
def _reader(hint: Any) -> Reader:
    if hint is Any:
        return lambda value, where: value
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _dataclass_reader(hint)
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _union_reader(
            [each for each in get_args(hint) if each is not types.NoneType], types.NoneType in get_args(hint)
        )
    if origin is list:
        return _list_reader(_reader(get_args(hint)[0]))
    if origin is dict:
        return _dict_reader(_reader(get_args(hint)[1]))
    if hint in _SCALARS:
        return _SCALARS[hint]
    raise TypeError(f"no reader for {hint!r}")


def _string(value: Any, where: str) -> str:
    if isinstance(value, str):
        return value
    raise _misfit(where, "a string", value)


def _boolean(value: Any, where: str) -> bool:
    if isinstance(value, bool):
        return value
    raise _misfit(where, "true or false", value)


def _integer(value: Any, where: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _misfit(where, "an integer", value)


def _number(value: Any, where: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise _misfit(where, "a number", value)


_SCALARS: dict[Any, Reader] = {str: _string, bool: _boolean, int: _integer, float: _number}


def _list_reader(item: Reader) -> Reader:
    def read(value: Any, where: str) -> list[Any]:
        if not isinstance(value, list):
            raise _misfit(where, "a list", value)
        return [item(each, f"{where}[{number}]") for number, each in enumerate(value)]

    return read


def _dict_reader(item: Reader) -> Reader:
    def read(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _misfit(where, "an object", value)
        return {key: item(each, f"{where}.{key}") for key, each in value.items()}

    return read


def _union_reader(members: Sequence[Any], nullable: bool) -> Reader:
    # Of text with known values (`Literal[...] | str`) any other value is one of a newer agent.
    members = [each for each in members if get_origin(each) is not Literal]
    read = _reader(members[0]) if len(members) == 1 else _tagged_reader(members)
    if not nullable:
        return read
    return lambda value, where: None if value is None else read(value, where)


def _tagged_reader(members: Sequence[Any]) -> Reader:
    """Reads a union of dataclasses: each names its tag as a literal, but for one, which takes what is left."""
    tagged: dict[str, Any] = {}
    others: list[Any] = []
    tag = ""
    for member in members:
        hints = get_type_hints(member)
        name = next((each for each in _TAGS if get_origin(hints.get(each)) is Literal), None)
        if name is None:
            others.append(member)
        else:
            tag = name
            tagged.update(dict.fromkeys(get_args(hints[name]), member))
    (other,) = others

    def read(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise _misfit(where, "an object", value)
        found = value.get(tag)
        return _reader(tagged.get(found, other) if isinstance(found, str) else other)(value, where)

    return read


def _dataclass_reader(kind: type[Any]) -> Reader:
    hints = get_type_hints(kind)
    whole = [each.name for each in dataclasses.fields(kind) if WHOLE in each.metadata]
    fields = [each for each in dataclasses.fields(kind) if each.init and WHOLE not in each.metadata]
    required = {each.name for each in fields if each.default is each.default_factory is dataclasses.MISSING}
    readers: dict[str, Reader] = {}  # filled when they are needed: a class may refer to itself

    def read(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise _misfit(where, "an object", value)
        if not readers:
            readers.update(
                (each.name, _literal if get_origin(hints[each.name]) is Literal else _reader(hints[each.name]))
                for each in fields
            )
        given = {name: reader(value[name], f"{where}.{name}") for name, reader in readers.items() if name in value}
        if missing := required - given.keys():
            place = f"{where}.{min(missing)}".removeprefix(".")
            raise InvalidAnswer(f"{_NOT_ONE}: {place} is missing.")
        return kind(**given, **dict.fromkeys(whole, value))

    return read


def _literal(value: Any, _where: str) -> Any:
    return value  # it has chosen the class


def _misfit(where: str, wanted: str, value: object) -> InvalidAnswer:
    found = {dict: "an object", list: "a list", str: "a string", type(None): "null"}.get(type(value), f"{value!r}"[:40])
    return InvalidAnswer(f"{_NOT_ONE}: {where.removeprefix('.') or 'it'} is {found}, not {wanted}.")
