"""rapkit: the Reactive Agent Protocol for Python."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rapkit.errors import RapkitError, ToolError
    from rapkit.server.content import Diff, Image
    from rapkit.server.context import Context
    from rapkit.server.engine import Durations
    from rapkit.server.limits import Limits
    from rapkit.server.toolset import Toolset

__version__ = "0.1.0"

__all__ = ["Context", "Diff", "Durations", "Image", "Limits", "RapkitError", "ToolError", "Toolset"]

_HOMES = {
    "Context": "rapkit.server.context",
    "Diff": "rapkit.server.content",
    "Durations": "rapkit.server.engine",
    "Image": "rapkit.server.content",
    "Limits": "rapkit.server.limits",
    "RapkitError": "rapkit.errors",
    "ToolError": "rapkit.errors",
    "Toolset": "rapkit.server.toolset",
}


def __getattr__(name: str) -> object:
    # Names are looked up when they are used, so that the command line can answer --help without loading a web server.
    if name not in _HOMES:
        raise AttributeError(f"module 'rapkit' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
