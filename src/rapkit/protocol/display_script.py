"""Render the one-line description of a call for people, as its tool's `displayScript` defines it.

A script is a Rhai expression over `args`, or several statements of which the last says the line. What puts a line together is understood:
literals, `args.a["b"][0]`, `let`, `=` and `+=`, operators, `if … { } else { }`, `${…}` in backticks, and functions that look at strings,
arrays and maps, such as `len`, `split` and `sub_string`. They mean what they mean in Rhai: an argument that is missing is `()`, which adds
nothing to a string; values of different types are not equal, nor is one less than the other; of branches only one is evaluated.

Anything else cannot be rendered, loops for instance, and the call is shown in words instead. A script is untrusted: it is read once from
left to right, so it has an end, it sees nothing but the arguments, what it may do with long texts is bounded, and of what it says one line
is left. There is no Rhai for Python to be had; this is the part of it that such lines need.
"""

import re
from collections.abc import Mapping
from typing import Any

from rapkit.printable import printable
from rapkit.protocol.rhai_reader import Reader
from rapkit.protocol.rhai_tokens import CannotRender
from rapkit.protocol.rhai_values import document_of, text_of

LONGEST_LINE = 200
_LONGEST_VALUE = 60
_TEXTS = re.compile(r'"(?:[^"\\]|\\.)*(?:"|$)|`[^`]*(?:`|$)', re.DOTALL)
_MORE_RHAI = re.compile(
    r"\b(?:for|while|loop|do|switch|fn|try|throw|import|this)\b|#\{|=>|\*\*|[-*/%]=|\.\.|\b0[xob]|(?<!\|)\|(?!\|)|(?:^|[=(,+\[{;])\s*\["
)
"""Loops, functions, maps, arrays and other things that a script may have where all of Rhai is understood."""


def render(script: str, arguments: Mapping[str, Any]) -> str | None:
    """What a script makes of a call's arguments: one line, never empty, of up to 200 characters. None if it cannot be rendered."""
    try:
        line = _one_line(text_of(Reader(script, arguments).read()))
    except (CannotRender, RecursionError):  # the latter if the caller has left us no room at all
        return None
    return line or None


def is_script(script: str) -> bool:
    """Whether a script can be one, whatever its arguments are. What is Rhai beyond the part that is understood here counts as one."""
    try:
        Reader(script, {}).check()
    except (CannotRender, RecursionError):
        return _MORE_RHAI.search(_TEXTS.sub('""', script)) is not None
    return bool(script.strip())


def describe_call(name: str, arguments: Mapping[str, Any]) -> str:
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
        text = document_of(value)
    except CannotRender:
        return "…"
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "…"
