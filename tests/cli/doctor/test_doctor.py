"""`rapkit doctor` as a person meets it: beside an agent that runs, without one, with wrong settings, in a terminal."""

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import TOOLS, Running, eventually, rapkit, running
from tests.cli.doctor.checked_agents import PLAN, free_port
from tests.cli.terminal import in_terminal

SECRET = "xyzzy-xyzzy-xyzzy-xyzzy"


def configure(folder: Path, port: int, *urls: str) -> None:
    (folder / "plan.yaml").write_text(PLAN)
    servers = "".join(f'[[servers]]\nurl = "{url}"\ntoken = "env:TOOLS"\n' for url in urls)
    settings = f'[agent]\nmodel = "scripted:plan.yaml"\nport = {port}\ntokens = {{ me = "{SECRET}" }}\n{servers}'
    (folder / "rapkit.toml").write_text(settings)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, served: Running) -> Iterator[Path]:
    """Where an agent runs with which nothing is wrong."""
    folder = tmp_path_factory.mktemp("well")
    configure(folder, free_port(), served.url)
    with running("up", folder=folder, environment={"TOOLS": SECRET}) as up:
        eventually(lambda: "agent at http" in up.err or not up.alive)
        assert up.alive, up.err
        yield folder


def examined(folder: Path, *words: str, **environment: str) -> dict[str, Any]:
    """What it says in JSON, by check; the last of each."""
    outcome = rapkit("doctor", "--json", *words, folder=folder, environment=environment)
    assert SECRET not in outcome.out + outcome.err
    said = json.loads(outcome.out)
    assert (outcome.code, outcome.err) == (0 if said["ok"] else 1, "")
    return {each["check"]: each for each in said["checks"]}


def test_all_is_well(home: Path) -> None:
    found = examined(home, TOOLS=SECRET)

    assert {check: each["state"] for check, each in found.items()} == dict.fromkeys(
        ("versions", "config", "store", "model", "server", "public_url", "clock", "open files"), "ok"
    )
    assert found["config"]["seen"] == "rapkit.toml: model scripted:plan.yaml, 1 server"
    assert found["store"]["seen"] == ".rapkit/agent.db: 1 process at work"
    assert found["public_url"]["seen"].startswith("this agent answers at http://127.0.0.1:")


def test_a_server_that_wants_a_token_is_asked_whether_it_takes_ours(tmp_path: Path) -> None:
    """Its discovery answers to everybody, so that tells nothing."""
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "plan.yaml").write_text(PLAN)
    with running("serve", str(TOOLS), "--port", "0", "--token", f"agent={SECRET}", folder=tmp_path) as server:
        configure(tmp_path, free_port(), server.url)
        options = ("--model", "scripted:plan.yaml", "--port", str(free_port()), "--server", server.url)
        wrong, none = examined(tmp_path, TOOLS=SECRET[::-1])["server"], examined(bare, *options)["server"]
        right = examined(tmp_path, TOOLS=SECRET)["server"]
        eventually(lambda: "its token is not known here" in server.err)  # more than one in a second is not told
        assert SECRET not in server.err

    assert [each["state"] for each in (wrong, none, right)] == ["failed", "failed", "ok"]
    assert "the one from env:TOOLS is not one it knows" in wrong["seen"]
    assert "none are configured" in none["seen"]
    assert none["do"].startswith(
        "Correct --server. If it is right, it cannot hold credentials, but rapkit.toml can: [[serv"
    )


def test_it_is_said_in_lines_where_there_is_no_terminal(home: Path) -> None:
    outcome = rapkit("doctor", folder=home, environment={"TOOLS": SECRET, "COLUMNS": "40"})

    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert len(lines) == 10
    assert all(re.match(r"ok +[\w ]+: ", line) for line in lines[:8])
    assert lines[8:] == ["", "All is well."]
    assert "\x1b" not in outcome.out


def test_what_is_wrong_comes_with_what_to_do_and_an_exit_code(tmp_path: Path) -> None:
    configure(tmp_path, free_port(), f"http://127.0.0.1:{free_port()}")

    outcome = rapkit("doctor", folder=tmp_path, environment={"TOOLS": SECRET})

    assert outcome.code == 1
    (line,) = [line for line in outcome.out.splitlines() if line.startswith("failed")]
    assert re.fullmatch(
        r"failed   server: http://127\.0\.0\.1:\d+: Connection refused.* → Start it, or correct its url in the settings\.",
        line,
    )
    assert outcome.out.endswith("\n1 failed. After → stands what to do.\n")
    assert not (tmp_path / ".rapkit").exists()


