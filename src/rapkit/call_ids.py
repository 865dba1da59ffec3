"""Ids of tool calls: `c<number>_<suffix>`.

The number counts the calls of a thread; the suffix is the thread's own. Together they are unique over all threads, because tool servers key
subscriptions, cancellations and OAuth flows by the bare id.
"""

import base64
import hashlib
from collections.abc import Iterable

_SUFFIX_CHARACTERS = 16


def call_id(number: int, suffix: str) -> str:
    """The id of a thread's call by its number, on the wire and for the model."""
    return f"c{number}_{suffix}"


def call_id_suffix(incarnation: str, thread_id: str) -> str:
    """The end of the ids of all calls that a thread makes in one incarnation of its store.

    It is taken from the whole thread id, never from a part of it: threads of one moment have ids that begin alike. It is taken from the
    store's incarnation too, so that an agent on a restored or copied store, whose threads have the ids and the call numbers of before,
    never makes an id that a tool server has seen.
    """
    digest = hashlib.sha256(f"{incarnation}/{thread_id}".encode()).digest()
    return base64.b32encode(digest).decode().lower()[:_SUFFIX_CHARACTERS]


def find_call(given: str, ids: Iterable[str]) -> str | None:
    """The one id that `given` is, or is the beginning of; None if there is none, or several.

    The number has to be complete: `c1` means the first call, never the twelfth, however few calls there are.
    """
    candidates = list(ids)
    if given in candidates:
        return given
    matches = [each for each in candidates if each.startswith(given) and ("_" in given or each[len(given)] == "_")]
    return matches[0] if given and len(matches) == 1 else None
