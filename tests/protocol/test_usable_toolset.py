"""Toolsets as other servers write them: what can be used is used, and the rest is named (DIS-4)."""

import json
from typing import Any

import pytest

from rapkit.errors import InvalidToolset
from rapkit.protocol import ToolsetDocument, UsableToolset, parse_toolset, read_toolset
from rapkit.protocol.toolset import validate_toolset
from rapkit.protocol.usable_toolset import UNNAMED

NOTHING = {"type": "object", "additionalProperties": False}


def tool(**fields: Any) -> dict[str, Any]:
    return {"name": "forecast", "description": "Weather.", "inputSchema": NOTHING} | fields


def document(*tools: Any, **fields: Any) -> bytes:
    usual = {"name": "weather", "endpoint": "http://127.0.0.1:8001", "tools": list(tools)}
    return json.dumps({key: value for key, value in (usual | fields).items() if value is not ...}).encode()


def names(toolset: UsableToolset) -> list[str]:
    return [each.name for each in toolset.document.tools]


def test_a_valid_toolset_is_what_it_says() -> None:
    body = document(tool(annotations={"readOnly": True}), version="7", needsMigration=True)

    assert read_toolset(body) == UsableToolset(parse_toolset(body))


def test_a_byte_order_mark_is_no_reason_to_refuse_a_toolset() -> None:
    """Windows tools write one in front of files; static manifests are such files."""
    body = document(tool(annotations={"readOnly": "yes"}))

    assert read_toolset(b"\xef\xbb\xbf" + body) == read_toolset(body)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", 3),
        ("version", 1.5),
        ("version", ""),
        ("version", True),
        ("version", ["1"]),
        ("version", {"v": 1}),
        ("version", "x" * 600),
        ("version", "a\nb"),
        ("description", 5),
        ("description", {}),
        ("needsMigration", "yes"),
        ("needsMigration", 1),
    ],
)
def test_an_unusable_optional_field_of_a_toolset_is_ignored_and_named(field: str, value: Any) -> None:
    """Item 12"""
    toolset = read_toolset(document(tool(), **{field: value}))

    assert toolset.document == parse_toolset(document(tool()))
    (line,) = toolset.ignored
    assert line.startswith(f"toolset: {field}: ")


@pytest.mark.parametrize(
    ("fields", "kept", "named"),
    [
        ({"annotations": {"readOnly": "yes", "idempotent": True}}, {"annotations": {"idempotent": True}}, "readOnly"),
        ({"annotations": {"longRunning": 1, "x-a": [1]}}, {"annotations": {"x-a": [1]}}, "longRunning"),
        ({"annotations": {"requiresAuth": ["github"]}}, {"annotations": {}}, "requiresAuth"),
        ({"annotations": "readOnly"}, {}, "annotations"),
        ({"annotations": [True]}, {}, "annotations"),
        ({"displayScript": 5}, {}, "displayScript"),
        ({"displayScript": {"rhai": "1"}}, {}, "displayScript"),
    ],
)
def test_an_unusable_optional_field_of_a_tool_is_ignored_and_named(
    fields: dict[str, Any], kept: dict[str, Any], named: str
) -> None:
    """Item 12: everything else of the tool, and of its annotations, stays."""
    toolset = read_toolset(document(tool(**fields), tool(name="other")))

    assert toolset.document == parse_toolset(document(tool(**kept), tool(name="other")))
    (line,) = toolset.ignored
    assert line.startswith("tool 'forecast': ")
    assert named in line
    assert toolset.unusable == ()


