"""Programs that a handler runs, and that never outlive its call.

Each run is a process group (and session) of its own. It is over when its leader, the program itself, is over: what the leader left running
in the group is then ended too. If the run is cancelled, abandoned or out of time, the group gets SIGTERM and, after a grace, SIGKILL.

A server that is killed can end nothing. So that its successor can, each run has a random token that was made durable before the program was
started and stands in its environment, which children inherit; `kill_leftovers` finds the processes by it. That is safe whenever the server
dies: a token whose program was never started is carried by nobody, and a process that was given a dead one's pid does not carry the token.

What gets away: a program that became a daemon in a session of its own, if its run then ended by itself (that is how one leaves a daemon
behind on purpose); what another service was asked to run (docker, cron, systemd); what runs as another user (sudo); and after a crash, on
Linux, a group in which every process cleared, overwrote or hid its environment. Elsewhere nothing can be found after a crash.
"""

import asyncio
import contextlib
import errno
import logging
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple

from rapkit.errors import ToolError
from rapkit.secret import secret_variables

_VARIABLE = "RAPKIT_RUN"
_LONGEST_LINE = 64 * 1024
_MOST_WAITING = 64 * 1024
_LINES_AT_ONCE = 100
_AT_ONCE = 64 * 1024
_LARGEST_PIPE = 1024 * 1024
_LINGER = 0.5
_DIES_WITHIN = 5.0
_PAUSE = 0.02
_MOST_LOOKS = 20
_PROC = Path("/proc")
# What a wrong program, argument or folder leads to. Anything else, such as too many open files, is the server's own trouble.
_MISTAKES = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.E2BIG, errno.ENAMETOOLONG)

log = logging.getLogger("rapkit.processes")


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
        self._lives: set[_Life] = set()
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
        at most 64 KiB; while nobody takes them the program has to wait.

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
        return Run(_Command(words, where, given, data, timeout, largest_output), self._start)

    def stop(self) -> None:
        """End what runs and start nothing more: the call is over, even if its handler does not know."""
        self._stopped = True
        for life in self._lives:
            life.stop()

    async def close(self) -> None:
        """`stop`, and return when nothing is left, also if cancelled meanwhile."""
        self.stop()
        await _outlast(*(life.task for life in self._lives))

    def _start(self, command: "_Command", output: "_Output") -> "_Life":
        if self._stopped:
            raise ToolError(f"{command.program!r} was not started, because the call is over")
        life = _Life(command, output, self._record, self._forget, self._grace)
        self._lives.add(life)
        life.task.add_done_callback(lambda _: self._lives.discard(life))
        return life


class Run:
    """One run of a program: await it, or iterate over its lines."""

    def __init__(self, command: "_Command", start: "Callable[[_Command, _Output], _Life]") -> None:
        self._command = command
        self._start = start
        self._life: _Life | None = None

    @property
    def returncode(self) -> int | None:
        """How the program ended; None until nothing of the run is left."""
        return None if self._life is None else self._life.returncode

    def __await__(self) -> Generator[Any, None, Completed]:
        return self._complete().__await__()

    async def __aiter__(self) -> AsyncGenerator[str, None]:
        lines = _Lines()
        life = self._begin(lines)
        life.task.add_done_callback(lambda _: lines.end())
        try:
            while (line := await lines.next()) is not None:
                yield line
            await life.ended()
        finally:
            # Reached too when the caller's loop is left early: asyncio closes an iterator that nobody holds any more.
            await life.end()

    async def _complete(self) -> Completed:
        stdout, stderr = _Kept(self._command.largest_output), _Kept(self._command.largest_output)
        life = self._begin((stdout, stderr))
        try:
            returncode = await life.ended()
        finally:
            await life.end()
        return Completed(returncode, stdout.text(), stderr.text())

    def _begin(self, output: "_Output") -> "_Life":
        if self._life is not None:
            raise RuntimeError("this run was started already, and it runs once: call run() again.")
        self._life = self._start(self._command, output)
        return self._life


async def kill_leftovers(tokens: Collection[str], *, patience: float = _DIES_WITHIN, proc: Path = _PROC) -> bool:
    """Kill what a dead server left running on this machine under these tokens; whether nothing of it can be found any more.

    Whole process groups die, at once and without a grace: all that hold a process with one of the tokens, but our own. Returns when they
    are gone, or after `patience` seconds. Only processes of our own user can be looked at; without Linux' /proc none can be found, which
    is logged once.
    """
    if not tokens:
        return True
    if not _can_look(proc):
        _say_that_we_cannot_look()
        return False
    return await asyncio.to_thread(_kill_carriers, tokens, patience, proc)


