"""The subprocess API of a handler: `ctx.run`."""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rapkit.errors import ToolError
from rapkit.server.processes.command import Command
from rapkit.server.processes.output import Kept, Lines, Output
from rapkit.server.processes.process_run import ProcessRun, wait_uncancelled


@dataclass(frozen=True)
class Completed:
    """How a program ended, and what it wrote. A negative `returncode` is the signal that ended it."""

    returncode: int
    stdout: str
    stderr: str


class Processes:
    """The programs of one call.

    `record` is given a run's token before its program is started, and returns once the token is durable; `forget` is given it again when
    nothing of the run is left. What they raise reaches the handler; if `record` raises, nothing was started.
    """

    def __init__(
        self,
        record: Callable[[str], Awaitable[None]],
        forget: Callable[[str], Awaitable[None]],
        *,
        grace: float = 2.0,
    ) -> None:
        self._record = record
        self._forget = forget
        self._grace = grace
        self._lives: set[ProcessRun] = set()
        self._stopped = False

    def run(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        input: str | bytes | None = None,  # noqa: A002 - what subprocess calls it
        timeout: float | None = None,
        largest_output: int = 1024 * 1024,
    ) -> "Run":
        """Run a program, without a shell: `await` gives a `Completed`, `async for` the lines as they come. Nothing starts before that.

        `env` replaces the environment; without it the program gets the server's, less rapkit's settings and all that secrets
        come from. `input` is what it reads; without it, nothing. A program that does not end within `timeout` seconds is stopped.

        Output is read as UTF-8, with a replacement for what is not. Of stdout and of stderr at most `largest_output` bytes each are kept,
        the beginning and the end, with a note where something was left out. Lines come from both together, without their ends, and of each
        at most 64 KiB; while the handler does not take them the program has to wait.

        Raises `ToolError` when there is no such program or folder and when time is up. An exit status is no error: look at `returncode`.
        """
        if isinstance(argv, str | bytes):
            raise TypeError(
                'argv is a list of words, such as ["git", "status"]: there is no shell. '
                'If you want one, and trust every part of the line, write ["sh", "-c", line].'
            )
        words = tuple(os.fspath(word) for word in argv)
        if not words:
            raise ValueError("argv is empty: its first word is the program to run.")
        data = input.encode() if isinstance(input, str) else input
        where = None if cwd is None else os.fspath(cwd)
        given = None if env is None else dict(env)
        if any("\0" in text for text in (*words, where or "", *(given or {}).keys(), *(given or {}).values())):
            raise ToolError("a program cannot be given a NUL character: leave it out")
        return Run(Command(words, where, given, data, timeout, largest_output), self._start)

    def stop(self) -> None:
        """End what runs and start nothing more: the call is over, even if its handler does not know."""
        self._stopped = True
        for process_run in self._lives:
            process_run.stop()

    async def close(self) -> None:
        """`stop`, and return when nothing is left, also if cancelled meanwhile."""
        self.stop()
        await wait_uncancelled(*(process_run.task for process_run in self._lives))

    def _start(self, command: Command, output: Output) -> ProcessRun:
        if self._stopped:
            raise ToolError(f"{command.program!r} was not started, because the call is over")
        process_run = ProcessRun(command, output, self._record, self._forget, self._grace)
        self._lives.add(process_run)
        process_run.task.add_done_callback(lambda _: self._lives.discard(process_run))
        return process_run


class Run:
    """One run of a program: await it, or iterate over its lines."""

    def __init__(self, command: Command, start: Callable[[Command, Output], ProcessRun]) -> None:
        self._command = command
        self._start = start
        self._process_run: ProcessRun | None = None

    @property
    def returncode(self) -> int | None:
        """How the program ended; None until nothing of the run is left."""
        return None if self._process_run is None else self._process_run.returncode

    def __await__(self) -> Generator[Any, None, Completed]:
        return self._complete().__await__()

    async def __aiter__(self) -> AsyncGenerator[str, None]:
        lines = Lines()
        process_run = self._begin(lines)
        process_run.task.add_done_callback(lambda _: lines.end())
        try:
            while (line := await lines.next()) is not None:
                yield line
            await process_run.ended()
        finally:
            # Reached too when the caller's loop is left early: asyncio closes an unreferenced iterator.
            await process_run.end()

    async def _complete(self) -> Completed:
        stdout, stderr = Kept(self._command.largest_output), Kept(self._command.largest_output)
        process_run = self._begin((stdout, stderr))
        try:
            returncode = await process_run.ended()
        finally:
            await process_run.end()
        return Completed(returncode, stdout.text(), stderr.text())

    def _begin(self, output: Output) -> ProcessRun:
        if self._process_run is not None:
            raise RuntimeError("this run was started already, and it runs once: call run() again.")
        self._process_run = self._start(self._command, output)
        return self._process_run
