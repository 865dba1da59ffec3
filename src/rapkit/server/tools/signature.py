"""Turn a Python function into a tool: its name, description, input schema, and the binding of arguments.

Whatever would surprise the model or the author later is refused when the function is decorated, with a sentence that
says what to write instead.
"""

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, SchemaError, to_json
from typing_extensions import TypedDict  # pydantic takes the one in typing from Python 3.12 on

from rapkit.errors import ConfigError, ToolError
from rapkit.server.tools.docstring import read_docstring
from rapkit.server.tools.schema import Schema, admits_null, object_schema

_MOST_PROBLEMS_TOLD = 20
_MOST_PROBLEMS_LOOKED_AT = 1000
# Beyond this a float no longer tells neighbouring integers apart.
_EXACT = 2**53


class BadArguments(ToolError):
    """The model's arguments do not fit; the text says, argument by argument, what is wrong."""

    def __init__(self, tool: str, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        told = list(self.problems[:_MOST_PROBLEMS_TOLD])
        if len(self.problems) > len(told):
            told.append(f"and {len(self.problems) - len(told)} more")
        lines = "\n".join(["these arguments do not fit. Correct them and call again.", *told])
        super().__init__(f"{tool}: {lines}")


@dataclass(frozen=True)
class Signature:
    """What the wire needs to know about a function, and how to call it with what comes from the wire.

    `is_async` means that calling the function gives something to await (a decorator may be all that is async about it);
    `is_generator` that calling it gives something to iterate, asynchronously if `is_async` too.
    `parameters` are the names the model sees; pass `context_parameter`, if any, by keyword beside what `bind` returns.
    """

    function: Callable[..., Any] = field(repr=False)
    name: str
    description: str
    input_schema: Schema = field(repr=False)
    parameters: tuple[str, ...]
    context_parameter: str | None
    is_async: bool
    is_generator: bool
    _validate: Callable[..., dict[str, object]] = field(repr=False)
    _null_is_absent: frozenset[str] = field(repr=False)

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, object]:
        """Turn JSON arguments into keyword arguments, defaults included, or raise `BadArguments`.

        Types are taken as JSON has them: "3" is no integer, but a string in ISO format is a date. Null stands for
        "left out" wherever a parameter is optional and has no null among its own values.
        """
        if None in arguments.values() and self._null_is_absent:
            arguments = {k: v for k, v in arguments.items() if v is not None or k not in self._null_is_absent}
        try:
            # Through JSON and back, because only so does pydantic read dates, enums or sets and yet nothing loosely;
            # both ways are in Rust and take less than a microsecond.
            document = to_json(arguments, inf_nan_mode="null")
        except ValueError as error:  # nested too deeply, or text that is not Unicode
            raise BadArguments(self.name, [f"not JSON: {error}"]) from None
        try:
            return self._validate(document, strict=True)
        except ValidationError as error:
            failure = error
        # To JSON, 3.0 and 3 are the same number, to Python they are not.
        whole = to_json(_whole(arguments), inf_nan_mode="null")
        if whole != document:
            try:
                return self._validate(whole, strict=True)
            except ValidationError as error:
                failure = error
        raise BadArguments(self.name, list(self._problems(failure, arguments))) from None

    def _problems(self, failure: ValidationError, arguments: Mapping[str, Any]) -> Iterator[str]:
        if failure.error_count() > _MOST_PROBLEMS_LOOKED_AT:
            yield f"{failure.error_count()} things are wrong, too many to list"
            return
        by_place: dict[str, list[str]] = {}
        for error in failure.errors(include_url=False, include_context=False, include_input=False):
            by_place.setdefault(_place(error["loc"], arguments), []).append(self._problem(error))
        for place, problems in by_place.items():
            told = "; or: ".join(dict.fromkeys(problems))
            yield f"{place}: {told}" if place else told

    def _problem(self, error: ErrorDetails) -> str:
        if error["type"] == "missing":
            return "missing"
        if error["type"] == "extra_forbidden":
            if len(error["loc"]) > 1:
                return "unknown"
            return f"unknown; known are {', '.join(self.parameters)}" if self.parameters else "unknown; it takes none"
        return error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")


