"""What is shown while the model speaks, and while a call is under way: with an agent that a test can hold at any moment."""

from tests.cli.chat.conftest import Chats
from tests.cli.chat.staged_agent import StagedAgent, begin


def test_words_appear_as_they_come_and_stand_there_once(chat: Chats, staged: StagedAgent) -> None:
    with chat("--url", staged.url) as terminal:
        begin(staged, terminal)
        staged.tell("delta", text="Once upon a ti")
        terminal.until("\nOnce upon a ti\n")
        terminal.send("I know th")
        staged.tell("delta", text="me there was a \x1b[2J\x07king")
        terminal.until("\nOnce upon a time there was a �[2J�king\n\n> I know th\n")

        staged.tell("reset")
        terminal.until(lambda text: "Once" not in text)
        staged.tell("delta", text="Long ago")
        terminal.until("\nLong ago\n\n> I know th\n")
        staged.write("assistant", text="Long ago there was a queen.", calls=[])
        staged.tell("status", status="idle", reason=None)
        terminal.until("> Tell me a story.\n\nLong ago there was a queen.\n\n> I know th\n …abcdef · idle")
        assert terminal.everything.count("Long ago") == 1


def test_ctrl_c_does_not_kill_the_answer(chat: Chats, staged: StagedAgent) -> None:
    with chat("--url", staged.url) as terminal:
        begin(staged, terminal)
        terminal.send("\x03")
        terminal.until("it goes on; Ctrl-C again leaves")
        staged.write("assistant", text="The end.", calls=[])
        staged.tell("status", status="idle", reason=None)
        terminal.until("The end.")
        terminal.until(lambda text: text.endswith("· idle"))
        terminal.send("\x03")
        assert terminal.ended() == 0
    assert [path for path, _ in staged.posted] == ["/v1/threads"]


def test_a_long_text_shows_its_end_until_it_is_all_there(chat: Chats, staged: StagedAgent) -> None:
    with chat("--url", staged.url, rows=16) as terminal:
        begin(staged, terminal)
        text = "\n".join(f"verse {number}" for number in range(40))
        staged.tell("delta", text=text)
        terminal.until(lambda text: "verse 39" in text and text.endswith("thinking…"))
        assert "verse 3\n" not in terminal.everything
        staged.write("assistant", text=text, calls=[])
        staged.tell("status", status="idle", reason=None)
        everything = terminal.until(lambda text: "verse 0\n" in text and text.endswith("· idle"), everywhere=True)
        assert [line for line in everything.splitlines() if line.startswith("verse")] == text.split("\n")


def test_progress_moves_below_the_line_that_is_typed_in_and_says_nothing_above(
    chat: Chats, staged: StagedAgent
) -> None:
    call = {"call_id": "call_1", "name": "brew", "display": "Brew tea", "made_at": 1.0, "awaits": "tool", "until": None}
    with chat("--url", staged.url) as terminal:
        begin(staged, terminal)
        staged.detail["pending_calls"] = [call]
        staged.write(
            "assistant", text="", calls=[{"id": "call_1", "name": "brew", "arguments": {}, "display": "Brew tea"}]
        )
        for done, bar in ((0, "░░░░░░░░░░"), (3, "█████░░░░░"), (6, "██████████")):
            content = {"call_id": "call_1", "operation": "brew", "done": done, "total": 6, "note": "brewing"}
            staged.write("view", view_type="progress")
            staged.tell("view", view_type="progress", content=content)
            terminal.until(lambda text, shown=f"{bar} {done}/6 brewing": text.endswith(shown))  # type: ignore[misc]
        staged.write("view", view_type="board")
        # The terminal is drawn in several writes: above the line first, then the line and what is below it.
        text = terminal.until(lambda text: "▤ [view board: new content]" in text and text.endswith("6/6 brewing"))
        assert "view progress" not in terminal.everything
        assert text.count("brewing") == 1