def test_options_are_those_of_rapkit_up(tmp_path: Path, served: Running) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    words = ("--model", "scripted:plan.yaml", "--server", served.url, "--port", str(free_port()), "--ask-model")

    found = examined(tmp_path, *words)

    assert found["config"]["seen"] == "no rapkit.toml, and none is needed: model scripted:plan.yaml, 1 server"
    assert "answered" in found["model"]["seen"]
    assert found["server"]["state"] == found["public_url"]["state"] == "ok"


def test_without_settings(tmp_path: Path) -> None:
    found = examined(tmp_path)

    assert found["config"]["state"] == "warning"
    assert {each["state"] for check, each in found.items() if check in ("store", "model", "server", "public_url")} == {
        "skipped"
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "There is no file other.toml."),
        ("", "other.toml is empty, and no model is named."),
        ('[agent]\nmodle = "x"\nport = "x"\n', "other.toml: there is no key 'modle' in [agent]. Did you mean 'model'?"),
        (f'[agent]\nmodel = "test"\ntokens = "{SECRET}"\n', 'other.toml: "tokens" in [agent] have names.'),
    ],
    ids=["missing", "empty", "wrong", "secret"],
)
def test_settings_that_are_wrong(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "other.toml").write_text(text)

    found = examined(tmp_path, "-c", "other.toml")["config"]

    assert found["state"] == "failed"
    assert found["seen"].startswith(said)


@pytest.mark.parametrize(
    ("words", "environment", "do"),
    [
        (("-c", "other.toml"), {}, "Correct -c, or write that file: `rapkit up -c other.toml` says how."),
        ((), {"RAPKIT_CONFIG": "o.toml"}, "Correct RAPKIT_CONFIG, or write that file: `rapkit up -c o.toml` says how."),
        (("-c", "empty.toml"), {}, "`rapkit up -c empty.toml` says what to write."),
        (("-c", "folder"), {}, "Correct -c."),
        (("-c", "wrong.toml"), {}, "Correct wrong.toml."),
        (("-c", "good.toml", "--server", "tools"), {}, "Correct --server."),
        (("-c", "good.toml"), {"RAPKIT_SERVERS": "http://[::1"}, "Correct RAPKIT_SERVERS."),
        (("-c", "wrong.toml", "--server", "tools", "--server", "more"), {}, "Correct wrong.toml and --server."),
        (("--model", "scripted:plan.yaml", "--server", "tools"), {}, "Correct --server."),
    ],
    ids=["missing", "missing by variable", "empty", "folder", "file", "flag", "variable", "both", "no file at all"],
)
def test_what_is_to_be_corrected_is_what_is_wrong(
    tmp_path: Path, words: tuple[str, ...], environment: dict[str, str], do: str
) -> None:
    (tmp_path / "folder").mkdir()
    for name, text in {"empty": "", "good": '[agent]\nmodel = "test"\n', "wrong": "[agent]\nmodle = 1\n"}.items():
        (tmp_path / f"{name}.toml").write_text(text)

    found = examined(tmp_path, *words, **environment)["config"]

    assert (found["state"], found["do"]) == ("failed", do)


@pytest.mark.parametrize("source", ["--server", "RAPKIT_SERVERS"])
def test_a_server_that_is_not_there_is_corrected_where_it_was_named(tmp_path: Path, source: str) -> None:
    configure(tmp_path, free_port())
    nobody = f"http://127.0.0.1:{free_port()}/"

    found = examined(tmp_path, source, nobody) if source.startswith("--") else examined(tmp_path, RAPKIT_SERVERS=nobody)

    assert (found["server"]["state"], found["server"]["do"]) == ("failed", f"Start it, or correct {source}.")


