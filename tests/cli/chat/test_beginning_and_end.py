"""The moments before a chat has the terminal, and after it has given it back."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.chat.conftest import Chats
from tests.cli.command import PATIENCE
from tests.cli.terminal import in_terminal


def test_what_is_typed_before_the_chat_is_there_is_sent(agent: str, tmp_path: Path) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    with in_terminal("chat", "--url", agent, folder=tmp_path, environment=environment) as terminal:
        terminal.send("typed early\rand this\rhalf a thou")
        terminal.until("I heard: and this")
        text = terminal.until("> half a thou")
        assert re.search(
            r"^The agent is at ", text, re.MULTILINE
        )  # what the terminal had echoed does not stand in its way
        assert text.count("half a thou") == 1
        terminal.send("ght\r")
        text = terminal.until("I heard: half a thought")
        assert re.findall("^I heard: (.+)$", text, re.MULTILINE) == ["typed early", "and this", "half a thought"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["SIGTERM", "SIGHUP"])
def test_a_signal_ends_it_in_order_and_is_its_exit_code(chat: Chats, number: signal.Signals) -> None:
    with chat() as terminal:
        terminal.send("Hello\r")
        terminal.until("I heard: Hello")
        terminal.signal(number)
        assert terminal.ended() == 128 + number
        assert "To go on with this thread:" in terminal.text
        assert terminal.raw.rindex(b"\x1b[?2004l") > terminal.raw.rindex(b"\x1b[?2004h")  # pasted text is as before
        assert "Traceback" not in terminal.everything


def test_a_terminal_that_is_closed_is_no_accident(agent: str, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with (tmp_path / "err").open("wb") as err:
        child = subprocess.Popen(
            [sys.executable, "-m", "rapkit", "chat", "--url", agent],
            stdin=theirs,
            stdout=theirs,
            stderr=err,
            env={**os.environ, "TERM": "xterm-256color", "XDG_STATE_HOME": str(tmp_path)},
        )
    os.close(theirs)
    try:
        shown = b""
        while b"new thread" not in shown:
            assert select.select([ours], [], [], PATIENCE)[0], shown
            shown += os.read(ours, 65536)
        os.close(ours)
        assert (child.wait(PATIENCE), (tmp_path / "err").read_text()) == (129, "")
    finally:
        child.kill()
        child.wait()


def test_threads_in_memory_are_not_called_kept(chat: Chats, configured: Callable[[], Path]) -> None:
    with chat("--store", "sqlite:///:memory:", folder=configured()) as terminal:
        terminal.until("The agent and its threads end with this chat")
        assert "are kept" not in terminal.text
        terminal.send("Hello\r")
        terminal.until("I heard: Hello")
        terminal.send("\x04")
        assert terminal.ended() == 0
        assert "To go on" not in terminal.text
