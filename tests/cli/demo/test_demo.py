"""The demo is run as a user runs it: the real command with its real kills, in a terminal and without one.

Two whole runs go on behind the shorter tests, which therefore stand first.
"""

import contextlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from unittest import mock

import pytest

from rapkit.cli import main
from rapkit.cli.demo.process import DemoProcess
from tests.cli.demo_recording import Recording
from tests.cli.demo_runs import DemoRun, demo, environment, nothing_runs, summary_of, wait_until

CHAPTERS = (
    "Three processes",
    "One request, two calls",
    "The agent sleeps",
    "kill -9, everything",
    "They come back, and so does the result",
    "An event wakes a child thread",
    "A question waits for a person",
    "The end",
)


@dataclass
class Runs:
    """Two whole runs at the same time: without a terminal, and in one, which is made narrow and then wide."""

    plain: DemoRun
    recording: Recording
    recording_folder: Path

    @cached_property
    def screens(self) -> dict[str, str]:
        """What was on the screen last in each chapter."""
        return self.recording.screens()

    def ended(self) -> "Runs":
        """All of them, and none has failed."""
        assert self.plain.ended() == 0, self.plain.out + self.plain.err
        assert self.recording.ended() == 0, self.recording.raw.decode()
        return self


@pytest.fixture(scope="module", autouse=True)
def going_on(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with ExitStack() as running:
        inside = tmp_path_factory.mktemp("terminal")
        recording = Recording(inside, (24, 80), {4: (24, 60), 6: (30, 130)})
        running.callback(recording.close)
        plain = running.enter_context(demo(tmp_path_factory.mktemp("plain") / "run"))
        yield Runs(plain, recording, inside)


@pytest.fixture(scope="module")
def runs(going_on: Runs) -> Runs:
    return going_on.ended()


@pytest.mark.parametrize(
    ("number", "code", "when"),
    [
        (signal.SIGINT, 130, "is started"),
        (signal.SIGTERM, 143, "(starts, pid"),
        (signal.SIGHUP, 129, "(starts, pid"),
    ],
    ids=["Ctrl-C", "terminated", "hung up"],
)
def test_stopped_half_way_it_leaves_nothing_behind(
    tmp_path: Path, number: signal.Signals, code: int, when: str
) -> None:
    with demo(tmp_path / "run") as run:
        run.until(when)
        assert run.stop(number) == code
        assert "Stopped half-way" in run.err
        assert "Traceback" not in run.err
        wait_until(run.is_gone)


def test_killed_it_leaves_nothing_behind_either(tmp_path: Path) -> None:
    with demo(tmp_path / "run") as run:
        run.until("is started")
        run.stop(signal.SIGKILL)
        wait_until(run.is_gone)


BREAKING = """
import rapkit.cli.demo as demo
from rapkit.cli import main
from rapkit.cli.demo.sandbox import Sandbox

class Broken(Sandbox):
    def __enter__(self):
        super().__enter__()
        (self.folder / {file!r}).write_text({text!r})
        return self

demo.Sandbox, demo._PATIENCE, demo.sys.argv[1:] = Broken, 3.0, ["demo"]
main()
"""


@pytest.mark.parametrize(
    ("file", "text", "complaint", "log"),
    [
        ("ops.py", "this is no Python", "rapkit serve ops.py --port", "ops.py"),
        ("plan.yaml", "- say: I would rather not.", "Expected: the model calls load_test", "runtime's log"),
    ],
    ids=["a server that cannot start", "a step that does not happen"],
)
def test_a_step_that_fails_is_told_with_the_log_and_exit_code_1(
    tmp_path: Path, file: str, text: str, complaint: str, log: str
) -> None:
    with demo(tmp_path / "run", script=BREAKING.format(file=file, text=text)) as run:
        assert run.ended() == 1, run.out + run.err
        assert complaint in run.err
        assert log in run.err.partition("The last lines of")[2]
        assert "Traceback" not in run.err
        assert "Measured in this run" not in run.out
        wait_until(run.is_gone)


def test_a_disk_that_has_no_room_is_told_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["rapkit", "demo"])
    with room(2 * 1024**2), pytest.raises(SystemExit) as end:
        main()

    assert end.value.code == 2
    complaint = f"The demo needs 50 MB for a moment, and {tmp_path} has 2 left."
    remedy = "Make room, or set TMPDIR to a folder that has some."
    assert capsys.readouterr() == ("", f"rapkit: {complaint} {remedy}\n")
    assert not list(tmp_path.iterdir())


def test_a_disk_that_became_full_is_told_where_a_log_cannot_say_it(tmp_path: Path) -> None:
    process = DemoProcess("runtime", (), tmp_path, 20000, "/", lambda _word: None)
    with room(4096):
        assert process.tail() == f"The last lines of runtime's log:\n  There are 4 KB left on the disk of {tmp_path}."
    assert process.tail() == "The last lines of runtime's log:\n  -"


def room(free: int) -> "contextlib.AbstractContextManager[object]":
    """A disk that has so many bytes left."""
    return mock.patch.object(shutil, "disk_usage", return_value=mock.Mock(free=free))


UNWRITABLE = """
import rapkit.cli.demo as demo
from rapkit.cli import main
from rapkit.cli.standard_streams import OutputLost

def line(self, line):
    raise OutputLost(28, "No space left on device")

demo.PlainOutput.line, demo.sys.argv[1:] = line, ["demo"]
main()
"""