class _Command(NamedTuple):
    argv: tuple[str, ...]
    cwd: str | None
    env: Mapping[str, str] | None
    input: bytes | None
    timeout: float | None
    largest_output: int

    @property
    def program(self) -> str:
        # All that is ever told of a command: the other words may hold passwords.
        return self.argv[0]

    def start(self, token: str, *, together: bool) -> "subprocess.Popen[bytes]":
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
        return {**given, _VARIABLE: token}

    def _mistake(self, error: OSError) -> ToolError:
        if self.cwd is not None and not Path(self.cwd).is_dir():
            return ToolError(f"there is no folder {self.cwd!r} to run {self.program!r} in")
        if error.errno == errno.ENOENT:
            return ToolError(f"there is no program {self.program!r}")
        return ToolError(f"{self.program!r} cannot be run: {os.strerror(error.errno or 0)}")


class _Life:
    """A process group from its record to its end, in a task of its own: those who wait for it can be cancelled at any moment."""

    def __init__(
        self,
        command: _Command,
        output: "_Output",
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
                await _outlast(self.task)
        finally:
            # Whoever called is on the way out with an error or a cancellation of its own, which must not give way to this one.
            if not self._told and not self.task.cancelled() and (error := self.task.exception()) is not None:
                log.error("a run of %r that was stopped ended with an error", self._command.program, exc_info=error)

    async def _live(self) -> None:
        token = secrets.token_hex(16)
        if not await self._written(self._record(token)):
            return
        if self._stop.done() or await self._run(token):
            await self._written(self._forget(token))
        else:
            # The record stays: whoever takes the call over tries again.
            log.error("processes of %r could not be ended", self._command.program)

    async def _written(self, work: Awaitable[None]) -> bool:
        """Have it written; but a store that does not answer must not hold up those who want to stop. A record too many does no harm."""
        task = asyncio.ensure_future(work)
        await _first(None, task, self._stop)
        await _first(_DIES_WITHIN, task)
        if not task.done():
            task.cancel()
            log.warning("the record of a run of %r was left as it is: the store takes too long", self._command.program)
            return False
        task.result()
        return True

    async def _run(self, token: str) -> bool:
        """Start the program and see it out; whether nothing of it is left."""
        try:
            popen = self._command.start(token, together=isinstance(self._output, _Lines))
        except (OSError, ValueError, ToolError):
            await self._written(self._forget(token))
            raise
        leader = _Leader(popen, self._output, self._command.input)
        try:
            return await self._see_out(token, leader)
        except asyncio.CancelledError:
            # The event loop is closing, as nobody else knows this task: no time for a grace.
            _signal(leader.group, signal.SIGKILL)
            await _gone(leader.group, leader.exited, _DIES_WITHIN)
            raise
        finally:
            leader.close()

    async def _see_out(self, token: str, leader: "_Leader") -> bool:
        """Wait until the program ends or has to; whether nothing of it is left then."""
        await _first(self._command.timeout, leader.exited, self._stop)
        interrupted = not leader.exited.done()
        self._late = interrupted and not self._stop.done()
        if isinstance(self._output, _Lines):
            self._output.hurry()
        if not interrupted:
            # What it left running may have a last word to say: the `tee` a script sent its output through, for one.
            await _first(_LINGER, leader.drained, self._stop)
        gone = await _end(leader.group, leader.exited, self._grace)
        if interrupted and _can_look(_PROC):
            # Also those who left the group: nobody meant to leave them behind.
            gone = await asyncio.to_thread(_kill_carriers, (token,), _DIES_WITHIN, _PROC) and gone
        # Nobody but a daemon still holds the pipes; what the others wrote is in them.
        await _first(_LINGER, leader.drained)
        self.returncode = leader.exited.result() if leader.exited.done() else None
        return gone


class _Leader:
    """A program that was started, as the event loop sees it.

    Not by the loop's own means: uvloop gives a program sockets, which cannot be opened as /dev/stderr, and more descriptors than it should
    have; and its pipes close a descriptor twice, the second time perhaps somebody else's (MagicStack/uvloop#763).
    """

    def __init__(self, popen: "subprocess.Popen[bytes]", output: "_Output", input: bytes | None) -> None:  # noqa: A002
        loop = asyncio.get_running_loop()
        self.group = popen.pid
        self.exited: asyncio.Future[int] = loop.create_future()
        self._popen = popen
        sinks: tuple[_Lines | _Kept, ...] = (output,) if isinstance(output, _Lines) else output
        files = zip((popen.stdout, popen.stderr), sinks, strict=False)
        readers = [_Reader(file, sink) for file, sink in files if file is not None]
        self.drained = asyncio.gather(*(reader.ended for reader in readers))
        self._ends: list[_Reader | _Writer] = [*readers]
        if popen.stdin is not None:
            self._ends.append(_Writer(popen.stdin, input or b""))
        try:
            threading.Thread(target=self._wait, args=(loop,), name=f"rapkit-run-{self.group}", daemon=True).start()
        except RuntimeError:  # the system has no thread to give
            _signal(self.group, signal.SIGKILL)
            popen.wait()
            self.close()
            raise

    def close(self) -> None:
        for end in self._ends:
            end.close()

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        returncode = self._popen.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody wants to know any more
            loop.call_soon_threadsafe(self.exited.set_result, returncode)


class _Reader:
    """Our end of a pipe the program writes to."""

    def __init__(self, file: IO[bytes], sink: "_Lines | _Kept") -> None:
        self._loop = asyncio.get_running_loop()
        self._file = file
        self._sink = sink
        self.ended: asyncio.Future[None] = self._loop.create_future()
        os.set_blocking(file.fileno(), False)
        self.resume()
        if isinstance(sink, _Lines):
            sink.pipe = self

    def pause(self) -> None:
        if not self._file.closed:
            self._loop.remove_reader(self._file)

    def resume(self) -> None:
        if not self._file.closed:
            self._loop.add_reader(self._file, self._read)

    def close(self) -> None:
        self.pause()
        self._file.close()
        if not self.ended.done():
            self.ended.set_result(None)

    def _read(self) -> None:
        try:
            data = os.read(self._file.fileno(), _AT_ONCE)
        except BlockingIOError:
            return
        if data:
            self._sink.feed(data)
        else:
            self.close()


class _Writer:
    """Our end of the pipe the program reads from."""

    def __init__(self, file: IO[bytes], data: bytes) -> None:
        self._loop = asyncio.get_running_loop()
        self._file = file
        self._data = memoryview(data)
        os.set_blocking(file.fileno(), False)
        self._loop.add_writer(file, self._write)

    def close(self) -> None:
        if not self._file.closed:
            self._loop.remove_writer(self._file)
            self._file.close()

    def _write(self) -> None:
        try:
            self._data = self._data[os.write(self._file.fileno(), self._data[:_AT_ONCE]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # the program has read enough
            self._data = self._data[:0]
        if not self._data:
            self.close()


class _Kept:
    """The beginning and the end of a stream; what lies between is counted and left out."""

    def __init__(self, largest: int) -> None:
        self._most_tail = largest // 2
        self._most_head = largest - self._most_tail
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0

    def feed(self, data: bytes) -> None:
        room = self._most_head - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        excess = max(0, len(self._tail) - self._most_tail)
        del self._tail[:excess]
        self._left_out += excess

    def text(self) -> str:
        if not self._left_out:
            return (self._head + self._tail).decode(errors="replace")
        head, tail = self._head.decode(errors="replace"), self._tail.decode(errors="replace")
        return f"{head}\n[... {self._left_out:,} bytes left out ...]\n{tail}"


class _Lines:
    """Lines that wait to be taken. While too much waits, nothing more is read."""

    def __init__(self) -> None:
        self.pipe: _Reader | None = None
        self._waiting = bytearray()
        self._line = bytearray()
        self._left_out = 0
        self._taken = 0
        self._paused = False
        self._room: int | None = None
        self._dropped = 0
        self._over = False
        self._news = asyncio.Event()

    def feed(self, data: bytes) -> None:
        if self._room is not None:
            self._dropped += len(data[self._room :])
            data = data[: self._room]
            self._room -= len(data)
        self._waiting += data
        if len(self._waiting) > _MOST_WAITING and self._room is None:
            self._pause(True)
        self._news.set()

    async def next(self) -> str | None:
        self._taken += 1
        if self._taken % _LINES_AT_ONCE == 0:
            await asyncio.sleep(0)  # others want to run too, however much there is to take
        while (end := self._waiting.find(b"\n")) < 0:
            self._add(self._waiting)
            self._waiting.clear()
            if self._over:
                return self._rest()
            self._pause(False)
            self._news.clear()
            await self._news.wait()
        self._add(self._waiting[:end])
        del self._waiting[: end + 1]
        if len(self._waiting) <= _MOST_WAITING // 2:
            self._pause(False)
        return self._cut()

    def hurry(self) -> None:
        """The program is over or has to end, and must not wait for us any more. What its pipe can hold is still taken."""
        self._room = _LARGEST_PIPE
        self._pause(False)

    def end(self) -> None:
        self._over = True
        self._news.set()

    def _add(self, part: bytearray) -> None:
        room = _LONGEST_LINE - len(self._line)
        self._left_out += len(part[room:])
        self._line += part[:room]

    def _cut(self) -> str:
        line = self._line.decode(errors="replace").removesuffix("\r")
        if self._left_out:
            line += f" [... {self._left_out:,} bytes left out]"
        self._line.clear()
        self._left_out = 0
        return line

    def _rest(self) -> str | None:
        if self._line:
            return self._cut()
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            return f"[... {dropped:,} bytes left out]"
        return None

    def _pause(self, pause: bool) -> None:
        if self.pipe is not None and pause != self._paused:
            self._paused = pause
            (self.pipe.pause if pause else self.pipe.resume)()


_Output = _Lines | tuple[_Kept, _Kept]


async def _first(patience: float | None, *futures: "asyncio.Future[Any]") -> None:
    await asyncio.wait(futures, timeout=patience, return_when=asyncio.FIRST_COMPLETED)


async def _outlast(*tasks: "asyncio.Task[None]") -> None:
    """Return when all are done; if we are cancelled before, then with that."""
    cancelled: asyncio.CancelledError | None = None
    while not all(task.done() for task in tasks):
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


async def _end(group: int, exited: "asyncio.Future[int]", grace: float) -> bool:
    """End a process group; whether it is gone."""
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, _DIES_WITHIN)):
        # The group's number cannot have gone to somebody else: that takes a whole round of pids since the leader was over.
        if not _signal(group, number) and exited.done():
            return True
        if await _gone(group, exited, patience):
            return True
    return False


async def _gone(group: int, exited: "asyncio.Future[int]", patience: float) -> bool:
    loop = asyncio.get_running_loop()
    until = loop.time() + patience
    await asyncio.wait({exited}, timeout=patience)
    while not exited.done() or await asyncio.to_thread(_has_members, group):
        if loop.time() >= until:
            return False
        await asyncio.sleep(_PAUSE)
    return True


def _signal(group: int, number: int) -> bool:
    """Signal a process group; whether there was somebody to signal."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # the latter for processes of another user
        return False
    return True


def _has_members(group: int) -> bool:
    if not _signal(group, 0):
        return False
    # A zombie counts as one to signal; where nobody collects orphans, as in some containers, it stays for ever.
    return not _can_look(_PROC) or any(process.group == group for process in _processes(_PROC))


class _Process(NamedTuple):
    pid: int
    group: int
    started: int  # tells it from another one that was given its pid

    def environment(self, proc: Path) -> frozenset[bytes]:
        try:
            return frozenset((proc / str(self.pid) / "environ").read_bytes().split(b"\0"))
        except OSError:  # gone, or not ours to look at
            return frozenset()

    def kill_group(self) -> None:
        if self.group > 1:
            _signal(self.group, signal.SIGKILL)
        else:  # it is outside of our container, and by 0 and 1 the system would understand our own group, and everybody
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGKILL)


def _can_look(proc: Path) -> bool:
    return (proc / "self" / "environ").exists()


@cache
def _say_that_we_cannot_look() -> None:
    log.warning(
        "processes that a killed server left running cannot be found here, as there is no /proc: end them yourself"
    )


def _processes(proc: Path) -> Iterator[_Process]:
    """All processes that live, those born while we look too. Zombies do not live."""
    seen: set[str] = set()
    for _ in range(_MOST_LOOKS):
        names = {name for name in os.listdir(proc) if name.isdigit()} - seen
        if not names:
            return
        seen |= names
        for name in names:
            try:
                stat = (proc / name / "stat").read_bytes()
            except OSError:  # gone
                continue
            # The second field is the program's name, which may hold anything, brackets and spaces too.
            fields = stat.rpartition(b")")[2].split()
            if fields and fields[0] not in (b"Z", b"X"):
                yield _Process(int(name), group=int(fields[2]), started=int(fields[19]))


def _kill_carriers(tokens: Collection[str], patience: float, proc: Path) -> bool:
    """Kill the groups of all processes with one of the tokens; whether they are gone."""
    marks = {f"{_VARIABLE}={token}".encode() for token in tokens}
    until = time.monotonic() + patience
    killed: set[_Process] = set()
    nothing_seen = 0
    while True:
        living, groups = set(), set()
        for process in _processes(proc):
            living.add(process)
            if process.group != os.getpgrp() and not marks.isdisjoint(process.environment(proc)):
                process.kill_group()  # at once, as the next moment it may have moved on
                killed.add(process)
                groups.add(process.group)
        killed = {process for process in living if process in killed or process.group in groups - {0, 1}}
        nothing_seen = 0 if killed else nothing_seen + 1
        if nothing_seen == 2:  # as one that is about to run another program has no environment for a moment
            return True
        if killed and time.monotonic() >= until:
            return False
        time.sleep(_PAUSE)
