"""Embedded mode (RAP_EMBEDDED=1): listen on a free loopback port and print it as the only line on standard output."""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator

VARIABLE = "RAP_EMBEDDED"


def is_embedded() -> bool:
    """Whether the program that started us wants to be told the port."""
    return os.environ.get(VARIABLE) == "1"


@contextlib.contextmanager
def standard_output_for_the_port() -> Iterator[Callable[[int], None]]:
    """Keep standard output for one line, which the returned function writes; whatever else is printed goes to standard error."""
    with printing_to_standard_error() as output:
        yield lambda port: _write(output, json.dumps({"port": port}) + "\n")


@contextlib.contextmanager
def printing_to_standard_error() -> Iterator[int]:
    """Let what is printed go to standard error. Gives a descriptor of what was standard output before.

    The descriptor itself is redirected, because tools may print by themselves or through programs they start.
    """
    sys.stdout.flush()
    output = os.dup(1)
    os.dup2(2, 1)
    try:
        yield output
    finally:
        sys.stdout.flush()
        os.dup2(output, 1)
        os.close(output)


def _write(descriptor: int, line: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # a program that no longer reads has what it needs, or does not care
        os.write(descriptor, line.encode())
