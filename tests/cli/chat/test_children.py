"""What the model says in child threads, as one sees it in their parent."""

from pathlib import Path

from tests.cli.chat.conftest import Chats


def test_what_was_said_in_a_child_is_shown_when_it_is_said_and_when_it_ends(chat: Chats, tmp_path: Path) -> None:
    with chat(rows=40) as terminal:
        terminal.send(f"doorbell {tmp_path}\r")
        terminal.until("I listen.")
        (tmp_path / "1.ring").write_text("the wind")
        text = terminal.until("-000001 was closed")
        assert "◇ doorbell: the wind\n" in text
        said = [line.partition("-00000")[2] for line in text.splitlines() if line.startswith("↳ child thread …")]
        assert said == ["1 made for that event", "1 said: Nothing but the wind", "1 was closed"]

        (tmp_path / "2.ring").write_text("a guest")
        terminal.until("-000002 said: Somebody is there: a guest")
        terminal.until("asks you something: /switch -000002")
        terminal.send("/switch -000002\r")
        terminal.until("Type your answer")
        terminal.send("Ada\r")
        terminal.until("Hello Ada.")
        terminal.send("\x04")
        assert terminal.ended() == 0
        assert terminal.everything.count("said: Nothing but the wind") == 1
        assert terminal.everything.count("said: Somebody is there: a guest") == 1

    with chat("--last", rows=40) as terminal:
        text = terminal.until("-000002 was closed")
        assert text.count("-000001 said: Nothing but the wind\n") == 1
        assert text.count("-000002 said: Hello Ada.\n") == 1
