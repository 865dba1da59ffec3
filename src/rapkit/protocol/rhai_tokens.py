"""The tokenizer for Rhai scripts. A string with `${…}` in it becomes a sum in parentheses."""

import re
from typing import NoReturn

_LONGEST_SCRIPT = 4096
_LARGEST_INTEGER = 2**63 - 1

_TOKEN = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<string>"(?:[^"\\\r\n]|\\.)*")
      | (?P<char>'(?:[^'\\\r\n]|\\.[0-9A-Fa-f]*)')
      | (?P<template>`)
      | (?P<number>[0-9][0-9_]*(?:\.[0-9][0-9_]*)?(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_]))
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<sign>===|!==|\?\?|\?\.|\?\[|&&|\|\||[=!<>]=|\+=|[<>+\-*/%!=.,;(){}\[\]])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
_ESCAPED = {"\\": "\\", "t": "\t", "r": "\r", "n": "\n", '"': '"', "'": "'"}
_OPEN, _CLOSE, _PLUS = ("sign", "("), ("sign", ")"), ("sign", "+")

Token = tuple[str, str]
"""Its kind and its text. A `text` token is a string without quotes, as it is meant."""


class CannotRender(Exception):
    """The script says something else than a line, or says it in a way that is not understood."""


def fail() -> NoReturn:
    """Give the script up."""
    raise CannotRender


def tokens_of(script: str) -> list[Token]:
    """The script, read from left to right."""
    if len(script) > _LONGEST_SCRIPT:
        fail()
    tokens, at = _read(script, 0, 0)
    return tokens if at == len(script) else fail()


def _read(script: str, at: int, templates: int) -> tuple[list[Token], int]:
    """Tokens up to the end or, inside a template, up to the brace that ends an expression; and where that is."""
    if templates > 4:
        fail()
    tokens: list[Token] = []
    braces = 0
    while at < len(script):
        found = _TOKEN.match(script, at)
        if found is None or found.lastgroup is None:
            fail()
        kind, text = found.lastgroup, found[found.lastgroup]
        if kind == "sign" and text in "{}":
            braces += 1 if text == "{" else -1
            if templates and braces < 0:
                return tokens, at
        at = found.end()
        if kind == "template":
            more, at = _template(script, at, templates)
            tokens += more
        elif kind != "blank":
            tokens.append((kind, text))
    return tokens, at


def _template(script: str, at: int, templates: int) -> tuple[list[Token], int]:
    tokens = [_OPEN, ("text", "")]
    text = ""
    while at < len(script):
        if script.startswith("``", at):
            text, at = text + "`", at + 2
        elif script[at] == "`":
            return [*tokens, _PLUS, ("text", text), _CLOSE], at + 1
        elif script.startswith("${", at):
            inside, at = _read(script, at + 2, templates + 1)
            if not script.startswith("}", at):
                fail()
            tokens += [_PLUS, ("text", text), _PLUS, _OPEN, *inside, _CLOSE]
            text, at = "", at + 1
        else:
            text, at = text + script[at], at + 1
    return fail()


def number(text: str) -> int | float:
    """A number as it is meant."""
    digits = text.replace("_", "")
    return in_range(float(digits) if set(".eE") & set(digits) else int(digits))


def in_range(value: int | float) -> int | float:
    """The number, if Rhai has it: integers have 64 bits."""
    if isinstance(value, int) and not -_LARGEST_INTEGER - 1 <= value <= _LARGEST_INTEGER:
        fail()
    return value


def unescaped(text: str) -> str:
    """What stands between quotes, as it is meant."""
    return _ESCAPE.sub(_meant, text)


def _meant(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2] or escape[3]
    if code is None:
        return _ESCAPED.get(escape[4]) or fail()
    return chr(int(code, 16)) if int(code, 16) <= 0x10FFFF else fail()
