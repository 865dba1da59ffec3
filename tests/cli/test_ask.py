"""`rapkit ask`: what it prints, how long it waits, and what its exit codes say."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rapkit.cli.agents import Wanted, reached
from tests.cli.agent_home import Home, agent_home, command
from tests.cli.command import eventually, running


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with agent_home(tmp_path_factory.mktemp("agent")) as home, home.up():
        yield home


def test_it_prints_the_answer_and_nothing_else(home: Home) -> None:
    outcome = home.run("ask", "Good morning")

    assert (outcome.code, outcome.out, outcome.err) == (0, "Hello.\n", "")


def test_it_waits_for_the_tools(home: Home) -> None:
    home.tools.callbacks = [{"type": "tool_result", "text": "Sunny."}]

    outcome = home.run("ask", "weather in Oslo")
    home.tools.callbacks = []

    assert (outcome.code, outcome.out) == (0, "I asked: Sunny.\n")


@pytest.mark.parametrize("words", [(), ("-",)], ids=["without a text", "with a dash"])
def test_the_text_may_come_from_standard_input(home: Home, words: tuple[str, ...]) -> None:
    outcome = home.run("ask", *words, "--json", stdin="Grüße\nin two lines\n".encode())

    thread_id = json.loads(outcome.out)["thread_id"]
    assert home.api.get(f"threads/{thread_id}/history")["entries"][0]["text"] == "Grüße\nin two lines\n"


def test_a_thread_can_be_gone_on_with(home: Home) -> None:
    first = json.loads(home.run("ask", "Good morning", "--json", "--user-id", "u1").out)

    again = json.loads(home.run("ask", "--thread", first["thread_id"][-8:], "And then?", "--json").out)

    assert again["thread_id"] == first["thread_id"]
    assert again["seq"] == first["seq"] + 2
    assert again["message_id"] not in (None, first["message_id"])
    assert home.look(first["thread_id"])["user_id"] == "u1"


def test_json_says_what_became_of_it(home: Home) -> None:
    home.tools.callbacks = [{"type": "tool_result", "text": "Sunny."}]

    outcome = home.run("ask", "weather in Oslo", "--json")
    home.tools.callbacks = []

    said = json.loads(outcome.out)
    message_id = home.api.get(f"threads/{said['thread_id']}/history")["entries"][0]["id"]
    assert outcome.code == 0
    assert said == {
        "thread_id": said["thread_id"],
        "message_id": message_id,
        "outcome": "answered",
        "text": "I asked: Sunny.",
        "seq": 4,
        "problem": None,
        "usage": {"requests": 2, "input_tokens": 100, "output_tokens": 20, "cost": 0.0012},
        "status": "idle",
        "pending_calls": [],
        "choices": [],
        "oauth": [],
    }


def test_without_waiting_it_prints_the_thread(home: Home) -> None:
    outcome = home.run("ask", "Good morning", "--no-wait")

    thread_id = outcome.out.strip()
    assert (outcome.code, outcome.err) == (0, "")
    assert home.wait(thread_id, "idle")["length"] == 2

    said = json.loads(home.run("ask", "--thread", thread_id, "And then?", "--no-wait", "--json").out)
    assert (said["thread_id"], said["outcome"], said["text"]) == (thread_id, "sent", None)
    assert said["message_id"]


def test_a_thread_that_stops_is_exit_code_1(home: Home) -> None:
    outcome = home.run("ask", "break", "--json")

    said = json.loads(outcome.out)
    assert (outcome.code, said["outcome"], said["status"]) == (1, "stopped", "parked")
    assert said["problem"].startswith("It stopped: The model failed: It broke.")
    assert f"See: rapkit threads show {said['thread_id']}" in outcome.err


def test_a_thread_that_is_closed_meanwhile_is_exit_code_1(home: Home) -> None:
    thread_id = home.ask("Good morning")
    words = ("ask", "--thread", thread_id, "weather in Oslo", "--url", home.url)
    with running(*words, folder=home.folder) as ask:
        home.wait(thread_id, "waiting")
        home.api.post(f"threads/{thread_id}/close")

        assert ask.ended() == 1
        assert ask.out == ""
        assert "It was closed before it answered." in ask.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((" ",), "There is nothing to ask"),
        (("hi", "--thread", "nothing-such"), "There is no thread 'nothing-such'."),
        (("hi", "--resume"), "--resume needs a --thread."),
        (("hi", "--thread", "latest", "--resume"), "--resume says nothing new"),
        (("hi", "--thread", "latest", "--user-id", "u1"), "--user-id is for new threads."),
        (("hi", "--no-wait", "--timeout", "1s"), "--no-wait waits for nothing"),
        (("hi", "--timeout", "soon"), "--timeout soon is not a time. Write it like 45s, 5m or 1h."),
        (("hi", "--timeout", "0s"), "--timeout 0s is not a time."),
        (("hi", "--url", "ftp://here"), "is not where an agent could be"),
        (("hi", "--user-id", "u" * 600), "user_id"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else "",
)
def test_what_cannot_be_asked_is_exit_code_2(home: Home, words: tuple[str, ...], said: str) -> None:
    home.ask("Good morning")  # so that there is a latest one

    outcome = home.run("ask", *words)

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("rapkit: ")
    assert said in outcome.err


def test_standard_input_that_is_no_text_is_exit_code_2(home: Home) -> None:
    outcome = home.run("ask", stdin=b"\xff\xfe")

    assert (outcome.code, outcome.err) == (
        2,
        "rapkit: What came on standard input is not UTF-8, so it is no text.\n",
    )


def test_a_closed_thread_cannot_be_asked(home: Home) -> None:
    thread_id = home.ask("Good morning")
    home.api.post(f"threads/{thread_id}/close")
    home.wait(thread_id, "closed")

    outcome = home.run("ask", "--thread", thread_id, "Hello?")

    assert outcome.code == 2
    assert "is closed, and takes nothing more" in outcome.err


def test_no_answer_in_time_is_exit_code_3(home: Home) -> None:
    outcome = home.run("ask", "weather in Oslo", "--timeout", "0.5s")

    assert (outcome.code, outcome.out) == (3, "")
    assert "did not answer within 0.5 s. The thread goes on." in outcome.err


def test_an_answer_can_be_waited_for_again(home: Home) -> None:
    invocation = home.called("weather in Oslo")
    thread_id = invocation["group_id"]

    outcome = home.run("ask", "--thread", thread_id, "--resume", "--timeout", "0.5s", "--json")
    said = json.loads(outcome.out)
    assert (outcome.code, said["outcome"], said["text"]) == (3, "late", None)
    assert [call["display"] for call in said["pending_calls"]] == ["Watch Oslo"]
    assert outcome.err.endswith(f"Wait for its answer: rapkit ask --thread {thread_id} --resume\n")

    home.call_back(invocation, type="tool_result", text="Sunny.")
    again = home.run("ask", "--thread", thread_id, "--resume")
    assert (again.code, again.out) == (0, "I asked: Sunny.\n")
    assert home.run("ask", "--thread", thread_id, "--resume").out == "I asked: Sunny.\n"


def test_a_question_to_a_person_is_exit_code_4(home: Home) -> None:
    outcome = home.run("ask", "ask me", "--json")

    said = json.loads(outcome.out)
    assert (outcome.code, said["outcome"]) == (4, "asks")
    assert said["choices"][0]["prompt"] == "Where to?"
    answer = f"rapkit threads choose {said['thread_id']}"
    assert f"asks a person first. Where to?\n  {answer} NUMBER\n" in outcome.err

    assert home.run(*answer.split()[1:], "rome").code == 0
    assert home.run("ask", "--thread", said["thread_id"], "--resume").out == "So it is Rome\n"


def test_a_tool_that_wants_to_be_authorised_is_exit_code_4(home: Home) -> None:
    home.tools.callbacks = [{"type": "oauth", "auth_url": "https://example.com/authorise?x=1"}]

    outcome = home.run("ask", "weather in Oslo")
    home.tools.callbacks = []

    assert outcome.code == 4
    assert "A tool wants to be authorised:\n  https://example.com/authorise?x=1\n" in outcome.err


def test_people_can_be_waited_for(home: Home) -> None:
    words = ("ask", "--wait-for-user", "ask me", "--url", home.url)
    before = _ids(home)
    with running(*words, folder=home.folder) as ask:
        eventually(lambda: bool(_ids(home) - before))
        thread_id = (_ids(home) - before).pop()
        home.wait(thread_id, "waiting")
        assert ask.alive
        home.api.post(f"threads/{thread_id}/calls/call_1/choice", {"selected": 0})

        assert ask.ended() == 0
        assert ask.out == "So it is Oslo\n"


def _ids(home: Home) -> set[str]:
    return {thread["thread_id"] for thread in home.api.get("threads", limit=200)["threads"]}


def test_an_old_question_does_not_stand_in_the_way(home: Home) -> None:
    """The model goes on without an answer to it, so there is one for us."""
    thread_id = home.ask("ask me", until="waiting")

    outcome = home.run("ask", "--thread", thread_id, "Never mind")

    assert (outcome.code, outcome.out) == (0, "Hello.\n")


def test_control_codes_do_not_reach_the_terminal(home: Home) -> None:
    assert home.run("ask", "paint").out == "\N{REPLACEMENT CHARACTER}[31mred\n"
    assert json.loads(home.run("ask", "paint", "--json").out)["text"] == "\x1b[31mred"


def test_ctrl_c_stops_waiting_and_the_thread_goes_on(home: Home) -> None:
    count = len(home.tools.received)
    with running("ask", "weather in Oslo", "--url", home.url, folder=home.folder) as ask:
        eventually(lambda: len(home.tools.received) > count)
        thread_id = home.tools.received[-1]["group_id"]
        home.wait(thread_id, "waiting")
        ask.send(signal.SIGINT)

        assert ask.ended() == 130
        assert ask.err == (
            "Not waiting any longer. The thread goes on. "
            f"Wait for its answer: rapkit ask --thread {thread_id} --resume\n"
        )
    assert home.look(thread_id)["status"] == "waiting"


def test_a_closed_pipe_is_no_disaster(home: Home) -> None:
    read, write = os.pipe()
    os.close(read)
    words = [sys.executable, "-m", "rapkit", "ask", "Good morning", "--url", home.url]
    ended = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    os.close(write)

    assert (ended.returncode, ended.stderr) == (1, b"")


def test_the_agent_may_be_killed_meanwhile(tmp_path: Path) -> None:
    """What it was at is on disk, and so is what was asked."""
    with agent_home(tmp_path) as home, contextlib.ExitStack() as stack:
        with home.up() as up:
            asking = stack.enter_context(running("ask", "weather in Oslo", folder=tmp_path))
            eventually(lambda: bool(home.tools.received))
            home.wait(home.tools.received[0]["group_id"], "waiting")
            up.send(signal.SIGKILL)
            up.ended()
        eventually(lambda: "Waiting for it." in asking.err)
        with home.up():
            home.call_back(home.tools.received[0], type="tool_result", text="Sunny.")
            code = asking.ended()

    assert (code, asking.out) == (0, "I asked: Sunny.\n")
    assert asking.err.endswith("The agent is back.\n")


class TestAnAgentThatDoesNotRun:
    """Then it runs as long as the command does."""

    @pytest.fixture
    def still(self, tmp_path: Path) -> Iterator[Home]:
        with agent_home(tmp_path) as home:
            yield home

    def test_it_is_run_by_the_command(self, still: Home) -> None:
        still.tools.callbacks = [{"type": "tool_result", "text": "Sunny."}]

        outcome = still.run("ask", "weather in Oslo")

        assert (outcome.code, outcome.out, outcome.err) == (0, "I asked: Sunny.\n", "")
        assert still.run("ask", "--thread", "latest", "Thanks").out == "Hello.\n"

    def test_without_waiting_it_is_told_when_it_runs(self, still: Home) -> None:
        first = still.run("ask", "hello", "--json")
        thread_id = json.loads(first.out)["thread_id"]

        outcome = still.run("ask", "--thread", thread_id, "And then?", "--no-wait")

        assert (outcome.code, outcome.out) == (0, f"{thread_id}\n")
        assert outcome.err == "rapkit: Nobody works on threads now: it is answered when the agent runs (rapkit up).\n"
        resumed: Any = json.loads(still.run("ask", "--thread", thread_id, "One more", "--json").out)
        history = [entry["kind"] for entry in _history(still, thread_id)]
        assert history.count("user") == 3
        assert resumed["outcome"] == "answered"

    def test_one_that_hibernates_is_said_to(self, still: Home) -> None:
        still.run("ask", "hello")
        with reached(Wanted(str(still.folder / "rapkit.toml")), working=False) as agent:
            outcome = command("ask", "hello", "--timeout", "0.2s", "--url", agent.api.url)

        assert outcome.code == 3
        assert "it is answered when the agent is woken (rapkit wake).\n" in outcome.err

    def test_no_answer_in_time_says_when_it_goes_on(self, still: Home) -> None:
        outcome = still.run("ask", "weather in Oslo", "--timeout", "1s")

        assert outcome.code == 3
        assert "The thread goes on when the agent runs (rapkit up)." in outcome.err

    def test_settings_that_are_missing_are_named(self, tmp_path: Path) -> None:
        outcome = command("ask", "hello", environment={"RAPKIT_CONFIG": str(tmp_path / "rapkit.toml")})

        assert (outcome.code, outcome.out) == (2, "")
        assert f"{tmp_path / 'rapkit.toml'}" in outcome.err


def _history(home: Home, thread_id: str) -> Any:
    return json.loads(home.run("threads", "show", thread_id, "--json").out)["entries"]
