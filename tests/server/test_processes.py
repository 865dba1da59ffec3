"""Programs run by a handler: what they get and give, and that nothing of them outlives the run, on asyncio's event loop and on uvloop's.

What is killed here are real processes. Those a test leaves behind fail it.
"""

import asyncio
import contextlib
import functools
import gc
import inspect
import logging
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from rapkit.errors import StoreError, ToolError
from rapkit.secret import read_secret
from rapkit.server.processes import Completed, Processes, kill_leftovers
from tests.log_records import our_messages, ours
from tests.server.served_toolset import until

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
ROOT = Path(__file__).parents[2]

# Two that ignore SIGTERM, a program and its child; each appends its pid to the file `pids`.
STUBBORN = """
trap '' TERM
sh -c 'echo $$ >> pids; exec sleep 1000' &
echo $$ >> pids
wait
"""


OTHERS: set[int] = set()
"""Child processes that were there before the tests of this module."""


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on asyncio's event loop and on uvloop's; nothing may be left of it, neither open pipes nor processes."""

    @functools.wraps(test)
    def run(*, loop: str, **fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(test(**fixtures))
        gc.collect()  # what was not closed warns now
        assert children() == []

    signature = inspect.signature(test)
    wanted = [*signature.parameters.values(), inspect.Parameter("loop", inspect.Parameter.KEYWORD_ONLY)]
    run.__signature__ = signature.replace(parameters=wanted)  # type: ignore[attr-defined]
    decorated: Callable[..., None] = pytest.mark.parametrize("loop", LOOPS)(run)
    return decorated


class Journal:
    """Where a test's server keeps its tokens."""

    def __init__(self) -> None:
        self.recorded: list[str] = []
        self.forgotten: list[str] = []

    async def record(self, token: str) -> None:
        await asyncio.sleep(0)
        self.recorded.append(token)

    async def forget(self, token: str) -> None:
        await asyncio.sleep(0)
        self.forgotten.append(token)

    @property
    def settled(self) -> bool:
        return bool(self.recorded) and sorted(self.recorded) == sorted(self.forgotten)


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def processes(journal: Journal) -> Processes:
    return Processes(journal.record, journal.forget, grace=0.1)


@pytest.fixture
def patient(journal: Journal) -> Processes:
    """Like `processes`, with more time to end than any test takes."""
    return Processes(journal.record, journal.forget, grace=60)


