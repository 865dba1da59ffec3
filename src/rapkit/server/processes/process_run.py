"""The lifetime of a subprocess, from recording its token until no process of it is left."""

import asyncio
import logging
import secrets
import signal
from collections.abc import Awaitable, Callable
from typing import Any

from rapkit.errors import ToolError
from rapkit.server.processes.child_process import ChildProcess
from rapkit.server.processes.command import Command
from rapkit.server.processes.leftovers import kill_carriers
from rapkit.server.processes.output import Lines, Output
from rapkit.server.processes.process_groups import DIES_WITHIN, end_group, group_is_gone, signal_group
from rapkit.server.processes.process_table import PROC, can_look

_LINGER = 0.5
_WRITTEN_WITHIN = 5.0

log = logging.getLogger("rapkit.processes")


class ProcessRun:
    """A process group from its record to its end, in a task of its own: those who wait for it can be cancelled at any moment."""

    def __init__(
        self,
        command: Command,
        output: Output,
        record: Callable[[str], Awaitable[None]],
        forget: Callable[[str], Awaitable[None]],
        grace: float,
    ) -> None:
        self.returncode: int | None = None
        self._command = command
        self._output = output
        self._record = record
        self._forget = forget
        self._grace = grace
        self._late = False
        self._told = False
        self._stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._live())

    def stop(self) -> None:
        """Let it end; nothing is awaited."""
        if not self._stop.done():
            self._stop.set_result(None)

    async def ended(self) -> int:
        """How the program ended by itself, once nothing of the run is left."""
        await asyncio.wait({self.task})
        self._told = True
        self.task.result()
        program, timeout = self._command.program, self._command.timeout
        if self._late:
            raise ToolError(f"{program!r} did not finish within {timeout:g} s and was stopped")
        if self._stop.done() or self.returncode is None:
            raise ToolError(f"{program!r} was stopped, because the call is over")
        return self.returncode

    async def end(self) -> None:
        """Stop it unless it is over, and return when nothing is left, however often we are cancelled meanwhile."""
        try:
            if not self.task.done():
                self.stop()
                await wait_uncancelled(self.task)
        finally:
            # The caller is on its way out with an error or a cancellation of its own, which must not give way to this one.
            if not self._told and not self.task.cancelled() and (error := self.task.exception()) is not None:
                log.error("a run of %r that was stopped ended with an error", self._command.program, exc_info=error)

    async def _live(self) -> None:
        token = secrets.token_hex(16)
        if not await self._written(self._record(token)):
            return
        if self._stop.done() or await self._run(token):
            await self._written(self._forget(token))
        else:
            # The record stays: the worker that takes the call over tries again.
            log.error("processes of %r could not be ended", self._command.program)

    async def _written(self, work: Awaitable[None]) -> bool:
        """Have it written; but a store that does not answer must not hold up those who want to stop. A record too many does no harm."""
        task = asyncio.ensure_future(work)
        await _first(None, task, self._stop)
        await _first(_WRITTEN_WITHIN, task)
        if not task.done():
            task.cancel()
            log.warning("the record of a run of %r was left as it is: the store takes too long", self._command.program)
            return False
        task.result()
        return True

    async def _run(self, token: str) -> bool:
        """Start the program and see it out; whether nothing of it is left."""
        try:
            popen = self._command.start(token, together=isinstance(self._output, Lines))
        except (OSError, ValueError, ToolError):
            await self._written(self._forget(token))
            raise
        child = ChildProcess(popen, self._output, self._command.input)
        try:
            return await self._see_out(token, child)
        except asyncio.CancelledError:
            # The event loop is closing, as nothing else knows this task: no time for a grace.
            signal_group(child.group, signal.SIGKILL)
            await group_is_gone(child.group, child.exited, DIES_WITHIN)
            raise
        finally:
            child.close()

    async def _see_out(self, token: str, child: ChildProcess) -> bool:
        """Wait until the program ends or has to; whether nothing of it is left then."""
        await _first(self._command.timeout, child.exited, self._stop)
        interrupted = not child.exited.done()
        self._late = interrupted and not self._stop.done()
        if isinstance(self._output, Lines):
            self._output.hurry()
        if not interrupted:
            # What it left running may have a last word to say: the `tee` a script sent its output through, for one.
            await _first(_LINGER, child.drained, self._stop)
        gone = await end_group(child.group, child.exited, self._grace)
        if interrupted and can_look(PROC):
            # Also those that left the group: they were not meant to be left behind.
            gone = await asyncio.to_thread(kill_carriers, (token,), DIES_WITHIN, PROC) and gone
        # Only a daemon still holds the pipes; what the others wrote is in them.
        await _first(_LINGER, child.drained)
        self.returncode = child.exited.result() if child.exited.done() else None
        return gone


async def wait_uncancelled(*tasks: asyncio.Task[None]) -> None:
    """Return when all are done; if we are cancelled before, then with that."""
    cancelled: asyncio.CancelledError | None = None
    while not all(task.done() for task in tasks):
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


async def _first(patience: float | None, *futures: asyncio.Future[Any]) -> None:
    await asyncio.wait(futures, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
