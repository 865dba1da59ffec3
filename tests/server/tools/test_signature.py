"""Annotations here are text (the import below), as in many users' files; `eager` has some that are not."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import jsonschema_rs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator

from rapkit.errors import ConfigError
from rapkit.server.tools.docstring import read_docstring
from rapkit.server.tools.signature import BadArguments, Signature, read_signature

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterator

    from nowhere import Context, Missing  # type: ignore[import-not-found]


class TheContext:
    """Stands for what a server passes to handlers."""


TheContext.__name__ = "Context"


class Color(enum.Enum):
    RED = "red"


class Stop(BaseModel):
    city: str
    nights: int = 1

    @field_validator("city")
    @classmethod
    def is_known(cls, city: str) -> str:
        if city == "Atlantis":
            raise ValueError("Atlantis has sunk")
        return city


@dataclasses.dataclass
class Point:
    x: int
    y: int


def read(function: Callable[..., Any], **options: Any) -> Signature:
    return read_signature(function, context_type=TheContext, **options)


async def forecast(city: str, days: Annotated[int, Field(ge=1, le=14)] = 3) -> str:
    """Forecast for a city.

    The nearest station counts.

    Args:
        city: Where.
        days: How far ahead.

    Returns:
        Words.
    """
    return f"{city} {days}"


def test_a_function_describes_itself() -> None:
    tool = read(forecast)

    assert tool.name == "forecast"
    assert tool.description == "Forecast for a city.\n\nThe nearest station counts."
    assert tool.input_schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where."},
            "days": {
                "type": "integer",
                "minimum": 1,
                "maximum": 14,
                "default": 3,
                "description": "How far ahead.",
            },
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    assert tool.parameters == ("city", "days")
    assert tool.context_parameter is None
    assert tool.is_async
    assert not tool.is_generator


def test_name_and_description_can_be_given() -> None:
    tool = read(forecast, name="weather", description="Weather.")

    assert (tool.name, tool.description) == ("weather", "Weather.")
    assert tool.input_schema["properties"]["city"]["description"] == "Where."


def test_without_a_docstring_the_name_describes_the_tool() -> None:
    def get_news() -> None: ...

    assert read(get_news).description == "Get news."


def test_a_function_without_parameters() -> None:
    def ping() -> None: ...

    tool = read(ping)

    assert tool.input_schema == {"type": "object", "additionalProperties": False}
    assert tool.bind({}) == {}
    with pytest.raises(BadArguments, match="x: unknown; it takes none"):
        tool.bind({"x": 1})


# Descriptions


@pytest.mark.parametrize(
    "text",
    [
        "Say.\n\nArgs:\n    word (str): What.\n",
        "Say.\n\nParameters\n----------\nword : str\n    What.\n",
        "Say.\n\n:param word: What.\n:returns: nothing\n",
    ],
    ids=["Google", "NumPy", "Sphinx"],
)
def test_docstrings_of_three_styles_are_understood(text: str) -> None:
    docs = read_docstring(text)

    assert docs.description == "Say."
    assert docs.parameters == {"word": "What."}


@given(
    st.text() | st.lists(st.sampled_from(["Args:", " x: y", ":param", "---", "Returns", "", "\t a (b"])).map("\n".join)
)
def test_any_text_can_be_a_docstring(text: str) -> None:
    docs = read_docstring(text)

    assert bool(docs.description) == bool(inspect.cleandoc(text).strip())


def test_a_field_describes_its_parameter_rather_than_the_docstring() -> None:
    def say(
        word: Annotated[str, Field(description="From the field.")], other: int = Field(2, description="Two.")
    ) -> None:
        """Say.

        Args:
            word: From the docstring.
            other: From the docstring.
        """

    properties = read(say).input_schema["properties"]

    assert properties["word"]["description"] == "From the field."
    assert properties["other"] == {"type": "integer", "default": 2, "description": "Two."}


# The context


def test_a_context_is_hidden_and_reported() -> None:
    # `Context` cannot be imported at run time here: linters like it that way.
    def stay(city: str, ctx: Context) -> None: ...
    def maybe(city: str, context: Context | None = None) -> None: ...
    def noted(city: str, *, c: Annotated[Context, "note"]) -> None: ...

    assert [read(each).context_parameter for each in (stay, maybe, noted)] == ["ctx", "context", "c"]
    assert {read(each).parameters for each in (stay, maybe, noted)} == {("city",)}


def test_what_the_caller_supplies_is_hidden_too() -> None:
    def opened(owner: str, payload: dict[str, Any]) -> None: ...

    assert read(opened, supplied=["payload"]).parameters == ("owner",)


# Many kinds of functions


def eager(function: Callable[..., Any], **annotations: Any) -> Callable[..., Any]:
    function.__annotations__.update(annotations)
    return function


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def awaited(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


class Weather:
    def forecast(self, city: str, days: int = 3) -> str:
        """Forecast for a city."""
        return f"{city} {days}"

    def __call__(self, city: str, days: int = 3) -> str:
        """Forecast for a city."""
        return f"{city} {days}"


def plain(city: str, days: int = 3) -> str:
    """Forecast for a city."""
    return f"{city} {days}"


@pytest.mark.parametrize(
    "function",
    [
        plain,
        traced(plain),
        traced(traced(forecast)),
        awaited(plain),
        Weather().forecast,
        functools.partial(plain, days=4),
        functools.partial(Weather().forecast, days=4),
        eager(lambda city, days=3: f"{city} {days}", city=str, days=int),
        Weather(),
    ],
)
async def test_many_kinds_of_functions_can_be_tools(function: Callable[..., Any]) -> None:
    tool = read(function, name="forecast")

    result = tool.function(**tool.bind({"city": "Oslo", "days": 5}))

    assert inspect.isawaitable(result) == tool.is_async
    assert (await result if tool.is_async else result) == "Oslo 5"
    assert tool.input_schema["properties"].keys() == {"city", "days"}
    assert tool.description.startswith("Forecast")


def test_the_name_comes_from_the_function_itself() -> None:
    assert read(functools.partial(plain, days=4)).name == "plain"
    assert read(Weather().forecast).name == "forecast"


def test_generators_are_told_apart() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    async def events() -> AsyncIterator[str]:
        yield ""

    kinds = [(read(each).is_async, read(each).is_generator) for each in (plain, forecast, numbers, events)]

    assert kinds == [(False, False), (True, False), (False, True), (True, True)]


def test_types_defined_beside_the_function_are_found() -> None:
    class Local(BaseModel):
        x: int

    def take(local: list[Local]) -> None: ...

    assert read(take).bind({"local": [{"x": 1}]}) == {"local": [Local(x=1)]}


# What cannot be a tool


def splat(*words: str) -> None: ...
def options(**words: str) -> None: ...
def positional(word: str, /) -> None: ...
def untyped(word) -> None: ...  # type: ignore[no-untyped-def]
def missing(word: Missing) -> None: ...
def arbitrary(number: int, word: Weather) -> None: ...
def uncallable(then: object) -> None: ...
def two(a: Context, b: Context) -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (splat, r"'splat' takes \*words.*one by one"),
        (options, r"'options' takes \*\*words.*one by one"),
        (positional, "'word' of tool 'positional' is positional-only.*Remove the '/'"),
        (untyped, "'word' of tool 'untyped' has no type.*'word: Context'"),
        (missing, "'word' of tool 'missing'.*cannot be looked up.*Missing"),
        (arbitrary, "'word' of tool 'arbitrary' has a type that JSON cannot carry.*Weather"),
        (eager(uncallable, then=Callable[[], None]), "'then' of tool 'uncallable' has a type that JSON cannot carry"),
        (two, "two Context parameters"),
        (Weather.forecast, r"register the bound method: tools.tool\(object.forecast\)"),
        (lambda: None, "pass one: name="),
        (Weather(), "pass one: name="),
        (Weather, "is not a function"),
        (max, "cannot be read"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_with_advice(function: Callable[..., Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read(function)


# Arguments


def test_json_becomes_python() -> None:
    def book(
        day: datetime.date,
        color: Color,
        stops: list[Stop],
        point: Point,
        tags: set[str],
        folder: Path = Path("here"),
    ) -> None: ...

    bound = read(book).bind(
        {"day": "2026-02-03", "color": "red", "stops": [{"city": "Oslo"}], "point": {"x": 1, "y": 2}, "tags": ["a"]}
    )

    assert bound == {
        "day": datetime.date(2026, 2, 3),
        "color": Color.RED,
        "stops": [Stop(city="Oslo")],
        "point": Point(1, 2),
        "tags": {"a"},
        "folder": Path("here"),
    }


def test_every_problem_is_told_in_words() -> None:
    with pytest.raises(BadArguments) as caught:
        read(forecast).bind({"days": 15, "dayz": 1})

    assert str(caught.value) == (
        "forecast: these arguments do not fit. Correct them and call again.\n"
        "city: missing\n"
        "days: Input should be less than or equal to 14\n"
        "dayz: unknown; known are city, days"
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"number": "3"}, "number: Input should be a valid integer"),
        ({"number": True}, "number: Input should be a valid integer"),
        ({"number": None}, "number: Input should be a valid integer"),
        ({"number": math.nan}, "number: Input should be a valid integer"),
        ({"number": 1, "either": []}, "either: Input should be a valid integer; or: Input should be a valid boolean"),
        ({"number": 1, "stops": [{"city": "Rome"}, {}]}, "stops[1].city: missing"),
        ({"number": 1, "stops": [{"city": "Atlantis"}]}, "stops[0].city: Atlantis has sunk"),
        ({"number": 1, "mode": "c"}, "mode: Input should be 'a' or 'b'"),
        ({"number": 1, "point": {"x": 1, "z": 1}}, "point.y: missing"),
    ],
)
def test_a_problem_says_where_it_is(arguments: dict[str, Any], problem: str) -> None:
    def take(
        number: int,
        either: int | bool = 1,
        stops: list[Stop] | None = None,
        mode: Literal["a", "b"] = "a",
        point: Point | None = None,
    ) -> None: ...

    with pytest.raises(BadArguments) as caught:
        read(take).bind(arguments)

    assert caught.value.problems[0] == problem


def test_a_flood_of_problems_is_cut_short() -> None:
    def total(numbers: list[int]) -> None: ...

    with pytest.raises(BadArguments, match=r"numbers\[19\].*\nand 980 more$"):
        read(total).bind({"numbers": ["x"] * 1000})


def test_null_means_left_out_where_a_parameter_is_optional() -> None:
    def take(a: int = 1, b: int | None = None, c: int | None = 3, d: list[int] | None = None) -> None: ...

    tool = read(take)

    assert tool.bind({"a": None, "b": None, "d": None}) == {"a": 1, "b": None, "c": 3, "d": None}
    # Here null is a value of its own, and the schema says so.
    assert tool.bind({"c": None})["c"] is None
    assert tool.input_schema["properties"] == {
        "a": {"type": "integer", "default": 1},
        "b": {"type": "integer"},
        "c": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": 3},
        "d": {"type": "array", "items": {"type": "integer"}},
    }


def test_a_whole_number_may_be_written_with_a_point() -> None:
    def take(a: int, b: list[int], c: float) -> None: ...

    assert read(take).bind({"a": 3.0, "b": [4.0], "c": 5.5}) == {"a": 3, "b": [4], "c": 5.5}
    with pytest.raises(BadArguments, match="a: "):
        read(take).bind({"a": 3.5, "b": [], "c": 1})


def test_defaults_are_the_authors_own_and_never_shared() -> None:
    unset = object()
    made: list[int] = Field(default_factory=list)

    def take(a: Any = unset, b: list[int] = [], c: list[int] = made, d: float = math.inf) -> None: ...  # noqa: B006

    tool = read(take)
    first = tool.bind({})
    first["b"].append(1)  # type: ignore[attr-defined]

    assert tool.bind({}) == {"a": unset, "b": [], "c": [], "d": math.inf}
    assert tool.input_schema["properties"]["a"] == {}
    assert tool.input_schema["properties"]["d"] == {"type": "number"}


def test_a_parameter_can_have_a_name_that_python_reserves() -> None:
    def mail(from_: Annotated[str, Field(alias="from")]) -> None: ...

    tool = read(mail)

    assert tool.parameters == ("from",)
    assert tool.bind({"from": "me"}) == {"from_": "me"}


# Properties

texts = st.text() | st.characters(categories=["Cs"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts | st.sampled_from(["red", "2026-02-03", 3.0]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)


def everything(
    number: int = 1,
    ratio: float = 0.5,
    day: datetime.date | None = None,
    color: Color = Color.RED,
    stops: list[Stop] | None = None,
    table: dict[str, Point] | None = None,
    either: int | str | list[bool] = 1,
    anything: Any = None,
) -> None: ...


EVERYTHING = read(everything)


@given(st.dictionaries(st.sampled_from(EVERYTHING.parameters) | texts, json_values, max_size=6))
@example({"anything": "\ud800"})
def test_any_json_is_bound_or_refused_as_bad_arguments(arguments: dict[str, Any]) -> None:
    try:
        bound = EVERYTHING.bind(arguments)
    except BadArguments:
        return
    assert bound.keys() == inspect.signature(everything).parameters.keys()


def test_arguments_nested_too_deeply_are_bad_arguments() -> None:
    nest: list[Any] = []
    for _ in range(500):
        nest = [nest]

    with pytest.raises(BadArguments, match="not JSON"):
        EVERYTHING.bind({"anything": nest})


HINTS = [
    int,
    float,
    str,
    bool,
    list[int],
    dict[str, int],
    int | None,
    int | str,
    list[float] | bool,
    Literal["a", 1],
    Color,
    Point,
    Annotated[int, Field(ge=0, lt=5)],
    Annotated[str, Field(min_length=1, max_length=2)],
    Annotated[list[int], Field(min_length=1)],
    tuple[int, str],
]
plausible = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 6)
    | st.sampled_from([0.5, 2.0, -1.0])
    | st.sampled_from(["", "a", "ab", "abc", "red", "1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "y", "a"]), inner, max_size=3),
    max_leaves=4,
)


@given(data=st.data(), hints=st.lists(st.sampled_from(HINTS), min_size=1, max_size=3), optional=st.integers(0, 3))
def test_what_the_schema_admits_is_what_the_function_gets(data: st.DataObject, hints: list[Any], optional: int) -> None:
    def tool(**arguments: Any) -> None: ...

    names = "abc"[: len(hints)]
    tool.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=default)
            for number, (name, hint) in enumerate(zip(names, hints, strict=True))
            for default in [None if number < optional else inspect.Parameter.empty]
        ]
    )
    signature = read(tool)
    arguments = data.draw(st.dictionaries(st.sampled_from("abcd"), plausible, max_size=4))

    try:
        signature.bind(arguments)
        bound = True
    except BadArguments:
        bound = False

    # The call takes null for "left out"; the schema does not invite it.
    optional_names = set(signature.parameters) - set(signature.input_schema.get("required", []))
    given_arguments = {name: each for name, each in arguments.items() if each is not None or name not in optional_names}
    assert bound == jsonschema_rs.is_valid(signature.input_schema, given_arguments)
