"""Arguments from the words of a command line."""

from typing import Any

import pytest

from rapkit.cli.arguments import read_arguments
from rapkit.errors import ConfigError
from rapkit.protocol import ToolDefinition


def tool(**properties: object) -> ToolDefinition:
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return ToolDefinition.model_validate({"name": "forecast", "description": "Forecast.", "inputSchema": schema})


@pytest.mark.parametrize(
    ("schema", "word", "value"),
    [
        ({"type": "string"}, "x=3", "3"),
        ({"type": "string"}, "x=", ""),
        ({"type": "string"}, "x=a=b", "a=b"),
        ({"type": "string"}, "x=:=", ":="),
        ({"type": "integer"}, "x=3", 3),
        ({"type": "number"}, "x=1e3", 1000.0),
        ({"type": "boolean"}, "x=True", True),
        ({"type": "array"}, 'x=["a", 1]', ["a", 1]),
        ({"type": "object"}, 'x={"a": 1}', {"a": 1}),
        ({"type": ["integer", "null"]}, "x=3", 3),
        ({"type": ["integer", "null"]}, "x=null", None),
        ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, "x=false", False),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "x=3", "3"),
        ({"anyOf": [{"type": "integer"}, {"const": "y"}]}, "x=y", "y"),
        ({}, "x=3", "3"),
        ({}, "x:=3", 3),
        (True, "x=3", "3"),
        ({"type": "string"}, 'x:="3"', "3"),
    ],
)
def test_a_word_is_read_as_the_schema_says(schema: object, word: str, value: Any) -> None:
    read = read_arguments([word], tool(x=schema))["x"]

    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["days"], "'days' is not an argument. Write name=value, or name:=json."),
        (["=3"], "'=3' is not an argument. Write name=value, or name:=json."),
        ([":=3"], "':=3' is not an argument. Write name=value, or name:=json."),
        (["days=1", "days:=2"], "days is given twice. For a list write days:='[...]'."),
        (["days=two"], "days is an integer, and 'two' is not."),
        (
            ["days:=two"],
            "days:= is not followed by JSON: Expecting value: line 1 column 1 (char 0). For plain text write days=...",
        ),
        (["sunny=perhaps"], "sunny is true or false or null, and 'perhaps' is not."),
        (["sunny=3"], "sunny is true or false or null, and '3' is not."),
        (["tags=bug"], "tags is a JSON list, and 'bug' is not."),
        (["unit=K"], 'The arguments do not fit forecast:\n  unit: "K" is not possible; possible are "C", "F"'),
        (["storm=1"], "The arguments do not fit forecast:\n  storm: unknown; known are days, sunny, tags, unit"),
    ],
)
def test_a_word_that_does_not_fit(words: list[str], said: str) -> None:
    forecast = tool(
        days={"type": "integer"},
        sunny={"type": ["boolean", "null"]},
        tags={"type": "array"},
        unit={"type": "string", "enum": ["C", "F"]},
    )
    with pytest.raises(ConfigError) as error:
        read_arguments(words, forecast)

    assert str(error.value) == said
