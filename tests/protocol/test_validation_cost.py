from typing import Any

import pytest

from rapkit.protocol.input_schema import compile_schema
from rapkit.protocol.json_value import MAX_DEPTH
from rapkit.protocol.validation_cost import BACKTRACKING, MAX_STACK, MAX_WORK, TooMuchWork, ValidationCost

AGAIN = {"$ref": "#/$defs/a"}
DEEP = MAX_DEPTH - 2


def effort(**schema: Any) -> ValidationCost:
    schema = {"type": "object"} | schema
    compile_schema(schema)
    return ValidationCost(schema)


def recursive(**definition: Any) -> ValidationCost:
    return effort(**{"properties": {"x": AGAIN}, "$defs": {"a": definition}})


def nested(levels: int, *, listed: bool = False) -> dict[str, Any]:
    value: Any = {}
    for _ in range(levels):
        value = [value] if listed else {"x": value}
    return {"x": value}


X = {"properties": {"x": AGAIN}}


@pytest.mark.parametrize(
    "definition",
    [
        {"anyOf": [X, X]},
        {"oneOf": [X, X]},
        {"allOf": [X, X]},
        {"if": X, "then": X},
        {"if": X, "else": X},
        {"not": X, **X},
        {"dependentSchemas": {"x": X}, **X},
        {"allOf": [{"$ref": "#/$defs/a/$defs/b"}] * 2, "$defs": {"b": X}},
        {"allOf": [X, {"properties": {"x": {"$dynamicRef": "#/$defs/a"}}}]},
        {**X, "patternProperties": {"x": AGAIN}},
        {"additionalProperties": AGAIN, "patternProperties": {"x": AGAIN}},
        {"additionalProperties": AGAIN, "unevaluatedProperties": AGAIN},
    ],
)
def test_a_schema_that_comes_back_in_two_ways_bounds_how_deep_arguments_nest(definition: dict[str, Any]) -> None:
    doubling = recursive(**definition)

    doubling.of(nested(8))
    with pytest.raises(TooMuchWork, match=r"^(too much to check|nested too deeply)"):
        doubling.of(nested(DEEP))


@pytest.mark.parametrize(
    "definition",
    [
        {"items": AGAIN, "contains": AGAIN},
        {"items": AGAIN, "allOf": [{"prefixItems": [AGAIN]}]},
        {"items": AGAIN, "unevaluatedItems": AGAIN},
    ],
)
def test_the_same_holds_for_items(definition: dict[str, Any]) -> None:
    doubling = recursive(**definition)

    doubling.of(nested(8, listed=True))
    with pytest.raises(TooMuchWork):
        doubling.of(nested(DEEP, listed=True))


def test_definitions_that_refer_to_each_other_are_followed() -> None:
    both = {"properties": {"x": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]}}}
    mutual = effort(**{"properties": {"x": AGAIN}, "$defs": {"a": both, "b": both | {"title": "b"}}})

    with pytest.raises(TooMuchWork):
        mutual.of(nested(DEEP))


@pytest.mark.parametrize(
    "definition",
    [
        {"type": "object", "properties": {"x": AGAIN, "y": AGAIN}, "additionalProperties": AGAIN},
        {"anyOf": [{"type": "null"}, {"properties": {"x": AGAIN, "y": AGAIN}, "required": ["x"]}]},
        {"additionalProperties": {"$ref": "#/$defs/a"}},
        {"properties": {"x": {"allOf": [AGAIN]}}},
    ],
)
def test_a_tree_may_be_as_deep_as_messages_may(definition: dict[str, Any]) -> None:
    recursive(**definition).of(nested(DEEP))


def test_a_tree_may_be_large() -> None:
    tree = recursive(type="object", properties={"kids": {"type": "array", "items": AGAIN}, "name": {"type": "string"}})
    leaf = {"name": "a", "kids": []}

    tree.of({"x": {"kids": [{"name": "b", "kids": [leaf] * 10}] * 1000}})


def test_a_long_schema_bounds_how_many_values_there_are() -> None:
    branches = effort(additionalProperties={"anyOf": [{"const": {"a": n}} for n in range(5000)]})

    branches.of({str(n): {} for n in range(100)})
    with pytest.raises(TooMuchWork, match=f"more than {MAX_WORK} times by level 2.*; send fewer values"):
        branches.of({str(n): {} for n in range(2000)})


@pytest.mark.parametrize("keyword", ["enum", "required"])
def test_what_a_value_is_compared_with_counts(keyword: str) -> None:
    words = effort(additionalProperties={keyword: [f"w{n}" for n in range(20_000)]})

    with pytest.raises(TooMuchWork):
        words.of({str(n): "x" for n in range(MAX_WORK // 20_000)})


def test_schemas_that_ask_what_was_evaluated_ask_again_and_again() -> None:
    schema: dict[str, Any] = {"properties": {"x": {}}}
    for _ in range(30):
        schema = {"allOf": [schema], "unevaluatedProperties": False}

    with pytest.raises(TooMuchWork, match="looks at each level several times"):
        effort(**schema).of({"x": 1})


@pytest.mark.parametrize("place", ["additionalProperties", "propertyNames"])
def test_patterns_that_try_again_are_dear(place: str) -> None:
    times = MAX_WORK // BACKTRACKING
    looking = effort(**{place: {"pattern": "^(?=a)(a|aa)+$"}})
    plain = effort(**{place: {"pattern": "^a+$"}})
    arguments = {f"a{n}": "a" for n in range(times + 1)}

    plain.of(arguments)
    with pytest.raises(TooMuchWork):
        looking.of(arguments)
    with pytest.raises(TooMuchWork):
        looking.of({"a" * 64 * times: "a" * 64 * times})


def test_patterns_of_names_count_for_each_name() -> None:
    names = effort(patternProperties={r"(a)\1": {}})

    with pytest.raises(TooMuchWork):
        names.of({str(n): 1 for n in range(MAX_WORK // BACKTRACKING + 1)})


def test_the_stack_of_the_validator_is_bounded_over_all_levels() -> None:
    chain: dict[str, Any] = X
    for _ in range(100):
        chain = {"allOf": [chain]}
    long = recursive(**chain)

    long.of(nested(MAX_STACK // 102 - 1))
    with pytest.raises(TooMuchWork, match=r"^nested too deeply for this tool's schema: 7 levels, at most 6"):
        long.of(nested(MAX_STACK // 102 + 1))


def test_counting_is_bounded_too() -> None:
    names = [f"p{n}" for n in range(60)]
    many = effort(allOf=[{"additionalProperties": {}} for _ in range(5000)], properties={name: {} for name in names})

    many.of({"p0": 1})
    with pytest.raises(TooMuchWork, match="of too many different shapes"):
        many.of(dict.fromkeys(names, 1))


def test_a_tool_may_have_a_thousand_parameters() -> None:
    effort(properties={f"p{n}": {"type": "string"} for n in range(1000)}).of({f"p{n}": "x" for n in range(1000)})


def test_each_error_copies_what_it_is_about() -> None:
    required = effort(required=[f"r{n}" for n in range(1000)])

    few, many = required.of({"a": 1}), required.of({str(n): 1 for n in range(1000)})

    assert many.explaining_all > 40 * few.explaining_all
    assert many.explaining_one == few.explaining_one