@pytest.fixture
def background() -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Starts programs that are not run by `Processes`, each in a group of its own."""
    started = []

    def start(*argv: str, **environment: str) -> "subprocess.Popen[bytes]":
        started.append(subprocess.Popen(argv, env={**os.environ, **environment}, start_new_session=True))
        return started[-1]

    yield start
    for program in started:
        program.kill()
        program.wait()


# What a program gets and gives


@on_both_loops
async def test_a_run_gives_what_the_program_wrote_and_how_it_ended(processes: Processes, journal: Journal) -> None:
    done = await processes.run(["sh", "-c", "echo out; echo problem >&2; exit 3"])

    assert done == Completed(3, "out\n", "problem\n")
    assert journal.settled


@on_both_loops
async def test_a_signal_that_ended_the_program_is_a_negative_number(processes: Processes) -> None:
    assert (await processes.run(["sh", "-c", "kill -HUP $$"])).returncode == -signal.SIGHUP


@on_both_loops
async def test_nothing_starts_before_it_is_awaited(processes: Processes, journal: Journal, tmp_path: Path) -> None:
    run = processes.run(["touch", "started"], cwd=tmp_path)
    await asyncio.sleep(0)
    assert run.returncode is None
    assert journal.recorded == []

    await run
    assert (tmp_path / "started").exists()
    assert run.returncode == 0


@on_both_loops
async def test_a_run_is_used_once(processes: Processes, journal: Journal) -> None:
    run = processes.run(["true"])
    await run
    with pytest.raises(RuntimeError, match="call run"):
        await run
    with pytest.raises(RuntimeError, match="call run"):
        [line async for line in run]

    assert len(journal.recorded) == 1


@pytest.mark.parametrize("line", ["git status", b"git status"])
def test_a_line_for_a_shell_is_refused_with_what_to_write(processes: Processes, line: Any) -> None:
    with pytest.raises(TypeError, match=r'\["git", "status"\].*no shell.*\["sh", "-c", line\]'):
        processes.run(line)


def test_no_program_at_all_is_refused(processes: Processes) -> None:
    with pytest.raises(ValueError, match="empty"):
        processes.run([])


@pytest.mark.parametrize("where", [{"argv": ["echo", "a\0b"]}, {"cwd": "/\0"}, {"env": {"A": "\0"}}])
def test_a_nul_character_is_refused_rather_than_cut_at(processes: Processes, where: dict[str, Any]) -> None:
    with pytest.raises(ToolError, match="NUL"):
        processes.run(**{"argv": ["echo"], **where})


@on_both_loops
async def test_arguments_are_passed_as_they_are(processes: Processes) -> None:
    words = ["$HOME; echo pwned", "*", "a b", "", "ünïcödé 😀", "'"]
    done = await processes.run(["printf", "%s\\n", *words])

    assert done.stdout.splitlines() == words


@on_both_loops
async def test_what_cannot_be_run_is_told_to_the_model(processes: Processes, journal: Journal, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("text")
    for argv, cwd, sentence in (
        (["no-such-program", "secret"], None, "there is no program 'no-such-program'"),
        ([str(tmp_path / "plain")], None, f"'{tmp_path}/plain' cannot be run: Permission denied"),
        (["echo", "x" * 10_000_000], None, "'echo' cannot be run: Argument list too long"),
        (["true"], tmp_path / "none", f"there is no folder '{tmp_path}/none' to run 'true' in"),
        (["true"], tmp_path / "plain", f"there is no folder '{tmp_path}/plain' to run 'true' in"),
    ):
        with pytest.raises(ToolError) as caught:
            await processes.run(argv, cwd=cwd)
        assert str(caught.value) == sentence
        with pytest.raises(ToolError):
            [line async for line in processes.run(argv, cwd=cwd)]

    assert journal.settled


@on_both_loops
async def test_a_program_has_the_folder_and_the_environment_it_is_given(processes: Processes, tmp_path: Path) -> None:
    done = await processes.run(["sh", "-c", "pwd; echo $COLOUR $HOME"], cwd=tmp_path, env={"COLOUR": "blue"})

    assert done.stdout == f"{tmp_path}\nblue\n"


@on_both_loops
async def test_the_servers_environment_is_inherited_without_rapkits_secrets(
    processes: Processes, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLOUR", "green")
    monkeypatch.setenv("RAPKIT_SECRET_KEY", "hush")
    monkeypatch.setenv("RAPKIT_RUN", "of the server itself")
    done = await processes.run(["env"])

    assert "COLOUR=green\n" in done.stdout
    assert "hush" not in done.stdout
    assert [line for line in done.stdout.splitlines() if "RAPKIT" in line] == [f"RAPKIT_RUN={journal.recorded[0]}"]


@on_both_loops
async def test_variables_that_secrets_were_read_from_are_not_inherited(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rapkit.secret._VARIABLES", set())
    for name in ("HOOK_SECRET", "CLIENT_SECRET", "COLOUR"):
        monkeypatch.setenv(name, f"value of {name}")
    read_secret("env:HOOK_SECRET")
    read_secret("env:CLIENT_SECRET")
    inherited = (await processes.run(["env"])).stdout
    given = (await processes.run(["env"], env={"HOOK_SECRET": "given"})).stdout

    assert "COLOUR=value of COLOUR\n" in inherited
    assert "SECRET" not in inherited
    assert "HOOK_SECRET=given\n" in given, "what a handler gives it on purpose it has"


@on_both_loops
async def test_a_program_reads_its_input_and_then_its_end(processes: Processes) -> None:
    text = "ä line\n" * 200_000  # more than a pipe holds
    assert (await processes.run(["wc", "-l"], input=text)).stdout.strip() == "200000"
    assert (await processes.run(["cat"], input=b"\x00\xff")).stdout == "\x00\N{REPLACEMENT CHARACTER}"
    assert (await processes.run(["cat"])).stdout == ""


@on_both_loops
async def test_input_that_nobody_reads_does_no_harm(processes: Processes, caplog: pytest.LogCaptureFixture) -> None:
    assert (await processes.run(["sh", "-c", "exec <&-; sleep 0.1"], input="x" * 1_000_000)).returncode == 0
    assert ours(caplog) == []
    with pytest.raises(ToolError, match="did not finish"):
        await processes.run(["sleep", "1000"], input="x" * 1_000_000, timeout=0.05)


@on_both_loops
async def test_a_program_has_pipes_that_it_can_open_and_nothing_else_of_ours(processes: Processes) -> None:
    done = await processes.run(["sh", "-c", "echo problem > /dev/stderr; ls /proc/self/fd"])

    assert done.stderr == "problem\n"
    assert done.stdout.split() == ["0", "1", "2", "3"]  # the last one is the listing itself


@on_both_loops
async def test_what_is_not_utf_8_is_replaced(processes: Processes) -> None:
    script = r"printf 'caf\303\251 \377 \360\237\230\200\n'"
    text = "café \N{REPLACEMENT CHARACTER} 😀"

    assert (await processes.run(["sh", "-c", script])).stdout == f"{text}\n"
    assert [line async for line in processes.run(["sh", "-c", script])] == [text]


@on_both_loops
async def test_of_much_output_the_beginning_and_the_end_are_kept(processes: Processes) -> None:
    script = "echo first; head -c 5000000 /dev/zero | tr '\\0' x; echo last; echo done >&2"
    done = await processes.run(["sh", "-c", script], largest_output=21)

    assert done.stdout == f"first\nxxxxx\n[... {5_000_011 - 21:,} bytes left out ...]\nxxxxxlast\n"
    assert done.stderr == "done\n"


@pytest.mark.parametrize("largest", [0, 1, 2, 9, 10, 11])
async def test_output_is_cut_only_when_it_is_too_large(processes: Processes, largest: int) -> None:
    text = (await processes.run(["printf", "0123456789"], largest_output=largest)).stdout

    if largest >= 10:
        assert text == "0123456789"
    else:
        head, note, tail = text.split("\n")
        assert note == f"[... {10 - largest} bytes left out ...]"
        assert "0123456789".startswith(head)
        assert "0123456789".endswith(tail)
        assert len(head) + len(tail) == largest


# Lines


@on_both_loops
async def test_lines_come_as_they_are_written(processes: Processes, journal: Journal, tmp_path: Path) -> None:
    """The program goes on only when the test has its first line."""
    os.mkfifo(tmp_path / "go")
    run = processes.run(["sh", "-c", "echo one; cat go; echo err >&2; printf 'dos\\r\\n\\nno end'"], cwd=tmp_path)
    lines: list[str] = []
    async for line in run:
        if not lines:
            assert run.returncode is None
            await asyncio.to_thread((tmp_path / "go").write_text, "two\n")
        lines.append(line)

    assert lines == ["one", "two", "err", "dos", "", "no end"]
    assert run.returncode == 0
    assert journal.settled


@on_both_loops
async def test_a_long_line_is_cut_and_the_next_ones_come(processes: Processes) -> None:
    script = "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo next; head -c 65536 /dev/zero | tr '\\0' y"
    long, following, whole = [line async for line in processes.run(["sh", "-c", script])]

    assert long == "x" * 65_536 + f" [... {3_000_000 - 65_536:,} bytes left out]"
    assert following == "next"
    assert whole == "y" * 65_536


@on_both_loops
async def test_a_program_waits_while_nobody_takes_its_lines(processes: Processes) -> None:
    async with contextlib.aclosing(aiter(processes.run(["sh", "-c", "echo $$; exec yes"]))) as lines:
        pid = int(await anext(lines))
        await asyncio.sleep(0.2)  # time enough to write a hundred megabytes
        assert await anext(lines) == "y"
        written = int(stat_of(pid, "io").split("wchar: ")[1].split()[0])

    assert written < 1_000_000
    assert dead(pid)


@on_both_loops
async def test_what_was_written_before_the_end_is_not_lost_on_a_slow_taker(processes: Processes) -> None:
    run = processes.run(["sh", "-c", "seq 1 20000"])
    lines = []
    async for line in run:
        lines.append(line)
        if len(lines) == 1:
            await until(lambda: run.returncode == 0)

    assert lines == [str(number) for number in range(1, 20_001)]


@on_both_loops
async def test_others_run_while_many_lines_are_taken(processes: Processes) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    lines = [line async for line in processes.run(["seq", "1", "50000"])]
    task.cancel()

    assert len(lines) == 50_000
    assert turns > 400


# The end of a run


@on_both_loops
async def test_cancelling_kills_the_whole_tree(processes: Processes, journal: Journal, tmp_path: Path) -> None:
    """CAN-3: also those that ignore SIGTERM, and although it is cancelled again in the meantime."""
    task = asyncio.ensure_future(processes.run(["sh", "-c", STUBBORN], cwd=tmp_path))
    pids = await written_pids(tmp_path, 2)

    task.cancel()
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert all(dead(pid) for pid in pids)
    assert journal.settled


@on_both_loops
async def test_cancelling_while_lines_are_awaited_kills_the_tree(
    processes: Processes, journal: Journal, tmp_path: Path
) -> None:
    """CAN-3"""
    task = asyncio.create_task(all_lines(processes, ["sh", "-c", STUBBORN], cwd=tmp_path))
    pids = await written_pids(tmp_path, 2)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert all(dead(pid) for pid in pids)
    assert journal.settled


@on_both_loops
async def test_a_loop_that_is_left_early_ends_the_program(processes: Processes, journal: Journal) -> None:
    pids = []
    async for line in processes.run(["sh", "-c", "echo $$; exec sleep 1000"]):
        pids.append(int(line))
        break
    with contextlib.suppress(KeyError):
        async for line in processes.run(["sh", "-c", "echo $$; exec sleep 1000"]):
            pids.append(int(line))
            raise KeyError
    await until(lambda: journal.settled)

    assert len(pids) == 2
    assert all(dead(pid) for pid in pids)


@on_both_loops
async def test_an_iterator_that_is_closed_has_ended_the_program(
    processes: Processes, journal: Journal, tmp_path: Path
) -> None:
    lines = aiter(processes.run(["sh", "-c", f"{STUBBORN}"], cwd=tmp_path))
    waiting = asyncio.ensure_future(anext(lines))
    pids = await written_pids(tmp_path, 2)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await lines.aclose()

    assert all(dead(pid) for pid in pids)
    assert journal.settled


@on_both_loops
async def test_a_program_that_takes_too_long_is_stopped(processes: Processes, journal: Journal, tmp_path: Path) -> None:
    with pytest.raises(ToolError) as caught:
        await processes.run(["sh", "-c", f"{STUBBORN}", "secret"], cwd=tmp_path, timeout=0.3)

    assert str(caught.value) == "'sh' did not finish within 0.3 s and was stopped"
    assert all(dead(pid) for pid in await written_pids(tmp_path, 2))
    assert journal.settled


@on_both_loops
async def test_the_lines_until_the_timeout_come_first(processes: Processes) -> None:
    lines = aiter(processes.run(["sh", "-c", "echo $$; echo so far; exec sleep 1000"], timeout=0.3))
    pid = int(await anext(lines))
    assert await anext(lines) == "so far"
    with pytest.raises(ToolError, match="did not finish within"):
        await anext(lines)

    assert dead(pid)


@on_both_loops
async def test_a_program_may_clean_up_before_it_ends(patient: Processes, tmp_path: Path) -> None:
    """The child too, which takes longer than the program it belongs to."""
    script = """
    sh -c 'trap "sleep 0.3; echo child >> cleaned; exit" TERM; echo $$ >> pids; while :; do sleep 0.05; done' &
    trap "echo program >> cleaned; exit" TERM
    echo $$ >> pids
    while :; do sleep 0.05; done
    """
    task = asyncio.ensure_future(patient.run(["sh", "-c", script], cwd=tmp_path))
    pids = await written_pids(tmp_path, 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert (tmp_path / "cleaned").read_text() == "program\nchild\n"
    assert all(dead(pid) for pid in pids)


@on_both_loops
async def test_a_program_that_says_goodbye_at_length_need_not_wait_for_a_reader(patient: Processes) -> None:
    """It could not, as whoever left the loop reads no more."""
    script = "trap 'seq 1 1000000; exit' TERM; echo $$; while :; do sleep 0.05; done"
    async with contextlib.aclosing(aiter(patient.run(["sh", "-c", script]))) as lines:
        pid = int(await anext(lines))

    assert dead(pid)


@on_both_loops
@pytest.mark.parametrize("output", ["", "> /dev/null 2>&1"])
async def test_what_the_program_left_running_ends_with_it(processes: Processes, journal: Journal, output: str) -> None:
    done = await processes.run(["sh", "-c", f"sleep 1000 {output} & echo $!"])

    assert done.returncode == 0
    assert dead(int(done.stdout))
    assert journal.settled


@on_both_loops
async def test_what_passes_the_output_on_may_finish(processes: Processes) -> None:
    """A common way to begin a script; the shell does not wait for its `tee`."""
    script = "exec > >(tee /dev/null) 2>&1; seq 1 10000; echo last"

    assert (await processes.run(["bash", "-c", script])).stdout.endswith("\n10000\nlast\n")
    assert [line async for line in processes.run(["bash", "-c", script])][-2:] == ["10000", "last"]


@on_both_loops
async def test_what_talks_on_after_the_program_is_not_listened_to_for_ever(processes: Processes) -> None:
    lines = [line async for line in processes.run(["sh", "-c", 'yes "$(seq 1 300 | tr "\\n" " ")" & echo over'])]

    assert "over" in lines
    assert sum(map(len, lines)) < 50_000_000  # how much it says before the program has ended is a matter of luck
    assert lines[-1].startswith("[... ")
    assert lines[-1].endswith(" bytes left out]")


@on_both_loops
async def test_a_daemon_may_stay_if_its_run_ends_by_itself(processes: Processes, journal: Journal) -> None:
    done = await processes.run(["sh", "-c", "setsid sh -c 'echo $$; exec sleep 1000' & echo started"])
    (daemon,) = [int(line) for line in done.stdout.splitlines() if line != "started"]
    try:
        assert not dead(daemon)
        assert journal.settled
    finally:
        os.kill(daemon, signal.SIGKILL)


@on_both_loops
async def test_a_daemon_of_a_cancelled_run_does_not_stay(processes: Processes, tmp_path: Path) -> None:
    """CAN-3"""
    script = "setsid sh -c 'echo $$ >> pids; exec sleep 1000' & echo $$ >> pids; wait"
    task = asyncio.ensure_future(processes.run(["sh", "-c", script], cwd=tmp_path))
    pids = await written_pids(tmp_path, 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert all(dead(pid) for pid in pids)


@on_both_loops
async def test_closing_ends_what_still_runs_and_starts_nothing_more(
    processes: Processes, journal: Journal, tmp_path: Path
) -> None:
    """CAN-3: for a handler that left tasks behind, or takes no notice of its cancellation."""
    tasks = [asyncio.ensure_future(processes.run(["sh", "-c", STUBBORN], cwd=tmp_path)) for _ in range(2)]
    pids = await written_pids(tmp_path, 4)

    await processes.close()
    assert all(dead(pid) for pid in pids)
    assert journal.settled
    for task in tasks:
        with pytest.raises(ToolError, match="was stopped, because the call is over"):
            await task
    with pytest.raises(ToolError, match="was not started, because the call is over"):
        await processes.run(["true"])
    await processes.close()

    assert len(journal.recorded) == 2


def test_a_closing_event_loop_kills_what_runs(tmp_path: Path) -> None:
    for name, new_loop in LOOPS.items():
        journal = Journal()
        (tmp_path / name).mkdir()

        async def leave_it_running(folder: Path, journal: Journal) -> tuple[list[int], object]:
            run = Processes(journal.record, journal.forget, grace=60).run(["sh", "-c", STUBBORN], cwd=folder)
            task = asyncio.ensure_future(run)
            return await written_pids(folder, 2), task

        with asyncio.Runner(loop_factory=new_loop) as runner:
            pids, _ = runner.run(leave_it_running(tmp_path / name, journal))
        assert all(dead(pid) for pid in pids)
        assert journal.forgotten == []  # the record stays for the next start, as nothing could be written any more
    gc.collect()
    assert children() == []


@on_both_loops
async def test_whatever_the_moment_of_a_cancellation_nothing_is_left(processes: Processes, journal: Journal) -> None:
    """CAN-3"""
    dice = random.Random(28)

    async def cancelled_sometime(number: int) -> None:
        script = "sleep 1000 & setsid sleep 1000 & sh -c 'sleep 1000 & wait' & wait"
        argv = ["sh", "-c", script if number % 3 else "exit 0"]
        task = asyncio.create_task(all_lines(processes, argv) if number % 2 else complete(processes, argv))
        await asyncio.sleep(dice.choice([0, 0.001, 0.003, 0.01, 0.03]))
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    for start in range(0, 40, 8):
        await asyncio.gather(*(cancelled_sometime(number) for number in range(start, start + 8)))

    assert journal.settled
    assert carriers(*journal.recorded) == []


@on_both_loops
async def test_descriptors_of_other_threads_are_left_alone(processes: Processes) -> None:
    """A descriptor that is closed twice is somebody else's the second time."""
    enough = threading.Event()

    def open_and_look() -> None:
        while not enough.wait(0):
            with contextlib.ExitStack() as stack:
                files = [stack.enter_context(open("/dev/null")) for _ in range(3)]
                enough.wait(0.0005)
                for file in files:
                    os.fstat(file.fileno())

    watching = [asyncio.ensure_future(asyncio.to_thread(open_and_look)) for _ in range(4)]
    for _ in range(5):
        await asyncio.gather(*(processes.run(["true"], input="x") for _ in range(20)))
    enough.set()

    await asyncio.gather(*watching)


