"""The command of `rapkit up --on-accept`, as a process that may do as it likes. That it wakes an agent is shown in `test_wake`."""

import logging
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rapkit.cli import on_accept
from rapkit.cli.on_accept import OnAcceptCommand
from rapkit.work import background
from tests.log_records import ours
from tests.server.served_toolset import until

NEVER = 3600.0
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(3600)
"""


@pytest.fixture(autouse=True)
def everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="rapkit.on_accept")


def counting(folder: Path, then: str) -> str:
    """A command that adds a line with its process id to a file, and goes on like this."""
    script = folder / "command.py"
    script.write_text(f"import os\nprint(os.getpid(), file=open({str(folder / 'runs')!r}, 'a'))\n{then}")
    return shlex.join([sys.executable, str(script)])


def runs(folder: Path) -> list[int]:
    """The processes there were."""
    return [int(line) for line in (folder / "runs").read_text().split()] if (folder / "runs").exists() else []


@asynccontextmanager
async def commanding(command: str, at_most: float = NEVER) -> AsyncIterator[OnAcceptCommand]:
    bell = OnAcceptCommand(command, at_most)
    task = background.start(bell.run, "running the command")
    try:
        yield bell
        assert not task.done()
    finally:
        await background.end(task)


def told(caplog: pytest.LogCaptureFixture, level: int) -> Callable[[str], bool]:
    return lambda text: any(record.levelno == level and text in record.getMessage() for record in ours(caplog))


def is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


async def test_what_it_prints_is_logged_to_the_last_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    last = "import sys\nprint('one')\nprint('two', file=sys.stderr, flush=True)\nsys.stdout.write('three')"
    async with commanding(counting(tmp_path, last)) as bell:
        await bell.trigger("t1")

        await until(lambda: told(caplog, logging.INFO)("three"))
    assert sorted(record.getMessage() for record in ours(caplog)) == ["one", "three", "two"]


async def test_a_line_of_a_log_of_its_own_is_not_given_a_second_time_and_level(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = "print('2026-11-16 12:04:31 WARNING rapkit.agent: Tools are far.  server=a b')\nprint('12:04 INFO x')\nprint('end')"
    async with commanding(counting(tmp_path, lines)) as bell:
        await bell.trigger("t1")
        await until(lambda: told(caplog, logging.INFO)("end"))

    assert [(record.levelno, record.getMessage()) for record in ours(caplog)] == [
        (logging.WARNING, "rapkit.agent: Tools are far.  server=a b"),
        (logging.INFO, "12:04 INFO x"),
        (logging.INFO, "end"),
    ]


@pytest.mark.parametrize(
    ("words", "wakes"),
    [
        ([sys.executable, "-m", "rapkit", "wake"], True),
        (["env", "A=1", "/usr/bin/rapkit", "wake", "--at-most", "5m"], True),
        (["env", "rapkit", "up"], False),
        (["env", "wake"], False),
    ],
    ids=["module", "path", "up", "other"],
)
def test_rapkit_wake_is_told_from_other_commands(words: list[str], wakes: bool) -> None:
    assert OnAcceptCommand(shlex.join(words), NEVER).wakes is wakes


async def test_one_that_takes_long_is_told_of_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_accept, "_LONG", 0.05)
    gate = tmp_path / "gate"
    patient = f"import time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\nprint('done')"
    async with commanding(counting(tmp_path, patient)) as bell:
        await bell.trigger("t1")
        await until(lambda: told(caplog, logging.WARNING)("has been running for 0.05 s"))
        assert len(runs(tmp_path)) <= 1

        gate.touch()
        await until(lambda: told(caplog, logging.INFO)("done"))
    assert not [record for record in ours(caplog) if record.levelno >= logging.ERROR]


async def test_one_that_hangs_is_ended_and_the_next_ring_runs_it_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with commanding(counting(tmp_path, "import time\ntime.sleep(3600)"), at_most=0.05) as bell:
        await bell.trigger("t1")
        await until(lambda: told(caplog, logging.ERROR)("is told to end: it has been running for 0.05 s"))
        await bell.trigger("t2")
        await until(lambda: sum(record.levelno == logging.ERROR for record in ours(caplog)) >= 2)
    assert all(map(is_gone, runs(tmp_path)))


async def test_one_that_does_not_hear_that_it_is_to_end_is_killed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_accept, "_GRACE", 0.1)
    pid = tmp_path / "pid"
    program = f"import os\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\n{STUBBORN}"
    command = OnAcceptCommand(shlex.join([sys.executable, "-c", program]), NEVER)
    task = background.start(command.run, "running the command")
    await command.trigger("t1")
    await until(lambda: told(caplog, logging.INFO)("deaf"))

    await background.end(task)
    assert is_gone(int(pid.read_text()))


async def test_what_it_leaves_running_is_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process in the background has the same standard output, and keeps it open."""
    monkeypatch.setattr(on_accept, "_LAST_WORDS", 0.5)
    pids = tmp_path / "left"
    leave = (
        "import subprocess, sys\n"
        "left = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'])\n"
        f"print(left.pid, file=open({str(pids)!r}, 'a'))\n"
        "print('gone')\n"
    )
    try:
        async with commanding(counting(tmp_path, leave)) as bell:
            for number in range(1, 3):
                await bell.trigger("t1")
                await until(lambda number=number: len(runs(tmp_path)) == number)  # type: ignore[misc]
            await until(lambda: [record.getMessage() for record in ours(caplog)] == ["gone"] * 2)
    finally:
        for pid in pids.read_text().split():
            os.kill(int(pid), signal.SIGKILL)
