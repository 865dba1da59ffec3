"""Templates with placeholders: `{text}`, `{match[1]}`, `{calls[watch]}`."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rapkit.errors import ConfigError

PLAIN = ("text", "answer", "answers", "call_id", "count")
KEYED = ("match", "calls")

_PLACE = re.compile(r"\{(?P<name>\w+)(?:\[(?P<key>[\w.-]+)\])?(?P<json>:json)?\}")
_DOUBLED = re.compile(r"\{(?P<words>\{\w+[^{}]*\})\}")
_DOUBLED_OR_PLACE = re.compile(rf"{_DOUBLED.pattern}|{_PLACE.pattern}")


def check(value: Any) -> None:
    """Raise ConfigError for a place that nothing can fill; braces of other kinds, as in JSON, are just text."""
    for text in _texts(value):
        for place in _PLACE.finditer(_DOUBLED.sub("", text)):
            if place["name"] in PLAIN and place["key"] is None:
                continue
            if place["name"] in KEYED and place["key"] is not None:
                continue
            known = ", ".join([*(f"{{{name}}}" for name in PLAIN), "{match[1]}", "{calls[tool]}"])
            raise ConfigError(
                f"{place[0]} cannot be filled in. Use {known}, or {{{place[0]}}} for the words themselves."
            )


def fill(value: Any, places: Mapping[str, Any]) -> Any:
    """The value with every place in its texts filled in. What there is nothing for becomes empty."""
    if isinstance(value, str):
        whole = _PLACE.fullmatch(value)
        return _as_json(_filled(whole, places)) if whole and whole["json"] else fill_text(value, places)
    if isinstance(value, list):
        return [fill(item, places) for item in value]
    if isinstance(value, dict):
        return {key: fill(item, places) for key, item in value.items()}
    return value


def fill_text(text: str, places: Mapping[str, Any]) -> str:
    """The text with every place filled in; `{{text}}` stands for `{text}` itself."""
    return _DOUBLED_OR_PLACE.sub(lambda found: found["words"] or _filled(found, places), text)


def _filled(place: re.Match[str], places: Mapping[str, Any]) -> str:
    value = places.get(place["name"], "")
    if place["key"] is not None and isinstance(value, Mapping):
        value = value.get(place["key"])
    return "" if value is None else str(value)


def _as_json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=str)
    except ValueError:
        return text


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
