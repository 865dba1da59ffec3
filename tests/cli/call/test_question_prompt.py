"""`rapkit call` of a tool that asks somebody something, or shows something meanwhile."""

import contextlib
import json
import secrets
import shlex
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import PATIENCE, TOOLS, Outcome, Running, eventually, rapkit, running
from tests.cli.foreign_server import ForeignServer
from tests.cli.terminal import Terminal, in_terminal

TOKEN = secrets.token_hex(16)
FIRST = "Your choice (nothing for 2):"
SECOND = "Your choice (nothing for 1):"


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("asking")
    tools = str(TOOLS.with_name("question_tools.py"))
    with running("serve", tools, "--port", "0", "--token", f"agent={TOKEN}", folder=folder) as server:
        assert server.url
        yield server


def buying(server: Running) -> tuple[str, ...]:
    return "call", server.url, "buy", "what=gold", "--token", TOKEN


# At a terminal


def test_at_a_terminal_somebody_is_asked(asking: Running, tmp_path: Path) -> None:
    with in_terminal(*buying(asking), folder=tmp_path) as terminal:
        shown = terminal.until(FIRST)
        assert "? How do we buy gold?\n   1  At market\n   2  Limit order (the default)\n   3  Not now\n" in shown
        terminal.send("7\r")
        terminal.until("'7' is none of the choices: 1 'At market', 2 'Limit order', 3 'Not now'.")
        terminal.send("1\r")
        terminal.until("Chose 'At market'.")
        terminal.until(SECOND)
        terminal.send("no\r")

        assert terminal.ended() == 0
        assert terminal.text.endswith("At market: No")


def test_nothing_is_the_default(asking: Running, tmp_path: Path) -> None:
    with in_terminal(*buying(asking), folder=tmp_path) as terminal:
        for prompt in (FIRST, SECOND):
            terminal.until(prompt)
            terminal.send("\r")

        assert terminal.ended() == 0
        assert terminal.text.endswith("Limit order: Yes")


def test_what_was_typed_before_the_question_is_no_answer(stranger: ForeignServer, tmp_path: Path) -> None:
    stranger.offer()
    with in_terminal("call", stranger.url, "watch", folder=tmp_path) as terminal:
        eventually(lambda: len(stranger.received) == 1)
        terminal.send("1\r")
        terminal.until("1")  # which the terminal itself shows
        ask(stranger, response_url=f"{stranger.url}/choice")
        terminal.until("Your choice")
        terminal.send("2\r")
        eventually(lambda: len(stranger.received) == 2)

    assert stranger.paths[1] == "/choice"
    assert stranger.received[1] == {"id": stranger.received[0]["id"], "selected": 1}


def test_an_enter_too_many_is_no_answer_to_the_next_question(stranger: ForeignServer, tmp_path: Path) -> None:
    with asked(stranger, tmp_path) as terminal:
        ask(stranger, response_url=f"{stranger.url}/other")
        stranger.answering.clear()
        terminal.send("2\r\r")
        eventually(lambda: len(stranger.received) == 2)
        stranger.answering.set()
        terminal.until(lambda text: text.count("Your choice") == 2)
        terminal.send("1\r")
        eventually(lambda: len(stranger.received) == 3)

    assert stranger.paths[1:3] == ["/choice", "/other"]
    assert [answer["selected"] for answer in stranger.received[1:3]] == [1, 0]


def test_nor_to_one_that_has_to_be_asked_again(stranger: ForeignServer, tmp_path: Path) -> None:
    with asked(stranger, tmp_path) as terminal:
        stranger.status = 503
        stranger.answering.clear()
        terminal.send("1\r\r")
        eventually(lambda: len(stranger.received) == 2)
        stranger.answering.set()
        terminal.until(lambda text: text.count("Your choice") == 2)
        terminal.send("1\r")
        eventually(lambda: len(stranger.received) == 3)

    assert [answer["selected"] for answer in stranger.received[1:3]] == [0, 0]


