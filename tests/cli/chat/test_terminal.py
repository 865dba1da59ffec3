"""`rapkit chat` as a person sees it: a real terminal, a real agent, a real tool server."""

import re
from collections.abc import Callable
from pathlib import Path

from tests.cli.chat.conftest import Chats
from tests.cli.chat.staged_agent import StagedAgent, begin
from tests.cli.terminal import Terminal

UP, DOWN, ENTER, ESCAPE = "\x1b[A", "\x1b[B", "\r", "\x1b"
_COMPLETE = re.compile(r"^> *\n (…\w{6}(-\d+)?|new thread) · ", re.MULTILINE)
CTRL_C, CTRL_D, CTRL_J, CTRL_X = "\x03", "\x04", "\n", "\x18"


def say(terminal: Terminal, text: str) -> None:
    terminal.send(text + ENTER)


def settled(terminal: Terminal, *wanted: str) -> list[str]:
    """The lines of the screen that has all this, down to its toolbar: what is printed is there a moment before that is."""
    text = terminal.until(lambda text: all(each in text for each in wanted) and bool(_COMPLETE.search(text)))
    return text.splitlines()


def settled_with(terminal: Terminal, typed: str, printed: str) -> list[str]:
    """The lines of the screen on which this is printed, and that stands where one types."""
    text = terminal.until(lambda text: printed in text and f"\n{typed}\n " in text)
    return text.splitlines()


def id_at_the_end(terminal: Terminal) -> str:
    """The thread that one is told about when one leaves."""
    terminal.send(CTRL_D)
    assert terminal.ended() == 0
    found = re.search(r"  rapkit chat --url \S+ --thread (thr_\w+)$", terminal.everything.replace("\n", ""))
    assert found is not None, terminal.everything
    return found[1]


def test_a_call_is_shown_in_words_and_what_the_model_says_once(chat: Chats) -> None:
    with chat() as terminal:
        say(terminal, "What is the weather in Oslo?")
        answer = "So I can tell you this: Sunny in Oslo."
        text = terminal.until(lambda text: f"\n{answer}\n" in text and text.endswith("· idle"))
        lines = [line for line in text.splitlines() if line]
        assert lines[1:-2] == [
            "> What is the weather in Oslo?",
            "Let me look.",
            "→ Look at the sky over Oslo",
            "← forecast: Sunny in Oslo.",
            answer,
        ]
        assert lines[0].startswith("The agent is at http://")
        assert lines[-2] == ">"
        assert id_at_the_end(terminal)


def test_what_is_pending_stands_below_and_can_be_cancelled(chat: Chats, tmp_path: Path) -> None:
    with chat() as terminal:
        say(terminal, f"watch {tmp_path}")
        terminal.until("I keep an eye on it.")
        terminal.until("1 subscription")
        (tmp_path / "1.letter").write_text("Dear Ada")
        terminal.until("◇ watch: Dear Ada")
        terminal.until("A letter: Dear Ada")
        say(terminal, f"nap {tmp_path / 'bed'}")
        toolbar = settled(terminal, "1 call · 1 subscription")[-2:]
        assert re.fullmatch(r" → Sleep until there is .+  \d+ s", toolbar[0])
        assert re.fullmatch(r" ◇ Watch the letterbox .+  for \d+ s", toolbar[1])

        say(terminal, "/cancel")
        terminal.until("Cancel which?")
        terminal.send(DOWN + ENTER)
        terminal.until("watch is being cancelled.")
        terminal.until("watch: no more events: cancelled by the user")
        say(terminal, "/cancel")
        terminal.until("nap is being cancelled.")
        terminal.until("← nap:")
        say(terminal, "/cancel")
        terminal.until("nothing to cancel")


def test_a_question_is_answered_in_a_picker(chat: Chats) -> None:
    with chat() as terminal:
        say(terminal, "deploy")
        terminal.until("▸ 3 Never (default)")
        terminal.send("1")
        terminal.until("▸ 1 At once")
        terminal.send(DOWN)
        terminal.until("▸ 2 Tonight")
        terminal.send("No")
        terminal.until("Clear your line to choose.")
        terminal.send(CTRL_C)
        terminal.until("▸ 2 Tonight")
        terminal.send(ENTER)
        text = terminal.until("That is settled. Deployed: Tonight.")
        assert "? When do we deploy 1.2?\n✓ Tonight\n← deploy: Deployed: Tonight." in text

        say(terminal, "deploy")
        terminal.until("Ctrl-X dismisses it")
        terminal.send(ESCAPE)
        terminal.until(lambda text: "Ctrl-X" not in text)
        terminal.until("1 question")
        say(terminal, "/answer")
        terminal.until("Ctrl-X dismisses it")
        terminal.send(CTRL_X)
        terminal.until("✗ dismissed")
        terminal.until("That is settled. Deployed: Never.")


