"""Regular expressions that are short to write and would compile to megabytes."""

import json
from typing import Any

import pytest

from rapkit.protocol import patterns, read_toolset
from rapkit.protocol.input_schema import BadSchema, compile_schema


def schema(*each: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {f"p{n}": {"type": "string", "pattern": pattern} for n, pattern in enumerate(each)},
    }


def new_mails(number: int) -> list[str]:
    return [rf"^\p{{L}}{{1,40}}{n}$" for n in range(number)]


def tool(name: str, *each: str) -> dict[str, Any]:
    return {"name": name, "description": "It is.", "inputSchema": schema(*each)}


def document(*tools: dict[str, Any]) -> bytes:
    return json.dumps({"name": "t", "endpoint": "http://127.0.0.1:1/invoke", "tools": tools}).encode()


@pytest.mark.parametrize(
    "bomb",
    [
        schema(*new_mails(600)),
        {"type": "object", "patternProperties": {each: {} for each in new_mails(600)}},
        {"type": "object", "propertyNames": {"anyOf": [{"pattern": each} for each in new_mails(600)]}},
        {"type": "object", "$defs": schema(*new_mails(600)), "properties": {"a": {"$ref": "#/$defs/properties/p1"}}},
    ],
)
def test_patterns_that_are_too_large_together_are_refused(bomb: dict[str, Any]) -> None:
    """600 of them took 1.2 GB and 7 s."""
    with pytest.raises(BadSchema, match=r"the patterns of the schema .* more than 16,384 KiB"):
        compile_schema(bomb)


def test_pieces_between_look_arounds_count_each() -> None:
    """One of these took 10 s by itself."""
    with pytest.raises(BadSchema, match=r"p0.pattern: .*"):
        compile_schema(schema("".join(rf"(?=\p{{L}}{{{n}}})" for n in range(1, 400))))


def test_many_patterns_that_do_not_compile_are_not_all_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    compiled_size = patterns._compiled_size

    def try_one(pattern: str) -> int | None:
        tried.append(pattern)
        return compiled_size(pattern)

    monkeypatch.setattr(patterns, "_compiled_size", try_one)

    with pytest.raises(BadSchema):
        compile_schema(schema(*[rf"\p{{L}}{{1,{100_000 + n}}}" for n in range(1000)]))

    assert len(tried) == 2


def test_a_pattern_has_a_bounded_length() -> None:
    with pytest.raises(BadSchema, match="a pattern has more than 20,000 characters"):
        compile_schema(schema("a" * 20_001))


@pytest.mark.parametrize(
    "usual",
    [
        [r"^.{1,2048}$"],
        [r"^[\s\S]{0,5000}$"],
        [r"^(?=.*[a-z])(?=.*[A-Z])(?=.*\d)[A-Za-z\d@$!%*?&]{8,}$"],
        new_mails(1) * 600,
        [rf"^[0-9a-f]{{8}}-[0-9a-f]{{4}}-{n}$" for n in range(600)],
    ],
)
def test_what_tools_usually_have_is_far_below_the_bounds(usual: list[str]) -> None:
    compile_schema(schema(*usual))


def test_only_the_tool_whose_patterns_are_too_large_is_withheld() -> None:
    toolset = read_toolset(document(tool("good", "^a+$"), tool("bad", *new_mails(600)), tool("fine", "^b+$")))

    assert [each.name for each in toolset.document.tools] == ["good", "fine"]
    (bad,) = toolset.unusable
    assert bad.name == "bad"
    assert "the patterns of the schema do not compile, or to more than 16,384 KiB" in bad.problem


def test_the_tools_of_a_toolset_share_a_bound() -> None:
    large = [tool(f"t{n}", *[rf"^\p{{L}}{{1,40}}{n}{m}$" for m in range(4)]) for n in range(10)]

    toolset = read_toolset(document(*large))

    assert [each.name for each in toolset.document.tools] == [f"t{n}" for n in range(4)]
    assert all("the patterns of the toolset" in each.problem for each in toolset.unusable)


def test_past_the_bound_of_a_toolset_tools_without_patterns_are_used_and_patterns_are_not_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[str] = []
    compiled_size = patterns._compiled_size

    def noted(pattern: str) -> int | None:
        tried.append(pattern)
        return compiled_size(pattern)

    monkeypatch.setattr(patterns, "_compiled_size", noted)
    large = [tool(f"t{n}", rf"^\p{{L}}{{1,40}}{n}$") for n in range(30)]

    toolset = read_toolset(document(*large, tool("plain")))

    assert toolset.document.tools[-1].name == "plain"
    assert len(toolset.unusable) == 14
    assert len(set(tried)) == 17
