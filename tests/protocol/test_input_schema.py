from typing import Any

import pytest

from rapkit.protocol.input_schema import BadSchema, compile_schema


def refusal(**schema: Any) -> str:
    with pytest.raises(BadSchema) as refused:
        compile_schema({"type": "object"} | schema)
    return str(refused.value)


def test_draft_2020_12_is_meant_unless_the_schema_says_otherwise() -> None:
    tuples = {"type": "object", "properties": {"a": {"items": [{"type": "string"}]}}}

    assert "properties.a.items" in refusal(**tuples)
    compile_schema(tuples | {"$schema": "http://json-schema.org/draft-07/schema#"})
    assert "meta-schema" in refusal(**{"$schema": "http://example.com/mine"})


@pytest.mark.parametrize("kind", [..., "array", ["object", "null"], None])
def test_arguments_are_an_object(kind: Any) -> None:
    schema = {} if kind is ... else {"type": kind}

    with pytest.raises(BadSchema, match=r'^type: must be "object"'):
        compile_schema(schema)


@pytest.mark.parametrize(
    "reference", ["http://127.0.0.1:9/x", "file:///etc/hostname", "other.json", "urn:a:b", "//host/x", ""]
)
def test_nothing_is_ever_fetched(reference: str) -> None:
    for keyword in ("$ref", "$dynamicRef"):
        assert "leads out of the schema" in refusal(properties={"a": {keyword: reference}})
    assert "leads out of the schema" in refusal(allOf=[{"not": {"items": {"$ref": reference}}}])
    assert "top only" in refusal(properties={"a": {"$id": "http://x/y", "$ref": "#/z"}})


def test_nothing_is_fetched_for_a_reference_hidden_in_data() -> None:
    hidden = {"x": {"$ref": "http://127.0.0.1:9/x"}}

    assert "nothing is fetched" in refusal(properties={"a": {"$ref": "#/const/x"}}, const=hidden)


def test_references_within_the_schema_work() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "$id": "https://example.com/args",
        "properties": {"tree": {"$ref": "#/$defs/Tree"}, "leaf": {"$ref": "#leaf"}, "self": {"$ref": "#"}},
        "$defs": {
            "Tree": {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}},
            "Leaf": {"$anchor": "leaf", "type": "string"},
        },
    }

    validator = compile_schema(schema)

    assert validator.is_valid({"tree": {"kids": [{"kids": []}]}, "leaf": "x", "self": {"leaf": "y"}})
    assert not validator.is_valid({"tree": {"kids": [{"kids": 1}]}})
    assert not validator.is_valid({"self": {"leaf": 1}})


def test_what_looks_like_a_reference_in_data_is_data() -> None:
    compile_schema({"type": "object", "default": {"$ref": "http://x/"}, "examples": [{"$id": "x"}]})


@pytest.mark.parametrize("name", ["default", "const", "enum", "examples", "$defs", "definitions", "properties", "$id"])
def test_a_parameter_may_be_named_like_a_keyword_and_hides_nothing(name: str) -> None:
    compile_schema({"type": "object", "properties": {name: {"type": "string"}}})
    assert "leads out of the schema" in refusal(properties={name: {"$ref": "http://x/"}})
    doubling = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    assert "multiply" in refusal(**{"properties": {name: {"$ref": "#/$defs/d0"}}, "$defs": doubling | {"d40": {}}})


def test_a_reference_to_nothing_is_a_problem() -> None:
    assert "does not exist" in refusal(properties={"a": {"$ref": "#/$defs/none"}})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"not": {"$ref": "#"}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    ],
)
def test_circles_end(schema: dict[str, Any]) -> None:
    compile_schema({"type": "object"} | schema).is_valid({"a": 1})


@pytest.mark.parametrize("way", ["#/$defs/d{}", "#/%24defs/d{}", "#%2F$defs%2Fd{}", "#a{}", "#%61{}"])
def test_references_cannot_multiply_without_end(way: str) -> None:
    doubling = {
        f"d{n}": {"$anchor": f"a{n}", "allOf": [{"$ref": way.format(n + 1)}, {"$ref": way.format(n + 1)}]}
        for n in range(40)
    }

    assert "multiply" in refusal(**{"$ref": way.format(0), "$defs": doubling | {"d40": {"$anchor": "a40"}}})


def test_an_anchor_stands_in_one_place() -> None:
    assert "two places" in refusal(**{"$defs": {"a": {"$anchor": "x"}, "b": {"$dynamicAnchor": "x"}}})
    compile_schema({"type": "object", "$defs": {"a": {"$anchor": "x", "$dynamicAnchor": "x"}}})


def test_references_cannot_chain_until_the_stack_overflows() -> None:
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}", "unevaluatedProperties": False} for n in range(5000)}

    assert "chain" in refusal(**{"$ref": "#/$defs/d0", "$defs": chain | {"d5000": {}}})


def test_a_broken_pattern_is_named() -> None:
    assert refusal(properties={"a": {"pattern": "("}}).startswith("properties.a.pattern: ")
