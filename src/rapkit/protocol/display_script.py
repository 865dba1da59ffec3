"""One line for people about a call, as its tool's `displayScript` says it.

A script is a Rhai expression over `args`. Those that only put a line together are understood: literals, `args.a.b`, `+`, comparisons,
`if … { } else { }`, parentheses and the unit `()`. They mean what they mean in Rhai: an argument that is missing is `()`, which adds
nothing to a string; values of different types are not equal, nor is one less than the other; of branches only one is evaluated.

Anything else cannot be rendered, and the call is shown in words instead. A script is a stranger's: it is read once from left to right,
so it has an end, it sees nothing but the arguments, and of what it says one line is left.
"""

import json
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from rapkit.printable import printable

LONGEST_LINE = 200
_LONGEST_SCRIPT = 4096
_LONGEST_STRING = 10_000
_LONGEST_VALUE = 60
_DEEPEST = 16
_LARGEST_INTEGER = 2**63 - 1

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<string>"(?:[^"\\\r\n]|\\.)*")
      | (?P<char>'(?:[^'\\\r\n]|\\.[0-9A-Fa-f]*)')
      | (?P<number>[0-9][0-9_]*(?:\.[0-9][0-9_]*)?(?:[eE][+-]?[0-9]+)?)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<sign>[=!<>]=|[<>+\-.(){}])
    )""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
_ESCAPED = {"\\": "\\", "t": "\t", "r": "\r", "n": "\n", '"': '"', "'": "'"}

_LEVELS: tuple[tuple[str, ...], ...] = (("==", "!="), ("<", "<=", ">", ">="), ("+",))
"""What binds weakest comes first; of equals, what stands first."""

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def render(script: str, arguments: Mapping[str, Any]) -> str | None:
    """What a script makes of a call's arguments: one line, never empty, of up to 200 characters. None if it cannot be rendered."""
    try:
        line = _one_line(_text(_Reader(script, arguments).read()))
    except (_CannotRender, RecursionError):  # the latter if the caller has left us no room at all
        return None
    return line or None


def in_words(name: str, arguments: Mapping[str, Any]) -> str:
    """A call for people without a script's help: `name(key=value, …)`, one line of up to 200 characters."""
    return _one_line(f"{name}({', '.join(f'{key}={_json(value)}' for key, value in arguments.items())})")


def _one_line(text: str) -> str:
    """A text in one line, without what could steer a terminal or turn the direction of writing round."""
    line = printable(" ".join(text[: 4 * LONGEST_LINE].split()))
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…"


def _json(value: Any) -> str:
    """A value as JSON, clipped, so that one long argument does not hide those behind it."""
    if isinstance(value, str):
        value = value[: _LONGEST_VALUE + 1]
    try:
        text = _document(value)
    except _CannotRender:
        return "…"
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "…"


