"""Read what is usable of another server's toolset document, and report what is wrong with the rest.

Our own documents are checked as a whole (`parse_toolset`). Those of others are used as far as possible: an unusable optional field is
ignored, an unusable tool is left out. Only a document without a usable endpoint or a usable tool is refused (DIS-4).
"""

import codecs
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails, from_json, to_json

from rapkit.errors import InvalidToolset
from rapkit.printable import printable
from rapkit.protocol.problems import clip, details_of
from rapkit.protocol.toolset import (
    MAX_LINES,
    MAX_TOOLS,
    ToolsetDocument,
    problem_line,
    problem_lines,
    tool_names,
    validate_toolset,
)
from rapkit.protocol.value_count import MAX_VALUES, has_more_values

UNNAMED = "unnamed"
"""What a toolset is called that has no usable name."""

_OPTIONAL = frozenset(("description", "needsMigration", "version"))
_OPTIONAL_IN_TOOL = frozenset(("annotations", "displayScript"))


@dataclass(frozen=True, slots=True)
class UnusableTool:
    """A tool that is left out, by its name or, without one, its place in the list; and what is wrong with it."""

    name: str
    problem: str


@dataclass(frozen=True, slots=True)
class UsableToolset:
    """The usable part of a toolset document; `ignored` has one line for each field that was left out."""

    document: ToolsetDocument
    ignored: tuple[str, ...] = ()
    unusable: tuple[UnusableTool, ...] = ()


def read_toolset(body: bytes, most_values: int = MAX_VALUES) -> UsableToolset:
    """The usable part of a discovery answer; `InvalidToolset` lists what is wrong if there is none.

    A document of too many values is not parsed. Of too many tools the first ones are used.
    """
    body = body.removeprefix(codecs.BOM_UTF8)
    if has_more_values(body, most_values):
        raise InvalidToolset(f"toolset: has more than {most_values} JSON values")
    body, left_out = _without_tools_past_the_limit(body)
    try:
        usable = UsableToolset(validate_toolset(body))
    except ValidationError as error:
        usable = _Reader(body, error).read()
    return replace(usable, unusable=usable.unusable + left_out)


def _without_tools_past_the_limit(body: bytes) -> tuple[bytes, tuple[UnusableTool, ...]]:
    """The document with as many tools as are used. To validate the others first would take seconds if they are all wrong."""
    try:
        document = from_json(body)
    except ValueError:
        return body, ()  # which validation explains
    tools = document.get("tools") if isinstance(document, dict) else None
    if not isinstance(tools, list) or len(tools) <= MAX_TOOLS:
        return body, ()
    problem = f"toolset: tools: there are {len(tools)}, of which the first {MAX_TOOLS} are used"
    return to_json({**document, "tools": tools[:MAX_TOOLS]}), (UnusableTool(f"tools[{MAX_TOOLS}:]", problem),)


class _Reader:
    """Removes from a document what its validation found wrong."""

    def __init__(self, body: bytes, error: ValidationError) -> None:
        self._body = body
        self._error = error
        self._details = details_of(error)
        self._ignored: list[str] = []
        self._unusable: list[UnusableTool] = []

    def read(self) -> UsableToolset:
        if any(self._is_fatal(detail) for detail in self._details):
            raise self._invalid()
        document = from_json(self._body)
        self._names = tool_names(self._body)
        self._clean_toolset(document)
        document["tools"] = self._usable_tools(document["tools"])
        if not document["tools"]:
            raise self._invalid()
        usable = validate_toolset(to_json(document))
        return UsableToolset(usable, self._reported(), tuple(self._unusable))

    def _reported(self) -> tuple[str, ...]:
        lines, more = self._ignored[:MAX_LINES], len(self._ignored) - MAX_LINES
        return (*lines, f"and {more} fields more") if more > 0 else tuple(lines)

    def _invalid(self) -> InvalidToolset:
        return InvalidToolset("\n".join(problem_lines(self._body, self._error)))

    def _is_fatal(self, detail: ErrorDetails) -> bool:
        match detail["loc"]:
            case ("tools", int(), *_) | ("name", *_):
                return False
            case (str(field), *_) if field in _OPTIONAL:
                return False
        return detail["type"] != "repeated_names"

    def _clean_toolset(self, document: dict[str, Any]) -> None:
        for detail in self._details:
            match detail["loc"]:
                case ("name", *_):
                    document["name"] = UNNAMED
                case (str(field), *_) if field in _OPTIONAL:
                    document.pop(field, None)
                case _:
                    continue
            self._ignored.append(self._line(detail))

    def _usable_tools(self, tools: Sequence[Any]) -> list[Any]:
        wrong: dict[int, list[ErrorDetails]] = defaultdict(list)
        for detail in self._details:
            match detail["loc"]:
                case ("tools", int(index), *_):
                    wrong[index].append(detail)
        usable = [tool for index, tool in enumerate(tools) if self._is_usable(index, tool, wrong[index])]
        times = Counter(tool["name"] for tool in usable)
        for name, number in times.items():
            if number > 1:
                self._unusable.append(UnusableTool(name, f"tool {name!r}: name: used by {number} tools"))
        return [tool for tool in usable if times[tool["name"]] == 1]

    def _is_usable(self, index: int, tool: Any, wrong: Sequence[ErrorDetails]) -> bool:
        essential = [detail for detail in wrong if not _is_optional(detail)]
        if essential:
            problem = "; ".join(map(self._line, essential))
            name = printable(clip(self._names[index] or f"tools[{index}]"))
            self._unusable.append(UnusableTool(name, problem))
            return False
        for detail in wrong:
            self._ignored.append(self._line(detail))
            match detail["loc"][2:]:
                case ("annotations", str(key), *_):
                    tool["annotations"].pop(key, None)
                case (str(field), *_):
                    tool.pop(field, None)
        return True

    def _line(self, detail: ErrorDetails) -> str:
        return problem_line(detail, self._names)


def _is_optional(detail: ErrorDetails) -> bool:
    inside = detail["loc"][2:]
    return bool(inside) and inside[0] in _OPTIONAL_IN_TOOL
