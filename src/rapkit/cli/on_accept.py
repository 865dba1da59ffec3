"""The command of `rapkit up --on-accept`."""

import asyncio
import logging
import os
import shlex
import shutil

from rapkit.errors import ConfigError

_GRACE = 15.0
_LONGEST_LINE = 1024 * 1024

log = logging.getLogger("rapkit.on_accept")


class OnAcceptCommand:
    """Runs a command when the bell rings: one at a time, and once more if it rang meanwhile. What it prints is logged.

    `environment` is what it finds besides ours.
    """

    def __init__(self, command: str) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise ConfigError(f"--on-accept cannot be read as a command: {error}.") from None
        if not self._words:
            raise ConfigError('--on-accept is empty. Write a command, like --on-accept "rapkit wake".')
        if shutil.which(self._words[0]) is None:
            raise ConfigError(
                f"--on-accept names a command that cannot be found: {self._words[0]}. Write its whole path, or put it on the PATH."
            )
        self.environment: dict[str, str] = {}
        self._rung = asyncio.Event()

    async def ring(self, _thread_id: str) -> None:
        """Have it run."""
        self._rung.set()

    async def run(self) -> None:
        """Go on until cancelled; then the command is told to end, and waited for."""
        while True:
            await self._rung.wait()
            self._rung.clear()
            await self._run_once()

    async def _run_once(self) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                limit=_LONGEST_LINE,
                env={**os.environ, **self.environment},
            )
        except OSError as error:
            log.error("%s cannot be run: %s", self._words[0], error.strerror or error)
            return
        try:
            await _log_output(process)
            code = await process.wait()
        except BaseException:
            await _end(process)
            raise
        if code:
            log.error("%s ended with exit code %d", self._words[0], code)


async def _log_output(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    while True:
        try:
            line = await process.stdout.readline()
        except ValueError:  # a line that is longer than anybody reads
            continue
        if not line:
            return
        log.info("%s", line.decode(errors="replace").rstrip())


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_GRACE):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