def test_an_output_that_becomes_full_ends_it(tmp_path: Path) -> None:
    with demo(tmp_path / "run", script=UNWRITABLE) as run:
        assert run.ended() == 1
        assert run.err == "rapkit: standard output cannot be written: No space left on device.\n"
        assert not list(run.folder.iterdir())


def test_a_reader_that_goes_away_ends_it(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "rapkit", "demo"],
        env=environment(temporary),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        process.stdout.read(10)
        process.stdout.close()
        complaint = process.stderr.read()
        assert process.wait(60) != 0
    assert b"Traceback" not in complaint
    assert not list(temporary.iterdir())


def test_without_a_terminal_every_step_is_a_line(runs: Runs) -> None:
    out = runs.plain.out
    headings = re.findall(r"^\d/8  (.+)$", out, re.MULTILINE)
    assert tuple(headings) == CHAPTERS
    assert "\x1b" not in out
    times = [float(seconds) for seconds in re.findall(r"^ *(\d+\.\d\d) s  ", out, re.MULTILINE)]
    assert times == sorted(times)
    assert runs.plain.err == ""


def test_all_are_killed_while_the_agent_sleeps_and_the_result_still_comes(runs: Runs) -> None:
    out = runs.plain.out
    started = re.findall(r"\(starts, pid (\d+)\)", out)
    killed = re.findall(r"kill -9 (\d+)", out)
    again = re.findall(r"\(starts again, pid (\d+)\)", out)
    assert started == killed
    assert len(again) == 3
    assert not set(again) & set(killed)
    order = ("load_test(build=42", "asleep: 0 workers", "kill -9", "starts again", "← lab    load_test: Build 42 holds")
    assert [out.index(words) for words in order] == sorted(out.index(words) for words in order)


def test_then_come_a_child_thread_a_question_and_an_orderly_end(runs: Runs) -> None:
    out = runs.plain.out
    order = (
        *("event of watch_alerts", "a child thread is made", "child    reports: The alert is harmless"),
        *("Roll out build 42? [Now] [Tonight] [Not at all]", "with 0 tools and 0 workers running", "you      Now"),
        *("Build 42 goes live: now.", "you      close the thread", "(1 before, 0 now)", "with exit code 0"),
    )
    assert [out.index(words) for words in order] == sorted(out.index(words) for words in order)


def test_what_the_summary_says_was_measured(runs: Runs) -> None:
    out = runs.plain.out
    measured = summary_of(out)
    assert all(re.search(r"\d", words) for words in measured.values()), measured
    workers = set(re.findall(r"worker   pid (\d+) is started", out))
    assert measured["workers"] == f"{len(workers)} came, 0 are left"
    assert measured["left behind"] == f"0 of {len(workers) + 6} processes, no file"
    assert measured["exactly once"].startswith("4 calls, 4 answers")
    assert measured["load test"].startswith("begun 2 times; the second went on after ")
    acknowledged = re.search(r"load_test\(.+\)  \(acknowledged after (\d+ ms)\)", out)
    assert acknowledged is not None
    assert acknowledged[1] in measured["slow call"]
    slept, total = (float(re.findall(r"[\d.]+", measured[about])[0]) for about in ("asleep", "in all"))
    assert 1.5 <= slept < total


def test_nothing_is_left_behind(runs: Runs) -> None:
    assert runs.plain.is_gone()
    assert nothing_runs(runs.recording.afterwards())
    assert not list(runs.recording_folder.iterdir())


def test_in_a_terminal_there_is_a_picture_of_every_chapter(runs: Runs) -> None:
    assert tuple(runs.screens) == CHAPTERS
    asleep, killed, back = (runs.screens[CHAPTERS[number]] for number in (2, 3, 4))
    assert re.search(r"○ worker +none", asleep)
    assert re.search(r"● lab +pid \d+ +load_test ━", asleep)
    assert re.search(r"▤ thread +waiting +for load_test, watch_alerts", asleep)
    assert len(re.findall(r"✗ \w+ +killed", killed)) == 3
    assert len(re.findall(r"● \w+ +pid \d+", back)) >= 3
    assert "you     Now" in runs.screens[CHAPTERS[6]]


@pytest.mark.parametrize(("chapter", "columns"), [(3, 60), (4, 60), (6, 130)], ids=["narrow", "later", "wide"])
def test_the_picture_follows_the_size_of_the_terminal(runs: Runs, chapter: int, columns: int) -> None:
    lines = runs.screens[CHAPTERS[chapter]].splitlines()
    frames = [line for line in lines if line.startswith(("╭", "╰"))]
    assert frames
    assert {len(line) for line in frames} == {columns}
    # Nothing of another size is left on the screen: all lines are part of the picture.
    assert all(line.startswith(("rapkit demo", "╭", "│", "╰")) for line in lines if line)


def test_after_the_picture_the_story_and_the_summary_stay(runs: Runs) -> None:
    told, raw = runs.recording.afterwards(), runs.recording.raw
    assert all(f"{number}/8" in told and title in told for number, title in enumerate(CHAPTERS, 1))
    assert summary_of(told).keys() == summary_of(runs.plain.out).keys()
    assert raw.count(b"\x1b[?1049h") == raw.count(b"\x1b[?1049l") == 1
    assert raw.rindex(b"\x1b[?25h") > raw.rindex(b"\x1b[?25l")  # the cursor is back
