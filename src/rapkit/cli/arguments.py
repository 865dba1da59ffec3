"""Parse tool arguments from the command line: `city=Oslo`, `days:=3`."""

import json
from collections.abc import Iterable
from typing import Any

from rapkit.errors import ConfigError
from rapkit.protocol import ArgumentChecker, ToolDefinition

_BOOLEANS = {"true": True, "false": False}
_TYPES: dict[str, type] = {"boolean": bool, "null": type(None), "array": list, "object": dict}
_NAMES = {
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "array": "a JSON list",
    "object": "a JSON object",
}


def read_arguments(words: Iterable[str], tool: ToolDefinition) -> dict[str, Any]:
    """`k=v` is read as the type the tool's schema gives to k, `k:=v` as JSON. `ConfigError` says what does not fit."""
    properties = tool.inputSchema.get("properties", {})
    arguments: dict[str, Any] = {}
    for word in words:
        key, separator, text = word.partition("=")
        name = key.removesuffix(":")
        if not separator or not name:
            raise ConfigError(f"{word!r} is not an argument. Write name=value, or name:=json.")
        if name in arguments:
            raise ConfigError(f"{name} is given twice. For a list write {name}:='[...]'.")
        arguments[name] = _typed(name, text, properties.get(name)) if name == key else _json(name, text)
    if problems := ArgumentChecker(tool.inputSchema).problems(arguments):
        raise ConfigError(
            f"The arguments do not fit {tool.name}:\n" + "\n".join(f"  {problem}" for problem in problems)
        )
    return arguments


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{name}:= is not followed by JSON: {error}. For plain text write {name}=...") from None


def _typed(name: str, text: str, schema: object) -> Any:
    kinds = _kinds(schema)
    if not kinds or not all(kind in _NAMES for kind in kinds):
        return text  # text is possible, or the schema does not say
    for kind in kinds:
        try:
            return _read(kind, text)
        except ValueError:
            continue
    raise ConfigError(f"{name} is {' or '.join(_NAMES[kind] for kind in kinds)}, and {text!r} is not.")


def _kinds(schema: object) -> list[str]:
    if not isinstance(schema, dict):
        return []
    given = schema.get("type")
    if given is None:
        return [kind for each in schema.get("anyOf") or schema.get("oneOf") or () for kind in _kinds(each) or ["any"]]
    return given if isinstance(given, list) else [given]


def _read(kind: str, text: str) -> Any:
    """The text as a value of this kind, or ValueError."""
    match kind:
        case "integer":
            return int(text)
        case "number":
            return float(text)
    value = _BOOLEANS[text.lower()] if text.lower() in _BOOLEANS else json.loads(text)
    if not isinstance(value, _TYPES[kind]):
        raise ValueError(text)
    return value
