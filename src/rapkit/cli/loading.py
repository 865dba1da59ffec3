"""Finding the toolset a command is about."""

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from rapkit.errors import ConfigError
from rapkit.server.toolset import Toolset


def load_toolset(target: str) -> Toolset:
    """The toolset of `weather.py`, `weather.py:tools` or `package.module:tools`."""
    place, _, name = target.partition(":")
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
        raise ConfigError(f"There is no file {place}.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{place} cannot be loaded as Python.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # pydantic and dataclasses look modules up by name
    sys.path.insert(0, str(path.parent))  # so that it can import its neighbours, as a script can
    try:
        spec.loader.exec_module(module)
    except ConfigError:
        raise
    except Exception as error:
        raise _broken(place, error) from error
    return module


def _load_module(place: str) -> ModuleType:
    sys.path.insert(0, "")
    try:
        return importlib.import_module(place)
    except ConfigError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (place == error.name or place.startswith(f"{error.name}.")):
            raise ConfigError(f"There is no module {place}. A file is named with its ending: {place}.py") from None
        raise _broken(place, error) from error
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"{place!r} is not a module name: {error}. Name a file (weather.py) or a module (package.module)."
        ) from None
    except Exception as error:
        raise _broken(place, error) from error


def _broken(place: str, error: Exception) -> ConfigError:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    if isinstance(error, SyntaxError):
        where = f"{error.filename}, line {error.lineno}"
    elif len(frames) > 1:
        where = f"{frames[-1].filename}, line {frames[-1].lineno}"
    else:
        where = place
    return ConfigError(f"{place} cannot be loaded. {type(error).__name__}: {error} ({where})")
