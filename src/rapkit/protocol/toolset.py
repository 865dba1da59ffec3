"""The toolset document: how a tool server describes what it offers (DIS-3)."""

from collections import Counter
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError, from_json

from rapkit.errors import InvalidToolset
from rapkit.protocol.fields import ID_PATTERN, Flag, HttpUrl, Id, Text
from rapkit.protocol.input_schema import BadSchema, compile_schema
from rapkit.protocol.json_value import Json, JsonObject
from rapkit.protocol.message import Message
from rapkit.protocol.patterns import MAX_IN_TOOLSET, PatternBudget
from rapkit.protocol.problems import clip, details_of, path_of, problem_of

MAX_NAME = 128
MAX_LINES = 100

MAX_TOOLS = 1000
"""Tools of one toolset: several times what any model can be offered."""

TOOL_NAME_PATTERN = r"^[A-Za-z0-9_.-]+$"
"""No spaces or specials: what stands in a log line, a command line and, dots aside, in a model provider's tool list."""

ToolName = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME, pattern=TOOL_NAME_PATTERN)]
ToolsetName = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME, pattern=ID_PATTERN)]


def _is_usable(schema: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    try:
        compile_schema(schema, info.context)
    except BadSchema as error:
        raise PydanticCustomError("input_schema", "{problem}", {"problem": str(error)}) from None
    return schema


InputSchema = Annotated[JsonObject, AfterValidator(_is_usable)]


class Annotations(Message):
    """What a tool says about itself, for information only. Custom keys begin with `x-` and are kept as they are."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Json]

    requiresAuth: Text | None = Field(None, description="the provider whose authorisation it needs")  # noqa: N815
    readOnly: bool | None = Field(None, description="true if it changes nothing")  # noqa: N815
    destructive: bool | None = Field(None, description="true if it can destroy something")
    idempotent: bool | None = Field(None, description="true if calling it twice does no more than once")
    longRunning: bool | None = Field(None, description="true if an answer can take long")  # noqa: N815

    @model_validator(mode="before")
    @classmethod
    def _keep_custom(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {
            key: value
            for key, value in data.items()
            if key in cls.model_fields or (value is not None and isinstance(key, str) and key.startswith("x-"))
        }


class ToolDefinition(Message):
    """One tool. Its description and annotations are a stranger's text (RUN-9)."""

    name: ToolName = Field(description="1 to 128 characters of A-Z a-z 0-9 _ . -")
    description: Text = Field(description="what the tool does, for the model")
    inputSchema: InputSchema = Field(description="a JSON Schema of the arguments object")  # noqa: N815
    annotations: Annotations | None = Field(None, description="an object of what the tool says about itself")
    displayScript: Text | None = Field(None, description="a Rhai expression that renders a call for people")  # noqa: N815


class ToolsetDocument(Message):
    """What a server offers and where it is called."""

    name: ToolsetName = Field(description="1 to 128 characters")
    description: Text | None = Field(None, description="what the toolset is for")
    endpoint: HttpUrl = Field(description="where tools are invoked, an absolute http or https URL")
    tools: Annotated[tuple[ToolDefinition, ...], Field(strict=False, min_length=1, max_length=MAX_TOOLS)] = Field(
        description="the tools, at least one"
    )
    needsMigration: Flag = Field(False, description="whether the server takes part in session migration")  # noqa: N815
    version: Id | None = Field(None, description="a text that changes when the toolset does")

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        if repeated := _repeated([tool.name for tool in self.tools]):
            raise PydanticCustomError("repeated_names", "{problem}", {"problem": "\n".join(repeated)})
        return self


def parse_toolset(body: bytes) -> ToolsetDocument:
    """A toolset document that must be right as a whole; InvalidToolset lists everything that is wrong with it (DIS-3).

    `read_toolset` takes the usable part of one that others have written.
    """
    try:
        return validate_toolset(body)
    except ValidationError as error:
        raise InvalidToolset("\n".join(problem_lines(body, error))) from None


def validate_toolset(body: bytes) -> ToolsetDocument:
    """A toolset document; pydantic's ValidationError if anything in it is wrong, or its patterns are too large together."""
    return ToolsetDocument.model_validate_json(body, context=PatternBudget(MAX_IN_TOOLSET, "the toolset"))


def _repeated(names: list[str]) -> list[str]:
    return [
        f"tool {clip(repr(name))}: name: used by {times} tools" for name, times in Counter(names).items() if times > 1
    ]


def problem_lines(body: bytes, error: ValidationError) -> list[str]:
    """One line for each problem of a document that was refused, up to a hundred."""
    details = details_of(error)
    if details[0]["type"] == "json_invalid":
        return [f"toolset: {problem_of(details[0])}"]
    names = tool_names(body)
    # Repeated names are looked for in any case: pydantic gets to them only when nothing else is wrong.
    lines = [problem_line(detail, names) for detail in details if detail["type"] != "repeated_names"]
    lines += _repeated([name for name in names if name is not None])
    return lines if len(lines) <= MAX_LINES else [*lines[:MAX_LINES], f"and {len(lines) - MAX_LINES} problems more"]


def problem_line(detail: ErrorDetails, names: list[str | None]) -> str:
    """A problem in words, such as `tool 'forecast': description: missing; it is what the tool does, for the model`."""
    match detail["loc"]:
        case ("tools", int(index), *inside):
            name = names[index]
            subject = f"tools[{index}]" if name is None else f"tool {clip(repr(name))}"
            field = ToolDefinition.model_fields.get(str(inside[0])) if len(inside) == 1 else None
        case _ as inside:
            subject = "toolset"
            field = ToolsetDocument.model_fields.get(str(inside[0])) if len(inside) == 1 else None
    path = path_of(tuple(inside)).removeprefix(".")
    line = f"{subject}: {path}: {problem_of(detail)}" if path else f"{subject}: {problem_of(detail)}"
    wants_hint = field and field.description and detail["type"] != "input_schema"
    return f"{line}; it is {field.description}" if field and wants_hint else line


def tool_names(body: bytes) -> list[str | None]:
    """The names of a document's tools as far as they have any, by position."""
    document = from_json(body)
    tools = document.get("tools") if isinstance(document, dict) else None
    if not isinstance(tools, list):
        return []
    return [tool["name"] if isinstance(tool, dict) and isinstance(tool.get("name"), str) else None for tool in tools]