def test_pictures_are_named_changes_are_coloured_and_consent_has_a_link(chat: Chats) -> None:
    with chat(columns=100) as terminal:
        say(terminal, "show")
        lines = settled(terminal, "Now you have seen them.")
        text = "\n".join(lines)
        assert "← picture: Here it is:\n  [image/png, 12 kB]" in text
        row = lines.index("  +roses are red")
        assert terminal.screen.buffer[row][4].fg == "green"
        assert terminal.screen.buffer[row - 1][4].fg == "red"

        say(terminal, "mail")
        terminal.until("Open this page to authorise:")
        lines = settled(terminal, "wants to be authorised, see above")
        start = lines.index("  Open this page to authorise:") + 1
        url = "".join(lines[start : lines.index("", start)])
        assert url.startswith("https://accounts.example.com/authorize?response_type=code&client_id=chat&")
        assert url.endswith("code_challenge_method=S256")


def test_from_thread_to_thread(chat: Chats) -> None:
    with chat() as terminal:
        say(terminal, "the first")
        terminal.until("I heard: the first")
        say(terminal, "/new")
        say(terminal, "the second")
        terminal.until("I heard: the second")
        say(terminal, "/threads")
        terminal.until("/switch N goes to one of them.")
        rows = [line for line in settled(terminal, "/switch N goes") if re.match(r"[* ]  ?\d+ …", line)]
        assert rows[0].startswith("*  1 …")
        assert rows[0].endswith("the second")
        assert rows[1].startswith("   2 …")
        assert rows[1].endswith("the first")

        say(terminal, "/switch 2")
        say(terminal, "once more")
        text = terminal.until("I heard: once more")
        assert re.search(r"— thread …\w{6}, idle —\n\n> the first\n\nI heard: the first\n\n> once more\n", text)

        say(terminal, "/close")
        terminal.until("Your next message begins a new thread")
        terminal.until(" closed")
        say(terminal, "the third")
        terminal.until("I heard: the third")
        say(terminal, "/help")
        terminal.until("/switch [N or ID]")
        say(terminal, "/swich 1")
        terminal.until("There is no command /swich. Did you mean /switch?")
        say(terminal, "/switch nowhere")
        terminal.until("There is no thread 'nowhere'. /threads lists those that there are.")
        say(terminal, f"/switch {'9' * 4400}")
        terminal.until("'99999")
        thread_id = id_at_the_end(terminal)

    with chat("--thread", thread_id) as again:
        again.until("I heard: the third")
        say(again, "/quit")
        assert again.ended() == 0
    with chat("--last") as again:
        again.until("I heard: the third")


def test_what_cannot_be_cancelled_is_said_with_what_can_be(chat: Chats, tmp_path: Path) -> None:
    bed = tmp_path / "bed"
    with chat() as terminal:
        say(terminal, "/cancel größe")
        terminal.until("Nothing is pending here, so there is nothing to cancel.")
        say(terminal, f"nap {bed}")
        terminal.until("1 call")
        for name in ("größe", "the tea", "../close"):
            say(terminal, f"/cancel {name}")
            text = terminal.until(f"! There is no pending call or subscription '{name}'. There are:\n")
            assert re.search(r"^    \S+  Sleep until there is", text, re.MULTILINE)
        say(terminal, "/cancel nap")
        terminal.until("nap is being cancelled.")
        terminal.until("← nap:")


def test_several_calls_of_a_name_are_to_be_chosen_from(chat: Chats, tmp_path: Path) -> None:
    with chat(columns=200) as terminal:
        for name in ("bed", "couch"):
            say(terminal, f"nap {tmp_path / name}")
            terminal.until(f"/{name}  ")  # below, where the seconds follow
        say(terminal, "/cancel nap")
        terminal.until("Cancel which?")
        terminal.send(DOWN + ENTER)
        terminal.until("nap is being cancelled.")
        terminal.until(lambda text: " 1 call" in text and "bed" in text.splitlines()[-1])
        (tmp_path / "bed").touch()
        terminal.until("← nap: well rested")


def test_a_command_that_fails_in_a_way_nobody_thought_of_does_not_end_the_chat(
    chat: Chats, staged: StagedAgent
) -> None:
    staged.detail["threads"] = [None]
    with chat("--url", staged.url) as terminal:
        say(terminal, "/threads")
        terminal.until("! /threads could not be carried out: TypeError, ")
        begin(staged, terminal)
        assert "Traceback" not in terminal.everything


def test_help_says_what_becomes_of_threads(chat: Chats, configured: Callable[[], Path]) -> None:
    with chat(columns=100) as terminal:
        say(terminal, "/help")
        terminal.until("leave: threads go on without you (Ctrl-D does so too)")
    with chat(folder=configured(), columns=100) as terminal:
        say(terminal, "/help")
        terminal.until("leave: the agent ends, its threads are kept (Ctrl-D does so too)")


def test_what_stands_behind_a_command_that_takes_nothing_does_not_vanish(chat: Chats) -> None:
    with chat() as terminal:
        terminal.paste("/help\norder Funghi")
        terminal.send(ENTER)
        lines = settled_with(
            terminal, "> order Funghi", "! /help takes nothing; what follows was not sent: order Funghi"
        )
        assert any(line.startswith("  /switch [N or ID]") for line in lines)
        terminal.send(ENTER)
        terminal.until("I heard: order Funghi")
        for command in ("/close", "/quit"):
            say(terminal, f"{command} it")
            what = f"! {command} takes nothing, and was not carried out; what follows was not sent: it"
            settled_with(terminal, "> it", what)
            terminal.send(CTRL_C)
            terminal.until("· Ctrl-C again leaves")
        say(terminal, "/new")
        terminal.until("A new thread")


