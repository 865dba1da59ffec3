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


@pytest.mark.parametrize("hidden", [{"$ref": "http://127.0.0.1:9/x"}, {"$id": "http://x/y", "$ref": "#/$defs/a"}, {}])
def test_a_reference_leads_to_no_data_where_others_could_hide(hidden: dict[str, Any]) -> None:
    for keyword in ("const", "default", "examples", "enum"):
        data = {keyword: {"x": hidden} if keyword in ("const", "default") else [{"x": hidden}]}
        way = f"#/{keyword}/x" if keyword in ("const", "default") else f"#/{keyword}/0/x"
        assert "leads to what is no schema" in refusal(properties={"a": {"$ref": way}}, **data)


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
        {"if": {"anyOf": [{"$ref": "#"}]}},
        {"dependentSchemas": {"a": {"$dynamicRef": "#"}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"oneOf": [{"$ref": "#/$defs/a"}]}}},
    ],
)
def test_a_circle_goes_down_into_the_arguments(schema: dict[str, Any]) -> None:
    assert "in a circle" in refusal(**schema)
    compile_schema({"type": "object", "properties": {"a": {"items": {"$ref": "#"}}}, "allOf": [{"title": "x"}] * 2})


def test_two_references_to_one_definition_are_no_circle() -> None:
    twice = [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]

    compile_schema({"type": "object", "allOf": twice, "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {}}})


def test_an_id_of_draft_4_moves_no_references() -> None:
    draft_4 = {"$schema": "http://json-schema.org/draft-04/schema#"}
    moved = {"id": "http://a/b", "definitions": {"a": {}}, "allOf": [{"$ref": "#/definitions/a"}]}

    assert refusal(**draft_4, allOf=[moved]).startswith("id: allowed at the top only")
    assert "top only" in refusal(allOf=[draft_4 | moved])
    compile_schema({"type": "object", "id": "http://a/b", "properties": {"a": {"id": "#x"}}} | draft_4)


def test_a_parameter_may_be_named_id_and_an_extension_may_have_one() -> None:
    named = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}

    compile_schema(named | {"$schema": "http://json-schema.org/draft-04/schema#", "default": {"id": "a"}})
    compile_schema(named | {"x-origin": {"id": "urn:x"}})


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


def test_names_in_a_refusal_are_quoted_clipped_and_printable() -> None:
    hostile = "\x1b[2J\nok: \u202e\x9b"

    assert refusal(properties={hostile: {"pattern": "("}}).startswith(f"properties.{hostile!r}.pattern: ")
    assert len(refusal(properties={"x" * 5000: {"pattern": "(" * 5000}})) < 420
    for schema in ({"properties": {"a": {"type": hostile}}}, {"$ref": f"#/{hostile}"}, {"$schema": hostile}):
        assert refusal(**schema).isprintable()
