import json
from typing import Any

import pytest
from pydantic import ValidationError

from rapkit.errors import InvalidToolset
from rapkit.protocol import Annotations, ToolDefinition, ToolsetDocument, dump, parse_toolset

NO_URL = "not an absolute http or https URL (it has a scheme and a host, no space, control character or backslash)"
NO_TYPE = "\"strin\" is not valid under any of the schemas listed in the 'anyOf' keyword"
NOTHING = {"type": "object", "additionalProperties": False}


def tool(**fields: Any) -> dict[str, Any]:
    return {"name": "forecast", "description": "Weather.", "inputSchema": NOTHING} | fields


def document(*tools: Any, **fields: Any) -> bytes:
    usual = {"name": "weather", "endpoint": "http://127.0.0.1:8001", "tools": list(tools or [tool()])}
    return json.dumps({key: value for key, value in (usual | fields).items() if value is not ...}).encode()


def problems(body: bytes) -> list[str]:
    with pytest.raises(InvalidToolset) as refused:
        parse_toolset(body)
    return str(refused.value).splitlines()


def test_a_toolset_is_read_as_sent() -> None:
    """DIS-3"""
    body = document(
        tool(
            annotations={"readOnly": True, "requiresAuth": "github", "x-acme-cost": {"eur": 3}, "cost": 3},
            displayScript='"for " + args.city',
        ),
        description="Forecasts",
        needsMigration=True,
        version="7",
        more=1,
    )

    assert parse_toolset(body) == ToolsetDocument(
        name="weather",
        description="Forecasts",
        endpoint="http://127.0.0.1:8001",
        tools=(
            ToolDefinition(
                name="forecast",
                description="Weather.",
                inputSchema=NOTHING,
                annotations=Annotations.model_validate(
                    {"readOnly": True, "requiresAuth": "github", "x-acme-cost": {"eur": 3}}
                ),
                displayScript='"for " + args.city',
            ),
        ),
        needsMigration=True,
        version="7",
    )


def test_nulls_and_an_empty_required_list_as_peers_send_them_are_fine() -> None:
    schema = {"type": "object", "properties": {"a": {"default": None}}, "required": []}
    nulls = document(
        tool(inputSchema=schema, annotations=None, displayScript=None),
        description=None,
        needsMigration=None,
        version=None,
    )

    toolset = parse_toolset(nulls)

    assert toolset == parse_toolset(document(tool(inputSchema=schema)))
    assert json.loads(dump(toolset)) == json.loads(document(tool(inputSchema=schema)))


def test_custom_annotations_survive_and_others_are_dropped() -> None:
    toolset = parse_toolset(
        document(tool(annotations={"x-acme-cost": 3, "x-null": None, "cost": 3, "idempotent": None}))
    )

    assert json.loads(dump(toolset))["tools"][0]["annotations"] == {"x-acme-cost": 3}


def test_every_problem_is_listed_with_its_tool_and_field() -> None:
    """DIS-4"""
    body = document(
        tool(name="a b"),
        tool(name="x", description=None, inputSchema={"type": "object", "properties": {"a": {"type": "strin"}}}),
        tool(name="x", annotations={"readOnly": "yes"}),
        {"description": "", "inputSchema": []},
        5,
        name="",
        endpoint="/invoke",
    )

    found = problems(body)

    assert [line.split(";")[0] for line in found] == [
        "toolset: name: empty",
        f"toolset: endpoint: {NO_URL}",
        "tool 'a b': name: has a character that is not allowed",
        "tool 'x': description: null, must be a string",
        f"tool 'x': inputSchema: properties.a.type: {NO_TYPE}",
        "tool 'x': annotations.readOnly: a string, must be true or false",
        "tools[3]: name: missing",
        "tools[3]: inputSchema: an array, must be an object",
        "tools[4]: a number, must be an object",
        "tool 'x': name: used by 2 tools",
    ]


def test_names_are_unique() -> None:
    """DIS-3"""
    assert problems(document(tool(), tool())) == ["tool 'forecast': name: used by 2 tools"]
    with pytest.raises(ValidationError, match="used by 2 tools"):
        ToolsetDocument(name="w", endpoint="http://a/", tools=parse_toolset(document()).tools * 2)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "é", "a\n", "x" * 129, "a;b", 5, None])
def test_a_tool_name_is_1_to_128_letters_digits_and_three_marks(name: Any) -> None:
    """DIS-3"""
    assert len(problems(document(tool(name=name)))) == 1
    parse_toolset(document(tool(name="A-z_0.9"), tool(name="x" * 128)))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"tools": []}, "toolset: tools: empty; it is the tools, at least one"),
        ({"tools": ...}, "toolset: tools: missing; it is the tools, at least one"),
        ({"tools": {}}, "toolset: tools: an object, must be an array; it is the tools, at least one"),
        ({"name": "x" * 129}, "toolset: name: longer than 128 characters; it is 1 to 128 characters"),
        (
            {"version": 7},
            "toolset: version: a number, must be a string; it is a text that changes when the toolset does",
        ),
    ],
)
def test_a_toolset_has_a_name_and_tools(fields: dict[str, Any], problem: str) -> None:
    """DIS-3"""
    assert problems(document(**fields)) == [problem]


@pytest.mark.parametrize("body", [b"", b"<html>", b"[", b"\xff", b"[" * 10_000])
def test_what_is_not_json_is_refused(body: bytes) -> None:
    assert problems(body)[0].startswith("toolset: not JSON in UTF-8: ")


def test_what_is_not_an_object_is_refused() -> None:
    assert problems(b"[]") == ["toolset: an array, must be an object"]
