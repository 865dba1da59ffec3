"""Read a docstring: the description of a tool and of its parameters.

Google, NumPy, Sphinx and Epydoc styles are recognised.
"""

import inspect
from dataclasses import dataclass, field

import docstring_parser


@dataclass(frozen=True)
class Docs:
    """A docstring, taken apart."""

    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict)


def read_docstring(text: str | None) -> Docs:
    """Take a docstring apart; what looks like no known style is description as a whole."""
    text = inspect.cleandoc(text or "").strip()
    if not text:
        return Docs()
    try:
        parsed = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return Docs(text)
    parameters = {p.arg_name: p.description.strip() for p in parsed.params if p.description}
    # A docstring that begins with its sections has no description of its own: better all of it than nothing.
    return Docs((parsed.description or text).strip(), parameters)
