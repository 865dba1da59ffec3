"""A tool's inputSchema: a JSON Schema a stranger wrote, to be checked before it is trusted with anything.

It is draft 2020-12 unless its `$schema` says otherwise. Nothing is ever fetched for it: it stands on its own.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from rapkit.protocol.problems import clip

MAX_EXPANSION = 20_000
"""Subschemas a schema may have once its references are followed. Forty definitions, each referring twice to the next, make
a million million: a page of JSON that would keep the validator, and the whole process, busy for hours."""

MAX_CHAIN = 128
"""Subschemas on the longest way down. The validator recurses along it, and some keywords make it overflow the stack, which
ends the process: at 3,000 in a main thread, at 256 in one with 512 KiB (jsonschema-rs 0.60, unevaluatedProperties)."""

MAX_BACKTRACKS = 100_000
"""Steps a regular expression of the schema may take on one string, so that a bad one fails instead of hanging."""

DATA = frozenset({"const", "default", "enum", "examples"})
"""What stands below these is data, whatever it looks like."""

DEFINITIONS = frozenset({"$defs", "definitions"})
"""What stands below these counts where it is referred to."""

NAMED = DEFINITIONS | {"properties", "patternProperties", "dependentSchemas", "dependencies"}
"""Below these stand subschemas by name, and the name may be that of a keyword: a tool can have a parameter `default`."""

NOWHERE: dict[str, Any] = {}

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class BadSchema(ValueError):
    """Not a schema a tool may have; the text says what and where."""


def compile_schema(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    """A validator for the arguments of a tool; BadSchema if this is no JSON Schema of an object that stands on its own."""
    if schema.get("type") != "object":
        # Arguments always are an object, and model providers refuse a schema that leaves it open.
        raise BadSchema('type: must be "object", because arguments are an object')
    _check_references(schema)
    try:
        return jsonschema_rs.validator_for(
            schema,
            retriever=_refuse,
            pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=MAX_BACKTRACKS),
        )
    except jsonschema_rs.ValidationError as error:
        where = ".".join(map(str, error.instance_path))
        raise BadSchema(f"{clip(where)}: {clip(error.message, 200)}" if where else clip(error.message, 200)) from None
    except (ValueError, RecursionError) as error:
        raise BadSchema(clip(str(error), 200)) from None


def _refuse(uri: str) -> Any:
    raise ValueError("nothing is fetched for a schema")


def _check_references(schema: dict[str, Any]) -> None:
    anchors: dict[str, Any] = {}
    for node in _nodes(schema):
        if node is not schema and not str(node.get("$id", "#")).startswith("#"):
            raise BadSchema("$id: allowed at the top only; put definitions into $defs and refer to them as #/$defs/…")
        for reference in _references(node):
            if not reference.startswith("#"):
                raise BadSchema(
                    f"$ref: {clip(repr(reference))} leads out of the schema; put it into $defs and refer to #/$defs/…"
                )
        for name in _anchors(node):
            if anchors.setdefault(name, node) is not node:
                raise BadSchema(f"$anchor: {clip(repr(name))} stands in two places")
    size, depth = _measure(schema, anchors)
    if size > MAX_EXPANSION:
        raise BadSchema(f"its references multiply to more than {MAX_EXPANSION} subschemas; refer less often")
    if depth > MAX_CHAIN:
        raise BadSchema(f"its references make a chain of more than {MAX_CHAIN} subschemas; nest less deeply")


def _nodes(root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(_children(node))


def _anchors(node: dict[str, Any]) -> Iterator[str]:
    for key in ("$anchor", "$dynamicAnchor"):
        if isinstance(name := node.get(key), str):
            yield name
    for key in ("$id", "id"):  # how drafts up to 7 write an anchor
        if isinstance(name := node.get(key), str) and name.startswith("#"):
            yield name[1:]


def _references(node: dict[str, Any]) -> Iterator[str]:
    for key in REFERENCES:
        if isinstance(reference := node.get(key), str):
            yield reference


def _measure(root: dict[str, Any], anchors: dict[str, Any]) -> tuple[int, int]:
    """How many subschemas there are when references are followed, and how many on the longest way down.

    A reference that leads back to where it came from counts once. No recursion: a hostile schema can be very deep.
    """
    sizes: dict[int, tuple[int, int]] = {}
    seen: set[int] = set()
    stack = [(root, False)]
    while stack:
        node, children_measured = stack.pop()
        children = [
            *_children(node, DATA | DEFINITIONS),
            *(_target(reference, root, anchors) for reference in _references(node)),
        ]
        if children_measured:
            measured = [sizes.get(id(child), (1, 1)) for child in children]
            # Capped, because the true number of a bomb has thousands of digits.
            size = min(1 + sum(size for size, _ in measured), MAX_EXPANSION + 1)
            sizes[id(node)] = size, 1 + max((depth for _, depth in measured), default=0)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((child, False) for child in children)
    return sizes[id(root)]


def _children(node: dict[str, Any], skip: frozenset[str] = DATA) -> Iterator[dict[str, Any]]:
    """The subschemas directly below, in arrays and by name."""
    for key, value in node.items():
        if key in skip:
            continue
        stack = list(value.values()) if key in NAMED and isinstance(value, dict) else [value]
        while stack:
            item = stack.pop()
            if isinstance(item, dict):
                yield item
            elif isinstance(item, list):
                stack.extend(item)


def _target(reference: str, root: dict[str, Any], anchors: dict[str, Any]) -> dict[str, Any]:
    """Where a reference leads; nowhere is an empty schema here, because the compiler reports that better."""
    node = _follow(reference, root, anchors)
    return node if isinstance(node, dict) else NOWHERE


def _follow(reference: str, root: dict[str, Any], anchors: dict[str, Any]) -> Any:
    fragment = unquote(reference.removeprefix("#"))
    if fragment and not fragment.startswith("/"):
        return anchors.get(fragment)
    node: Any = root
    for step in fragment.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict):
            node = node.get(key)
        elif isinstance(node, list) and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        else:
            return None
    return node
