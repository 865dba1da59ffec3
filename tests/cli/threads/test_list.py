"""`rapkit threads list`."""

import json
import os
import subprocess
import sys

import pexpect
import pytest

from tests.cli.agent_home import Home
from tests.cli.command import PATIENCE


def lines_of(out: str, thread_id: str) -> str:
    """The lines about one thread, together."""
    lines = out.splitlines()
    first = next(number for number, line in enumerate(lines) if line.split()[:1] == [thread_id])
    return "\n".join(lines[first : first + 3])


def test_a_table_says_what_threads_are_doing(home: Home) -> None:
    idle = home.ask("Good morning")
    asks = home.ask("ask me", until="waiting")
    parked = home.ask("break", until="parked")
    calls = home.called("weather in Oslo")["group_id"]

    out = home.run("threads", "list", "--limit", "4", columns=120).out

    head, *rows = [line.split() for line in out.splitlines()]
    assert head == ["thread", "status", "age", "calls", "cost", "last", "words"]
    assert [row[0] for row in rows[:4]] == [calls, parked, asks, idle]  # the latest first
    assert [rows[0][1], *rows[0][-5:]] == ["waiting", "1", "$0.0012", "Let", "me", "look."]
    assert (rows[1][1], rows[1][4:7]) == ("parked", ["The", "model", "failed:"])
    assert rows[2][1:3] == ["asks", "you"]
    assert (rows[3][1], rows[3][-1]) == ("idle", "Hello.")
    assert out.endswith("\n\nThere are more: rapkit threads list --limit 20\n") or "more" not in out


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_it_fits_any_terminal_and_ids_are_never_cut(home: Home, columns: int) -> None:
    thread_id = home.ask("have a child")
    child = f"{thread_id}-000001"
    home.wait(child, "idle")

    out = home.run("threads", "list", "--limit", "2", columns=columns).out

    lines = out.splitlines()
    assert all(len(line) <= max(columns, len(child)) for line in lines if "rapkit" not in line)
    assert "idle" in lines_of(out, child)
    assert "Find out"[: columns - 2] in lines_of(out, child)


def test_threads_can_be_picked_by_status_and_parent(home: Home) -> None:
    parked = home.ask("break", until="parked")
    parent = home.ask("have a child")
    home.wait(f"{parent}-000001", "idle")

    by_status = json.loads(home.run("threads", "list", "--status", "parked", "--limit", "1", "--json").out)
    by_parent = json.loads(home.run("threads", "list", "--parent", parent[-10:], "--json").out)

    assert [each["thread_id"] for each in by_status["threads"]] == [parked]
    assert [each["thread_id"] for each in by_parent["threads"]] == [f"{parent}-000001"]
    assert by_parent["more"] is False


def test_it_says_when_there_are_more(home: Home) -> None:
    for _ in range(3):
        last = home.ask("Good morning")

    said = json.loads(home.run("threads", "list", "--limit", "2", "--json").out)
    assert (said["more"], len(said["threads"]), said["threads"][0]["thread_id"]) == (True, 2, last)
    out = home.run("threads", "list", "--limit", "2").out
    assert out.endswith("\n\nThere are more: rapkit threads list --limit 10\n")


def test_none_is_said_to_be_none(home: Home) -> None:
    thread_id = home.ask("Good morning")

    assert home.run("threads", "list", "--parent", thread_id).out == "There are no such threads.\n"


def test_control_codes_of_others_do_not_reach_the_terminal(home: Home) -> None:
    thread_id = home.ask("paint")

    out = home.run("threads", "list", "--limit", "1").out

    assert "\x1b" not in out
    assert "[31mred" in lines_of(out, thread_id)


def test_a_closed_pipe_is_no_disaster(home: Home) -> None:
    home.ask("Good morning")
    read, write = os.pipe()
    os.close(read)
    words = [sys.executable, "-m", "rapkit", "threads", "list", "--url", home.url]
    ended = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    os.close(write)

    assert (ended.returncode, ended.stderr) == (1, b"")


@pytest.mark.parametrize("no_color", [True, False], ids=["NO_COLOR", "colours"])
def test_colours_are_for_terminals_that_want_them(home: Home, no_color: bool) -> None:
    home.ask("break", until="parked")
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm"}
    if no_color:
        environment["NO_COLOR"] = "1"
    words = ["-m", "rapkit", "threads", "list", "--limit", "1", "--url", home.url]
    terminal = pexpect.spawn(
        sys.executable, words, env=environment, encoding="utf-8", timeout=PATIENCE, dimensions=(24, 40)
    )
    terminal.expect(pexpect.EOF)
    shown = terminal.before or ""

    assert "parked" in shown
    assert ("\x1b[31m" not in shown) == no_color
