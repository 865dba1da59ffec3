"""`rapkit threads choose`: questions, their numbers and labels, and how they are answered."""

import json
import sys

import pexpect
import pytest

from rapkit.cli.threads.questions import number_of
from rapkit.errors import ConfigError
from tests.call_ids import plain
from tests.cli.agent_home import Home, command
from tests.cli.command import PATIENCE
from tests.cli.fake_agent import document, posing, problem


@pytest.mark.parametrize(("given", "city"), [("1", "Oslo"), ("#2", "Rome"), ("Rome", "Rome"), ("oslo", "Oslo")])
def test_by_number_or_label(home: Home, given: str, city: str) -> None:
    thread_id = home.ask("ask me", until="waiting")

    outcome = home.run("threads", "choose", thread_id, given)

    assert (outcome.code, outcome.out, outcome.err) == (0, f"Chose '{city}' for 'Where to?'.\n", "")
    assert home.run("ask", "--thread", thread_id, "--resume").out == f"So it is {city}\n"


def test_a_number_is_not_taken_for_a_label_nor_the_other_way_round() -> None:
    choices = ["3", "1", "Yes", "yes"]

    assert number_of("3", ["1", "2", "3"]) == 2
    assert number_of("4", choices) == 3
    assert number_of("Yes", choices) == 2
    for ambiguous, meant in (("1", "#1 or #2"), ("3", "#1 or #3"), ("YES", "#3 or #4")):
        with pytest.raises(ConfigError, match=f"more than one of the choices. Say {meant}."):
            number_of(ambiguous, choices)
    assert number_of("#1", choices) == 0
    for wrong in ("0", "#5", "²", "-1", "maybe", "9" * 5000):
        with pytest.raises(ConfigError, match="is none of the choices: 1 '3', 2 '1', 3 'Yes', 4 'yes'"):
            number_of(wrong, choices)


def test_in_words(home: Home) -> None:
    thread_id = home.ask("in words", until="waiting")

    wrong = home.run("threads", "choose", thread_id, "Because.")
    outcome = home.run("threads", "choose", thread_id, "--text", "Because.")

    assert wrong.code == 2
    assert 'Answer it in words, with --text "…", or --dismiss it.' in wrong.err
    assert (outcome.code, outcome.out) == (0, "Answered 'Why?'.\n")
    assert home.run("ask", "--thread", thread_id, "--resume").out == "So it is Because.\n"


def test_dismissed(home: Home) -> None:
    thread_id = home.ask("ask me", until="waiting")

    outcome = home.run("threads", "choose", thread_id, "--dismiss")

    assert (outcome.code, outcome.out) == (0, "Dismissed 'Where to?'.\n")
    kinds = [entry["kind"] for entry in _entries(home, thread_id)]
    assert "chosen" in kinds


def _entries(home: Home, thread_id: str) -> list[dict[str, object]]:
    home.wait(thread_id, "idle")
    entries: list[dict[str, object]] = home.api.get(f"threads/{thread_id}/history")["entries"]
    return entries


def test_without_a_choice_the_question_is_shown(home: Home) -> None:
    thread_id = home.ask("ask me", until="waiting")

    outcome = home.run("threads", "choose", thread_id)

    assert outcome.code == 0
    assert outcome.out.startswith("? Where to?\n   1  Oslo\n   2  Rome\n")
    assert home.look(thread_id)["choices"]
    said = json.loads(home.run("threads", "choose", thread_id, "--json").out)
    assert (said["thread_id"], plain(said["choices"][0]["call_id"]), said["oauth"]) == (thread_id, "c1", [])


def test_of_several_questions_one_is_named(home: Home) -> None:
    thread_id = home.ask("ask twice", until="waiting")

    both = home.run("threads", "choose", thread_id)
    unnamed = home.run("threads", "choose", thread_id, "Oslo")
    dismissed = home.run("threads", "choose", thread_id, "--dismiss")
    assert "Where to?" in both.out
    assert f"rapkit threads choose {thread_id} c2 --text" in plain(both.out)
    assert unnamed.code == dismissed.code == 2
    assert "There is no open question of a call 'Oslo'. There are: c1, c2." in plain(unnamed.err)
    assert "Say which call is answered: c1, c2." in plain(dismissed.err)

    assert home.run("threads", "choose", thread_id, "c1", "Oslo").code == 0
    assert home.run("threads", "choose", thread_id, "c2", "--text", "Because.").code == 0
    assert home.wait(thread_id, "idle")["choices"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("Paris",), "'Paris' is none of the choices: 1 'Oslo', 2 'Rome'. Or answer in words: --text"),
        (("0",), "'0' is none of the choices"),
        (("1", "--dismiss"), "Give one answer: a choice, --text or --dismiss."),
        (("1", "--text", "x"), "Give one answer"),
        (("c9", "1"), "There is no open question of a call 'c9'. There are: c1."),
        (("a", "b", "c"), "A label of several words is put in quotes."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_no_answer_is_refused_and_the_question_stays(home: Home, words: tuple[str, ...], said: str) -> None:
    thread_id = home.ask("ask me", until="waiting")

    outcome = home.run("threads", "choose", thread_id, *words)

    assert (outcome.code, outcome.out) == (2, "")
    assert said in plain(outcome.err)
    assert home.look(thread_id)["choices"]


def test_an_answer_is_for_the_question_that_was_seen() -> None:
    """Another one may be open by the time it arrives, and the agent refuses it then."""
    question = {
        "call_id": "c1",
        "prompt": "Sure?",
        "choices": ["Yes"],
        "default": 0,
        "in_words": False,
        "asked_at": 7.5,
    }
    thread = {"thread_id": "thr_1", "choices": [question], "oauth": []}
    with posing() as impostor:
        over = problem(409, "The question that you mean is over.")
        impostor.answers = [document({"store": "", "works": True}), document(thread), over]

        outcome = command("threads", "choose", "thr_1", "yes", "--url", impostor.url)

    assert (outcome.code, outcome.err) == (2, "rapkit: The question that you mean is over.\n")
    assert impostor.requests[-1].path == "/v1/threads/thr_1/calls/c1/choice"
    assert json.loads(impostor.requests[-1].body) == {"selected": 0, "asked_at": 7.5}


def test_a_thread_that_asks_nothing_says_so(home: Home) -> None:
    thread_id = home.ask("Good morning")

    outcome = home.run("threads", "choose", thread_id, "1")

    assert (outcome.code, outcome.err) == (2, f"rapkit: Thread {thread_id} asks nothing.\n")


def test_somebody_at_a_terminal_is_asked(home: Home) -> None:
    thread_id = home.ask("ask me", until="waiting")
    words = ["-m", "rapkit", "threads", "choose", thread_id, "--url", home.url]
    terminal = pexpect.spawn(sys.executable, words, encoding="utf-8", timeout=PATIENCE, dimensions=(24, 60))
    terminal.expect("Where to")
    terminal.expect("Your choice")
    terminal.sendline("7")
    terminal.expect("none of the choices")
    terminal.expect("Your choice")
    terminal.sendline("2")
    terminal.expect("Chose 'Rome'")
    terminal.expect(pexpect.EOF)
    terminal.close()

    assert terminal.exitstatus == 0
