"""Estimate what it costs to validate arguments against a schema, before doing so.

The validator cannot be interrupted and keeps the whole process waiting. A page of schema can make it visit each value of the
arguments thousands of times, or, where it refers back to itself in two places, twice as often with each level they nest. So
the visits are counted first. Values that are visited by the same subschemas equally often share one count, which makes this
cheap: a tree of a thousand nodes has two or three different ones.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rapkit.protocol.input_schema import References, items_of

MAX_WORK = 10_000_000
"""Keywords that may look at values: about 0.1 s in the validator (10 ns each). Real tools need one to ten for each value."""

MAX_STEPS = 200_000
"""Steps of ours to count that: at worst 0.1 s. A tool with 1,000 parameters needs 10,000."""

MAX_KEPT_STEPS = 20_000
"""Steps whose counts are kept from one call to the next: those of an ordinary tool, but not what deeply nested arguments add to them."""

MAX_STACK = 512
"""Subschemas the validator is in at once, all levels of the arguments together. It recurses, and overflows near 3,000."""

LONG = 64
"""Characters of text that are as much work as another value."""

PATTERN = 500
"""Work of a regular expression on a short text, at worst: 5 µs."""

BACKTRACKING = 40_000
"""The same for one that looks around or back, and can try again up to MAX_BACKTRACKS times: at worst 0.5 ms."""

COPIED = 20
"""Values that are copied into an error in the time it takes to make it."""

_EVERY_NAME = ("patternProperties",)
_OTHER_NAMES = ("additionalProperties", "unevaluatedProperties")
_EVERY_ITEM = ("contains",)
_OTHER_ITEMS = ("additionalItems", "unevaluatedItems")
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
_BRANCHES = ("anyOf", "oneOf")
_LOOKS_AROUND = re.compile(r"\(\?(?:[=!>(]|<[=!])|\\[1-9kKG]|[*+?}]\+")


class TooMuchWork(Exception):
    """The text says which limit the arguments go beyond."""


@dataclass(frozen=True, slots=True)
class ValidationWork:
    """What there is to explain if nothing fits: all of it, and at most for one problem. Errors copy what they are about."""

    explaining_all: int
    explaining_one: int


@dataclass(eq=False, slots=True)
class _Subschema:
    """Which subschemas a subschema passes a value on to (`here`), and which the names, properties and items of that value."""

    here: "list[_Subschema]" = field(default_factory=list)
    weight: int = 1
    matching: int = 0
    matching_names: int = 0
    order: int = 0
    height: int = 1
    unevaluated: bool = False
    branches: bool = False
    names: "list[_Subschema]" = field(default_factory=list)
    by_name: "dict[str | int, _Subschema]" = field(default_factory=dict)
    every_name: "list[_Subschema]" = field(default_factory=list)
    other_names: "list[_Subschema]" = field(default_factory=list)
    by_place: "dict[str | int, _Subschema]" = field(default_factory=dict)
    every_item: "list[_Subschema]" = field(default_factory=list)
    other_items: "list[_Subschema]" = field(default_factory=list)


_Counts = dict[_Subschema, int]


@dataclass(eq=False, slots=True)
class _Visits:
    """All visits of one value: how often each subschema looks at it."""

    counts: _Counts
    work: int
    matching: int
    matching_names: int
    height: int
    branches: bool
    by_name: "dict[str | int | None, _Visits]" = field(default_factory=dict)
    by_place: "dict[str | int | None, _Visits]" = field(default_factory=dict)
    known_names: frozenset[str | int] = frozenset()
    known_places: frozenset[str | int] = frozenset()


_Known = dict[frozenset[tuple[_Subschema, int]], _Visits]


class ValidationCost:
    """Counts the work of a schema that `compile_schema` took."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._root = _outline(schema)
        self._known: _Known = {}
        self._kept_steps = 0

    def of(self, arguments: dict[str, Any]) -> ValidationWork:
        """The work these arguments would make; TooMuchWork if that is beyond the limits. They are JSON: `check_json`."""
        count = _Count(self._known)
        try:
            return count.of(self._root, arguments)
        finally:
            self._kept_steps += count.steps
            if self._kept_steps > MAX_KEPT_STEPS:
                self._known, self._kept_steps = {}, 0


