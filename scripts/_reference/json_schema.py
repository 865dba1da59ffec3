"""JSON Schemas as tables of fields."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from scripts._reference.markdown import code, plain, table

Schema = Mapping[str, Any]
Link = Callable[[str], str]


def heading_link(name: str) -> str:
    """A link to the heading of that name on the same page."""
    return f"[{name}](#{name.lower()})"


def fields(schema: Schema, link: Link = heading_link) -> str:
    """A table of an object's fields."""
    required = schema.get("required", ())
    return table(
        ("field", "type", "", "meaning"),
        (
            (code(name), kind(each, link), "required" if name in required else "", plain(each.get("description", "")))
            for name, each in schema.get("properties", {}).items()
        ),
    )


def kind(schema: Schema, link: Link = heading_link) -> str:
    """What a value can be, in words; `link` makes one to another schema of a name."""
    if "$ref" in schema:
        return link(schema["$ref"].rpartition("/")[2])
    for word in ("anyOf", "oneOf"):
        if word in schema and "type" not in schema:
            return " or ".join(dict.fromkeys(kind(each, link) for each in schema[word]))
    if "const" in schema or "enum" in schema:
        values = schema["enum"] if "enum" in schema else [schema["const"]]
        return " or ".join(code(json.dumps(value)) for value in values)
    limits = [
        *_range(schema, "minLength", "maxLength", " characters"),
        *_range(schema, "minItems", "maxItems", " of them"),
        *_range(schema, "minimum", "maximum", ""),
        *(f"above {schema[key]:,}" for key in ("exclusiveMinimum",) if key in schema),
        *(f"below {schema[key]:,}" for key in ("exclusiveMaximum",) if key in schema),
    ]
    return f"{_type(schema, link)} ({', '.join(limits)})" if limits else _type(schema, link)


def _range(schema: Schema, least: str, most: str, unit: str) -> list[str]:
    low, high = schema.get(least), schema.get(most)
    if low is None and high is None:
        return []
    if high is None:
        return [f"{low:,} or more{unit}"]
    return [f"{low:,} to {high:,}{unit}" if low is not None else f"at most {high:,}{unit}"]


def _type(schema: Schema, link: Link) -> str:
    name = schema.get("type")
    if name == "array":
        items = schema.get("items")
        return f"list of {kind(items, link)}" if items else "list"
    if name == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {kind(schema['additionalProperties'], link)}"
    if isinstance(name, list):
        return " or ".join(name)
    return name or "any JSON"
