"""Generate JSON Schema in the form that models and their providers handle best.

What pydantic derives from type hints is correct, but full of `$ref`s, null unions and titles, which some providers
refuse and which cost every model tokens. This says the same with less:

- a `$ref` is replaced by what it points to; only a definition that contains itself stays in `$defs`;
- an optional value whose default is null is simply optional, not a union with null;
- titles and OpenAPI's `discriminator` go; so do defaults that JSON cannot hold, such as infinity.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind
from pydantic_core import core_schema

Schema: TypeAlias = dict[str, Any]

# Where a schema holds other schemas. Everything else (`enum`, `default`, `examples`, ...) is data and stays as it is.
_NAMED = {"properties", "patternProperties", "dependentSchemas"}
_LISTED = {"anyOf", "oneOf", "allOf", "prefixItems"}
_SINGLE = {"items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else"}

_NOISE = {"title", "discriminator"}
_REFERENCE = "#/$defs/"
_DECIMAL = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


def object_schema(arguments: TypeAdapter[Any]) -> Schema:
    """Describe an object type (a TypedDict or a model) in the simplest equivalent draft 2020-12 schema."""
    derived = arguments.json_schema(schema_generator=_Generator)
    definitions = derived.pop("$defs", {})
    recursive = {name for name in definitions if name in _reachable(definitions[name], definitions)}
    inlined = {name: schema for name, schema in definitions.items() if name not in recursive}

    simple = _simplified(derived, inlined)
    if not simple.get("properties"):
        return {"type": "object", "additionalProperties": False}
    kept = {name: _simplified(definitions[name], inlined) for name in sorted(recursive)}
    order = ("type", "properties", "required", "additionalProperties")
    return {key: simple[key] for key in order if key in simple} | ({"$defs": kept} if kept else {})


def admits_null(schema: Schema) -> bool:
    """Say whether null is a value of this schema."""
    if "enum" in schema:
        return None in schema["enum"]
    if "type" in schema:
        return "null" in schema["type"]
    if "const" in schema:
        return schema["const"] is None
    branches = schema.get("anyOf") or schema.get("oneOf")
    if branches:
        return any(admits_null(branch) for branch in branches)
    return "$ref" not in schema and "allOf" not in schema


class _Generator(GenerateJsonSchema):
    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> Schema:
        """Ask for a decimal as text, so that no digit of an amount is lost on the way; a number is taken too.

        Bounds mean nothing to a validator beside "string", but they do to a model.
        """
        either = super().decimal_schema(schema)["anyOf"]
        return {**either[0], "type": "string", "format": "decimal", "pattern": _DECIMAL}


def _simplified(schema: Schema, inlined: Mapping[str, Schema]) -> Schema:
    while (name := _referenced(schema)) in inlined:
        # What stands beside a `$ref` (a description, a default) is about this use of it, so it wins.
        schema = inlined[name] | {keyword: value for keyword, value in schema.items() if keyword != "$ref"}

    simple: Schema = {}
    for keyword, value in schema.items():
        if keyword in _NOISE or (keyword == "default" and not _is_json(value)):
            continue
        if keyword in _NAMED:
            value = {name: _simplified(each, inlined) for name, each in value.items()}
        elif keyword in _LISTED:
            value = [_simplified(each, inlined) for each in value]
        elif keyword in _SINGLE and isinstance(value, dict):
            value = _simplified(value, inlined)
        simple[keyword] = value

    if "properties" in simple:
        simple["properties"] = {name: _without_null_default(each) for name, each in simple["properties"].items()}
    return simple


def _without_null_default(schema: Schema) -> Schema:
    """`int | None = None` is an integer that may be left out."""
    if schema.get("default", ...) is not None:
        return schema
    rest = {keyword: value for keyword, value in schema.items() if keyword != "default"}
    if "anyOf" in rest:
        branches = [branch for branch in rest.pop("anyOf") if branch != {"type": "null"}]
        rest = branches[0] | rest if len(branches) == 1 else {"anyOf": branches} | rest
    elif "enum" in rest:
        rest["enum"] = [value for value in rest["enum"] if value is not None]
    return rest


def _reachable(schema: Schema, definitions: Mapping[str, Schema]) -> set[str]:
    """Names of the definitions that a schema refers to, directly or through others."""
    found: set[str] = set()
    unread = [schema]
    while unread:
        each = unread.pop()
        name = _referenced(each)
        if name in definitions and name not in found:
            found.add(name)
            unread.append(definitions[name])
        unread.extend(_subschemas(each))
    return found


def _subschemas(schema: Schema) -> Iterator[Schema]:
    for keyword, value in schema.items():
        if keyword in _NAMED:
            yield from value.values()
        elif keyword in _LISTED:
            yield from value
        elif keyword in _SINGLE and isinstance(value, dict):
            yield value


def _referenced(schema: Schema) -> str:
    return str(schema.get("$ref", "")).removeprefix(_REFERENCE)


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True
