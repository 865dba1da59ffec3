"""The ids of calls without what makes them unique, to say which calls of a thread are meant, or to compare two threads."""

import re
from collections.abc import Iterable

from rapkit.kernel.entries import JournalEntry, dump_entry, load_entry

_ID = re.compile(r"\b(c\d+)_[a-z2-7]{16}(?![a-z0-9_])")


def plain(thing: object) -> str:
    """A text, or anything else as text, in which ids of calls are only numbers: `c1`."""
    return _ID.sub(r"\1", str(thing))


def numbers(ids: Iterable[str]) -> list[str]:
    """The same for a list of ids."""
    return [plain(each) for each in ids]


def plain_entry(entry: JournalEntry) -> JournalEntry:
    """The same for a line of a journal."""
    return load_entry(plain(dump_entry(entry).decode()).encode())