@on_both_loops
async def test_without_a_thread_to_watch_it_no_program_goes_on(
    processes: Processes, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(RuntimeError, match="thread"):
        await processes.run(["sleep", "1000"])

    assert carriers(*journal.recorded) == []


# What is durable when


@on_both_loops
async def test_the_token_is_durable_before_the_program_starts(tmp_path: Path) -> None:
    recorded = asyncio.Event()
    seen = []

    async def record(token: str) -> None:
        await recorded.wait()
        seen.append(((tmp_path / "started").exists(), carriers(token)))

    async def forget(token: str) -> None:
        seen.append(((tmp_path / "started").exists(), carriers(token)))

    task = asyncio.ensure_future(Processes(record, forget).run(["touch", "started"], cwd=tmp_path))
    await asyncio.sleep(0.05)
    recorded.set()
    await task

    assert seen == [(False, []), (True, [])]


@on_both_loops
async def test_each_run_has_a_token_that_nobody_can_guess(processes: Processes, journal: Journal) -> None:
    await asyncio.gather(*(processes.run(["true"]) for _ in range(5)))

    assert len(set(journal.recorded)) == 5
    assert all(len(token) == 32 for token in journal.recorded)


@on_both_loops
async def test_without_a_record_nothing_starts(journal: Journal, tmp_path: Path) -> None:
    async def record(token: str) -> None:
        raise StoreError("the disk is full")

    with pytest.raises(StoreError, match="disk"):
        await Processes(record, journal.forget).run(["touch", "started"], cwd=tmp_path)

    assert not (tmp_path / "started").exists()


@on_both_loops
async def test_a_run_cancelled_while_it_is_recorded_does_not_start(journal: Journal, tmp_path: Path) -> None:
    recorded = asyncio.Event()

    async def record(token: str) -> None:
        await recorded.wait()
        await journal.record(token)

    task = asyncio.ensure_future(Processes(record, journal.forget).run(["touch", "started"], cwd=tmp_path))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    recorded.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert journal.settled
    assert not (tmp_path / "started").exists()


@on_both_loops
async def test_a_store_that_does_not_answer_cannot_keep_a_run_from_being_cancelled(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rapkit.server.processes.process_run._WRITTEN_WITHIN", 0.1)
    asked: list[str] = []

    async def never(token: str) -> None:
        asked.append(token)
        await asyncio.Event().wait()

    for processes in (Processes(never, journal.forget), Processes(journal.record, never)):
        task = asyncio.ensure_future(processes.run(["touch", f"started{len(asked)}"], cwd=tmp_path))
        await until(lambda: len(asked) > len(our_messages(caplog)))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert os.listdir(tmp_path) == ["started1"]
    assert len(our_messages(caplog)) == 2
    assert "the store takes too long" in caplog.text
    assert not any(token in caplog.text for token in asked)


@on_both_loops
async def test_a_record_that_cannot_be_removed_is_an_error_but_not_instead_of_a_cancellation(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    async def forget(token: str) -> None:
        raise StoreError("the disk is gone")

    processes = Processes(journal.record, forget)
    with pytest.raises(StoreError, match="disk"):
        await processes.run(["true"])
    assert ours(caplog) == []

    task = asyncio.ensure_future(processes.run(["sleep", "1000"]))
    await until(lambda: bool(carriers(*journal.recorded)))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    (record,) = ours(caplog)
    assert "'sleep'" in record.getMessage()
    assert "the disk is gone" in caplog.text


@on_both_loops
async def test_what_cannot_be_killed_holds_nobody_up_and_stays_on_record(
    processes: Processes, journal: Journal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as a program of another user, started through sudo."""

    def forbidden(*_: int) -> None:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", forbidden)
        for part in ("process_groups", "process_run"):
            patch.setattr(f"rapkit.server.processes.{part}.DIES_WITHIN", 0.1)
        with pytest.raises(ToolError, match="did not finish"):
            await processes.run(["sleep", "1000"], timeout=0.05)

    assert journal.forgotten == []
    assert "'sleep' could not be ended" in caplog.text
    assert len(carriers(*journal.recorded)) == 1
    assert await kill_leftovers(journal.recorded)
    await until(lambda: children() == [])


# What a killed server left


@pytest.mark.parametrize("loop", LOOPS)
async def test_what_a_killed_server_left_is_killed(
    loop: str, tmp_path: Path, background: Callable[..., "subprocess.Popen[bytes]"]
) -> None:
    """CAN-3: the program, its children, and one that went into a session of its own; nobody else."""
    script = f"setsid sh -c 'echo $$ >> pids; exec sleep 1000' & {STUBBORN}"
    other = background("sleep", "1000")
    another_run = background("sleep", "1000", RAPKIT_RUN="another")
    async with server(tmp_path, loop, script) as process:
        pids = await written_pids(tmp_path, 3)
        process.kill()
        await process.wait()
        (token,) = tokens(tmp_path)
        assert [pid for pid in pids if dead(pid)] == []
        assert await kill_leftovers(["no such token"])
        assert sorted(carriers(token)) == sorted(pids)

        assert await kill_leftovers(["gone long ago", token])

    assert all(dead(pid) for pid in pids)
    assert carriers(token) == []
    assert other.poll() is None
    assert another_run.poll() is None


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_server_killed_between_record_and_start_left_nothing(
    loop: str, tmp_path: Path, background: Callable[..., "subprocess.Popen[bytes]"]
) -> None:
    other = background("sleep", "1000")
    async with server(tmp_path, loop, "touch started", "before-start") as process:
        assert await process.wait() == -signal.SIGKILL
    (token,) = tokens(tmp_path)

    assert await kill_leftovers([token])
    assert not (tmp_path / "started").exists()
    assert other.poll() is None


async def test_the_dead_do_not_count(background: Callable[..., "subprocess.Popen[bytes]"]) -> None:
    """Zombies, which nobody collects here."""
    processes = [background("sleep", "1000", RAPKIT_RUN=token) for token in ("first", "second")]
    assert await kill_leftovers(["first", "second"])
    assert [dead(process.pid) for process in processes] == [True, True]
    assert await kill_leftovers(["first"])


async def test_nobody_is_called_gone_before_they_are(
    tmp_path: Path, background: Callable[..., "subprocess.Popen[bytes]"]
) -> None:
    """A dying process lets go of its environment long before its files, locks and ports. Here its group holds one of each kind."""
    process = background("sleep", "1000")
    dying = tmp_path / str(process.pid)
    member = tmp_path / str(process.pid + 1)

    def show(folder: Path, state: str, environment: str) -> None:
        folder.mkdir(exist_ok=True)
        fields = [state, 1, process.pid, *[0] * 16, 7]
        for name, text in (
            ("environ", environment),
            ("stat", f"{folder.name} (a (strange) name) {' '.join(map(str, fields))}\n"),
        ):
            (folder / "new").write_text(text)
            (folder / "new").replace(folder / name)

    (tmp_path / "self").symlink_to(dying.name)
    show(dying, "S", "A=1\0RAPKIT_RUN=token\0")
    show(member, "S", "")
    seeking = asyncio.create_task(kill_leftovers(["token"], patience=60, proc=tmp_path))
    await until(lambda: dead(process.pid))
    show(dying, "D", "")
    show(member, "D", "")
    await asyncio.sleep(0.2)
    assert not seeking.done()
    show(dying, "Z", "")
    await asyncio.sleep(0.2)
    assert not seeking.done()
    show(member, "X", "")

    assert await seeking


async def test_what_does_not_die_is_waited_for_no_longer_than_asked(tmp_path: Path) -> None:
    ghost = tmp_path / "999999999"
    ghost.mkdir()
    (ghost / "stat").write_text(f"999999999 (ghost) D 1 999999999 {'0 ' * 16} 7\n")
    (ghost / "environ").write_text("RAPKIT_RUN=token\0")
    (tmp_path / "self").symlink_to(ghost.name)

    assert not await kill_leftovers(["token"], patience=0.05, proc=tmp_path)
    assert await kill_leftovers(["another"], patience=0, proc=tmp_path)


async def test_a_member_of_the_group_without_the_token_dies_too(
    tmp_path: Path, background: Callable[..., "subprocess.Popen[bytes]"]
) -> None:
    script = f"cd {tmp_path}; env -i sh -c 'echo $$ >> pids; sleep 1000' & echo $$ >> pids; wait"
    background("sh", "-c", script, RAPKIT_RUN="token")
    pids = await written_pids(tmp_path, 2)

    assert len(carriers("token")) == 1
    assert await kill_leftovers(["token"])
    assert all(dead(pid) for pid in pids)


async def test_a_process_that_keeps_moving_is_caught(
    tmp_path: Path, background: Callable[..., "subprocess.Popen[bytes]"]
) -> None:
    """It forks, and its child goes on in a session of its own, again and again."""
    script = f"""
import os, time
while True:
    with open({str(tmp_path / "hops")!r}, "a") as file:
        file.write(".")
    time.sleep(0.0005)
    if os.fork():
        os._exit(0)
    os.setsid()
"""
    background(sys.executable, "-S", "-c", script, RAPKIT_RUN="token")
    hops = tmp_path / "hops"
    await until(lambda: hops.exists() and hops.stat().st_size > 3)

    assert await kill_leftovers(["token"], patience=30)
    size = hops.stat().st_size
    await asyncio.sleep(0.05)
    assert carriers("token") == []
    assert hops.stat().st_size == size


async def test_whoever_kills_leftovers_spares_itself_and_its_own_group() -> None:
    """A server started by a program of the killed one carries the token itself."""
    script = """
import asyncio, subprocess
from rapkit.server.processes import kill_leftovers
other = subprocess.Popen(["sleep", "1000"])
gone = asyncio.run(kill_leftovers(["token"], patience=1))
print(gone, other.poll())
other.kill()
other.wait()
"""
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", script),
        env={**os.environ, "RAPKIT_RUN": "token"},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    output, _ = await program.communicate()

    assert (program.returncode, output) == (0, b"True None\n")


async def test_the_event_loop_is_free_while_leftovers_are_sought(
    background: Callable[..., "subprocess.Popen[bytes]"],
) -> None:
    background("sleep", "1000", RAPKIT_RUN="token")
    threads: set[int] = set()
    listdir = os.listdir

    def watched(path: Any) -> list[str]:
        threads.add(threading.get_ident())
        return listdir(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "listdir", watched)
        assert await kill_leftovers(["token"])

    assert threads
    assert threading.get_ident() not in threads


async def test_where_processes_cannot_be_found_that_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert await kill_leftovers([], proc=tmp_path)
        assert our_messages(caplog) == []
        assert not await kill_leftovers(["token"], proc=tmp_path)
        assert not await kill_leftovers(["token"], proc=tmp_path)

    (message,) = our_messages(caplog)
    assert "cannot be found here" in message
    assert "token" not in message


# How it is seen


async def complete(processes: Processes, argv: list[str], **options: Any) -> object:
    return await processes.run(argv, **options)


async def all_lines(processes: Processes, argv: list[str], **options: Any) -> object:
    return [line async for line in processes.run(argv, **options)]


@contextlib.asynccontextmanager
async def server(folder: Path, loop: str, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A server-like process that runs a program in the folder; whatever becomes of the test, both are gone at its end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.server.crashing_runner", loop, *arguments),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        for pid in carriers(*tokens(folder)):
            os.kill(pid, signal.SIGKILL)


def tokens(folder: Path) -> list[str]:
    """Those recorded and not forgotten."""
    journal = folder / "journal"
    lines = [line.split() for line in journal.read_text().splitlines()] if journal.exists() else []
    forgotten = {token for what, token in lines if what == "forget"}
    return [token for what, token in lines if what == "record" and token not in forgotten]


async def written_pids(folder: Path, count: int) -> list[int]:
    path = folder / "pids"
    await until(lambda: path.exists() and path.read_text().count("\n") >= count)
    return [int(line) for line in path.read_text().splitlines()]


def stat_of(pid: int | str, name: str = "stat") -> str:
    """What the system tells of a process; nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return ""


def dead(pid: int) -> bool:
    stat = stat_of(pid)
    return not stat or stat.rsplit(")", 1)[1].split()[0] in "ZX"


@pytest.fixture(scope="module", autouse=True)
def others() -> Iterator[None]:
    """Processes that other modules use to the end of the session are no business of this one."""
    OTHERS.update(children())
    yield
    OTHERS.clear()


def children() -> list[int]:
    """The child processes of this module's tests, zombies too."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    stats = {pid: stat_of(pid) for pid in pids}
    ours = [pid for pid, stat in stats.items() if stat and stat.rsplit(")", 1)[1].split()[1] == str(os.getpid())]
    return [pid for pid in ours if pid not in OTHERS]


def carriers(*tokens: str) -> list[int]:
    """The processes that have one of the tokens in their environment."""
    marks = {f"RAPKIT_RUN={token}" for token in tokens}
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if not marks.isdisjoint(stat_of(pid, "environ").split("\0"))]
