"""An agent that is killed, comes back, or hangs while somebody chats with it."""

import re
import signal
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from rapkit.cli.agent_api import AgentApi
from tests.cli.chat.conftest import Chats, url_of
from tests.cli.command import eventually, running


def said_by_somebody_else(url: str, text: str) -> None:
    """Say something in the only thread of an agent, and wait for the answer."""
    api = AgentApi(url)
    (thread,) = api.get("threads")["threads"]
    path = f"threads/{thread['thread_id']}"
    api.post(f"{path}/messages", {"text": text})
    eventually(lambda: f"I heard: {text}" in str(api.get(f"{path}/history")))


def test_a_chat_goes_on_when_the_agent_is_back(chat: Chats, configured: Callable[[], Path], tmp_path: Path) -> None:
    """What was typed meanwhile arrives once; what happened meanwhile is shown, with its time. A hung agent keeps nobody from leaving."""
    home, bed = configured(), tmp_path / "bed"
    with running("up", folder=home) as first:
        url = url_of(first)
        with chat("--url", url, rows=50) as terminal:
            terminal.send(f"nap {bed}\r")
            terminal.until("1 call")
            first.send(signal.SIGKILL)
            first.ended()
            terminal.until("the agent is away for")
            terminal.send("Are you there?\r")
            terminal.until("> Are you there? (not sent yet)")
            terminal.until("1 message to send")
            terminal.send("half a thought")
            with running("up", folder=home) as elsewhere:
                said_by_somebody_else(url_of(elsewhere), "Meanwhile")
            bed.touch()

            with running("up", "--port", str(urlsplit(url).port), folder=home) as second:
                url_of(second)
                terminal.until("— the agent is back; it was away from")
                terminal.until("I heard: Are you there?")
                terminal.until("Now I am well rested.")
                terminal.until("> half a thought")
                text = terminal.until(lambda text: " idle" in text and "not sent yet" not in text)
                assert text.count("> Are you there?") == 1
                assert re.search(r"^\d\d:\d\d:\d\d > Meanwhile$", text, re.MULTILINE)
                assert re.search(r"^\d\d:\d\d:\d\d I heard: Meanwhile$", text, re.MULTILINE)
                terminal.send("\x03")
                terminal.send("Good.\r")
                text = terminal.until("I heard: Good.")
                assert "\nI heard: Good." in text  # this is news, and needs no time

                second.send(signal.SIGSTOP)
                try:
                    terminal.send("Hello?\r")
                    terminal.until("(not sent yet)")
                    terminal.send("\x04")
                    assert terminal.ended() == 0
                finally:
                    second.send(signal.SIGCONT)
            assert "The agent did not confirm that it got this: Hello?" in terminal.text


def test_an_agent_that_does_not_run_runs_as_long_as_the_chat(chat: Chats, configured: Callable[[], Path]) -> None:
    with chat(folder=configured()) as terminal:
        terminal.until("The agent ends with this chat; its threads are kept.")
        terminal.send("weather in Bergen\r")
        terminal.until("So I can tell you this: Sunny in Bergen.")
        terminal.send("\x04")
        assert terminal.ended() == 0
        assert "To go on with this thread:" in terminal.text
        assert "Traceback" not in terminal.everything
