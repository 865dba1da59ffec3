"""Being told to end, once and twice."""

import signal
import subprocess
import sys

import pytest

from tests.cli.command import PATIENCE

TOLD_TWICE = """
import signal, sys
from rapkit.cli.call.termination import Terminated, raise_on_first_signal

first, second, later = signal.Signals[sys.argv[1]], signal.Signals[sys.argv[2]], float(sys.argv[3])
clock = [0.0]
with raise_on_first_signal(lambda: clock[0]):
    try:
        signal.raise_signal(first)
    except Terminated as told:
        print(told.exit_code, flush=True)
    clock[0] += later
    signal.raise_signal(second)
    print("still here", flush=True)
"""


def told_twice(first: str, second: str, later: float) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-c", TOLD_TWICE, first, second, str(later)]
    return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.parametrize("second", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_the_second_signal_ends_it_at_once(second: str) -> None:
    ended = told_twice("SIGINT", second, 1.0)

    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.Signals[second], "130\n", "")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_one_that_is_passed_on_to_us_though_we_had_it_already_is_no_second_one(name: str) -> None:
    ended = told_twice(name, name, 0.01)

    assert (ended.returncode, ended.stdout) == (0, f"{128 + signal.Signals[name]}\nstill here\n")


IGNORED = """
import signal
from rapkit.cli.call.termination import raise_on_first_signal

signal.signal(signal.SIGHUP, signal.SIG_IGN)
with raise_on_first_signal():
    signal.raise_signal(signal.SIGHUP)
print("still here")
"""


def test_what_is_to_be_ignored_is() -> None:
    """As after `nohup`."""
    ended = subprocess.run([sys.executable, "-c", IGNORED], capture_output=True, text=True, timeout=PATIENCE)

    assert ended.stdout == "still here\n"
