"""The rules of a scripted model: what they match, and what they reply."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import PydanticCustomError

from rapkit.errors import ConfigError
from rapkit.kernel.completion import Usage
from rapkit.models import templates
from rapkit.models.transcript import TranscriptPiece
from rapkit.protocol.json_value import check_json

_SPOKEN = ("user", "task", "parent", "report")
_TRIGGERS = (*_SPOKEN, "answer", "event")
_WAYS = ("is", "contains", "regex")
_FIELDS = (
    *_TRIGGERS, "text", "once", "nth", "say", "calls", "usage", "stream", "delay", "fail", "times", "retryable", "retry_after",
)  # fmt: skip
_USAGE = ("input_tokens", "output_tokens", "cost")


@dataclass(frozen=True, slots=True)
class Pattern:
    """Which texts are meant."""

    way: str
    words: str

    def match(self, text: str) -> dict[str, str] | None:
        """What was found, by number and by name, or None."""
        if self.way == "regex":
            found = re.search(self.words, text)
            if not found:
                return None
            numbered = {str(index): group or "" for index, group in enumerate((found[0], *found.groups()))}
            return numbered | {name: group or "" for name, group in found.groupdict().items()}
        fits = text == self.words if self.way == "is" else self.words.casefold() in text.casefold()
        return {"0": self.words} if fits else None


@dataclass(frozen=True, slots=True)
class Failure:
    """A completion that fails, always or the first `times` times."""

    message: str
    times: int | None
    retryable: bool
    retry_after: float | None


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. Without a trigger it fits everything."""

    number: int
    trigger: str = ""
    tool: str = ""
    pattern: Pattern | None = None
    nth: int | None = None
    say: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    usage: Usage = field(default_factory=lambda: Usage(1))
    stream: bool = False
    delay: float = 0.0
    failure: Failure | None = None

    def match(self, piece: TranscriptPiece) -> dict[str, str] | None:
        """What the pattern found in the piece, or None if the rule is not about it. How often is not asked here."""
        if self.trigger and self.trigger != piece.kind:
            return None
        if self.tool and self.tool != piece.tool:
            return None
        return self.pattern.match(piece.text) if self.pattern else {"0": piece.text}

    @property
    def speaks(self) -> bool:
        """Whether it has a reply beside a failure."""
        return bool(self.say or self.calls)


def read_rules(value: Any, name: str, line: Callable[[int], int | None] = lambda number: None) -> tuple[Rule, ...]:
    """Read rules from what YAML or Python gives. ConfigError says which rule of which file is wrong, and what is possible."""
    rules = value.get("rules") if isinstance(value, dict) else value
    if isinstance(value, dict) and set(value) != {"rules"}:
        raise ConfigError(f'{name} has to be a list of rules, or "rules:" with such a list; it has: {_listed(value)}.')
    if not isinstance(rules, list) or not rules:
        raise ConfigError(f"{name} has no rules. Write a list of rules, such as: - user: hello")
    read: list[Rule] = []
    for number, rule in enumerate(rules, 1):
        try:
            read.append(_Reader(rule).read(number))
        except ConfigError as error:
            at = line(number)
            raise ConfigError(f"{name}, rule {number}{f' (line {at})' if at else ''}: {error}") from error
    return tuple(read)


