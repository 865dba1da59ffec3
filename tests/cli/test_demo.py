"""The demo is run as a user runs it: the real command, with a real kill in it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "rapkit", "demo"]


@contextmanager
def demo(folder: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """The demo without a terminal, its temporary files in the folder."""
    process = subprocess.Popen(
        COMMAND,
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(15)
        assert process.stdout is not None
        process.stdout.close()


def servers_in(output: str) -> list[int]:
    return [int(pid) for pid in re.findall(r"process (\d+) serves", output)]


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def output(folder: Path) -> str:
    """What a whole run prints."""
    with demo(folder) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    return output


def test_a_call_outlives_a_kill_and_is_answered_once(output: str) -> None:
    first, second = servers_in(output)
    assert f"$ kill -9 {first}" in output
    assert first != second
    assert output.count("acknowledged in") == 3
    assert output.index("$ kill -9") < output.index('"It has been getting warmer in Oslo."')
    assert output.index("$ kill -9") < output.index("not known")
    assert "3 calls, 3 answers, none in a further" in output
    assert "postcards posted: 1" in output


def test_it_leaves_nothing_behind(output: str, folder: Path) -> None:
    assert all(map(is_gone, servers_in(output)))
    assert list(folder.iterdir()) == []


def test_its_times_are_measured(output: str) -> None:
    times = [float(seconds) for seconds in re.findall(r"^ *(\d+\.\d\d) s  ", output, re.MULTILINE)]
    acknowledged = [float(ms) for ms in re.findall(r"acknowledged in (\d+\.\d) ms", output)]
    (answered,) = map(float, re.findall(r"climate_report answers, (\d+\.\d) s after", output))
    assert times == sorted(times)
    assert all(0 < ms < 1000 for ms in acknowledged)
    # It takes three seconds, was interrupted after one, and begun again.
    assert 4 <= answered < 15


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_cleans_up_when_it_is_interrupted(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with demo(tmp_path) as process:
        assert process.stdout is not None
        output = ""
        while "send_postcard(" not in output:
            line = process.stdout.readline()
            assert line, output
            output += line
        process.send_signal(number)
        output += process.stdout.read()

    assert process.returncode == code, output
    assert "Traceback" not in output
    (server,) = servers_in(output)
    assert is_gone(server)
    assert list(tmp_path.iterdir()) == []


def test_it_fails_if_a_step_fails(tmp_path: Path) -> None:
    with demo(tmp_path, RAPKIT_SECRET_KEY="no key") as process:
        output, _ = process.communicate(timeout=60)

    assert process.returncode == 1
    assert "This should not have happened: the server did not start." in output
    assert "Traceback" not in output
    assert list(tmp_path.iterdir()) == []


def test_colours_are_only_where_they_are_wanted(output: str, tmp_path: Path) -> None:
    assert "\x1b" not in output
    with demo(tmp_path, RAPKIT_SECRET_KEY="no key", FORCE_COLOR="1") as process:
        coloured, _ = process.communicate(timeout=60)
    with demo(tmp_path, RAPKIT_SECRET_KEY="no key", FORCE_COLOR="1", NO_COLOR="1") as process:
        plain, _ = process.communicate(timeout=60)

    colour = re.compile(r"\x1b\[[0-9;]*3\dm")
    assert colour.search(coloured)
    assert not colour.search(plain)