def test_a_child_that_asks_is_not_overlooked(chat: Chats) -> None:
    with chat() as terminal:
        say(terminal, "delegate")
        terminal.until("Somebody else asks for it.")
        terminal.until("? a child asks you: /switch -000001")
        say(terminal, "/switch -000001")
        terminal.until("Type your answer")
        say(terminal, "Ada")
        text = terminal.until("Hello Ada.")
        assert "? What is your name?\n✓ Ada" in text


def test_lines_pasted_lines_and_lines_of_the_last_time(chat: Chats, tmp_path: Path) -> None:
    with chat() as terminal:
        terminal.send("one" + CTRL_J + "two")
        terminal.send(ESCAPE + ENTER + "three" + ENTER)
        terminal.until("I heard: one\ntwo\nthree")
        assert "> one\n  two\n  three" in terminal.text
        terminal.paste("four\nfive")
        terminal.until("> four\n  five")
        terminal.send(ENTER)
        terminal.until("I heard: four\nfive")
        terminal.send(CTRL_D)
        assert terminal.ended() == 0
    with chat() as terminal:
        terminal.until("new thread")
        terminal.send(UP)
        terminal.until("> four\n  five")
        terminal.send(UP * 2)
        terminal.until("> one\n  two\n  three")
        terminal.send(ENTER)
        terminal.until("I heard: one")
    history = tmp_path / "state" / "rapkit" / "chat_history"
    assert history.stat().st_mode & 0o777 == 0o600

    history.unlink()
    history.mkdir()
    with chat() as terminal:
        say(terminal, "it works without")
        terminal.until("I heard: it works without")


def test_the_window_may_become_narrow_and_wide_again(chat: Chats, tmp_path: Path) -> None:
    words = "These are more than forty letters, as everybody can see who counts them."
    bed = tmp_path / "a_bed_that_has_a_rather_long_name"
    with chat() as terminal:
        say(terminal, f"nap {bed}")
        terminal.until("1 call")
        terminal.resize(30, 40)
        say(terminal, words)
        heard = "I heard: These are more than forty\nletters, as everybody can see who counts\nthem."
        below = settled(terminal, heard)[-2:]
        assert below[0].endswith("1 call")
        assert below[1].startswith(" → Sleep until")
        assert "…" in below[1]

        terminal.resize(30, 80)
        say(terminal, "wide again")
        assert settled(terminal, "I heard: wide again").count(">") == 1  # the line that is typed in was not left behind
    bed.touch()


def test_ctrl_c_clears_the_line_and_leaves_when_it_is_empty(chat: Chats) -> None:
    with chat() as terminal:
        terminal.until("new thread")
        terminal.send("half a thought")
        terminal.until("> half a thought")
        terminal.send(CTRL_C)
        terminal.until("Ctrl-C again leaves")
        assert "half a thought" not in terminal.text
        terminal.send(CTRL_C)
        assert terminal.ended() == 0
        assert "Traceback" not in terminal.everything


def test_without_colours(chat: Chats) -> None:
    with chat(environment={"NO_COLOR": "1"}) as terminal:
        say(terminal, "deploy")
        terminal.until("▸ 3 Never (default)")
        terminal.send(ENTER)
        terminal.until("That is settled.")
        codes = {code for found in re.findall(rb"\x1b\[([0-9;]*)m", terminal.raw) for code in found.split(b";")}
        assert not [code for code in codes if code and 30 <= int(code) <= 107]


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(chat: Chats) -> None:
    with chat(environment={"TERM": "dumb"}) as terminal:
        terminal.until("\n>")
        say(terminal, "deploy")
        terminal.until("(answer with a number; - dismisses it)")
        say(terminal, "2")
        terminal.until("That is settled. Deployed: Tonight.")
        terminal.send(CTRL_D)
        assert terminal.ended() == 0
        assert b"\x1b" not in terminal.raw


def test_commands_are_not_said_to_the_model_where_there_are_only_lines(chat: Chats) -> None:
    with chat(environment={"TERM": "dumb"}) as terminal:
        terminal.until("\n>")
        say(terminal, "/help")
        terminal.until("  /quit  leave (Ctrl-D does so too)")
        for command in ("/threads", "/answer", "/switch 2"):
            say(terminal, command)
            terminal.until(f"! {command.split()[0]} needs a terminal that can move its cursor; `rapkit threads` lists")
        say(terminal, "/hlep")
        terminal.until("There is no command /hlep. Did you mean /help?")
        say(terminal, "/quit now")
        terminal.until("/quit takes nothing, and was not carried out")
        say(terminal, " /help me")
        terminal.until("I heard: /help me")
        say(terminal, "/quit")
        assert terminal.ended() == 0
        assert terminal.everything.count("I heard:") == 1
