"""The command to run, and how to start it."""

import errno
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rapkit.errors import ToolError
from rapkit.secret import secret_variables
from rapkit.server.processes.leftovers import VARIABLE

# What a wrong program, argument or folder leads to. Anything else, such as too many open files, is the server's own trouble.
_MISTAKES = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.E2BIG, errno.ENAMETOOLONG)


class Command(NamedTuple):
    argv: tuple[str, ...]
    cwd: str | None
    env: Mapping[str, str] | None
    input: bytes | None
    timeout: float | None
    largest_output: int

    @property
    def program(self) -> str:
        """All that is ever told of a command: the other words may hold passwords."""
        return self.argv[0]

    def start(self, token: str, *, together: bool) -> subprocess.Popen[bytes]:
        """Start it, with stdout and stderr `together` in one pipe or each in its own; `ToolError` if it cannot be started."""
        try:
            return subprocess.Popen(  # noqa: S603 - what to run is the handler's business, and there is no shell
                self.argv,
                bufsize=0,
                stdin=subprocess.DEVNULL if self.input is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if together else subprocess.PIPE,
                cwd=self.cwd,
                env=self._environment(token),
                start_new_session=True,
            )
        except OSError as error:
            if error.errno in _MISTAKES:
                raise self._mistake(error) from None
            raise

    def _environment(self, token: str) -> dict[str, str]:
        given = self.env
        if given is None:
            ours = secret_variables()
            given = {
                name: value for name, value in os.environ.items() if not (name.startswith("RAPKIT_") or name in ours)
            }
        return {**given, VARIABLE: token}

    def _mistake(self, error: OSError) -> ToolError:
        if self.cwd is not None and not Path(self.cwd).is_dir():
            return ToolError(f"there is no folder {self.cwd!r} to run {self.program!r} in")
        if error.errno == errno.ENOENT:
            return ToolError(f"there is no program {self.program!r}")
        return ToolError(f"{self.program!r} cannot be run: {os.strerror(error.errno or 0)}")