def read_signature(
    function: Callable[..., Any],
    *,
    context_type: type,
    name: str | None = None,
    description: str | None = None,
    supplied: Collection[str] = (),
) -> Signature:
    """Read what a function says about itself; raise `ConfigError` where that is not enough for a tool.

    A parameter annotated with `context_type`, and those named in `supplied`, are hidden from the model: the caller
    passes them.
    """
    layers = _layers(function)
    name = name or _name(layers)
    docs = read_docstring(next((inspect.getdoc(each) for each in layers if inspect.isroutine(each)), None))

    fields: dict[str, Any] = {}
    context_parameter = None
    for parameter in _parameters(function, name):
        if parameter.name in supplied:
            continue
        hint = _hint(parameter, name, layers[-1], context_type)
        if _is_context(hint, context_type):
            if context_parameter:
                raise ConfigError(f"tool {name!r} has two {context_type.__name__} parameters; keep one.")
            context_parameter = parameter.name
            continue
        fields[parameter.name] = _field(hint, parameter.default, docs.parameters.get(parameter.name))

    adapter, input_schema = _adapter(name, fields)
    properties: dict[str, Schema] = input_schema.get("properties", {})
    optional = properties.keys() - set(input_schema.get("required", ()))
    return Signature(
        function=function,
        name=name,
        # The wire wants a description. A name in words is a poor one, but it lets a first sketch run.
        description=description or docs.description or _in_words(name),
        input_schema=input_schema,
        parameters=tuple(properties),
        context_parameter=context_parameter,
        is_async=any(inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in layers),
        is_generator=any(inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each) for each in layers),
        _validate=adapter.validator.validate_json,
        _null_is_absent=frozenset(each for each in optional if not admits_null(properties[each])),
    )


def _layers(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    """The function and what is behind it: decorators made with `functools.wraps`, partials, methods, `__call__`."""
    if inspect.isclass(function) or not callable(function):
        raise ConfigError(f"{function!r} is not a function, so it cannot be a tool.")
    layers = [function]
    while True:
        inner = layers[-1]
        if isinstance(inner, functools.partial):
            layers.append(inner.func)
        elif inspect.ismethod(inner):
            layers.append(inner.__func__)
        elif hasattr(inner, "__wrapped__"):
            layers.append(inner.__wrapped__)
        elif inspect.isroutine(inner):
            return layers
        else:
            layers.append(type(inner).__call__)


def _name(layers: list[Callable[..., Any]]) -> str:
    function = next(each for each in layers if not isinstance(each, functools.partial))
    name = getattr(function, "__name__", "<unnamed>")
    if name.startswith("<"):
        raise ConfigError(f"{function!r} has no name the model could call it by; pass one: name='...'.")
    return str(name)


def _in_words(name: str) -> str:
    return name.replace("_", " ").replace("-", " ").strip().capitalize() + "."


def _parameters(function: Callable[..., Any], tool: str) -> Iterator[inspect.Parameter]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"tool {tool!r}: its parameters cannot be read: {error}.") from error
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ConfigError(
                f"tool {tool!r} takes {parameter}, which the model cannot know how to fill. "
                f"Name its parameters one by one, or take one 'options: dict[str, str]'."
            )
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise ConfigError(
                f"parameter {parameter.name!r} of tool {tool!r} is positional-only, but arguments come by name. "
                f"Remove the '/' from its signature."
            )
        yield parameter