@pytest.mark.parametrize(
    ("bad", "name"),
    [
        (tool(name="a b"), "a b"),
        (tool(name=""), ""),
        (tool(name=5), "tools[0]"),
        ({"description": "No name.", "inputSchema": NOTHING}, "tools[0]"),
        (tool(name="x", description=None), "x"),
        ({"name": "x", "description": "No schema."}, "x"),
        (tool(name="x", inputSchema={"type": "nonsense"}), "x"),
        (tool(name="x", inputSchema=[]), "x"),
        (tool(name="x", inputSchema={"type": "object", "default": float("nan")}), "x"),
        (5, "tools[0]"),
        (None, "tools[0]"),
    ],
)
def test_an_unusable_tool_is_left_out_and_named(bad: Any, name: str) -> None:
    """Item 12: only that tool."""
    toolset = read_toolset(document(bad, tool()))

    assert names(toolset) == ["forecast"]
    (left_out,) = toolset.unusable
    assert left_out.name == (name or "tools[0]")
    assert left_out.problem
    assert toolset.ignored == ()


def test_of_several_tools_with_one_name_none_is_used() -> None:
    toolset = read_toolset(document(tool(), tool(name="twice"), tool(name="twice", displayScript=5)))

    assert names(toolset) == ["forecast"]
    assert [(each.name, each.problem) for each in toolset.unusable] == [
        ("twice", "tool 'twice': name: used by 2 tools")
    ]


@pytest.mark.parametrize("name", ["", 5, None, "x" * 200, ...])
def test_a_toolset_without_a_usable_name_is_used(name: Any) -> None:
    toolset = read_toolset(document(tool(), name=name))

    assert toolset.document.name == UNNAMED
    assert len(toolset.ignored) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"null",
        document(tool(), endpoint="/invoke"),
        document(tool(), endpoint=...),
        document(tool(), endpoint=5),
        document(tools=[]),
        document(tools={}),
        document(tools=...),
        document(tool(name="a b"), 5, version=3),
        document(tool(), tool()),
    ],
)
def test_without_a_usable_endpoint_or_a_usable_tool_a_toolset_is_refused_and_everything_named(body: bytes) -> None:
    """DIS-4"""
    with pytest.raises(InvalidToolset) as refused:
        read_toolset(body)
    with pytest.raises(InvalidToolset) as by_the_book:
        parse_toolset(body)

    assert str(refused.value) == str(by_the_book.value)


def test_several_problems_at_once() -> None:
    body = json.loads(document(tool(annotations={"readOnly": 1}, displayScript=1), tool(name="a b"), version=3))

    toolset = read_toolset(json.dumps(body).encode())

    assert names(toolset) == ["forecast"]
    assert [line.split(":")[1].strip() for line in toolset.ignored] == [
        "version",
        "annotations.readOnly",
        "displayScript",
    ]
    assert [each.name for each in toolset.unusable] == ["a b"]


def test_a_toolset_of_very_many_values_is_not_parsed() -> None:
    with pytest.raises(InvalidToolset, match="has more than 100000 JSON values"):
        read_toolset(document(*[0] * 100_000))
    with pytest.raises(InvalidToolset, match="has more than 20 JSON values"):
        read_toolset(document(*[tool(name=f"t{n}") for n in range(5)]), 20)


def test_of_too_many_tools_the_first_are_used() -> None:
    toolset = read_toolset(document(*[tool(name=f"t{n}") for n in range(1002)]))

    assert names(toolset) == [f"t{n}" for n in range(1000)]
    (rest,) = toolset.unusable
    assert rest.problem == "toolset: tools: there are 1002, of which the first 1000 are used"


def test_mistakes_in_tools_past_the_limit_are_not_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """50,000 of them, 100 KB, took 1.2 s and 140 MB."""
    validated: list[int] = []

    def validate(body: bytes) -> ToolsetDocument:
        validated.append(len(body))
        return validate_toolset(body)

    monkeypatch.setattr("rapkit.protocol.usable_toolset.validate_toolset", validate)

    with pytest.raises(InvalidToolset):
        read_toolset(document(*[0] * 50_000))

    assert max(validated) < 3000


def test_of_very_many_ignored_fields_the_first_are_named() -> None:
    toolset = read_toolset(document(tool(annotations={f"x-{n}": float("nan") for n in range(300)})))

    assert names(toolset) == ["forecast"]
    assert len(toolset.ignored) == 101
    assert toolset.ignored[-1] == "and 200 fields more"
