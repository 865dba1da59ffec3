"""Completing with the Tab key: what is offered, in a real shell too, and that it does not take long."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from tests.cli.command import PATIENCE, Outcome, rapkit

COMMANDS = {"demo", "new", "serve", "inspect", "call", "up", "chat", "ask", "threads", "wake", "doctor", "outbox"}
FILES = ["file,"]


def completing(line: str, shell: str = "bash") -> dict[str, str]:
    """What a shell's script tells rapkit when Tab is pressed at the end of a line."""
    words = line.split()
    return {
        "_RAPKIT_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) if line.endswith(" ") else len(words) - 1),
    }


def offered(line: str, folder: Path) -> list[str]:
    outcome = rapkit(folder=folder, environment=completing(line))
    assert (outcome.code, outcome.err) == (0, "")
    return outcome.out.split()


def test_commands_are_completed(tmp_path: Path) -> None:
    assert {each.removeprefix("plain,") for each in offered("rapkit ", tmp_path)} >= COMMANDS


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rapkit se", ["plain,serve"]),
        ("rapkit --v", ["plain,--version"]),
        ("rapkit serve --log-", ["plain,--log-format", "plain,--log-level"]),
        ("rapkit serve --log-format ", ["plain,text", "plain,json"]),
        ("rapkit outbox re", ["plain,resend"]),
        ("rapkit completion ", ["plain,bash", "plain,zsh", "plain,fish"]),
        ("rapkit serve ", FILES),
        ("rapkit up -c ", FILES),
    ],
)
def test_the_rest_is_completed(tmp_path: Path, line: str, expected: list[str]) -> None:
    assert offered(line, tmp_path) == expected


def test_a_command_that_does_not_exist_is_no_reason_to_complain_in_the_middle_of_typing(tmp_path: Path) -> None:
    offered("rapkit nonsense --", tmp_path)


def test_commands_are_completed_without_loading_any(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "rapkit"],
        cwd=tmp_path,
        env={**os.environ, **completing("rapkit ")},
        capture_output=True,
        check=True,
    )
    loaded = {line.rpartition("|")[2].strip() for line in told.stderr.decode().splitlines()}

    assert b"plain,serve" in told.stdout
    assert {name for name in loaded if name.startswith("rapkit.cli.")} == {"rapkit.cli.streams"}
    assert loaded.isdisjoint({"asyncio", "pydantic", "rich", "pyreqwest", "starlette"})


# Installing it


@pytest.mark.parametrize(
    ("shell", "says"),
    [("bash", "complete -o nosort -F"), ("zsh", "compdef"), ("fish", "complete --no-files --command")],
)
def test_a_script_is_printed_for(tmp_path: Path, shell: str, says: str) -> None:
    outcome = rapkit("completion", shell, folder=tmp_path)

    assert outcome.code == 0
    assert says in outcome.out
    assert f"_RAPKIT_COMPLETE={shell}_complete" in outcome.out


def how_to(shell: str, folder: Path) -> Outcome:
    return rapkit("completion", folder=folder, environment={"SHELL": shell})


def test_how_to_install_it_is_said_for_the_shell_at_hand(tmp_path: Path) -> None:
    outcome = how_to("/usr/local/bin/zsh", tmp_path)

    assert outcome.code == 0
    assert "~/.zshrc" in outcome.out
    assert "~/.bashrc" not in outcome.out
    assert "rapkit completion fish" in outcome.out


def test_how_to_install_it_is_said_for_all_if_the_shell_is_not_known(tmp_path: Path) -> None:
    out = how_to("/bin/tcsh", tmp_path).out

    assert all(file in out for file in ("~/.bashrc", "~/.zshrc", "~/.config/fish"))


@pytest.fixture
def bash(tmp_path: Path) -> Iterator["pexpect.spawn[str]"]:
    """A shell in which somebody has done what the command says, with `rapkit` and a tool."""
    program = shutil.which("bash")
    if program is None:
        pytest.skip("there is no bash here")
    command = tmp_path / "bin" / "rapkit"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rapkit "$@"\n')
    command.chmod(0o755)
    (tmp_path / "weather_tools.py").touch()
    install = [line for line in how_to("/bin/bash", tmp_path).out.splitlines() if line.startswith("    ")]
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": f"{command.parent}:{os.environ['PATH']}"}
    subprocess.run([program, "-ec", "\n".join(install)], env=environment, cwd=tmp_path, check=True)
    with (tmp_path / ".bashrc").open("a") as settings:
        settings.write("PS1='ready> '\nbind 'set enable-bracketed-paste off'\nbind 'set bell-style none'\n")
    child: pexpect.spawn[str] = pexpect.spawn(
        program,
        ["--noprofile", "-i"],
        env={**environment, "TERM": "xterm"},
        cwd=str(tmp_path),
        encoding="utf-8",
        timeout=PATIENCE,
        dimensions=(24, 200),
    )
    try:
        child.expect_exact("ready> ")
        yield child
    finally:
        child.close(force=True)


def test_tab_completes_in_a_real_shell(bash: "pexpect.spawn[str]") -> None:
    bash.send("rapkit ser\t")
    bash.expect_exact("rapkit serve ")
    bash.send("weath\t")
    bash.expect_exact("weather_tools.py ")
    bash.send("--log-f\t")
    bash.expect_exact("--log-format ")
    bash.send("j\t")
    bash.expect_exact("json ")
