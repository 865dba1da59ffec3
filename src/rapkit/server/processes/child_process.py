"""A started subprocess and its pipes."""

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from typing import IO

from rapkit.server.processes.output import Kept, Lines, Output
from rapkit.server.processes.process_groups import signal_group

_AT_ONCE = 64 * 1024


class ChildProcess:
    """A program that was started, as the event loop sees it.

    Not by the loop's own means: uvloop gives a program sockets, which cannot be opened as /dev/stderr, and more descriptors than it should
    have; and its pipes close a descriptor twice, the second time perhaps somebody else's (MagicStack/uvloop#763).
    """

    def __init__(self, popen: subprocess.Popen[bytes], output: Output, input: bytes | None) -> None:  # noqa: A002
        loop = asyncio.get_running_loop()
        self.group = popen.pid
        self.exited: asyncio.Future[int] = loop.create_future()
        self._popen = popen
        sinks: tuple[Lines | Kept, ...] = (output,) if isinstance(output, Lines) else output
        files = zip((popen.stdout, popen.stderr), sinks, strict=False)
        readers = [_Reader(file, sink) for file, sink in files if file is not None]
        self.drained = asyncio.gather(*(reader.ended for reader in readers))
        self._ends: list[_Reader | _Writer] = [*readers]
        if popen.stdin is not None:
            self._ends.append(_Writer(popen.stdin, input or b""))
        try:
            threading.Thread(target=self._wait, args=(loop,), name=f"rapkit-run-{self.group}", daemon=True).start()
        except RuntimeError:  # the system has no thread to give
            signal_group(self.group, signal.SIGKILL)
            popen.wait()
            self.close()
            raise

    def close(self) -> None:
        """Let go of its pipes."""
        for end in self._ends:
            end.close()

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        returncode = self._popen.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed, and no task waits for it any more
            loop.call_soon_threadsafe(self.exited.set_result, returncode)


class _Reader:
    """The reading end of a pipe that the program writes to."""

    def __init__(self, file: IO[bytes], sink: Lines | Kept) -> None:
        self._loop = asyncio.get_running_loop()
        self._file = file
        self._sink = sink
        self.ended: asyncio.Future[None] = self._loop.create_future()
        os.set_blocking(file.fileno(), False)
        self.resume()
        if isinstance(sink, Lines):
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
    """The writing end of the pipe that the program reads from."""

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
