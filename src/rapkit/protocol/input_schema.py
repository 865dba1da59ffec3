"""Check a tool's inputSchema, an untrusted JSON Schema, before it is used.

It is draft 2020-12 unless its `$schema` says otherwise. Nothing is ever fetched for it: it stands on its own.
"""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from rapkit.protocol.patterns import PatternBudget, PatternsTooLarge, check_patterns
from rapkit.protocol.problems import clip

MAX_EXPANSION = 20_000
"""Subschemas a schema may have once its references are followed. Forty definitions, each referring twice to the next, make
a million million: a page of JSON that would keep the validator, and the whole process, busy for hours."""

MAX_CHAIN = 128
"""Subschemas on the longest way down. The validator recurses along it, and some keywords make it overflow the stack, which
ends the process: at 3,000 in a main thread, at 256 in one with 512 KiB (jsonschema-rs 0.60, unevaluatedProperties)."""

MAX_BACKTRACKS = 25_000
"""Steps a regular expression of the schema may take on one string, so that a bad one fails instead of hanging."""

DATA = frozenset({"const", "default", "enum", "examples"})
"""What stands below these is data, whatever it looks like."""

DEFINITIONS = frozenset({"$defs", "definitions"})
"""What stands below these counts where it is referred to."""

NAMED = DEFINITIONS | {"properties", "patternProperties", "dependentSchemas", "dependencies"}
"""Below these stand subschemas by name, and the name may be that of a keyword: a tool can have a parameter `default`."""

NOWHERE: dict[str, Any] = {}

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
"""What stands below these is held against the same value again."""

_PLAIN = re.compile(r"[\w$-]{1,80}")


class BadSchema(ValueError):
    """Not a schema a tool may have; the text says what and where."""


def compile_schema(schema: dict[str, Any], toolset: PatternBudget | None = None) -> jsonschema_rs.Validator:
    """A validator for the arguments of a tool; BadSchema if this is no JSON Schema of an object that stands on its own.

    `toolset` is what the patterns of all tools beside it may compile to, if there are others.
    """
    if schema.get("type") != "object":
        # Arguments always are an object, and model providers refuse a schema that leaves it open.
        raise BadSchema('type: must be "object", because arguments are an object')
    _check_references(schema)
    limit = _check_patterns(schema, toolset)
    try:
        return jsonschema_rs.validator_for(
            schema,
            retriever=_refuse,
            pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=MAX_BACKTRACKS, size_limit=limit),
        )
    except jsonschema_rs.ValidationError as error:
        where = ".".join(map(_step, error.instance_path))
        what = clip(_printable(error.message), 200)
        raise BadSchema(f"{clip(where, 200)}: {what}" if where else what) from None
    except (ValueError, RecursionError) as error:
        raise BadSchema(clip(_printable(str(error)), 200)) from None


def _step(step: str | int) -> str:
    """A step of a path. Names are untrusted text, so one that could be taken for something else is quoted."""
    text = str(step)
    return text if _PLAIN.fullmatch(text) else clip(repr(text))


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _refuse(uri: str) -> Any:
    raise ValueError("nothing is fetched for a schema")


def _check_patterns(schema: dict[str, Any], toolset: PatternBudget | None) -> int:
    try:
        return check_patterns(_patterns(schema), toolset)
    except PatternsTooLarge as error:
        raise BadSchema(str(error)) from None


def _patterns(schema: dict[str, Any]) -> Iterator[str]:
    for node in _nodes(schema):
        if isinstance(pattern := node.get("pattern"), str):
            yield pattern
        if isinstance(by_pattern := node.get("patternProperties"), dict):
            yield from by_pattern


def _check_references(schema: dict[str, Any]) -> None:
    nodes = list(_nodes(schema))
    # Up to draft 4 it was `id` that moves what the references below it mean; later that is a word like any other.
    moving = ("$id", "id") if any("draft-04" in str(node.get("$schema", "")) for node in nodes) else ("$id",)
    for node in nodes:
        for key in moving:
            if node is not schema and isinstance(place := node.get(key), str) and not place.startswith("#"):
                raise BadSchema(
                    f"{key}: allowed at the top only; put definitions into $defs and refer to them as #/$defs/…"
                )
        for reference in _references(node):
            if not reference.startswith("#"):
                raise BadSchema(
                    f"$ref: {clip(repr(reference))} leads out of the schema; put it into $defs and refer to #/$defs/…"
                )
    references = References(schema)
    known = {id(NOWHERE), *map(id, nodes)}
    if any(id(target) not in known for node in nodes for target in references.targets(node)):
        # What stands in data was not looked at above, and could be anything.
        raise BadSchema("$ref: leads to what is no schema, such as data; put it into $defs and refer to #/$defs/…")
    size, depth = _measure(schema, references)
    if size > MAX_EXPANSION:
        raise BadSchema(f"its references multiply to more than {MAX_EXPANSION} subschemas; refer less often")
    if depth > MAX_CHAIN:
        raise BadSchema(f"its references make a chain of more than {MAX_CHAIN} subschemas; nest less deeply")
    _check_circles(schema, references)


class References:
    """Where the references of a schema lead. BadSchema if that is not clear."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._anchors: dict[str, Any] = {}
        for node in _nodes(root):
            for name in _anchors(node):
                if self._anchors.setdefault(name, node) is not node:
                    raise BadSchema(f"$anchor: {clip(repr(name))} stands in two places")

    def targets(self, node: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """What the node refers to; nowhere is an empty schema here, because the compiler reports that better."""
        for reference in _references(node):
            target = _follow(reference, self._root, self._anchors)
            yield target if isinstance(target, dict) else NOWHERE

    def in_place(self, node: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The subschemas that are held against the same value as the node, directly below it or by reference."""
        yield from self.targets(node)
        for key in IN_PLACE:
            if key in node:
                yield from items_of(key, node[key])


def _check_circles(root: dict[str, Any], references: References) -> None:
    """Refuse a reference that leads back without going down into the arguments.

    It means nothing, and through a few definitions that all refer to each other there are more ways than can be tried.
    """
    open_: set[int] = set()
    closed: set[int] = set()
    reached = {id(root)}
    starts = [root]
    while starts:
        stack = [(starts.pop(), False)]
        while stack:
            node, left = stack.pop()
            if left:
                open_.discard(id(node))
                closed.add(id(node))
                continue
            if id(node) in closed:
                continue
            if id(node) in open_:
                raise BadSchema(
                    "$ref: leads in a circle that never goes down into the arguments; refer from a property or item"
                )
            open_.add(id(node))
            stack.append((node, True))
            stack.extend((each, False) for each in references.in_place(node))
            for child in (*_children(node), *references.targets(node)):
                if id(child) not in reached:
                    reached.add(id(child))
                    starts.append(child)


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


def _measure(root: dict[str, Any], references: References) -> tuple[int, int]:
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
            *references.targets(node),
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
    for key, value in node.items():
        if key not in skip:
            yield from items_of(key, value)


def items_of(key: str, value: Any) -> Iterator[dict[str, Any]]:
    """The subschemas directly below a keyword, in arrays and by name."""
    stack = list(value.values()) if key in NAMED and isinstance(value, dict) else [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            yield item
        elif isinstance(item, list):
            stack.extend(item)


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
