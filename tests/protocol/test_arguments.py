from typing import Any

import pytest

from rapkit.errors import InvalidToolset
from rapkit.protocol import ArgumentChecker

FORECAST = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1, "maxLength": 40},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "unit": {"enum": ["C", "F"]},
        "near": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2, "uniqueItems": True},
        "place": {"$ref": "#/$defs/Place"},
        "zip": {"type": "string", "pattern": "^[0-9]{4}$"},
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {
        "Place": {
            "type": "object",
            "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
            "required": ["lat", "lon"],
            "additionalProperties": False,
        }
    },
}
checker = ArgumentChecker(FORECAST)


def test_arguments_that_fit_have_no_problems() -> None:
    assert checker.problems({"city": "Oslo"}) == []
    assert checker.problems({"city": "Oslo", "days": 3, "near": None, "place": {"lat": 1, "lon": 2.5}}) == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "city: required, but missing"),
        ({"city": "Oslo", "dayz": 3}, "dayz: unknown; known are city, days, unit, near, tags, place, zip"),
        ({"city": "Oslo", "days": 99}, "days: 99 is more than the maximum of 14"),
        ({"city": "Oslo", "days": 0}, "days: 0 is less than the minimum of 1"),
        ({"city": "Oslo", "days": "3"}, 'days: "3" is a string, must be an integer'),
        ({"city": 5}, "city: 5 is a number, must be a string"),
        ({"city": ""}, "city: shorter than 1 character"),
        ({"city": "x" * 41}, "city: longer than 40 characters"),
        ({"city": "Oslo", "unit": "K"}, 'unit: "K" is not possible; possible are "C", "F"'),
        ({"city": "Oslo", "near": "x"}, 'near: "x" is a string, must be a number or null'),
        ({"city": "Oslo", "tags": ["a", 1]}, "tags[1]: 1 is a number, must be a string"),
        ({"city": "Oslo", "tags": ["a", "a"]}, "tags: has the same item twice"),
        ({"city": "Oslo", "tags": ["a", "b", "c"]}, "tags: more than 2 items"),
        ({"city": "Oslo", "place": {"lat": 1}}, "place.lon: required, but missing"),
        ({"city": "Oslo", "place": {"lat": 1, "lon": 2, "x": 3}}, "place.x: unknown; known are lat, lon"),
        ({"city": "Oslo", "zip": "ab"}, 'zip: "ab" does not match the pattern ^[0-9]{4}$'),
    ],
)
def test_a_problem_says_where_what_and_what_is_possible(arguments: dict[str, Any], problem: str) -> None:
    """INV-3"""
    assert checker.problems(arguments) == [problem]


def test_all_problems_are_listed_up_to_a_limit() -> None:
    assert len(checker.problems({"days": 99, "unit": "K", "x": 1})) == 4
    assert len(checker.problems({"city": "Oslo", **{f"x{n}": 1 for n in range(1000)}})) == 20


def test_large_values_are_clipped() -> None:
    (problem,) = checker.problems({"city": ["x" * 10_000]})

    assert len(problem) < 150


def test_unions_say_what_is_wrong_with_each_form() -> None:
    either = ArgumentChecker(
        {"type": "object", "properties": {"a": {"oneOf": [{"type": "string", "minLength": 3}, {"minimum": 5}]}}}
    )

    assert either.problems({"a": 1}) == [
        "a: fits none of the allowed forms: 1 is a number, must be a string; or 1 is less than the minimum of 5"
    ]
    assert either.problems({"a": "xyz"}) == ['a: "xyz" fits several of the allowed forms, must fit one']


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, "\ud800", {1: 2}, object()])
def test_what_is_not_json_is_a_problem_too(value: Any) -> None:
    (problem,) = checker.problems({"city": "Oslo", "near": value})

    assert problem.startswith("what was given holds a")


def test_a_bad_pattern_fails_instead_of_hanging() -> None:
    slow = ArgumentChecker({"type": "object", "properties": {"a": {"pattern": r"^(?=a)(a|aa)+(?!b)\1c$"}}})

    assert slow.problems({"a": "aaa"}) == [r'a: "aaa" does not match the pattern ^(?=a)(a|aa)+(?!b)\1c$']
    for length in (23, 5000):  # the first is past our limit, but not past the validator's own
        assert slow.problems({"a": "a" * length}) == [
            "a: could not be checked: the tool's pattern takes too long on it"
        ]


@pytest.mark.parametrize(
    "schema", [{"properties": {}}, {"type": "array"}, {"type": "object", "properties": {"a": {"type": "strin"}}}]
)
def test_what_is_no_schema_of_an_object_makes_no_checker(schema: Any) -> None:
    with pytest.raises(InvalidToolset, match=r"^inputSchema: .*type: "):
        ArgumentChecker(schema)


def test_a_large_call_still_hears_of_its_first_problem() -> None:
    rows = {"type": "array", "items": {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}}
    table = ArgumentChecker({"type": "object", "properties": {"rows": rows}})

    assert table.problems({"rows": [{"a": "x"}] * 5000 + [{"a": 5}] * 2}) == [
        "rows[5000].a: 5 is a number, must be a string or null"
    ]


def test_what_would_take_too_long_to_explain_is_only_refused() -> None:
    many = ArgumentChecker({"type": "object", "additionalProperties": {"anyOf": [{"const": n} for n in range(9000)]}})

    assert many.problems({"a": 5}) == []
    (problem,) = many.problems({"a": "x"})
    assert "does not fit, and is too large for this tool's schema to say where" in problem


def test_what_would_take_too_long_to_check_is_refused_before() -> None:
    again = {"$ref": "#/$defs/a"}
    twice = [{"properties": {"x": again}, "required": ["y"]}, {"properties": {"x": again}, "required": ["z"]}]
    doubling = ArgumentChecker({"type": "object", "properties": {"x": again}, "$defs": {"a": {"anyOf": twice}}})
    nested: dict[str, Any] = {}
    for _ in range(60):
        nested = {"x": nested}

    (problem,) = doubling.problems(nested)
    assert problem.startswith("what was given is too much to check against this tool's schema")


def test_arguments_that_no_message_can_carry_are_refused_before_too() -> None:
    nested: dict[str, Any] = {}
    for _ in range(100_000):
        nested = {"x": nested}

    assert ArgumentChecker({"type": "object"}).problems(nested) == ["what was given is nested deeper than 64 levels"]
