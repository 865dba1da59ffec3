"""Make the standard streams safe to use when they are closed, full, or limited in encoding."""

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_NO_OUTPUT = 1


class OutputLost(OSError):
    """Standard output cannot be written, and not because its reader has gone, which is `BrokenPipeError`."""


class _Output(io.FileIO):
    """Standard output, whose failures cannot be taken for those of other files."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            raise OutputLost(error.errno, error.strerror) from None


class _Complaints(io.FileIO):
    """Standard error, whose failure cannot be reported: what cannot be written there is lost, and the work goes on."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            return memoryview(data).nbytes


@contextlib.contextmanager
def standard_streams() -> Iterator[None]:
    """No command need care: all three are there, any letter can be printed, and what cannot be written is one line and exit code 1.

    A stream that is closed is one on nothing. A letter that the encoding has not is a question mark.
    """
    # In this order, so that each gets the lowest number that is free, which is its own, and no store or connection does.
    sys.stdin = sys.stdin or _nothing("r")
    sys.stdout = _guarded(sys.stdout, _Output) or _nothing("w")
    sys.stderr = _guarded(sys.stderr, _Complaints) or _nothing("w")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # Python's own, at the very end, would fail with a traceback
    except OutputLost as error:
        _write_no_more()
        with contextlib.suppress(BrokenPipeError):
            sys.stderr.write(f"rapkit: standard output cannot be written: {error.strerror}.\n")
        sys.exit(_NO_OUTPUT)
    except BrokenPipeError:
        _write_no_more()
        sys.exit(_NO_OUTPUT)


def _nothing(mode: Literal["r", "w"]) -> TextIO:
    stream = open(os.devnull, mode, encoding="utf-8", errors="replace")  # noqa: SIM115 - as long as the process
    os.set_inheritable(stream.fileno(), True)
    return stream


def _guarded(stream: TextIO | None, kind: type[io.FileIO]) -> TextIO | None:
    """The same file, written in the same manner. A stream that is not the process's own, or a Windows console, is left as it is."""
    if not isinstance(stream, io.TextIOWrapper) or stream not in (sys.__stdout__, sys.__stderr__):
        return stream
    stream.reconfigure(errors="replace")
    raw = getattr(stream.buffer, "raw", stream.buffer)
    if type(raw) is not io.FileIO:
        return stream
    guarded = kind(raw.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        guarded if stream.buffer is raw else io.BufferedWriter(guarded),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _write_no_more() -> None:
    """What is still in the buffer goes nowhere, instead of failing again when the process ends."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
