import dataclasses
import datetime
import enum
import math
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import jsonschema_rs
import pytest
from pydantic import BaseModel, Field, TypeAdapter
from typing_extensions import TypedDict

from rapkit.server.tools.schema import Schema, admits_null, object_schema


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Stop(BaseModel):
    city: str
    nights: int | None = None


class Folder(BaseModel):
    title: str
    holds: "list[Folder]" = []
    stop: Stop | None = None


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


@dataclasses.dataclass
class Point:
    x: int
    y: float = math.inf


class Labels(TypedDict, total=False):
    title: str


STOP = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "nights": {"type": "integer"}},
    "required": ["city"],
}


def schema_of(hint: Any) -> Schema:
    """The schema of one required value called `it`."""
    arguments: Any = TypedDict("arguments", {"it": hint})
    schema = object_schema(TypeAdapter(arguments))
    jsonschema_rs.Draft202012Validator(schema)  # it is one
    return schema


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (Any, {}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Color, {"type": "string", "enum": ["red", "blue"]}),
        (datetime.date, {"type": "string", "format": "date"}),
        (datetime.datetime, {"type": "string", "format": "date-time"}),
        (datetime.timedelta, {"type": "string", "format": "duration"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (Path, {"type": "string", "format": "path"}),
        (Annotated[int, Field(ge=1, le=14)], {"type": "integer", "minimum": 1, "maximum": 14}),
        (Annotated[str, Field(min_length=2, pattern="^a")], {"type": "string", "minLength": 2, "pattern": "^a"}),
        (Annotated[list[str], Field(max_length=3)], {"type": "array", "items": {"type": "string"}, "maxItems": 3}),
        (
            tuple[int, str],
            {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
        ),
        (Stop, STOP),
        (list[Stop], {"type": "array", "items": STOP}),
        (Annotated[Stop, Field(description="Where to stay")], {**STOP, "description": "Where to stay"}),
        (
            Annotated[Cat | Dog, Field(discriminator="kind")],
            {
                "oneOf": [
                    {
                        "type": "object",
                        "properties": {"kind": {"type": "string", "const": name}},
                        "required": ["kind"],
                    }
                    for name in ("cat", "dog")
                ]
            },
        ),
        (
            Point,
            {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "number"}},
                "required": ["x"],
            },
        ),
    ],
)
def test_a_type_is_described_in_the_simplest_way(hint: Any, expected: Schema) -> None:
    schema = schema_of(hint)

    assert schema == {"type": "object", "properties": {"it": expected}, "required": ["it"]}


def test_a_property_called_title_is_not_a_title() -> None:
    it = schema_of(Labels)["properties"]["it"]

    assert it == {"type": "object", "properties": {"title": {"type": "string"}}}


def test_a_definition_that_contains_itself_is_the_only_one_kept() -> None:
    schema = schema_of(dict[str, Folder])

    assert schema["properties"]["it"]["additionalProperties"] == {"$ref": "#/$defs/Folder"}
    assert schema["$defs"] == {
        "Folder": {
            "type": "object",
            "properties": {
                "title": {"type": "string"},
                "holds": {"type": "array", "items": {"$ref": "#/$defs/Folder"}, "default": []},
                "stop": STOP,
            },
            "required": ["title"],
        }
    }


def test_a_decimal_is_asked_for_as_text_and_shows_its_bounds() -> None:
    it = schema_of(Annotated[Decimal, Field(ge=0)])["properties"]["it"]

    assert (it["type"], it["format"], it["minimum"]) == ("string", "decimal", 0)
    assert jsonschema_rs.is_valid(it, "19.99")
    assert not jsonschema_rs.is_valid(it, "much")


def test_no_parameters_are_described_as_the_protocol_wants() -> None:
    nothing: Any = TypedDict("nothing", {})

    assert object_schema(TypeAdapter(nothing)) == {"type": "object", "additionalProperties": False}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "null"},
        {"type": ["string", "null"]},
        {"type": "integer"},
        {"const": None},
        {"const": 1},
        {"enum": ["a", None]},
        {"enum": ["a"], "type": "string"},
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    ],
)
def test_admitting_null_is_what_a_validator_says_it_is(schema: Schema) -> None:
    assert admits_null(schema) is jsonschema_rs.is_valid(schema, None)