def test_the_choice_is_sent_with_the_token_of_the_call(stranger: ForeignServer, tmp_path: Path) -> None:
    with asked(stranger, tmp_path, "--token", TOKEN) as terminal:
        terminal.send("1\r")
        eventually(lambda: len(stranger.received) == 2)

    assert stranger.authorizations[:2] == [f"Bearer {TOKEN}"] * 2


def test_a_choice_that_did_not_get_there_is_asked_for_again(stranger: ForeignServer, tmp_path: Path) -> None:
    with asked(stranger, tmp_path) as terminal:
        stranger.status = 503
        terminal.send("1\r")
        terminal.until(lambda text: "The choice was not taken" in text and text.count("Your choice") == 2)
        assert "/choice" not in terminal.everything
        stranger.status = 404
        terminal.send("1\r")
        terminal.until(lambda text: text.count("The choice was not taken") == 2)
        ask(stranger, response_url=f"{stranger.url}/other")
        terminal.until(lambda text: text.count("? Sure?") == 2)


def test_other_news_do_not_stand_behind_the_prompt(stranger: ForeignServer, tmp_path: Path) -> None:
    with asked(stranger, tmp_path) as terminal:
        say(stranger, type="view_update", view_type="note", content="Still here.")
        terminal.until(lambda text: text.endswith("\nnote: Still here.\nYour choice (nothing for 2):"))
        say(stranger, type="tool_result", text="Nobody chose.")

        assert terminal.ended() == 0
        assert terminal.text.endswith("\nNobody chose.")
        assert terminal.text.count("Your choice") == 2


def test_ctrl_c_at_the_question_cancels_the_call(asking: Running, tmp_path: Path) -> None:
    with in_terminal(*buying(asking), folder=tmp_path) as terminal:
        terminal.until(FIRST)
        terminal.send("\x03")

        assert terminal.ended() == 130
        assert "\nnot waiting any longer; cancelled the call call_" in terminal.text


def test_the_time_may_be_over_at_the_question(asking: Running, tmp_path: Path) -> None:
    with in_terminal(*buying(asking), "--timeout", "3s", folder=tmp_path, columns=120) as terminal:
        assert terminal.ended() == 3
        assert [line for line in terminal.lines if line.startswith("no answer within 3 s; cancelled the call call_")]


def test_who_has_no_more_to_say_is_told_how_else_to_answer(asking: Running, tmp_path: Path) -> None:
    with in_terminal(*buying(asking), folder=tmp_path) as terminal:
        terminal.until(FIRST)
        terminal.send("\x04")
        terminal.until("It waits for your choice. For 'Limit order': curl -d")


def test_so_is_who_had_no_more_to_say_before_they_were_asked(stranger: ForeignServer, tmp_path: Path) -> None:
    with asked(stranger, tmp_path) as terminal:
        stranger.answering.clear()
        terminal.send("1\r\x04")
        eventually(lambda: len(stranger.received) == 2)
        stranger.answering.set()
        terminal.until("Chose 'Yes'.")
        ask(stranger, response_url=f"{stranger.url}/other")
        terminal.until(lambda text: text.count("? Sure?") == 2)
        terminal.send("\x04")  # if the first one was not read by then, it is forgotten
        terminal.until("It waits for your choice. For 'No': curl -d")


def test_nothing_is_sent_to_somebody_else(stranger: ForeignServer, tmp_path: Path) -> None:
    stranger.offer()
    with in_terminal("call", stranger.url, "watch", "--token", TOKEN, folder=tmp_path) as terminal:
        eventually(lambda: len(stranger.received) == 1)
        ask(stranger, response_url="http://127.0.0.1:9/choice")
        terminal.until("It waits for your choice.")
        assert "Your choice (" not in terminal.text


# Without one


