"""The command as a citizen of the shell: help, versions, closed pipes, Ctrl-C."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rapkit as package
from tests.cli.command import PATIENCE, Outcome, Running, eventually, rapkit, running
from tests.cli.doctor.checked_agents import free_port

COMMANDS = [
    *("demo", "new", "serve", "inspect", "call", "up", "chat", "ask", "threads", "wake"),
    *("doctor", "outbox", "completion"),
]
HEAVY = (
    "uvicorn",
    "starlette",
    "pydantic",
    "rich",
    "pyreqwest",
    "apsw",
    "cryptography",
    "watchfiles",
    "asyncio",
    "opentelemetry",
    "prometheus_client",
)


def test_version(tmp_path: Path) -> None:
    assert rapkit("--version", folder=tmp_path).out == f"rapkit {package.__version__}\n"


def test_help_names_every_command(tmp_path: Path) -> None:
    outcome = rapkit("--help", folder=tmp_path)

    assert outcome.code == 0
    told = dict(line.split(maxsplit=1) for line in outcome.out.splitlines() if re.match(r"  [a-z]+  +[A-Z]", line))
    assert list(told) == COMMANDS


def test_a_command_that_is_not_there_is_guessed(tmp_path: Path) -> None:
    assert (
        rapkit("sevre", folder=tmp_path).err
        == "rapkit: There is no command 'sevre'. Did you mean 'serve'? See: rapkit --help\n"
    )
    assert rapkit("?", folder=tmp_path).err == "rapkit: There is no command '?'. See: rapkit --help\n"


def test_without_a_command_help_is_shown(tmp_path: Path) -> None:
    outcome = rapkit(folder=tmp_path)

    assert outcome.code == 2
    assert outcome.err == rapkit("--help", folder=tmp_path).out


@pytest.mark.parametrize(
    "words", [("serve",), ("inspect",), ("call",), ("outbox",), ("outbox", "list"), ("outbox", "resend")], ids=" ".join
)
def test_every_command_explains_itself(tmp_path: Path, words: tuple[str, ...]) -> None:
    outcome = rapkit(*words, "-h", folder=tmp_path)

    assert outcome.code == 0
    assert outcome.out.startswith(f"Usage: rapkit {' '.join(words)} ")
    assert "..." not in outcome.out.partition("\n")[2]  # nothing is cut short
    assert max(map(len, outcome.out.splitlines())) <= 80
    options = [line for line in outcome.out.splitlines() if line.startswith("  --")]
    assert all(len(option.split("  ")) > 2 for option in options), "an option without a word of explanation"


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "rapkit", "--help"], cwd=tmp_path, capture_output=True, check=True
    )
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in told.stderr.decode().splitlines()}

    assert "rapkit" in loaded
    assert loaded.isdisjoint(HEAVY)


@pytest.mark.parametrize("words", [("storm",), ("--storm",), ("serve", "--storm"), ("call",)], ids=" ".join)
def test_a_mistyped_command_is_answered_in_a_line(tmp_path: Path, words: tuple[str, ...]) -> None:
    outcome = rapkit(*words, folder=tmp_path)

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("rapkit: ")
    assert outcome.err.endswith(" --help\n")
    assert len(outcome.err.splitlines()) == 1


@pytest.mark.parametrize(
    "words", [("--help",), ("inspect", "URL"), ("inspect", "URL", "--json"), ("call", "URL", "echo")]
)
def test_a_pipe_that_is_closed_is_no_accident(served: Running, words: tuple[str, ...], tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "rapkit", *(served.url if word == "URL" else word for word in words)],
            cwd=tmp_path,
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=PATIENCE,
        )
    finally:
        os.close(writing)

    assert ended.returncode == 1
    assert ended.stderr == b""


def in_shell(words: str, folder: Path, **environment: str) -> Outcome:
    """A command line as one types it, with its redirections."""
    ended = subprocess.run(
        ["sh", "-c", f'exec "$0" -m rapkit {words}', sys.executable],
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
    )
    return Outcome(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where an agent is configured that says what not every terminal can show."""
    (tmp_path / "plan.yaml").write_text('- say: "H\u00e9 \u2192 \U0001f600"\n', "utf-8")
    (tmp_path / "rapkit.toml").write_text(f'[agent]\nmodel = "scripted:plan.yaml"\nport = {free_port()}\n')
    return tmp_path


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no disk can be played that is full")
@pytest.mark.parametrize(
    ("words", "unbuffered"),
    [
        ("--help", ""),
        ("--help", "1"),
        ("inspect URL", ""),
        ("inspect URL --json", ""),
        ("call URL echo text=x", ""),
        ("ask hi", ""),
    ],
)
def test_a_full_disk_is_told_in_a_line(served: Running, home: Path, words: str, unbuffered: str) -> None:
    outcome = in_shell(f"{words.replace('URL', served.url)} >/dev/full", home, PYTHONUNBUFFERED=unbuffered)

    assert outcome.code == 1
    assert outcome.err == "rapkit: standard output cannot be written: No space left on device.\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no disk can be played that is full")
def test_where_complaints_cannot_be_written_the_work_goes_on(home: Path) -> None:
    assert in_shell("storm 2>/dev/full", home) == Outcome(2, "", "")
    assert in_shell("--version 2>/dev/full", home).out == f"rapkit {package.__version__}\n"
    assert in_shell("--version >/dev/full 2>/dev/full", home) == Outcome(1, "", "")


@pytest.mark.parametrize(
    ("words", "code", "out", "err"),
    [
        ("ask <&-", 2, "", "rapkit: There is nothing to ask: the text is empty. See: rapkit ask --help\n"),
        ("ask hi 2>&-", 0, "H\u00e9 \u2192 \U0001f600\n", ""),
        ("ask hi >&-", 0, "", ""),
        ("ask hi <&- >&- 2>&-", 0, "", ""),
    ],
    ids=["input", "error", "output", "all"],
)
def test_streams_that_are_closed_are_no_accident(home: Path, words: str, code: int, out: str, err: str) -> None:
    assert in_shell(words, home) == Outcome(code, out, err)


def test_nothing_of_ours_gets_the_number_of_a_stream_that_is_closed(tmp_path: Path) -> None:
    opening = "import os\nfd = os.open('x', os.O_CREAT)\nopen('numbers', 'w').write(f'{fd}')\nraise SystemExit\n"
    (tmp_path / "opening.py").write_text(opening)
    in_shell("serve opening.py <&- >&- 2>&-", tmp_path)

    assert int((tmp_path / "numbers").read_text()) > 2


def test_a_letter_that_the_encoding_has_not_is_a_question_mark(home: Path) -> None:
    rapkit("ask", "hi", folder=home)

    outcome = in_shell("threads list", home, PYTHONIOENCODING="ascii")

    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.endswith("H? ? ?\n")


def test_ctrl_c_is_no_accident_either(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts and never answers
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with running("inspect", url, folder=tmp_path) as waiting:
            connection, _ = silent.accept()
            with connection:
                connection.recv(1)
                asked = time.monotonic()
                waiting.send(signal.SIGINT)

                assert waiting.ended() in (130, -signal.SIGINT)  # 130 to a shell, either way
                assert time.monotonic() - asked < 5
                assert waiting.err.strip() == ""


def test_ctrl_c_while_a_toolset_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import pathlib, time\npathlib.Path('started').touch()\ntime.sleep(60)\n")
    with running("serve", "slow.py", folder=tmp_path) as loading:
        eventually((tmp_path / "started").exists)
        loading.send(signal.SIGINT)

        assert loading.ended() == 130
        assert loading.err.strip() == ""
