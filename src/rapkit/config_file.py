"""A TOML file of settings, read table by table: every key is known, every value of its type, or `ConfigError` says what is possible."""

import difflib
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rapkit.errors import ConfigError

_FILE = "file:"


class Table:
    """A table of a file. `title` is how it is written there: `[agent]`."""

    def __init__(self, path: Path, title: str, values: dict[str, Any], keys: Sequence[str]) -> None:
        self.path = path
        self.title = title
        self._values = values
        self._where = f" in {title}" if title else ""
        for key in values:
            if key not in keys:
                raise ConfigError(f"{path}: there is no key {key!r}{self._where}. {_possible(key, keys)}")

    @classmethod
    def read(cls, path: Path, keys: Sequence[str], *, example: str) -> "Table":
        """The whole file; if there is none, `ConfigError` shows the example."""
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ConfigError(
                f"There is no file {path}. Make one that says which model and which tool servers to use, for example:\n\n{example}"
            ) from None
        except UnicodeDecodeError:
            raise ConfigError(f"{path} is not UTF-8, as TOML has to be.") from None
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f'{path} is not TOML: {error}. Texts are in quotes there: key = "text".') from None
        return cls(path, "", values, keys)

    # Tables within

    def table(self, key: str, keys: Sequence[str]) -> "Table":
        """The table below this one, empty if it is not there."""
        title = f"[{self.title[1:-1]}.{key}]" if self.title else f"[{key}]"
        value = self._values.get(key, {})
        if not isinstance(value, dict):
            raise ConfigError(f'{self.path}: "{key}"{self._where} is a table. Write it as {title}.')
        return Table(self.path, title, value, keys)

    def tables(self, key: str, keys: Sequence[str], *, example: str) -> "list[Table]":
        """All tables of this name, in their order."""
        value = self._values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise ConfigError(
                f'{self.path}: "{key}" are tables. Write [[{key}]] with two brackets for each, and below it {example}.'
            )
        return [Table(self.path, f"[[{key}]] number {number}", each, keys) for number, each in enumerate(value, 1)]

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

    def number(self, key: str, least: int, most: int | None = None) -> int | None:
        """A whole number."""
        value = self._values.get(key)
        if value is None:
            return None
        if type(value) is not int or value < least or (most is not None and value > most):
            raise self.wrong(key, f"a whole number from {least}" + (f" to {most}" if most is not None else ""))
        return value

    def seconds(self, key: str) -> float | None:
        """A number of seconds."""
        value = self._values.get(key)
        if value is None:
            return None
        if type(value) not in (int, float) or not 0 <= value < float("inf"):
            raise self.wrong(key, "a number of seconds")
        return float(value)

    def flag(self, key: str) -> bool | None:
        """True or false."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def secret(self, key: str) -> str | None:
        """A secret or where it is to be found, for `read_secret`."""
        return self._reference(key, self._values[key]) if key in self._values else None

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

    def beside(self, reference: str, kind: str) -> str:
        """A reference like `file:path`, with the path seen from the current folder and not from the file's; any other kind as it is."""
        if not reference.startswith(kind) or reference == kind:
            return reference
        return f"{kind}{self.path.parent / reference.removeprefix(kind)}"

    def wrong(self, key: str, possible: str) -> ConfigError:
        """The error for a value that cannot be."""
        return ConfigError(f'{self.path}: "{key}"{self._where} is {self._values[key]!r}. It has to be {possible}.')

    def missing(self, key: str, what_to_do: str) -> ConfigError:
        """The error for a key that has to be there."""
        return ConfigError(f'{self.path}: "{key}" is missing{self._where}. {what_to_do}')

    def _reference(self, key: str, value: Any) -> str:
        if (
            not isinstance(value, str) or not value
        ):  # what stands there is not repeated: it may be a secret all the same
            raise ConfigError(
                f'{self.path}: "{key}"{self._where} is no secret. Write "env:VARIABLE", "file:path" or the secret itself, in quotes.'
            )
        return self.beside(value, _FILE)


def _possible(key: str, keys: Sequence[str]) -> str:
    close = difflib.get_close_matches(key, keys, n=1)
    meant = f"Did you mean {close[0]!r}? " if close else ""
    return f"{meant}Possible are: {', '.join(keys)}."