@pytest.mark.parametrize("words", [(), ("--json",)], ids=["for people", "as JSON"])
def test_without_a_terminal_it_says_how_to_answer_and_waits(
    asking: Running, tmp_path: Path, words: tuple[str, ...]
) -> None:
    with running(*buying(asking), *words, folder=tmp_path) as call:
        for number in (1, 2):
            eventually(partial(has_told_how, call, number))
            line = [line for line in call.err.splitlines() if "curl" in line][-1]
            command = line.partition(": ")[2].removesuffix("  (selected counts from 0)")
            ended = subprocess.run(["curl", "-sS", *shlex.split(command)[1:]], timeout=PATIENCE, capture_output=True)
            assert (ended.returncode, ended.stdout) == (0, b"")

        assert call.ended() == 0
    last = call.out.splitlines()[-1]
    assert (json.loads(last)["text"] if words else last) == "Limit order: Yes"
    assert ("? How do we buy gold?" in call.err) == (not words)


def has_told_how(call: Running, times: int) -> bool:
    return call.err.count("(selected counts from 0)\n") >= times


def test_a_question_that_comes_twice_is_one(stranger: ForeignServer, tmp_path: Path) -> None:
    choice = question(f"{stranger.url}/choice")
    stranger.offer()
    stranger.callbacks = [choice, choice, {"type": "tool_result", "text": "Well."}]

    outcome = rapkit("call", stranger.url, "watch", folder=tmp_path)

    assert (outcome.code, outcome.out) == (0, "Well.\n")
    assert outcome.err.count("It waits for your choice.") == 1


def test_a_question_does_not_steer_the_terminal_nor_the_shell(stranger: ForeignServer, tmp_path: Path) -> None:
    choice = question(f"{stranger.url}/c?a=1&b=$(true)';x") | {"choices": ["Yes", "\x1b[31mNo\ncurl"]}
    stranger.offer()
    stranger.callbacks = [choice, {"type": "tool_result", "text": "Well."}]

    err = rapkit("call", stranger.url, "watch", folder=tmp_path).err

    line = err.splitlines()[-1]
    assert "\x1b" not in err
    assert shlex.split(line.partition(": ")[2])[3] == choice["response_url"]


# Views


def test_progress_is_a_line_beside_the_answer(stranger: ForeignServer, tmp_path: Path) -> None:
    progress = {"call_id": "c", "done": 3, "total": 6, "note": "brewing\x1b[31m"}
    stranger.offer()
    stranger.callbacks = [
        {"type": "view_update", "view_type": "progress", "content": progress},
        {"type": "view_update", "view_type": "progress", "content": 3},
        {"type": "view_update", "view_type": "board", "content": {"a": ["ö" * 500]}},
        {"type": "view_update", "view_type": "note", "content": "Two\nlines"},
        {"type": "tool_result", "text": "Tea."},
    ]
    shown = f'3/6 brewing\N{REPLACEMENT CHARACTER}[31m\nprogress: 3\nboard: {{"a": ["{"ö" * 91}…\nnote: Two lines\n'
    assert rapkit("call", stranger.url, "watch", folder=tmp_path) == Outcome(0, "Tea.\n", shown)

    lines = rapkit("call", stranger.url, "watch", "--json", folder=tmp_path).out.splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["view_update"] * 4 + ["tool_result"]


def question(response_url: str) -> dict[str, Any]:
    return {
        "type": "user_choice",
        "prompt": "Sure?",
        "choices": ["Yes", "No"],
        "default": 1,
        "response_url": response_url,
    }


@contextlib.contextmanager
def asked(stranger: ForeignServer, folder: Path, *words: str) -> Iterator[Terminal]:
    """A call at a terminal that has come to its first question."""
    stranger.offer()
    with in_terminal("call", stranger.url, "watch", *words, folder=folder) as terminal:
        eventually(lambda: len(stranger.received) == 1)
        ask(stranger, response_url=f"{stranger.url}/choice")
        terminal.until("Your choice")
        yield terminal


def ask(stranger: ForeignServer, *, response_url: str) -> None:
    say(stranger, **question(response_url))


def say(stranger: ForeignServer, **message: Any) -> None:
    """Let the tool say something about its call."""
    stranger.callbacks = [message]
    stranger.call_back(stranger.received[0])
    stranger.callbacks = []
