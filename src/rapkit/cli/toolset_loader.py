"""Load the toolset that a command names."""

import difflib
import importlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType

import rapkit
from rapkit.errors import ConfigError
from rapkit.server.standalone import only_loading
from rapkit.server.toolset import Toolset

_NOT_THE_USERS = ("site-packages", str(Path(rapkit.__file__).parent))


def load_toolset(target: str) -> Toolset:
    """The toolset of `weather.py`, `weather.py:tools` or `package.module:tools`."""
    # From the right, because a path may have a colon too: C:\tools\weather.py
    place, colon, name = (target, "", "") if target.endswith(".py") else target.rpartition(":")
    if not colon:
        place, name = target, ""
    with only_loading():
        module = _load_file(place) if place.endswith(".py") else _load_module(place)
    if name:
        found = getattr(module, name, None)
        if not isinstance(found, Toolset):
            raise ConfigError(f"{place} has no toolset {name!r}. {_offer(module, place)}")
        return found
    toolsets = _toolsets(module)
    if len(toolsets) != 1:
        raise ConfigError(
            f"{place} {'has no toolset' if not toolsets else 'has several toolsets'}. {_offer(module, place)}"
        )
    return next(iter(toolsets.values()))


def _toolsets(module: ModuleType) -> dict[str, Toolset]:
    by_id = {id(value): (name, value) for name, value in vars(module).items() if isinstance(value, Toolset)}
    return dict(by_id.values())


def _offer(module: ModuleType, place: str) -> str:
    names = sorted(_toolsets(module))
    if not names:
        return 'Make one: tools = Toolset("name")'
    return "Name one: " + ", ".join(f"{place}:{name}" for name in names)


def _load_file(place: str) -> ModuleType:
    path = Path(place).resolve()
    if not path.is_file():
        raise ConfigError(f"There is no file {place}.{_meant(place)}")
    name = _module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{place} cannot be loaded as Python.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pydantic and dataclasses look modules up by name
    sys.path.insert(0, str(path.parent))  # so that it can import its neighbours, as a script can
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise _broken(place, path.parent, error) from error
    return module


def _meant(place: str) -> str:
    neighbours = {each.stem: each for each in sorted(Path(place).parent.glob("*.py")) if each.is_file()}
    close = difflib.get_close_matches(Path(place).stem, neighbours, n=1)
    return f" Did you mean {neighbours[close[0]]}?" if close else ""


def _module_name(path: Path) -> str:
    # Tools for calendars live in calendar.py, and a later import of the standard library's must not get the user's.
    taken = path.stem in sys.modules or path.stem in sys.stdlib_module_names
    return f"{path.stem}_toolset" if taken else path.stem


def _load_module(place: str) -> ModuleType:
    if Path(place).is_file():
        raise ConfigError(f"{place} is no Python file. A toolset is in one, like weather.py, or in a module.")
    if not all(part.isidentifier() for part in place.split(".")):
        raise ConfigError(f"{place!r} is neither a Python file (weather.py) nor a module (package.module).")
    sys.path.insert(0, "")
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is not None and (place == error.name or place.startswith(f"{error.name}.")):
            raise ConfigError(f"There is no module {place}. A file is named with its ending: {place}.py") from None
        raise _broken(place, Path.cwd(), error) from error
    except (Exception, SystemExit) as error:
        raise _broken(place, Path.cwd(), error) from error


def _broken(place: str, folder: Path, error: BaseException) -> ConfigError:
    where = _where(folder, error) or place
    match error:
        case ConfigError():
            return ConfigError(f"{error} ({where})")
        case SystemExit():
            return ConfigError(
                f"{place} ends the process while it is loaded ({where}). "
                'Put what is for running it as a script under: if __name__ == "__main__":'
            )
        case SyntaxError():
            return ConfigError(f"{place} cannot be loaded. {type(error).__name__}: {error.msg} ({where})")
    return ConfigError(f"{place} cannot be loaded. {type(error).__name__}: {error} ({where})")


def _where(folder: Path, error: BaseException) -> str | None:
    """The innermost line of the user's own that led to the error."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_shown(error.filename)}, line {error.lineno}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).is_relative_to(folder) and not any(part in frame.filename for part in _NOT_THE_USERS):
            return f"{_shown(frame.filename)}, line {frame.lineno}"
    return None


def _shown(filename: str) -> str:
    return min(filename, os.path.relpath(filename), key=len)
