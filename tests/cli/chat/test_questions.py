"""Questions in a chat: all of one can be read before it is answered, and what is typed for one that is over goes nowhere."""

import time

import pytest

from tests.cli.chat.conftest import Chats
from tests.cli.chat.staged_agent import THREAD, StagedAgent, begin
from tests.cli.command import PATIENCE, eventually
from tests.cli.terminal import Terminal

PLAN = [*(f"Step {number}: look at it." for number in range(1, 21)), "Step 21: erase it."]
CALL = {"name": "erase", "display": "Erase it", "made_at": 1.0, "awaits": "permission", "until": None}
IN_SIGHT = {(24, 80): "  … (19 more lines above)", (8, 20): "  … (39 lines above)"}


def pressed_until(terminal: Terminal, key: str, shown: str) -> None:
    """Press a key again and again until that is on the screen: for a moment after a question went away, keys are for nothing."""
    deadline = time.monotonic() + PATIENCE
    while shown not in terminal.text:
        assert time.monotonic() < deadline, terminal.everything
        terminal.send(key)
        time.sleep(0.1)


@pytest.mark.parametrize(("rows", "columns"), list(IN_SIGHT), ids=["24x80", "8x20"])
def test_a_long_question_can_be_read_to_its_end_and_its_options_are_in_sight(
    chat: Chats, staged: StagedAgent, rows: int, columns: int
) -> None:
    with chat("--url", staged.url, rows=rows, columns=columns) as terminal:
        begin(staged, terminal)
        staged.detail["pending_calls"] = [{**CALL, "call_id": f"call_{number}"} for number in range(1, 5)]
        staged.ask("\n".join(PLAN), ["Allow", "Deny"])
        text = terminal.until(lambda text: "\n  1 Allow\n  2 Deny\n" in text and "\n>\n …abcdef" in text)
        assert IN_SIGHT[rows, columns] in text.splitlines()
        everything = " ".join(terminal.everything.split())
        assert f"? {' '.join(PLAN)} 1 Allow 2 Deny ? Step 1: look at it." in everything

        terminal.send("2\r")
        eventually(lambda: len(staged.posted) == 2)
        assert staged.posted[1][1]["selected"] == 1
        staged.take_back()
        terminal.until("✓ ", everywhere=True)
        assert terminal.everything.count("erase it.") == 1
        assert "is over" not in terminal.everything  # it was answered, and by whom it was asked


def test_a_question_of_64_kilobytes_is_all_in_the_scrollback(chat: Chats, staged: StagedAgent) -> None:
    words = [f"word{number:05}" for number in range(6500)]
    with chat("--url", staged.url, rows=24) as terminal:
        begin(staged, terminal)
        staged.ask(" ".join(words), ["Allow", "Deny"])
        terminal.until("\n  1 Allow\n  2 Deny\n  ↑ ↓ or a number")
        everything = " ".join(terminal.everything.split())
        assert f"? {' '.join(words)} 1 Allow" in everything


def test_a_question_that_no_longer_fits_when_the_window_is_smaller_is_printed_then(
    chat: Chats, staged: StagedAgent
) -> None:
    prompt = (
        "May I erase all that is in the folder, in the folders that are in it, and in those that are linked from it?"
    )
    with chat("--url", staged.url) as terminal:
        begin(staged, terminal)
        staged.ask(prompt, ["Allow", "Deny"])
        terminal.until("\n  2 Deny\n")
        assert terminal.everything.count("May I erase") == 1
        terminal.resize(9, 20)
        text = terminal.until(lambda text: "lines above)" in text and "\n  1 Allow\n  2 Deny\n" in text)
        assert "erase" in text
        assert f"? {prompt} 1 Allow" in " ".join(terminal.everything.split())


def test_a_question_that_is_over_is_not_asked_any_more(chat: Chats, staged: StagedAgent) -> None:
    with chat("--url", staged.url) as terminal:
        begin(staged, terminal)
        staged.ask("Shall I go on?", ["Yes", "No"])
        terminal.until("  1 Yes")
        terminal.send("\r")  # nothing is marked yet, so nothing is chosen
        staged.take_back()
        text = terminal.until(lambda text: "  1 Yes" not in text and "That question is over" in text)
        assert "? Shall I go on?\n✓ Yes\n\nThat question is over: it was answered elsewhere" in text

        staged.ask("And now?", ["Yes", "No"])
        terminal.until("? And now?")
        pressed_until(terminal, "2", "▸ 2 No")
        terminal.send("\r")
        eventually(lambda: len(staged.posted) == 2)
        assert staged.posted[1] == (f"/v1/threads/{THREAD}/calls/call_1/choice", {"selected": 1, "asked_at": 1.5})


def test_words_for_a_question_that_is_over_are_not_said_to_the_agent(chat: Chats, staged: StagedAgent) -> None:
    with chat("--url", staged.url) as terminal:
        begin(staged, terminal)
        staged.ask("What is the password?", [], in_words=True)
        terminal.until("Type your answer")
        terminal.send("swordfi")
        terminal.until("> swordfi\n")
        staged.take_back()
        terminal.until("That question is over")
        terminal.send("sh\r")
        terminal.until("Not sent: you began this as the answer to a question that is over.")
        terminal.until("\n> swordfish\n")
        assert len(staged.posted) == 1

        terminal.send("\r")  # who enters it again means it
        eventually(lambda: len(staged.posted) == 2)
        assert staged.posted[1] == (f"/v1/threads/{THREAD}/messages", {"text": "swordfish"})


def test_other_words_are_said_to_the_agent(chat: Chats, staged: StagedAgent) -> None:
    with chat("--url", staged.url) as terminal:
        begin(staged, terminal)
        staged.ask("What is the password?", [], in_words=True)
        terminal.until("Type your answer")
        terminal.send("swordfish")
        terminal.until("> swordfish\n")
        staged.take_back()
        terminal.until("That question is over")
        terminal.send("\x03")
        terminal.until("Ctrl-C again leaves")
        terminal.send("Hello\r")
        eventually(lambda: len(staged.posted) == 2)
        assert staged.posted[1] == (f"/v1/threads/{THREAD}/messages", {"text": "Hello"})