class _Reader:
    def __init__(self, rule: Any) -> None:
        if not isinstance(rule, dict):
            raise ConfigError(f"A rule has named fields: {', '.join(_FIELDS)}.")
        if unknown := [key for key in rule if key not in _FIELDS]:
            raise ConfigError(f"There is no field {_listed(unknown)}. The fields are: {', '.join(_FIELDS)}.")
        self._rule: dict[str, Any] = rule

    def read(self, number: int) -> Rule:
        triggers = [key for key in _TRIGGERS if key in self._rule]
        if len(triggers) > 1:
            raise ConfigError(f"It has {' and '.join(triggers)}. A rule is about one of them.")
        trigger = triggers[0] if triggers else ""
        rule = Rule(
            number=number,
            trigger=trigger,
            tool=self._text(trigger) if trigger in ("answer", "event") else "",
            pattern=self._pattern(trigger),
            nth=self._nth(),
            say=self._template("say"),
            calls=self._calls(),
            usage=self._usage(),
            stream=self._flag("stream", default=False),
            delay=self._number("delay") or 0.0,
            failure=self._failure(),
        )
        if not rule.speaks and rule.failure is None:
            raise ConfigError("It does nothing. Give it say, calls or fail.")
        return rule

    def _pattern(self, trigger: str) -> Pattern | None:
        spoken = trigger in _SPOKEN
        if spoken and "text" in self._rule:
            raise ConfigError(f'"text" is for answer and event; what is said stands at "{trigger}".')
        key = trigger if spoken else "text"
        if key not in self._rule:
            return None
        value = self._rule[key]
        if isinstance(value, str):
            return Pattern("contains", value)
        if not isinstance(value, dict) or len(value) != 1 or not isinstance(next(iter(value.values())), str):
            raise self._wrong(key, f"a text to be contained, or one of {', '.join(_WAYS)} with a text")
        ((way, words),) = value.items()
        if way not in _WAYS:
            raise self._wrong(key, f"a text to be contained, or one of {', '.join(_WAYS)} with a text")
        if way == "regex":
            try:
                re.compile(words)
            except re.error as error:
                raise ConfigError(f'"{key}" is no regular expression: {error}.') from error
        return Pattern(way, words)

    def _nth(self) -> int | None:
        if "once" in self._rule and "nth" in self._rule:
            raise ConfigError("It has once and nth. once is the same as nth: 1.")
        if self._flag("once", default=False):
            return 1
        return self._count("nth")

    def _calls(self) -> tuple[tuple[str, dict[str, Any]], ...]:
        calls = self._rule.get("calls", [])
        if not isinstance(calls, list):
            raise self._wrong("calls", "a list, such as: - forecast: {city: Oslo}")
        return tuple(self._call(call) for call in calls)

    def _call(self, call: Any) -> tuple[str, dict[str, Any]]:
        if isinstance(call, str):
            return call, {}
        if not isinstance(call, dict) or len(call) != 1:
            raise self._wrong("calls", "a list of tools with their arguments, such as: - forecast: {city: Oslo}")
        ((tool, arguments),) = call.items()
        if not isinstance(tool, str) or not isinstance(arguments, dict | None):
            raise self._wrong("calls", f"a tool with named arguments, such as: - {tool}: {{city: Oslo}}")
        templates.check(arguments)
        try:
            check_json(arguments)
        except PydanticCustomError as error:
            raise ConfigError(
                f'"calls" has arguments for {tool}, and one {error.message()}. Put it in quotes.'
            ) from error
        return tool, arguments or {}

    def _usage(self) -> Usage:
        usage = self._rule.get("usage", {})
        if not isinstance(usage, dict) or not set(usage) <= set(_USAGE) or not all(map(_is_amount, usage.values())):
            raise self._wrong("usage", f"amounts for {', '.join(_USAGE)}")
        return Usage(1, **usage)

    def _failure(self) -> Failure | None:
        if "fail" not in self._rule:
            if lonely := [key for key in ("times", "retryable", "retry_after") if key in self._rule]:
                raise ConfigError(f'"{lonely[0]}" belongs to "fail", which is missing.')
            return None
        return Failure(
            self._text("fail"), self._count("times"), self._flag("retryable", default=True), self._number("retry_after")
        )

    def _template(self, key: str) -> str:
        text = self._text(key) if key in self._rule else ""
        templates.check(text)
        return text

    def _text(self, key: str) -> str:
        value = self._rule[key]
        if not isinstance(value, str) or not value:
            raise self._wrong(key, "a text")
        return value

    def _flag(self, key: str, *, default: bool) -> bool:
        value = self._rule.get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def _count(self, key: str) -> int | None:
        value = self._rule.get(key)
        if key in self._rule and (type(value) is not int or value < 1):
            raise self._wrong(key, "a number from 1")
        return value

    def _number(self, key: str) -> float | None:
        value = self._rule.get(key)
        if key in self._rule and not _is_amount(value):
            raise self._wrong(key, "a number of seconds")
        return value

    def _wrong(self, key: str, possible: str) -> ConfigError:
        return ConfigError(f'"{key}" is {self._rule[key]!r}. It has to be {possible}.')


def _is_amount(value: Any) -> bool:
    return type(value) in (int, float) and value >= 0


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(f'"{name}"' for name in names) or "nothing"
