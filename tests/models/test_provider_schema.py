"""Schemas strangers wrote, as they are sent."""

import json
from typing import Any

import pytest

from rapkit.models.provider_schema import provider_schema
from rapkit.models.tool_names import provider_argument
from rapkit.protocol.input_schema import compile_schema

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def argument(schema: dict[str, Any], draft: str) -> Any:
    """How the schema of an argument is shown."""
    whole = {"$schema": draft, "type": "object", "properties": {"a": schema}}
    compile_schema(whole)
    shown = provider_schema(whole)
    compile_schema(shown.schema)
    assert "$schema" not in shown.schema
    assert shown.remark == ""
    return shown.schema["properties"]["a"]


@pytest.mark.parametrize(
    ("old", "new", "draft"),
    [
        ({"minimum": 3, "exclusiveMinimum": True}, {"exclusiveMinimum": 3}, DRAFT_4),
        ({"maximum": 3, "exclusiveMaximum": True}, {"exclusiveMaximum": 3}, DRAFT_4),
        ({"minimum": 3, "exclusiveMinimum": False}, {"minimum": 3}, DRAFT_4),
        ({"exclusiveMinimum": 3}, {"exclusiveMinimum": 3}, DRAFT_7),
        (
            {"items": [{"type": "string"}], "additionalItems": {"type": "null"}},
            {"prefixItems": [{"type": "string"}], "items": {"type": "null"}},
            DRAFT_7,
        ),
        ({"type": "array"}, {"type": "array", "items": {}}, DRAFT_7),
        ({"type": ["array", "null"]}, {"type": ["array", "null"], "items": {}}, DRAFT_7),
        ({"default": {"exclusiveMinimum": True}}, {"default": {"exclusiveMinimum": True}}, DRAFT_7),
        ({"not": {"type": "array"}}, {"not": {"type": "array", "items": {}}}, DRAFT_7),
    ],
)
def test_older_drafts_are_written_in_the_newest(old: dict[str, Any], new: dict[str, Any], draft: str) -> None:
    assert argument(old, draft) == new


def test_odd_names_are_shown_as_others_at_every_depth_and_mapped_back() -> None:
    schema = {
        "type": "object",
        "properties": {
            "user name": {"type": "string"},
            "list": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
            "$filter": {"type": "object", "properties": {"größe": {"type": "integer"}}, "required": ["größe"]},
            "same": {"$ref": "#/properties/$filter"},
            "required": {"type": "string"},
        },
        "required": ["user name", "list"],
        "dependentRequired": {"user name": ["$filter"]},
        "$defs": {"Node": {"type": "object", "properties": {"x" * 65: {"type": "string"}, "fine.name": {}}}},
    }
    shown = provider_schema(schema)
    compile_schema(shown.schema)
    user, filter_, size, long = map(provider_argument, ("user name", "$filter", "größe", "x" * 65))
    assert [*shown.schema["properties"]] == [user, "list", filter_, "same", "required"]
    assert shown.schema["required"] == [user, "list"]
    assert shown.schema["dependentRequired"] == {user: [filter_]}
    assert shown.schema["properties"][filter_]["required"] == [size]
    assert shown.schema["properties"]["same"] == {"$ref": f"#/properties/{filter_}"}
    assert [*shown.schema["$defs"]["Node"]["properties"]] == [long, "fine.name"]
    given = {user: "Ada", "list": [{long: "a", "fine.name": 1}], filter_: {size: 7}}
    real = {"user name": "Ada", "list": [{"x" * 65: "a", "fine.name": 1}], "$filter": {"größe": 7}}
    assert shown.real(given) == real
    assert shown.real(real) == real
    assert shown.shown(real) == given


def test_a_schema_that_cannot_be_written_anew_is_described_in_words() -> None:
    schema = {
        "$schema": DRAFT_7,
        "type": "object",
        "properties": {"a": {"items": [{"type": "string"}]}, "b": {"$ref": "#/properties/a/items/0"}},
    }
    compile_schema(schema)
    shown = provider_schema(schema)
    assert shown.schema == {"type": "object", "properties": {}}
    assert json.dumps(schema) in shown.remark


def test_a_plain_schema_is_sent_as_it_is() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    assert provider_schema(schema).schema == schema
    assert provider_schema({"type": "object"}).schema == {"type": "object", "properties": {}}
