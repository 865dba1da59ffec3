"""Arguments for a tool from words of a command line: `city=Oslo`, `days:=3`."""

import json
from collections.abc import Iterable
from typing import Any

from rapkit.errors import ConfigError
from rapkit.protocol import ArgumentChecker, ToolDefinition

_BOOLEANS = {"true": True, "false": False}


def read_arguments(words: Iterable[str], tool: ToolDefinition) -> dict[str, Any]:
    """`k=v` is read as the type the tool's schema gives to k, `k:=v` as JSON. `ConfigError` says what does not fit."""
    properties = tool.inputSchema.get("properties", {})
    arguments: dict[str, Any] = {}
    for word in words:
        key, separator, text = word.partition("=")
        if not separator or not key.rstrip(":"):
            raise ConfigError(f"{word!r} is not an argument. Write name=value, or name:=json.")
        if key.endswith(":"):
            arguments[key[:-1]] = _json(key[:-1], text)
        else:
            arguments[key] = _typed(key, text, properties.get(key))
    if problems := ArgumentChecker(tool.inputSchema).problems(arguments):
        raise ConfigError(
            f"The arguments do not fit {tool.name}:\n" + "\n".join(f"  {problem}" for problem in problems)
        )
    return arguments


def _json(key: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{key}:= is not followed by JSON: {error}. For plain text write {key}=...") from None


def _typed(key: str, text: str, schema: object) -> Any:
    kind = schema.get("type") if isinstance(schema, dict) else None
    match kind:
        case "integer" | "number":
            try:
                return int(text) if kind == "integer" else float(text)
            except ValueError:
                raise ConfigError(
                    f"{key} is a{'n integer' if kind == 'integer' else ' number'}, and {text!r} is not."
                ) from None
        case "boolean":
            if text.lower() not in _BOOLEANS:
                raise ConfigError(f"{key} is true or false, and {text!r} is neither.")
            return _BOOLEANS[text.lower()]
        case "array" | "object":
            return _json(key, text)
    return text
