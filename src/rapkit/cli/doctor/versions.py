"""Report the versions in use."""

import importlib.util
import platform
import sys

import apsw

from rapkit import __version__
from rapkit.cli.doctor.check_result import CheckResult
from rapkit.cli.doctor.checked_agent import CheckedAgent

_OLDEST_SQLITE = (3, 51, 3)  # those before it can damage a file when its log begins anew
_EXTRAS = {"agent": "pydantic_ai", "aws": "botocore", "oauth": "authlib"}


def check(_checked: CheckedAgent) -> list[CheckResult]:
    """rapkit, Python, SQLite, and which extras are there."""
    sqlite = apsw.sqlite_lib_version()
    extras = [name for name, package in _EXTRAS.items() if importlib.util.find_spec(package) is not None]
    with_extras = f" with {', '.join(extras)}" if extras else ""
    seen = f"rapkit {__version__}{with_extras}, Python {platform.python_version()}, SQLite {sqlite}, {sys.platform}"
    if tuple(int(part) for part in sqlite.split(".")[:3]) < _OLDEST_SQLITE:
        return [CheckResult("versions", "failed", f"{seen}: this SQLite can damage stores", "Run: pip install -U apsw")]
    return [CheckResult("versions", "ok", seen)]
