"""Topic patterns such as "gh/{owner}/{repo}", and the topic that arguments make of one."""

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from rapkit.errors import ConfigError, ToolError


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """A topic with placeholders, at most one between two slashes: so different arguments never make the same topic."""

    text: str
    placeholders: tuple[str, ...]

    def fill(self, arguments: Mapping[str, object]) -> str:
        """The topic for these arguments; `ToolError` if one of them has no place in it."""
        return self.text.format_map({name: _value(name, arguments[name]) for name in self.placeholders})

    def fits(self, topic: str) -> bool:
        """Whether some arguments make this topic."""
        expression = "".join(
            re.escape(literal) + ("" if name is None else "[^/]+")
            for literal, name, _, _ in string.Formatter().parse(self.text)
        )
        return re.fullmatch(expression, topic, re.DOTALL) is not None


def read_pattern(text: str) -> TopicPattern:
    """Read a pattern; `ConfigError` if it is none."""
    placeholders: list[str] = []
    if not text:
        raise ConfigError("a topic is a text such as 'gh/{owner}/{repo}', not an empty one.")
    for segment in text.split("/"):
        names = _names(text, segment)
        if len(names) > 1:
            raise ConfigError(
                f"topic {text!r}: between two slashes there is one placeholder at most. Put a slash between {', '.join(names)}."
            )
        placeholders += names
    return TopicPattern(text, tuple(dict.fromkeys(placeholders)))


def _names(text: str, segment: str) -> list[str]:
    names = []
    try:
        for _, name, format_spec, conversion in string.Formatter().parse(segment):
            if name is None:
                continue
            if not name.isidentifier() or format_spec or conversion:
                raise ValueError(f"{name!r} is not the name of a parameter alone")
            names.append(name)
    except ValueError as error:
        raise ConfigError(f"topic {text!r}: {error}. Write placeholders as {{name}}.") from None
    return names


def _value(name: str, value: object) -> str:
    plain = value.value if isinstance(value, Enum) else value
    if not isinstance(plain, str | int) or isinstance(plain, bool):
        raise ToolError(f"{name} is part of a topic and has to be a text or a whole number.")
    filled = str(plain)
    if not filled or "/" in filled:
        raise ToolError(f"{name} is part of a topic: it cannot be empty, and there can be no '/' in it.")
    return filled
