"""Describe validation problems in words: which field, what is wrong, what is allowed.

The texts go back to the peer and into logs, so they never repeat what a field held, which may be large or secret. The one
exception is the name of an unknown message type, clipped.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rapkit.protocol.content import BASE64_PATTERN, MEDIA_TYPE_PATTERN
from rapkit.protocol.fields import HTTP_URL_PATTERN, ID_PATTERN

MAX_PROBLEMS = 20

NOT_MATCHED = {
    ID_PATTERN: "has a control character",
    HTTP_URL_PATTERN: "not an absolute http or https URL (it has a scheme and a host, no space, control character or backslash)",
    BASE64_PATTERN: "not base64 (standard alphabet, padded)",
    MEDIA_TYPE_PATTERN: "not a media type such as image/png",
}

MUST_BE = {
    "string_type": "a string",
    "int_type": "an integer",
    "bool_type": "true or false",
    "tuple_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}

TAGGED = frozenset({"content", "display_as"})
"""Arrays whose items are told apart by their type, which pydantic puts into the path after the index."""


def problems(label: str, known: type[BaseModel] | Mapping[str, type[BaseModel]], error: ValidationError) -> list[str]:
    """One line for each problem, such as `tool_result.id: missing; it is the id of the invocation`.

    `known` is the model that was expected, or the models by message type where the type decides.
    """
    found = details_of(error)
    lines = [_line(label, known, detail) for detail in found[:MAX_PROBLEMS]]
    if len(found) > MAX_PROBLEMS:
        lines.append(f"and {len(found) - MAX_PROBLEMS} problems more")
    return lines


def details_of(error: ValidationError) -> list[ErrorDetails]:
    """Pydantic's list of what is wrong, without the arrays it calls empty because it could use none of their items."""
    found = error.errors(include_url=False)
    parents = {detail["loc"][:depth] for detail in found for depth in range(len(detail["loc"]))}
    return [detail for detail in found if detail["type"] != "too_short" or detail["loc"] not in parents]


def clip(text: str, limit: int = 80) -> str:
    """The text, or as much of it as belongs into a message for people."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def kind_of(value: object) -> str:
    """What JSON calls a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list() | tuple():
            return "an array"
        case dict():
            return "an object"
    return f"a {type(value).__name__}"


def _line(label: str, known: type[BaseModel] | Mapping[str, type[BaseModel]], detail: ErrorDetails) -> str:
    loc = detail["loc"]
    if isinstance(known, Mapping):
        if not loc:
            return _untyped(label, known, detail)
        label, loc = str(loc[0]), loc[1:]
        known = known[label]
    if field_name := detail.get("ctx", {}).get("field"):
        loc = (*loc, field_name)  # a check of the whole message that blames one field
    path = label + path_of(loc)
    line = f"{path}: {problem_of(detail)}"
    field = known.model_fields.get(str(loc[0])) if len(loc) == 1 else None
    return f"{line}; it is {field.description}" if field and field.description else line


def _untyped(label: str, known: Iterable[str], detail: ErrorDetails) -> str:
    types = ", ".join(known)
    if detail["type"] == "union_tag_not_found":
        return f"{label}.type: missing; the types are {types}"
    if detail["type"] == "union_tag_invalid":
        given = detail["input"].get("type")
        what = f"unknown type {clip(repr(given))}" if isinstance(given, str) else f"{kind_of(given)}, must be a string"
        return f"{label}.type: {what}; the types are {types}"
    return f"{label}: {problem_of(detail)}"


def path_of(loc: tuple[int | str, ...]) -> str:
    """Where in the message, as `.content[0].text`."""
    path = ""
    skip_tag = False
    for before, step in zip(("", *loc), loc, strict=False):
        if isinstance(step, int):
            path += f"[{step}]"
            skip_tag = before in TAGGED
        elif skip_tag:
            skip_tag = False
        else:
            path += f".{clip(step)}"
    return path


def problem_of(detail: ErrorDetails) -> str:
    """What is wrong there."""
    context: dict[str, Any] = detail.get("ctx", {})
    kind = detail["type"]
    match kind:
        case "missing":
            return "missing"
        case "json_invalid":
            return f"not JSON in UTF-8: {clip(str(context['error']))}"
        case "string_too_short":
            return "empty"
        case "string_too_long":
            return f"longer than {context['max_length']} characters"
        case "string_unicode":
            return "has a lone surrogate, which is not UTF-8"
        case "string_pattern_mismatch":
            return NOT_MATCHED.get(context["pattern"], "has a character that is not allowed")
        case "too_long":
            return f"more than {context['max_length']} items"
        case "too_short":
            return "empty"
        case "union_tag_not_found":
            return "has no type"
        case "union_tag_invalid":
            return f"of unknown type; the types are {context['expected_tags']}"
        case "greater_than_equal":
            return f"less than {context['ge']}"
        case "less_than_equal":
            return f"more than {context['le']}"
    if kind in MUST_BE:
        return f"{kind_of(detail['input'])}, must be {MUST_BE[kind]}"
    return detail["msg"]
