r"""Bound the memory of a schema's regular expressions before compiling them.

A pattern of ten characters can compile to megabytes: `\p{L}{1,200}` is the table of all letters, two hundred times. So the patterns of a
schema, and of all tools of a toolset together, share a bound on their compiled size.
"""

import re
from collections.abc import Iterable

import jsonschema_rs

KIB = 1024

MAX_LENGTH = 20_000
"""Characters of one pattern."""

MAX_IN_SCHEMA = 16 * 1024 * KIB
"""Bytes that the patterns of one schema may compile to: a thousand ordinary ones, or a few with large counted repetitions."""

MAX_IN_TOOLSET = 64 * 1024 * KIB
"""The same for all tools of a toolset together."""

SIZES = (16 * KIB, 128 * KIB, 1024 * KIB, 4096 * KIB, 10 * 1024 * KIB)
"""What a pattern is counted as: the first of these that it compiles within. The last is the most that one pattern may take."""

BROKEN = 1024 * KIB
"""What a schema that is refused takes from the other tools of its toolset, for the time to find that out."""

# Look-around, back references and the like make the engine compile the pieces between them one by one, each within the limit.
_PIECE = re.compile(r"\(|\\[1-9kKG]|[*+?}]\+")


class PatternsTooLarge(ValueError):
    """The text says which bound the patterns are beyond."""


class PatternBudget:
    """How many bytes patterns may still compile to."""

    def __init__(self, most: int, whose: str) -> None:
        self._left = most
        self._problem = f"the patterns of {whose} do not compile, or to more than {most // KIB:,} KiB; use fewer, and shorter repetitions"

    def take(self, size: int) -> None:
        """Count this many bytes; `PatternsTooLarge` if that is more than there are."""
        self._left -= size
        if self._left < 0:
            raise PatternsTooLarge(self._problem)


def check_patterns(patterns: Iterable[str], toolset: PatternBudget | None = None) -> int:
    """Count what the patterns of a schema take; `PatternsTooLarge` if that is too much. Equal patterns are compiled once.

    Returns the limit to compile them with, each and piece by piece. One that does not compile is left to the compiler, which says where it
    is. Two are refused here, because each takes its time.
    """
    different = list(dict.fromkeys(patterns))
    schema = PatternBudget(MAX_IN_SCHEMA, "the schema")
    total, limit = BROKEN, SIZES[-1]
    if not different:
        return limit
    if toolset is not None:
        toolset.take(0)  # what is left over is not even looked at: that takes as long as to use it
    try:
        sizes = []
        for pattern in different:
            size = _compiled_size(pattern)
            schema.take(size or SIZES[-1])
            sizes.append(size or BROKEN)
            if size is None:
                limit = SIZES[-1] // _pieces(pattern)
        total = sum(sizes)
    finally:
        if toolset is not None:
            toolset.take(total)
    return limit


def _compiled_size(pattern: str) -> int | None:
    """None if it does not compile: it is no regular expression, or too large by itself."""
    if len(pattern) > MAX_LENGTH:
        raise PatternsTooLarge(f"a pattern has more than {MAX_LENGTH:,} characters")
    for size in SIZES:
        if _compiles(pattern, jsonschema_rs.RegexOptions(size_limit=size)):
            return size
        if _compiles(pattern, jsonschema_rs.FancyRegexOptions(size_limit=size // _pieces(pattern))):
            return size
    return None


def _pieces(pattern: str) -> int:
    return 1 + len(_PIECE.findall(pattern))


def _compiles(pattern: str, options: jsonschema_rs.RegexOptions | jsonschema_rs.FancyRegexOptions) -> bool:
    try:
        jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=options)
    except (jsonschema_rs.ValidationError, ValueError):
        return False
    return True
