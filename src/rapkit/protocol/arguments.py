"""Validate a call's arguments against its tool, and explain what a person or a model should change (INV-3, INV-10)."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from jsonschema_rs import ValidationError, ValidationErrorKind
from pydantic_core import PydanticCustomError

from rapkit.errors import InvalidToolset
from rapkit.protocol.input_schema import BadSchema, compile_schema
from rapkit.protocol.json_value import check_json
from rapkit.protocol.problems import clip, kind_of
from rapkit.protocol.validation_cost import TooMuchWork, ValidationCost

MAX_PROBLEMS = 20

MAX_EXPLAINING = 10_000
"""Work that may be explained. To say why a value does not fit takes about 10 µs, a thousand times what it takes to see that."""

Kind = ValidationErrorKind

ARTICLES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}


class ArgumentChecker:
    """Checks arguments against an inputSchema, compiled once. InvalidToolset if that is none."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        try:
            self._validator = compile_schema(schema)
            self._effort = ValidationCost(schema)
        except BadSchema as error:
            raise InvalidToolset(f"inputSchema: {error}") from None

    def problems(self, arguments: dict[str, Any]) -> list[str]:
        """What is wrong, one line for each, such as `days: 99 is more than the maximum of 14`; empty if nothing is."""
        try:
            check_json(arguments)  # before the validator looks: it takes NaN for null, and would blame that
            work = self._effort.of(arguments)  # nothing can stop the validator once it has begun
        except PydanticCustomError as not_json:
            return [f"what was given {not_json.message()}"]
        except TooMuchWork as too_much:
            return [f"what was given is {too_much}"]
        if self._validator.is_valid(arguments):
            return []
        if work.explaining_all <= MAX_EXPLAINING:
            errors = iter(self._validator.iter_errors(arguments))
        elif work.explaining_one <= MAX_EXPLAINING:
            errors = self._first_error(arguments)
        else:
            return [
                "what was given does not fit, and is too large for this tool's schema to say where; send fewer values"
            ]
        lines: dict[str, None] = {}
        for error in errors:
            for where, what in self._problems_of(error):
                lines[f"{where}: {what}" if where else what] = None
            if len(lines) >= MAX_PROBLEMS:
                break
        return list(lines)[:MAX_PROBLEMS]

    def _first_error(self, arguments: dict[str, Any]) -> Iterator[ValidationError]:
        try:
            self._validator.validate(arguments)
        except ValidationError as error:
            yield error

    def _problems_of(self, error: ValidationError) -> Iterator[tuple[str, str]]:
        where = list(error.instance_path)
        match error.kind:
            case Kind.Required(name):
                yield _path([*where, name]), "required, but missing"
            case Kind.AdditionalProperties(names) | Kind.UnevaluatedProperties(names):
                known = self._known_beside(error)
                for name in names:
                    yield _path([*where, name]), f"unknown; known are {known}" if known else "unknown"
            case _:
                yield _path(where), _describe(error)

    def _known_beside(self, error: ValidationError) -> str:
        """The properties that were possible, where the schema names them next to the keyword that refused."""
        node: Any = self._schema
        for step in error.schema_path[:-1]:
            try:
                node = node[step]
            except (KeyError, IndexError, TypeError):
                return ""
        properties = node.get("properties") if isinstance(node, dict) else None
        return clip(", ".join(properties), 400) if isinstance(properties, dict) else ""


def _describe(error: ValidationError) -> str:
    value = _show(error.instance)
    match error.kind:
        case Kind.Type(types):
            return f"{value} is {kind_of(error.instance)}, must be {_or(ARTICLES.get(t, t) for t in types)}"
        case Kind.Enum(options):
            return f"{value} is not possible; possible are {clip(', '.join(map(_show, options)), 400)}"
        case Kind.Constant(expected):
            return f"{value} is not possible; it must be {_show(expected)}"
        case Kind.Minimum(limit):
            return f"{value} is less than the minimum of {_show(limit)}"
        case Kind.Maximum(limit):
            return f"{value} is more than the maximum of {_show(limit)}"
        case Kind.ExclusiveMinimum(limit):
            return f"{value} must be more than {_show(limit)}"
        case Kind.ExclusiveMaximum(limit):
            return f"{value} must be less than {_show(limit)}"
        case Kind.MultipleOf(factor):
            return f"{value} is not a multiple of {_show(factor)}"
        case Kind.MinLength(limit):
            return f"shorter than {_many(limit, 'character')}"
        case Kind.MaxLength(limit):
            return f"longer than {_many(limit, 'character')}"
        case Kind.Pattern(pattern):
            return f"{value} does not match the pattern {clip(pattern, 200)}"
        case Kind.MinItems(limit):
            return f"fewer than {_many(limit, 'item')}"
        case Kind.MaxItems(limit):
            return f"more than {_many(limit, 'item')}"
        case Kind.UniqueItems():
            return "has the same item twice"
        case Kind.MinProperties(limit):
            return f"fewer than {_many(limit, 'property', 'properties')}"
        case Kind.MaxProperties(limit):
            return f"more than {_many(limit, 'property', 'properties')}"
        case Kind.FalseSchema():
            return "not allowed"
        case Kind.BacktrackLimitExceeded():
            return "could not be checked: the tool's pattern takes too long on it"
        case Kind.AnyOf(branches) | Kind.OneOfNotValid(branches):
            return _describe_branches(error, branches)
        case Kind.OneOfMultipleValid():
            return f"{value} fits several of the allowed forms, must fit one"
    return clip(error.message, 200)


def _describe_branches(error: ValidationError, branches: list[list[ValidationError]]) -> str:
    types: list[str] = []
    for branch in branches:
        match branch:
            case [ValidationError(kind=Kind.Type(names), instance_path=path)] if path == error.instance_path:
                types.extend(ARTICLES.get(name, name) for name in names)
    if len(types) >= len(branches):
        return f"{_show(error.instance)} is {kind_of(error.instance)}, must be {_or(types)}"
    # Where some forms differ in type alone, the others are the ones that were meant.
    forms = []
    for branch in branches:
        first = branch[0] if branch else None
        if first is not None:
            below = _path(first.instance_path[len(error.instance_path) :])
            forms.append(f"{below}: {_describe(first)}" if below else _describe(first))
    return clip("fits none of the allowed forms: " + "; or ".join(dict.fromkeys(forms)), 600)


def _path(steps: Iterable[str | int]) -> str:
    path = ""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{clip(step)}" if path else clip(step)
    return path


def _show(value: Any) -> str:
    try:
        return clip(json.dumps(value, ensure_ascii=False, default=str))
    except ValueError:  # an integer too long to print
        return kind_of(value)


def _or(words: Iterable[str]) -> str:
    unique = list(dict.fromkeys(words))
    return unique[0] if len(unique) == 1 else ", ".join(unique[:-1]) + " or " + unique[-1]


def _many(count: int, one: str, several: str | None = None) -> str:
    return f"{count} {one}" if count == 1 else f"{count} {several or one + 's'}"
