import dataclasses
import datetime
import enum
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from rapkit.errors import ToolError
from rapkit.server.tools.content import Diff, Image
from rapkit.server.tools.output import BadResult, Output, error_text, to_output

PIXEL = Image(b"\x89PNG")
PIXEL_ON_THE_WIRE = {"data": "iVBORw==", "mediaType": "image/png"}
PATCH = Diff("a.py", "-1\n+2")


class Forecast(BaseModel):
    day: datetime.date
    high: float | None = None


@dataclasses.dataclass
class Point:
    x: int


class Color(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("sunny", "sunny"),
        ("", ""),
        (None, "Done."),
        (Color.RED, "red"),
        (42, "42"),
        (0.5, "0.5"),
        (True, "true"),
        ([], "[]"),
        (["a", 1], '["a",1]'),
        ({"a": {"b": None}}, '{"a":{"b":null}}'),
        ({"when": datetime.date(2026, 2, 3), "where": Path("x")}, '{"when":"2026-02-03","where":"x"}'),
        ({"gap": float("nan")}, '{"gap":null}'),
        ({3}, "[3]"),
        (Forecast(day=datetime.date(2026, 2, 3)), '{"day":"2026-02-03","high":null}'),
        ([Point(1), Point(2)], '[{"x":1},{"x":2}]'),
        ("gr\u00fc\u00df", "gr\u00fc\u00df"),
        ("half \ud800 a character", "half ? a character"),
    ],
)
def test_words_and_data_become_text(value: object, text: str) -> None:
    assert to_output(value) == Output(text)


def test_a_picture_is_for_the_model_and_for_people() -> None:
    assert to_output(PIXEL) == Output(
        text="[image/png, 4 bytes]",
        content=[{"type": "image", **PIXEL_ON_THE_WIRE}],
        display_as=[{"type": "image", "content": PIXEL_ON_THE_WIRE}],
    )


def test_a_diff_is_text_to_the_model_and_a_diff_to_people() -> None:
    assert to_output(PATCH) == Output(
        text="-1\n+2",
        display_as=[{"type": "diff", "content": {"path": "a.py", "patch": "-1\n+2"}}],
    )


def test_a_mixture_keeps_its_order() -> None:
    output = to_output(["Before", PIXEL, "", None, PATCH, {"done": True}])

    assert output.text == 'Before\n\n[image/png, 4 bytes]\n\n-1\n+2\n\n{"done":true}'
    assert output.content == [
        {"type": "text", "text": "Before"},
        {"type": "image", **PIXEL_ON_THE_WIRE},
        {"type": "text", "text": "-1\n+2"},
        {"type": "text", "text": '{"done":true}'},
    ]
    assert output.display_as is not None
    assert [segment["type"] for segment in output.display_as] == ["image", "diff"]


def test_a_picture_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "photo.JPG").write_bytes(b"x")
    (tmp_path / "photo").write_bytes(b"x")

    assert Image.from_path(tmp_path / "photo.JPG") == Image(b"x", "image/jpeg")
    assert Image.from_path(str(tmp_path / "photo"), "image/gif") == Image(b"x", "image/gif")
    with pytest.raises(ValueError, match="media_type="):
        Image.from_path(tmp_path / "photo")


def circle() -> list[Any]:
    around: list[Any] = []
    around.append(around)
    return around


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"\x00", "raw bytes.*an Image"),
        ({"a": b"\xff"}, "returned a dict that cannot be sent"),
        (threading.Lock(), "returned a lock that cannot be sent"),
        ({"a": [threading.Lock()]}, "returned a dict that cannot be sent"),
        ([PIXEL, threading.Lock()], "returned a lock that cannot be sent"),
        (circle(), "returned a list that cannot be sent"),
        ({"a": "\ud800"}, "returned a dict that cannot be sent"),
    ],
)
def test_what_cannot_be_sent_is_told_to_the_model(value: object, words: str) -> None:
    with pytest.raises(BadResult, match=words):
        to_output(value)


data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.dates() | st.just(PIXEL),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner) | st.just(PATCH),
    max_leaves=10,
)


@given(data)
def test_anything_becomes_a_sendable_output_or_a_bad_result(value: object) -> None:
    try:
        output = to_output(value)
    except BadResult:
        return
    json.dumps(dataclasses.asdict(output), allow_nan=False, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("exception", "text"),
    [
        (ToolError("No such city."), "Error: No such city."),
        (ToolError("Error: no such city."), "Error: no such city."),
        (ToolError(), "Error: the tool failed without saying why. Try again or tell the user."),
        (ToolError("half \ud800"), "Error: half ?"),
        (
            KeyError("/home/me/secret"),
            "Error: the tool failed unexpectedly (reference 3f2a). Try again or tell the user.",
        ),
    ],
)
def test_a_tool_error_speaks_for_itself_and_others_are_masked(exception: Exception, text: str) -> None:
    assert error_text(exception, "3f2a") == text


def test_a_result_has_as_many_parts_as_a_message_can_carry() -> None:
    assert len(to_output([PATCH] * 1001).display_as or ()) == 1000
    with pytest.raises(BadResult, match="returned 10001 parts, and a result can carry 10000"):
        to_output([PATCH] * 10_001)