def test_a_server_that_does_not_answer_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        configure(tmp_path, free_port(), f"http://127.0.0.1:{silent.getsockname()[1]}")
        outcome = rapkit("doctor", folder=tmp_path, environment={"TOOLS": SECRET})

    assert (outcome.code, outcome.err) == (1, "")
    (line,) = [line for line in outcome.out.splitlines() if not re.match(r"ok +[\w ]+: ", line) and ":" in line]
    assert re.match(r"failed +server: http://127\.0\.0\.1:\d+.* answer within \d+ s\.", line)
    assert line.endswith("→ See whether it hangs, and restart it; or correct its url in the settings.")


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        ('host = "0.0.0.0"', "0.0.0.0 can be reached from other machines, and no token is configured"),
        ('tokens = { me = "xyzzy" }', "The token 'me' is too easy to guess or cannot be sent"),
        ('tokens = { me = "env:NOT_THERE" }', "The environment variable NOT_THERE is not set"),
        ('public_url = "http://192.0.2.1"', "http://192.0.2.1 can be reached from other machines, and no token is"),
        ('public_url = "http://192.0.2.1"\ntokens = { me = "plugh-plugh-plugh" }', "http://192.0.2.1 is plain HTTP"),
        (
            '[[servers]]\nurl = "http://127.0.0.1:1"\nwebhook_secret = "env:NOT_THERE"',
            "The webhook_secret of the server http://127.0.0.1:1: The environment variable NOT_THERE is not set",
        ),
        (
            '[[servers]]\nurl = "http://127.0.0.1:1"\nwebhook_secret = "xyzzy"',
            "The webhook_secret of the server http://127.0.0.1:1: A webhook secret is 'whsec_' and 24 to 64 random bytes",
        ),
    ],
    ids=[
        "open to all",
        "short",
        "not there",
        "open behind a proxy",
        "plain http",
        "webhook_secret that is not there",
        "webhook_secret that is none",
    ],
)
def test_settings_that_rapkit_up_refuses(tmp_path: Path, agent: str, said: str) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    (tmp_path / "rapkit.toml").write_text(f'[agent]\nmodel = "scripted:plan.yaml"\nport = {free_port()}\n{agent}\n')

    refused, doctor = rapkit("up", folder=tmp_path), rapkit("doctor", "--json", folder=tmp_path)

    found = {each["check"]: each for each in json.loads(doctor.out)["checks"]}["config"]
    assert (refused.code, doctor.code, found["state"]) == (2, 1, "failed")
    assert found["seen"].startswith(said)
    assert said in refused.err
    assert "xyzzy" not in doctor.out + doctor.err


def test_a_token_on_the_command_line_counts(tmp_path: Path) -> None:
    configure(tmp_path, free_port())
    text = (tmp_path / "rapkit.toml").read_text().replace(SECRET, "short")
    (tmp_path / "rapkit.toml").write_text(text)

    assert examined(tmp_path, "--token", SECRET)["config"]["state"] == "ok"
    assert examined(tmp_path)["config"]["state"] == "failed"


def test_a_wrong_option_is_a_mistake_of_its_own_kind(tmp_path: Path) -> None:
    outcome = rapkit("doctor", "--prot", "1", folder=tmp_path)

    assert (outcome.code, outcome.out) == (2, "")
    assert "See: rapkit doctor --help" in outcome.err


@pytest.mark.parametrize("columns", [40, 100])
def test_in_a_terminal(home: Path, columns: int) -> None:
    with in_terminal("doctor", folder=home, columns=columns, rows=40, environment={"TOOLS": SECRET}) as terminal:
        assert terminal.ended() == 0
        text = terminal.text

    lines = text.splitlines()
    assert lines[0].startswith("ok  versions" if columns == 40 else "ok  versions    rapkit ")
    assert lines[-1] == "All is well."
    assert "checking" not in text
    assert b"checking" in terminal.raw
    assert b"\x1b[32mok" in terminal.raw


def test_without_colours(home: Path) -> None:
    with in_terminal("doctor", folder=home, environment={"TOOLS": SECRET, "NO_COLOR": "1"}) as terminal:
        assert terminal.ended() == 0

    assert b"\x1b[32m" not in terminal.raw


def test_it_can_be_interrupted_while_it_waits(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        configure(tmp_path, free_port(), f"http://127.0.0.1:{silent.getsockname()[1]}")
        with in_terminal("doctor", folder=tmp_path, columns=120, environment={"TOOLS": SECRET}) as terminal:
            terminal.until("checking: ")
            terminal.signal(signal.SIGINT)
            assert terminal.ended() == 130
            assert "Traceback" not in terminal.everything


def test_a_reader_that_has_read_enough(home: Path) -> None:
    command = f"{sys.executable} -m rapkit doctor --json | head -n 1"
    ended = subprocess.run(["sh", "-c", command], cwd=home, capture_output=True, text=True, timeout=60)

    assert ended.stdout == "{\n"
    assert ended.stderr == ""
