"""`rapkit chat` without a terminal."""

import os
import subprocess
import sys
from pathlib import Path

from tests.cli.command import PATIENCE, Outcome


def piped(text: str | bytes, *words: str, folder: Path) -> Outcome:
    ended = subprocess.run(
        [sys.executable, "-m", "rapkit", "chat", *words],
        input=text if isinstance(text, bytes) else text.encode(),
        cwd=folder,
        env={**os.environ, "TERM": "xterm-256color"},
        capture_output=True,
        timeout=PATIENCE,
    )
    return Outcome(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


def test_each_line_is_a_message_and_is_answered_before_the_next_one(agent: str, tmp_path: Path) -> None:
    outcome = piped("weather in Oslo\n\ndeploy\n2\nthank you", "--url", agent, folder=tmp_path)
    assert outcome.code == 0
    assert outcome.out.splitlines() == [
        "Let me look.",
        "→ Look at the sky over Oslo",
        "← forecast: Sunny in Oslo.",
        "So I can tell you this: Sunny in Oslo.",
        '→ deploy(version="1.2")',
        "? When do we deploy 1.2?",
        "  1 At once",
        "  2 Tonight",
        "  3 Never (default)",
        "(answer with a number; - dismisses it)",
        "✓ Tonight",
        "← deploy: Deployed: Tonight.",
        "That is settled. Deployed: Tonight.",
        "I heard: thank you",
    ]
    assert "`rapkit ask` is made for scripts." in outcome.err


def test_a_question_can_wait_and_be_dismissed(agent: str, tmp_path: Path) -> None:
    asked = piped("deploy\n", "--url", agent, folder=tmp_path)
    assert asked.out.endswith("  3 Never (default)\n(answer with a number; - dismisses it)\n")

    later = piped("Let me think.\n-\n", "--url", agent, "--last", folder=tmp_path)
    assert later.out.startswith("— thread …")
    assert later.out.endswith(
        "(answer with a number; - dismisses it)\n"
        "I heard: Let me think.\n"
        "✗ dismissed\n← deploy: Deployed: Never.\nThat is settled. Deployed: Never.\n"
    )


def test_a_question_from_before_the_lines_that_are_shown_is_asked_all_the_same(agent: str, tmp_path: Path) -> None:
    piped("deploy\n" + "Let me think.\n" * 16, "--url", agent, folder=tmp_path)
    later = piped("2\n", "--url", agent, "--last", folder=tmp_path)
    assert "earlier lines are not shown" in later.out
    asked = "? When do we deploy 1.2?\n  1 At once\n  2 Tonight\n  3 Never (default)\n(answer with a number"
    assert asked in later.out
    assert "\n✓ Tonight\n" in later.out


def test_what_cannot_be_is_one_sentence(agent: str, tmp_path: Path) -> None:
    unknown = piped("", "--url", agent, "--thread", "nowhere", folder=tmp_path)
    assert (unknown.code, unknown.out) == (2, "")
    assert "rapkit: There is no thread 'nowhere'. See: rapkit threads list" in unknown.err

    both = piped("", "--url", agent, "--thread", "thr_0", "--last", folder=tmp_path)
    assert both.code == 2
    assert "rapkit: --thread and --last both say which thread." in both.err


def test_a_number_that_is_no_choice_is_not_said_to_the_model(agent: str, tmp_path: Path) -> None:
    outcome = piped(f"deploy\n9\n{'0' * 5000}\n1\n", "--url", agent, folder=tmp_path)
    assert outcome.code == 0
    asked, later = outcome.out.split("(answer with a number; - dismisses it)\n")
    assert asked.endswith("  3 Never (default)\n")
    assert later == (
        "! There is no choice 9: it is one of 1 to 3, or - to dismiss the question.\n"
        "! There is no choice 00000000…: it is one of 1 to 3, or - to dismiss the question.\n"
        "✓ At once\n← deploy: Deployed: At once.\nThat is settled. Deployed: At once.\n"
    )


def test_a_line_that_is_no_utf_8_ends_it(agent: str, tmp_path: Path) -> None:
    outcome = piped(b"first\n\nhi \xff\nlast\n", "--url", agent, folder=tmp_path)
    assert (outcome.code, outcome.out) == (2, "I heard: first\n")
    assert (
        outcome.err.splitlines()[-1]
        == "rapkit: Line 3 of the input is not UTF-8, so it was not sent, nor what follows it."
    )


def test_a_line_that_the_agent_refuses_ends_it(agent: str, tmp_path: Path) -> None:
    outcome = piped(f"first\n{'x' * 2_000_000}\nlast\n", "--url", agent, folder=tmp_path)
    assert (outcome.code, outcome.out) == (2, "I heard: first\n")
    assert outcome.err.splitlines()[-1].startswith("rapkit: Line 2 of the input was not taken: ")
