"""The state of a thread: a small dict kept between its calls."""

import json
from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any

from rapkit.errors import ToolError
from rapkit.mailbox import Record

LONGEST_KEY = 256
LARGEST_STATE = 64 * 1024

_JSON = "Texts, finite numbers, booleans, None, lists, and dicts whose keys are texts can be kept."


class ThreadState(MutableMapping[str, Any]):
    """A dict of what JSON can hold: keys of 1 to 256 characters, 64 KiB in all.

    A call sees what the calls that ended before it began have kept. What it changes, deep inside a list or dict too, is kept when it ends
    well, and forgotten when it fails. Of calls that run at once, the last to end wins, for each key that it changed.

    Setting what is not JSON raises `TypeError` or `ValueError`, and setting too much raises `ToolError`; what becomes so later, because a
    list in here was changed, makes the call fail when it ends.
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._kept = {record.key: record.body for record in records}
        self._texts = dict(self._kept)
        # Only what was looked at or set: the others cannot have changed, and are not even parsed.
        self._values: dict[str, Any] = {}
        self._size = sum(map(_size, self._texts.items()))

    def __getitem__(self, key: str) -> Any:
        if key not in self._values:
            self._values[key] = json.loads(self._texts[key])
        return self._values[key]

    def __setitem__(self, key: str, value: Any) -> None:
        text = _to_json(_checked(key), value)
        before = _size((key, self._texts[key])) if key in self._texts else 0
        self._resize(self._size - before + _size((key, text)))
        self._texts[key] = text
        self._values[key] = value

    def __delitem__(self, key: str) -> None:
        self._size -= _size((key, self._texts.pop(key)))
        self._values.pop(key, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __repr__(self) -> str:
        return repr(dict(self))

    def take(self) -> dict[str, bytes | None]:
        """What has changed since it was last taken, as JSON, None for what was deleted; raises as setting does."""
        if not self._values and self._texts == self._kept:
            return {}  # untouched, as in most calls
        texts = {**self._texts, **{key: _to_json(key, value) for key, value in self._values.items()}}
        self._resize(sum(map(_size, texts.items())))
        changed: dict[str, bytes | None] = dict.fromkeys(self._kept.keys() - texts.keys())
        changed.update((key, text) for key, text in texts.items() if self._kept.get(key) != text)
        self._texts = texts
        self._kept = dict(texts)
        return changed

    def _resize(self, size: int) -> None:
        # Calls that ran at once may have kept too much together. To make it less is no mistake.
        if size > LARGEST_STATE and size > self._size:
            raise ToolError(
                f"the state of this thread would have {size:,} bytes, and {LARGEST_STATE:,} can be kept. "
                f"This is a mistake in the tool (large things belong into files in the workspace), so tell the user."
            )
        self._size = size


def _size(item: tuple[str, bytes]) -> int:
    key, text = item
    return len(key.encode()) + len(text)


def _checked(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"A key of the state is a text, not {type(key).__name__}.")
    if not 0 < len(key) <= LONGEST_KEY:
        raise ValueError(f"A key of the state has 1 to {LONGEST_KEY} characters, this one has {len(key)}.")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{key!r} is no key of the state: there is half a character in it.") from None
    if "\0" in key:
        raise ValueError(f"{key!r} is no key of the state: there is a NUL in it.")
    return key


def _to_json(key: str, value: object) -> bytes:
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"), default=_refuse)
        same = json.loads(text) == value
    except TypeError as error:
        raise TypeError(f"state[{key!r}] cannot be kept: {error}. {_JSON}") from None
    except ValueError as error:
        raise ValueError(f"state[{key!r}] cannot be kept: {error}. {_JSON}") from None
    except RecursionError:
        raise ValueError(f"state[{key!r}] cannot be kept: it is nested too deep.") from None
    if not same:
        # A tuple, or a number as a key: the next call would find something else than this one has put there.
        raise TypeError(f"state[{key!r}] cannot be kept: it would come back as something else. {_JSON}")
    return text.encode()


def _refuse(value: object) -> Any:
    raise TypeError(f"{type(value).__name__} is not JSON")
