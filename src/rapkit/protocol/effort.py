"""How much work a schema makes of given arguments, before any of it is done.

The validator cannot be interrupted and keeps the whole process waiting. A page of schema can make it visit each value of the
arguments thousands of times, or, where it refers back to itself in two places, twice as often with each level they nest. So
the visits are counted first. Values that are visited by the same subschemas equally often share one count, which makes this
cheap: a tree of a thousand nodes has two or three different ones.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rapkit.protocol.input_schema import References, items_of

MAX_WORK = 3_000_000
"""Visits of one value by one subschema: about 0.1 s in the validator. Real tools need one to ten for each value."""

MAX_STEPS = 100_000
"""Steps of ours to count them."""

MAX_STACK = 512
"""Subschemas the validator is in at once, all levels of the arguments together. It recurses, and overflows near 3,000."""

LONG = 64
"""Characters of text that are as much work as another value."""

_EVERY_NAME = ("patternProperties",)
_OTHER_NAMES = ("additionalProperties", "unevaluatedProperties")
_EVERY_ITEM = ("contains",)
_OTHER_ITEMS = ("additionalItems", "unevaluatedItems")
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
_BRANCHES = ("anyOf", "oneOf")


class TooMuchWork(Exception):
    """The text says which limit the arguments go beyond."""


@dataclass(frozen=True, slots=True)
class Work:
    """What checking comes to: `all` of it, and `explaining` at most for the one problem that takes most words."""

    all: int
    explaining: int


@dataclass(eq=False, slots=True)
class _Subschema:
    """Which subschemas a subschema passes a value on to (`here`), and which its properties and items."""

    here: "list[_Subschema]" = field(default_factory=list)
    weight: int = 1
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
    height: int
    branches: bool
    names: "_Visits | None" = None
    by_name: "dict[str | int | None, _Visits]" = field(default_factory=dict)
    by_place: "dict[str | int | None, _Visits]" = field(default_factory=dict)
    known_names: frozenset[str | int] = frozenset()
    known_places: frozenset[str | int] = frozenset()


class Effort:
    """Counts the work of a schema that `compile_schema` took."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._root = _outline(schema)

    def of(self, arguments: dict[str, Any]) -> Work:
        """The work these arguments would make; TooMuchWork if that is beyond the limits. They are JSON: `check_json`."""
        return _Count().of(self._root, arguments)


class _Count:
    def __init__(self) -> None:
        self._known: dict[frozenset[tuple[_Subschema, int]], _Visits] = {}
        self._steps = 0

    def of(self, root: _Subschema, arguments: dict[str, Any]) -> Work:
        work = values = 0
        owned = [0]  # the work below each value with branches, because a problem there is told branch by branch
        todo: list[tuple[Any, _Visits, int, int, int]] = [(arguments, self._visits({root: 1}), 0, 0, 1)]
        while todo:
            value, visits, owner, stack, depth = todo.pop()
            stack += visits.height
            if stack > MAX_STACK:
                raise TooMuchWork(
                    f"nested too deeply for this tool's schema: {depth} levels, at most {depth - 1} there"
                )
            if not owner and visits.branches:
                owner = len(owned)
                owned.append(0)
            cost = visits.work
            if type(value) is str:
                cost *= 1 + len(value) // LONG
            elif type(value) is dict:
                for name, item in value.items():
                    if visits.names is not None:
                        cost += visits.names.work * (1 + len(name) // LONG)
                    todo.append((item, self._below_name(visits, name), owner, stack, depth + 1))
            elif type(value) is list:
                for place, item in enumerate(value):
                    todo.append((item, self._below_place(visits, place), owner, stack, depth + 1))
            values += 1
            work += cost
            owned[owner] += cost
            if work > MAX_WORK:
                self._refuse(depth)
        return Work(work, max(owned[1:], default=1))

    def _refuse(self, depth: int) -> None:
        raise TooMuchWork(
            f"too much to check against this tool's schema, which looks at each value many times (found at level {depth}, "
            f"more than {MAX_WORK} looks); send fewer values, or nest them less deeply"
        )

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
                raise TooMuchWork("nested too deeply for this tool's schema, which looks at each level several times")
        return self._sum_up(counts, max(each.height for each in roots) if roots else 0)

    def _sum_up(self, counts: _Counts, height: int) -> _Visits:
        names: _Counts = {}
        for each, count in counts.items():
            _add(names, each.names, count)
        return _Visits(
            counts,
            # A value that nothing looks at is still one to walk over.
            work=1 + sum(each.weight * count for each, count in counts.items()),
            height=height,
            branches=any(each.branches for each in counts),
            names=self._visits(names) if names else None,
            known_names=frozenset().union(*(each.by_name for each in counts)),
            known_places=frozenset().union(*(each.by_place for each in counts)),
        )

    def _below_name(self, visits: _Visits, name: str) -> _Visits:
        key = name if name in visits.known_names else None
        if key not in visits.by_name:
            roots: _Counts = {}
            for each, count in visits.counts.items():
                self._step()
                _add(roots, each.every_name, count)
                _add(roots, [each.by_name[name]] if name in each.by_name else each.other_names, count)
            visits.by_name[key] = self._visits(roots)
        return visits.by_name[key]

    def _below_place(self, visits: _Visits, place: int) -> _Visits:
        key = place if place in visits.known_places else None
        if key not in visits.by_place:
            roots: _Counts = {}
            for each, count in visits.counts.items():
                self._step()
                _add(roots, each.every_item, count)
                _add(roots, [each.by_place[place]] if place in each.by_place else each.other_items, count)
            visits.by_place[key] = self._visits(roots)
        return visits.by_place[key]

    def _step(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise TooMuchWork("too many different values for this tool's schema; send fewer")


def _add(counts: _Counts, subschemas: Iterable[_Subschema], count: int) -> None:
    for each in subschemas:
        counts[each] = counts.get(each, 0) + count


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
    weight = 1
    todo: list[Any] = [
        value for key, value in node.items() if key in ("const", "enum", "required", "dependentRequired")
    ]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            todo.extend(value.values())
        elif isinstance(value, list):
            todo.extend(value)
        weight += 1
    return weight