class _Count:
    """One count. What it finds out about the schema goes into `known`, for the next one; several threads may share that."""

    def __init__(self, known: _Known) -> None:
        self._known = known
        self.steps = 0

    def of(self, root: _Subschema, arguments: dict[str, Any]) -> ValidationWork:
        work = explaining = 0
        owned = [
            0
        ]  # what is to be explained of each value with branches, because a problem there is told branch by branch
        todo: list[tuple[Any, _Visits, int, int, int, int]] = [(arguments, self._visits({root: 1}), 0, 0, 0, 1)]
        while todo:
            value, visits, owner, above, stack, depth = todo.pop()
            stack += visits.height
            if stack > MAX_STACK:
                raise TooMuchWork(
                    f"nested too deeply for this tool's schema: {depth} levels, at most {depth - 1} there"
                )
            if not owner and visits.branches:
                owner = len(owned)
                owned.append(0)
            kind = type(value)
            size = 1 + len(value) // LONG if kind is str else 1
            cost = visits.work * size
            if kind is str:
                work += visits.matching * size
            elif kind is dict and visits.matching_names:
                work += visits.matching_names * sum(1 + len(name) // LONG for name in value)
            work += cost
            if work > MAX_WORK:
                raise TooMuchWork(
                    f"too much to check against this tool's schema, which looks at values many times (more than {MAX_WORK} "
                    f"times by level {depth}); send fewer values, or nest them less deeply"
                )
            copied = cost + above * size // COPIED
            explaining += copied
            owned[owner] += copied
            above += cost
            if kind is dict:
                for name, item in value.items():
                    todo.append((item, self._below_name(visits, name), owner, above, stack, depth + 1))
            elif kind is list:
                for place, item in enumerate(value):
                    todo.append((item, self._below_place(visits, place), owner, above, stack, depth + 1))
        return ValidationWork(explaining, max(owned[1:], default=1))

    def _visits(self, roots: _Counts) -> _Visits:
        key = frozenset(roots.items())
        if key not in self._known:
            self._known[key] = self._count(roots)
        return self._known[key]

    def _count(self, roots: _Counts) -> _Visits:
        """Pass the visits on to the subschemas for the same value, each after all that pass visits on to it."""
        reached = set(roots)
        todo = list(roots)
        while todo:
            for below in todo.pop().here:
                self._step()
                if below not in reached:
                    reached.add(below)
                    todo.append(below)
        counts = {each: roots.get(each, 0) for each in sorted(reached, key=lambda each: -each.order)}
        # Those below `unevaluated…` are asked a second time what they have evaluated, for which they check themselves again.
        again = dict.fromkeys(counts, 0)
        for each in counts:
            counts[each] += again[each]
            for below in each.here:
                counts[below] += counts[each]
                again[below] += again[each] + (2 * counts[each] if each.unevaluated else 0)
            if counts[each] > MAX_WORK:
                raise TooMuchWork(
                    "nested too deeply for this tool's schema, which looks at each level several times; nest less deeply"
                )
        return self._sum_up(counts, max(each.height for each in roots) if roots else 0)

    def _sum_up(self, counts: _Counts, height: int) -> _Visits:
        names: _Counts = {}
        for each, count in counts.items():
            self._add(names, each.names, count)
            self._step(len(each.by_name) + len(each.by_place))
        of_names = self._visits(names) if names else None
        return _Visits(
            counts,
            # A value that nothing looks at is still one to walk over.
            work=1 + sum(each.weight * count for each, count in counts.items()),
            matching=sum(each.matching * count for each, count in counts.items()),
            matching_names=sum(each.matching_names * count for each, count in counts.items())
            + (of_names.work + of_names.matching if of_names else 0),
            height=height,
            branches=any(each.branches for each in counts),
            known_names=frozenset().union(*(each.by_name for each in counts)),
            known_places=frozenset().union(*(each.by_place for each in counts)),
        )

    def _below_name(self, visits: _Visits, name: str) -> _Visits:
        key = name if name in visits.known_names else None
        if key not in visits.by_name:
            roots: _Counts = {}
            for each, count in visits.counts.items():
                self._add(roots, each.every_name, count)
                self._add(roots, [each.by_name[name]] if name in each.by_name else each.other_names, count)
            visits.by_name[key] = self._visits(roots)
        return visits.by_name[key]

    def _below_place(self, visits: _Visits, place: int) -> _Visits:
        key = place if place in visits.known_places else None
        if key not in visits.by_place:
            roots: _Counts = {}
            for each, count in visits.counts.items():
                self._add(roots, each.every_item, count)
                self._add(roots, [each.by_place[place]] if place in each.by_place else each.other_items, count)
            visits.by_place[key] = self._visits(roots)
        return visits.by_place[key]

    def _add(self, counts: _Counts, subschemas: Sequence[_Subschema], count: int) -> None:
        self._step(1 + len(subschemas))
        for each in subschemas:
            counts[each] = counts.get(each, 0) + count

    def _step(self, steps: int = 1) -> None:
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise TooMuchWork("of too many different shapes for this tool's schema; send fewer values")


def _outline(root: dict[str, Any]) -> _Subschema:
    """The schema with its references followed. Not recursive, as it may be deep."""
    references = References(root)
    made: dict[int, _Subschema] = {}
    todo: list[dict[str, Any]] = []

    def subschema(node: dict[str, Any]) -> _Subschema:
        if id(node) not in made:
            made[id(node)] = _Subschema()
            todo.append(node)
        return made[id(node)]

    def below(node: dict[str, Any], *keys: str) -> list[_Subschema]:
        return [subschema(item) for key in keys if key in node for item in items_of(key, node[key])]

    top = subschema(root)
    while todo:
        node = todo.pop()
        mine = made[id(node)]
        mine.weight = _weight(node)
        mine.matching = _weight_of_pattern(node["pattern"]) if "pattern" in node else 0
        mine.matching_names = sum(map(_weight_of_pattern, node.get("patternProperties", ())))
        mine.here = [subschema(each) for each in references.in_place(node)]
        mine.unevaluated = any(key in node for key in _UNEVALUATED)
        mine.branches = any(key in node for key in _BRANCHES)
        mine.names = below(node, "propertyNames")
        if isinstance(properties := node.get("properties"), dict):
            mine.by_name = {name: subschema(each) for name, each in properties.items() if isinstance(each, dict)}
        mine.every_name = below(node, *_EVERY_NAME)
        mine.other_names = below(node, *_OTHER_NAMES)
        for key in ("items", "prefixItems"):
            if isinstance(places := node.get(key), list):
                mine.by_place |= {n: subschema(each) for n, each in enumerate(places) if isinstance(each, dict)}
        mine.every_item = below(node, *_EVERY_ITEM)
        mine.other_items = below(node, *_OTHER_ITEMS)
        if isinstance(each := node.get("items"), dict):
            mine.other_items.append(subschema(each))
    _arrange(list(made.values()))
    return top


def _arrange(subschemas: list[_Subschema]) -> None:
    """Number them so that each has a higher `order` than those in its `here`. compile_schema saw to it that there is no circle."""
    done: set[_Subschema] = set()
    todo = [(each, False) for each in subschemas]
    while todo:
        each, ready = todo.pop()
        if ready:
            if each not in done:
                done.add(each)
                each.order = len(done)
                each.height = 1 + max((below.height for below in each.here), default=0)
        elif each not in done:
            todo.append((each, True))
            todo.extend((below, False) for below in each.here if below not in done)


def _weight(node: dict[str, Any]) -> int:
    """How many keywords and values a value is held against."""
    weight = max(1, len(node))
    todo: list[Any] = [node[key] for key in ("const", "enum", "required", "dependentRequired") if key in node]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            todo.extend(value.values())
        elif isinstance(value, list):
            todo.extend(value)
        weight += 1
    return weight


def _weight_of_pattern(pattern: object) -> int:
    return BACKTRACKING if _LOOKS_AROUND.search(str(pattern)) else PATTERN
