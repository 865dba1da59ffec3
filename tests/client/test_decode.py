from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from rapkit.client.decode import WHOLE, decode, parse_json
from rapkit.errors import InvalidAnswer


@dataclass(frozen=True)
class Circle:
    radius: float
    kind: Literal["circle"] = "circle"


@dataclass(frozen=True)
class Square:
    side: int
    kind: Literal["square"] = "square"


@dataclass(frozen=True)
class OtherShape:
    kind: str
    data: dict[str, Any] = field(metadata={WHOLE: True})


@dataclass(frozen=True)
class Drawing:
    name: str
    shapes: list[Circle | Square | OtherShape]
    colour: Literal["red", "blue"] | str
    size: int | None = None
    finished: bool = False
    labels: dict[str, str] = field(default_factory=dict)
    parts: "list[Drawing]" = field(default_factory=list)


DRAWING: dict[str, Any] = {
    "name": "house",
    "shapes": [{"kind": "circle", "radius": 1}, {"kind": "square", "side": 2}, {"kind": "blob", "n": 1}],
    "colour": "red",
    "size": None,
    "finished": True,
    "labels": {"a": "b"},
    "parts": [{"name": "door", "shapes": [], "colour": "red"}],
}


def test_an_object_becomes_what_its_hints_say() -> None:
    door = Drawing("door", [], "red")
    shapes: list[Circle | Square | OtherShape] = [Circle(1.0), Square(2), OtherShape("blob", {"kind": "blob", "n": 1})]

    assert decode(Drawing, DRAWING) == Drawing("house", shapes, "red", None, True, {"a": "b"}, [door])


def test_fields_and_values_of_a_newer_agent_do_no_harm() -> None:
    read = decode(Drawing, {**DRAWING, "weight": 5, "colour": "green"})

    assert read.colour == "green"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"name": 1}, "name is 1, not a string"),
        ({"name": None}, "name is null, not a string"),
        ({"shapes": {}}, "shapes is an object, not a list"),
        ({"shapes": [{"kind": "circle"}]}, r"shapes\[0\].radius is missing"),
        ({"shapes": [{"kind": "circle", "radius": "1"}]}, r"shapes\[0\].radius is a string, not a number"),
        ({"shapes": [7]}, r"shapes\[0\] is 7, not an object"),
        ({"size": 1.5}, "size is 1.5, not an integer"),
        ({"size": True}, "size is True, not an integer"),
        ({"finished": 0}, "finished is 0, not true or false"),
        ({"labels": {"a": []}}, "labels.a is a list, not a string"),
        ({"labels": []}, "labels is a list, not an object"),
        ({"parts": [{}]}, r"parts\[0\].colour is missing"),
    ],
)
def test_what_does_not_fit_is_named(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidAnswer, match=f"{told}\\.$"):
        decode(Drawing, {**DRAWING, **wrong})


@pytest.mark.parametrize("document", [None, [], "text", 5, {}])
def test_neither_does_something_else_altogether(document: object) -> None:
    with pytest.raises(InvalidAnswer):
        decode(Drawing, document)


@pytest.mark.parametrize("text", [b"", b"{", b"<html>", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_json_is_told_as_such(text: bytes) -> None:
    with pytest.raises(InvalidAnswer, match="not JSON"):
        parse_json(text)