def _hint(parameter: inspect.Parameter, tool: str, source: Callable[..., Any], context_type: type) -> Any:
    """The parameter's type, with annotations written as text looked up where the function was written."""
    if parameter.annotation is parameter.empty:
        raise ConfigError(_unannotated(parameter.name, tool, context_type))
    annotated = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    # Linters move an import that only annotations need under TYPE_CHECKING, so the context is found without it.
    names = {context_type.__name__: context_type} | getattr(source, "__globals__", {})
    try:
        hints = typing.get_type_hints(annotated, names, _enclosing_names(source), include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise ConfigError(
            f"parameter {parameter.name!r} of tool {tool!r}: its type {parameter.annotation!r} cannot be looked up: "
            f"{error}. Import it outside 'if TYPE_CHECKING'."
        ) from error
    return hints[parameter.name]


def _unannotated(parameter: str, tool: str, context_type: type) -> str:
    if parameter in ("self", "cls"):
        return (
            f"tool {tool!r} is a method of no object yet. Decorate a plain function, "
            f"or register the bound method: tools.tool(object.{tool})."
        )
    return (
        f"parameter {parameter!r} of tool {tool!r} has no type, so the model would have to guess. "
        f"Write '{parameter}: str' or what it is ('{parameter}: Any' for any JSON); "
        f"for the call's context, '{parameter}: {context_type.__name__}'."
    )


def _enclosing_names(source: Callable[..., Any]) -> dict[str, Any]:
    """Local names of the function in which this one is being defined, if it is: its types may be among them."""
    code = getattr(source, "__code__", None)
    frame = sys._getframe() if code else None
    while frame is not None:
        if code in frame.f_code.co_consts:
            return dict(frame.f_locals)
        frame = frame.f_back
    return {}


def _is_context(hint: Any, context_type: type) -> bool:
    origin = typing.get_origin(hint)
    if origin is Annotated:
        return _is_context(typing.get_args(hint)[0], context_type)
    if origin in (typing.Union, types.UnionType):
        members = [each for each in typing.get_args(hint) if each is not type(None)]
        return len(members) == 1 and _is_context(members[0], context_type)
    kind = origin or hint
    return isinstance(kind, type) and issubclass(kind, context_type)


def _field(hint: Any, default: Any, description: str | None) -> Any:
    """The parameter as pydantic sees the field of a TypedDict: type, constraints, default, description."""
    annotation = hint
    if isinstance(default, FieldInfo):
        annotation = Annotated[annotation, default]
    elif default is not inspect.Parameter.empty:
        annotation = Annotated[annotation, Field(default=default)]
    field = FieldInfo.from_annotation(annotation)
    if description and field.description is None:
        annotation = Annotated[annotation, Field(description=description)]
    return annotation if field.is_required() else NotRequired[annotation]


def _adapter(tool: str, fields: Mapping[str, Any]) -> tuple[TypeAdapter[dict[str, object]], Schema]:
    try:
        return _build(fields)
    except _UNUSABLE:
        # Pydantic names the type, not the parameter: look for the one that fails alone.
        for parameter, annotation in fields.items():
            try:
                _build({parameter: annotation})
            except _UNUSABLE as error:
                reason = str(error).splitlines()[0].split(". ")[0].rstrip(".")
                raise ConfigError(
                    f"parameter {parameter!r} of tool {tool!r} has a type that JSON cannot carry: {reason}. "
                    f"Take a str, a number, a list, a dict, a dataclass or a pydantic model."
                ) from error
        raise


_UNUSABLE = (PydanticUserError, SchemaError, TypeError, ValueError, NameError)


def _build(fields: Mapping[str, Any]) -> tuple[TypeAdapter[dict[str, object]], Schema]:
    make: Any = TypedDict  # as a function: the fields are known only now
    arguments = make("arguments", dict(fields))
    arguments.__pydantic_config__ = ConfigDict(extra="forbid")
    adapter: TypeAdapter[dict[str, object]] = TypeAdapter(arguments)
    return adapter, object_schema(adapter)


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return int(value)
    if isinstance(value, dict):
        return {key: _whole(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_whole(each) for each in value]
    return value


def _place(location: tuple[int | str, ...], arguments: Any) -> str:
    """Where a problem is, as an author would write it: `stops[2].city`.

    Pydantic's location also has the branches of unions it tried. Only what leads through the arguments counts, and
    one step beyond for what is missing there.
    """
    place = ""
    here = arguments
    for number, step in enumerate(location, start=1):
        is_last = number == len(location)
        if isinstance(here, dict) and (step in here or is_last):
            place += f".{step}" if place else str(step)
            here = here.get(step)
        elif isinstance(here, list) and isinstance(step, int):
            place += f"[{step}]"
            here = here[step] if step < len(here) else None
    return place
