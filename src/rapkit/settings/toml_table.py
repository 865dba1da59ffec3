"""Read a TOML settings file table by table: unknown keys and wrong types raise `ConfigError`, which lists what is possible.

Who reads a file wants to know all that is wrong with it, not only the first thing. So keys that are not known are only noted, and whatever
`attempt` reads may be wrong; `check` raises what was found, all at once.
"""

import difflib
import math
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from rapkit.errors import ConfigError

_FILE = "file:"
_OFF = "off"
_PERHAPS_SECRET = ("tokens",)
"""What is meant elsewhere when it is wrong here, and is not repeated: tokens can be counted, and can be credentials."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd])")

P = ParamSpec("P")
T = TypeVar("T")
Other = TypeVar("Other")
Homes = Callable[[str], Sequence[str]]
"""The titles of the tables that have a key."""


class TomlTable:
    """A table of a file. `title` is how it is written there: `[agent]`. Where `keys` is None, any key may be."""

    def __init__(
        self,
        path: Path,
        title: str,
        values: dict[str, Any],
        keys: Sequence[str] | None,
        problems: list[str],
        homes: Homes,
    ) -> None:
        self.path = path
        self.title = title
        self._values = values
        self._where = f" in {title}" if title else ""
        self._problems = problems
        self._homes = homes
        if keys is not None:
            problems += [self._unknown(key, keys) for key in values if key not in keys]

    @classmethod
    def read(cls, path: Path, keys: Sequence[str], homes: Homes, *, absent: str) -> "TomlTable":
        """The whole file; `absent` is what to do if there is none.

        `homes` are the titles of the tables that have a key, to be named in the error when it is written elsewhere.
        """
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # some editors begin a file with a mark
        except FileNotFoundError:
            raise ConfigError(f"There is no file {path}. {absent}") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{path} is not UTF-8, as TOML has to be.") from None
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}. {_remedy(error)}") from None
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f'{path} is not TOML: {error}. Texts are in quotes there: key = "text".') from None
        return cls(path, "", values, keys, [], homes)

    @classmethod
    def nothing(cls, path: Path, keys: Sequence[str]) -> "TomlTable":
        """A file that says nothing, for one that need not be there."""
        return cls(path, "", {}, keys, [], lambda _: ())

    # Mistakes

    def attempt(self, instead: Other, read: Callable[P, T], *given: P.args, **options: P.kwargs) -> T | Other:
        """What is read; if it is wrong that is noted, and `instead` is good enough until `check` says so."""
        try:
            return read(*given, **options)
        except ConfigError as error:
            self._problems.append(str(error))
            return instead

    def check(self) -> None:
        """Raise all that was found to be wrong with the file."""
        if self._problems:
            raise ConfigError("\n".join(self._problems))

    # Tables within

    def names(self) -> list[str]:
        """The keys that are there."""
        return list(self._values)

    def table(self, key: str, keys: Sequence[str] | None) -> "TomlTable":
        """The table below this one, empty if it is not there."""
        title = f"[{self.title[1:-1]}.{key}]" if self.title else f"[{key}]"
        if self.title.startswith("[["):
            title = f"[{self.title[2:].partition(']]')[0]}.{key}] of {self.title}"
        value = self._values.get(key, {})
        if not isinstance(value, dict):
            self._problems.append(f'{self.path}: "{key}"{self._where} is a table. Write it as {title}.')
            value = {}
        return TomlTable(self.path, title, value, keys, self._problems, self._homes)

    def tables(self, key: str, keys: Sequence[str], *, example: str) -> "list[TomlTable]":
        """All tables of this name, in their order."""
        value = self._values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            self._problems.append(
                f'{self.path}: "{key}" are tables. Write [[{key}]] with two brackets for each, and below it {example}.'
            )
            value = []
        return [
            TomlTable(self.path, f"[[{key}]] number {number}", each, keys, self._problems, self._homes)
            for number, each in enumerate(value, 1)
        ]

    # Values; None if the key is not there

    def text(self, key: str, *, may_be_empty: bool = False) -> str | None:
        """A text."""
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.wrong(key, "a text in quotes")
        if not value and not may_be_empty:
            raise self.wrong(key, "a text that is not empty")
        return value

    def required(self, key: str, what_to_do: str) -> str:
        """A text that has to be there."""
        value = self.text(key)
        if value is None:
            raise self.missing(key, what_to_do)
        return value

    def number(self, key: str, least: int, most: int | None = None) -> int | None:
        """A whole number."""
        value = self._values.get(key)
        if value is None:
            return None
        if type(value) is not int or value < least or (most is not None and value > most):
            raise self.wrong(key, f"a whole number from {least}" + (f" to {most}" if most is not None else ""))
        return value

    def amount(self, key: str) -> float | None:
        """A number above 0."""
        value = self._values.get(key)
        if value is None:
            return None
        if type(value) not in (int, float) or not 0 < value < math.inf:
            raise self.wrong(key, "a number above 0")
        return float(value)

    def seconds(self, key: str, *, may_be_off: bool = False, may_be_zero: bool = False) -> float | None:
        """A time, as a number of seconds or like "5m"; infinite if it is off."""
        value = self._values.get(key)
        if value is None:
            return None
        if may_be_off and value == _OFF:
            return math.inf
        value = duration(value) if isinstance(value, str) else value
        if (
            value is None
            or type(value) not in (int, float)
            or not 0 <= value < math.inf
            or (value == 0 and not may_be_zero)
        ):
            more = "" if may_be_zero else " above 0"
            off = ', or "off"' if may_be_off else ""
            raise self.wrong(key, f'a number of seconds{more}, or a time like "90s", "5m", "24h" or "7d"{off}')
        return float(value)

    def choice(self, key: str, possible: Sequence[str]) -> str | None:
        """One of some words."""
        value = self._values.get(key)
        if value is not None and value not in possible:
            raise self.wrong(key, f"one of: {', '.join(possible)}")
        return value

    def flag(self, key: str) -> bool | None:
        """True or false."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def secret(self, key: str) -> str | None:
        """A secret or where it is to be found, for `read_secret`."""
        return self._reference(key, self._values[key]) if key in self._values else None

    def secret_or_several(self, key: str) -> tuple[str, ...]:
        """One secret or a list of them, or where they are to be found."""
        given = self._values.get(key, [])
        return tuple(self._reference(key, each) for each in (given if isinstance(given, list) else [given]))

    def secrets(self, key: str) -> dict[str, list[str]]:
        """Secrets by the names of whose they are."""
        named = self._values.get(key, {})
        if not isinstance(named, dict):
            raise ConfigError(
                f'{self.path}: "{key}"{self._where} have names. Write [{self.title[1:-1]}.{key}], and below it name = "env:VARIABLE".'
            )
        return {
            name: [self._reference(f"{key}.{name}", each) for each in (given if isinstance(given, list) else [given])]
            for name, given in named.items()
        }

    def place(self, path: str) -> str:
        """A path, seen from the current folder and not from the file's."""
        return str(self.path.parent / path)

    def beside(self, reference: str, kind: str) -> str:
        """A reference like `file:path`, with the path seen from the current folder and not from the file's; any other kind as it is."""
        if not reference.startswith(kind) or reference == kind:
            return reference
        return f"{kind}{self.path.parent / reference.removeprefix(kind)}"

    def wrong(self, key: str, possible: str) -> ConfigError:
        """The error for a value that cannot be."""
        value = "something else" if key in _PERHAPS_SECRET else repr(self._values[key])
        return ConfigError(f'{self.path}: "{key}"{self._where} is {value}. It has to be {possible}.')

    def missing(self, key: str, what_to_do: str) -> ConfigError:
        """The error for a key that has to be there."""
        return ConfigError(f'{self.path}: "{key}" is missing{self._where}. {what_to_do}')

    def _unknown(self, key: str, keys: Sequence[str]) -> str:
        close = difflib.get_close_matches(key, keys, n=1)
        homes = self._homes(key)
        meant = f"Did you mean {close[0]!r}? " if close else ""
        if homes and not close:
            meant = f"It belongs below {' or '.join(homes)}. "
        return f"{self.path}: there is no key {key!r}{self._where}. {meant}Possible are: {', '.join(keys)}."

    def _reference(self, key: str, value: Any) -> str:
        if (
            not isinstance(value, str) or not value
        ):  # what stands there is not repeated: it may be a secret all the same
            raise ConfigError(
                f'{self.path}: "{key}"{self._where} is no secret. Write "env:VARIABLE", "file:path" or the secret itself, in quotes.'
            )
        return self.beside(value, _FILE)


def _remedy(error: OSError) -> str:
    if isinstance(error, IsADirectoryError):
        return "Name the file, not its folder."
    return "Check who may read it." if isinstance(error, PermissionError) else "Name another one with -c."


def duration(text: str) -> float | None:
    """A time like "90s", "5m", "24h" or "7d", in seconds; None if it is none."""
    written = _DURATION.fullmatch(text)
    return None if written is None else float(written[1]) * _UNITS[written[2]]
