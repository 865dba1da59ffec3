"""Ids of tool calls: `c<number>_<suffix>`.

The number counts the calls of a thread; the suffix, which the caller of the kernel supplies, is the thread's own. Together they are unique
over all threads, because tool servers key subscriptions, cancellations and OAuth flows by the bare id.
"""

from collections.abc import Iterable


def call_id(number: int, suffix: str) -> str:
    """The id of a thread's call by its number, on the wire and for the model."""
    return f"c{number}_{suffix}"


def find_call(given: str, ids: Iterable[str]) -> str | None:
    """The one id that `given` is, or is the beginning of; None if there is none, or several.

    The number has to be complete: `c1` means the first call, never the twelfth, however few calls there are.
    """
    candidates = list(ids)
    if given in candidates:
        return given
    matches = [each for each in candidates if each.startswith(given) and ("_" in given or each[len(given)] == "_")]
    return matches[0] if given and len(matches) == 1 else None