def _document(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (RecursionError, TypeError, ValueError):
        raise _CannotRender from None  # too deep, too large a number, or no JSON


class _CannotRender(Exception):
    """The script says something else than a line, or says it in a way that is not understood."""


class _Char(str):
    """A character, which is no string: it can be added to one, but nothing else to it."""


class _Reader:
    """Evaluates a script while reading it; a branch that is not taken is read too, and skipped."""

    def __init__(self, script: str, arguments: Mapping[str, Any]) -> None:
        self._tokens = _tokens(script)
        self._next = 0
        self._arguments = arguments
        self._depth = 0
        self._skips = False

    def read(self) -> Any:
        value = self._expression()
        if self._next < len(self._tokens):
            _fail()
        return value

    def _takes(self, *signs: str) -> str | None:
        """The next token, if it is one of these: it is read then."""
        if self._next < len(self._tokens):
            kind, text = self._tokens[self._next]
            if kind in ("sign", "name") and text in signs:
                self._next += 1
                return text
        return None

    def _needs(self, sign: str) -> None:
        if not self._takes(sign):
            _fail()

    def _expression(self) -> Any:
        if self._depth == _DEEPEST:
            _fail()
        self._depth += 1
        value = self._level(0)
        self._depth -= 1
        return value

    def _level(self, level: int) -> Any:
        if level == len(_LEVELS):
            return self._operand()
        value = self._level(level + 1)
        while sign := self._takes(*_LEVELS[level]):
            other = self._level(level + 1)
            if not self._skips:
                value = _add(value, other) if sign == "+" else _compare(sign, value, other)
        return value

    def _operand(self) -> Any:
        if self._takes("("):
            return self._rest_of_parentheses()
        if self._takes("if"):
            return self._rest_of_if()
        if self._takes("args"):
            return self._rest_of_path()
        if word := self._takes("true", "false"):
            return word == "true"
        negative = self._takes("-")
        kind, text = self._tokens[self._next] if self._next < len(self._tokens) else ("", "")
        self._next += 1
        if kind == "number":
            return _number(f"-{text}" if negative else text)
        if negative or kind not in ("string", "char"):
            _fail()
        string = _unescaped(text[1:-1])
        return string if kind == "string" else _char(string)

    def _rest_of_parentheses(self) -> Any:
        if self._takes(")"):
            return None
        value = self._expression()
        self._needs(")")
        return value

    def _rest_of_path(self) -> Any:
        value: Any = self._arguments
        while self._takes("."):
            kind, name = self._tokens[self._next] if self._next < len(self._tokens) else ("", "")
            self._next += 1
            if kind != "name":
                _fail()
            if self._skips:
                continue
            if not isinstance(value, Mapping):
                _fail()
            value = value.get(name)
        return value

    def _rest_of_if(self) -> Any:
        """The value of the first branch whose condition holds; unit, if there is none."""
        outer, value, decided = self._skips, None, False
        while True:
            self._skips = outer or decided
            condition = self._expression()
            if not self._skips and not isinstance(condition, bool):
                _fail()
            takes = not self._skips and condition is True
            branch = self._block(skips=not takes)
            value, decided = (branch, True) if takes else (value, decided)
            self._skips = outer
            if not self._takes("else"):
                return value
            if not self._takes("if"):
                last = self._block(skips=outer or decided)
                self._skips = outer
                return value if decided else last

    def _block(self, *, skips: bool) -> Any:
        self._skips = skips
        self._needs("{")
        if self._takes("}"):
            return None
        value = self._expression()
        self._needs("}")
        return value


def _tokens(script: str) -> list[tuple[str, str]]:
    if len(script) > _LONGEST_SCRIPT:
        _fail()
    script = script.rstrip()
    tokens: list[tuple[str, str]] = []
    at = 0
    while at < len(script):
        found = _TOKEN.match(script, at)
        if found is None or found.lastgroup is None:
            _fail()
        tokens.append((found.lastgroup, found[found.lastgroup]))
        at = found.end()
    return tokens


def _number(text: str) -> int | float:
    digits = text.replace("_", "")
    return _in_range(float(digits) if set(".eE") & set(digits) else int(digits))


def _in_range(number: int | float) -> int | float:
    if isinstance(number, int) and not -_LARGEST_INTEGER - 1 <= number <= _LARGEST_INTEGER:
        _fail()
    return number


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_meant, text)


def _meant(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2] or escape[3]
    if code is None:
        return _ESCAPED.get(escape[4]) or _fail()
    return chr(int(code, 16)) if int(code, 16) <= 0x10FFFF else _fail()


def _char(text: str) -> str:
    return _Char(text) if len(text) == 1 else _fail()


def _add(one: Any, other: Any) -> Any:
    if _is_string(one) or _is_string(other) or (isinstance(one, _Char) and isinstance(other, _Char)):
        parts = _text(one), _text(other)
        return "".join(parts) if sum(map(len, parts)) <= _LONGEST_STRING else _fail()
    if _is_number(one) and _is_number(other):
        return _in_range(_in_range(one) + _in_range(other))
    return _fail()


def _compare(sign: str, one: Any, other: Any) -> bool:
    for is_kind in (_is_number, _is_text, _is_bool):
        if is_kind(one) and is_kind(other):
            return _COMPARISONS[sign](one, other)
    if one is None and other is None:
        return sign == "=="
    if isinstance(one, list | Mapping) and isinstance(other, list | Mapping):
        _fail()  # Rhai compares them; nobody needs that for a line of text, and they can be large
    return sign == "!="


def _is_string(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, _Char)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    """A value as a part of the line."""
    if value is None:
        return ""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"#{_document(value)}" if isinstance(value, Mapping) else _document(value)


def _fail() -> NoReturn:
    raise _CannotRender
