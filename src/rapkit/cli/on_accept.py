"""Run the command given to `rapkit up --on-accept`."""

import asyncio
import io
import logging
import os
import re
import shlex
import shutil
from pathlib import Path

from rapkit.errors import ConfigError
from rapkit.work import background

_LONG = 60.0
_GRACE = 15.0
_LAST_WORDS = 1.0
_LONGEST_LINE = 1024 * 1024
_LOGGED = re.compile(r"[\d-]{10} [\d:]{8} (?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) +(?P<rest>.+)")

log = logging.getLogger("rapkit.on_accept")


class OnAcceptCommand:
    """Runs a command when it is triggered: one at a time, and once more if it was triggered meanwhile. What it prints is logged.

    One that takes long is told of; after `at_most` seconds it is told to end, and if it does not, killed: no other is run before. What it
    has left running in the background is not waited for, and its output is discarded. `environment` is what it finds besides ours.
    """

    def __init__(self, command: str, at_most: float) -> None:
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
        self._at_most = at_most
        self.environment: dict[str, str] = {}
        self._rung = asyncio.Event()

    @property
    def wakes(self) -> bool:
        """Whether it is `rapkit wake`, as far as that can be seen."""
        return "wake" in self._words and any(Path(word).name == "rapkit" for word in self._words)

    async def trigger(self, _thread_id: str) -> None:
        """Have it run."""
        self._rung.set()

    async def run(self) -> None:
        """Go on until cancelled; then the command is told to end, and waited for."""
        while True:
            await self._rung.wait()
            self._rung.clear()
            await self._run_once()

    async def _run_once(self) -> None:
        # A pipe of our own: with asyncio's, a process has ended only when its output is closed everywhere.
        receiving, sending = os.pipe()
        with io.FileIO(receiving) as output:
            try:
                process = await asyncio.create_subprocess_exec(
                    *self._words,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=sending,
                    stderr=asyncio.subprocess.STDOUT,
                    env={**os.environ, **self.environment},
                )
            except OSError as error:
                log.error("%s cannot be run: %s", self._words[0], error.strerror or error)
                return
            finally:
                os.close(sending)
            logging_it = asyncio.create_task(_log_output(output))
            try:
                await self._see_through(process)
                await asyncio.wait({logging_it}, timeout=_LAST_WORDS)
            except BaseException:
                await _end(process)
                raise
            finally:
                await background.end(logging_it)

    async def _see_through(self, process: asyncio.subprocess.Process) -> None:
        command, long = self._words[0], min(_LONG, self._at_most)
        if not await _has_ended(process, long):
            log.warning(
                "%s has been running for %g s. It is not run for what came meanwhile until it ends; after %g s it is told to",
                command,
                long,
                self._at_most,
            )
            if not await _has_ended(process, self._at_most - long):
                log.error("%s is told to end: it has been running for %g s", command, self._at_most)
                await _end(process)
                return
        if process.returncode:
            log.error("%s ended with exit code %d", command, process.returncode)


async def _log_output(output: io.FileIO) -> None:
    reader = asyncio.StreamReader(limit=_LONGEST_LINE)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), output
    )
    try:
        while True:
            try:
                line = await reader.readline()
            except ValueError:  # an overlong line
                continue
            if not line:
                return
            _log_line(line.decode(errors="replace").rstrip())
    finally:
        transport.close()


def _log_line(line: str) -> None:
    """A line of a log of its own, like that of `rapkit wake`, has a time and a level. These are not said twice."""
    logged = _LOGGED.fullmatch(line)
    if logged is None:
        log.info("%s", line)
    else:
        log.log(logging.getLevelNamesMapping()[logged["level"]], "%s", logged["rest"])


async def _has_ended(process: asyncio.subprocess.Process, within: float) -> bool:
    # Not asyncio.timeout: in the first ones of Python 3.11 it does not end in a task that is cancelled, as ours is when we are to stop.
    waiting = asyncio.create_task(process.wait())
    try:
        done, _ = await asyncio.wait({waiting}, timeout=within)
    finally:
        waiting.cancel()
    return bool(done)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    if not await _has_ended(process, _GRACE):
        process.kill()
        await process.wait()
