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
from tests.cli.command import Running, eventually, rapkit, running

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
            timeout=20,
        )
    finally:
        os.close(writing)

    assert ended.returncode == 1
    assert ended.stderr == b""


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
