"""Validate project names."""

import keyword
import os
import re
import sys
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from rapkit.errors import ConfigError

_NAME = re.compile(r"[A-Za-z](?:[A-Za-z0-9_-]*[A-Za-z0-9])?")
_LONGEST = 64
_ADVICE = "Call it like my-tools: letters, digits, - and _, beginning with a letter."


@dataclass(frozen=True, slots=True)
class ProjectName:
    """A folder, and what the toolset and the Python module in it are called."""

    folder: Path
    name: str
    module: str

    @classmethod
    def of(cls, given: str) -> "ProjectName":
        """The name that was given, which may be a path; `ConfigError` if no module can be called so."""
        folder = Path(os.path.abspath(given)) if given else None
        name = folder.name if folder else ""
        if len(name) > _LONGEST:
            raise ConfigError(f"A toolset cannot have a name of {len(name)} letters. Choose one with up to {_LONGEST}.")
        if folder is None or not _NAME.fullmatch(name):
            raise ConfigError(f"A toolset cannot be called {name!r}. {_ADVICE}")
        module = name.lower().replace("-", "_")
        if keyword.iskeyword(module) or keyword.issoftkeyword(module):
            raise ConfigError(
                f"A Python module cannot be called {module!r}: the word means something to Python. {_ADVICE}"
            )
        if module in sys.stdlib_module_names or _is_installed(module):
            raise ConfigError(
                f"There is a Python module {module!r} already, which another of that name would hide. Choose another, like {name}-tools."
            )
        return cls(folder, name, module)

    @property
    def is_here(self) -> bool:
        """Whether the folder is the current one."""
        return self.folder == Path.cwd()

    @property
    def shown_folder(self) -> str:
        """The folder as one would type it."""
        here = Path.cwd()
        return str(self.folder.relative_to(here)) if self.folder.is_relative_to(here) else str(self.folder)


def _is_installed(module: str) -> bool:
    # Not what is in the current folder: it is the user's, and Python finds it there only by chance.
    installed = [place for place in sys.path if place and Path(place) != Path.cwd()]
    found = PathFinder.find_spec(module, installed)
    return found is not None and found.origin is not None
