"""Completing with the Tab key: what is offered, in a real shell too, and that it does not take long."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
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
    assert "rapkit.cli.standard_streams" in loaded
    assert loaded.isdisjoint({f"rapkit.cli.{name}" for name in COMMANDS})
    assert loaded.isdisjoint({"asyncio", "pydantic", "rich", "pyreqwest", "starlette"})


# Installing it


@pytest.mark.parametrize(
    ("shell", "says"),
    [("bash", "complete -o nosort -F"), ("zsh", "compdef"), ("fish", "complete --command rapkit")],
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


# In real shells

TYPED = {
    "rapkit ser": ["rapkit", "serve"],
    "rapkit serve weath": ["rapkit", "serve", "weather_tools.py"],
    "rapkit serve two": ["rapkit", "serve", "two words.py"],
    "rapkit serve two\\ words.py --log-format j": ["rapkit", "serve", "two words.py", "--log-format", "json"],
    "rapkit serve http://127.0.0.1:1 --log-format=j": ["rapkit", "serve", "http://127.0.0.1:1", "--log-format=json"],
    "rapkit up --config=weath": ["rapkit", "up", "--config=weather_tools.py"],
}
BEGUN = {
    "bash": ("", "bind 'set enable-bracketed-paste off'\nbind 'set bell-style none'\n"),
    "zsh": ("autoload -Uz compinit && compinit -D -u\n", "unsetopt beep\nbindkey -e\n"),
}
ARGUMENTS = {"bash": ["--noprofile", "-i"], "zsh": ["--no-globalrcs", "-i"]}
TO_THE_BEGINNING = "\x01"


def shell_of(name: str) -> str:
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"there is no {name} here")
    return program


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """That of somebody with `rapkit` on the path, and tools."""
    command = tmp_path / "bin" / "rapkit"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rapkit "$@"\n')
    command.chmod(0o755)
    for file in ("weather_tools.py", "two words.py"):
        (tmp_path / file).touch()
    return tmp_path


def environment_of(home: Path) -> dict[str, str]:
    others = {name: value for name, value in os.environ.items() if name not in ("ZDOTDIR", "XDG_CONFIG_HOME")}
    return {**others, "HOME": str(home), "PATH": f"{home / 'bin'}:{os.environ['PATH']}", "TERM": "xterm"}


def do_as_told(program: str, home: Path) -> None:
    """What `rapkit completion` says that one has to do once."""
    told = [line for line in how_to(program, home).out.splitlines() if line.startswith("    ")]
    subprocess.run([program, "-c", "\n".join(told)], env=environment_of(home), cwd=home, check=True, timeout=PATIENCE)


@pytest.fixture(params=list(BEGUN))
def terminal(request: pytest.FixtureRequest, home: Path) -> Iterator["pexpect.spawn[str]"]:
    """A new one, with a shell that completes rapkit."""
    program = shell_of(request.param)
    before, after = BEGUN[request.param]
    settings = home / f".{request.param}rc"
    settings.write_text(before)
    do_as_told(program, home)
    with settings.open("a") as file:
        file.write(f"{after}PS1='ready> '\n")
    child: pexpect.spawn[str] = pexpect.spawn(
        program,
        ARGUMENTS[request.param],
        env=environment_of(home),
        cwd=str(home),
        encoding="utf-8",
        timeout=PATIENCE,
        dimensions=(24, 200),
    )
    try:
        child.expect_exact("ready> ")
        yield child
    finally:
        child.close(force=True)


def test_tab_completes_in_a_real_shell(terminal: "pexpect.spawn[str]") -> None:
    for typed, words in TYPED.items():
        # Whatever a shell draws meanwhile: another command in front of what was typed prints the words that there are now.
        terminal.sendline(f"{typed}\t{TO_THE_BEGINNING}printf '<%s>' ")
        terminal.expect_exact("".join(f"<{word}>" for word in words))
        terminal.expect_exact("ready> ")


@pytest.fixture
def fish(home: Path) -> Callable[[str], list[str]]:
    """What fish offers when Tab is pressed at the end of a line, as it says of itself."""
    program = shell_of("fish")
    do_as_told(program, home)

    def offers(line: str) -> list[str]:
        ended = subprocess.run(
            [program, "-c", "complete --do-complete=$argv[1]", line],
            env=environment_of(home),
            cwd=home,
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
        )
        return ended.stdout.splitlines()

    return offers


def test_fish_completes_with_all_that_is_said_of_a_command(fish: Callable[[str], list[str]]) -> None:
    for typed, words in TYPED.items():
        assert [offer.partition("\t")[0] for offer in fish(typed)] == words[-1:]

    assert fish("rapkit do") == ["doctor\tCheck settings, stores, servers and the model."]
    assert fish("rapkit serve --log-format=") == ["--log-format=text", "--log-format=json"]
