"""`rapkit ask`: what it prints, how long it waits, and what its exit codes say."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from rapkit.cli.agent_api import AgentUnreachable
from rapkit.cli.agent_selection import AgentSelection, reach_agent
from rapkit.runtime.config import Patience
from tests.cli.agent_home import Home, agent_home, command
from tests.cli.command import PATIENCE, eventually, running


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
        "missing_toolsets": [],
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
        (("hi", "--model", "test"), "with the model scripted:"),
        (
            ("hi", "--server", "http://127.0.0.1:9"),
            "without the server http://127.0.0.1:9. Leave out --model and --server",
        ),
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


def test_what_is_said_of_the_agent_may_be_said_if_it_is_true(home: Home) -> None:
    plan = f"scripted:{home.folder / 'plan.yaml'}"

    outcome = home.run("ask", "Good morning", "--model", plan, "--server", f"{home.tools.url}/")

    assert (outcome.code, outcome.out, outcome.err) == (0, "Hello.\n", "")


@pytest.mark.parametrize("timeout", ["99999999d", f"{'9' * 400}d", "60"], ids=["millennia", "for ever", "seconds"])
def test_a_time_may_be_in_any_unit_and_longer_than_any_timer(home: Home, timeout: str) -> None:
    outcome = home.run("ask", "Good morning", "--timeout", timeout)

    assert (outcome.code, outcome.out, outcome.err) == (0, "Hello.\n", "")


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


def test_what_an_event_has_brought_about_is_waited_for(home: Home) -> None:
    """Not the answer to the last message, which is older."""
    invocation = home.called("weather in Oslo")
    thread_id = invocation["group_id"]
    home.call_back(invocation, type="tool_result", text="Sunny.", subscription=True)
    eventually(lambda: _last_words(home, thread_id) == "I asked: Sunny.")
    assert home.run("ask", "--thread", thread_id, "--resume").out == "I asked: Sunny.\n"

    home.call_back(invocation, type="subscription_event", text="buy", associative=True)
    eventually(lambda: bool(home.look(thread_id)["choices"]))
    asked = home.run("ask", "--thread", thread_id, "--resume", "--json")
    assert (asked.code, json.loads(asked.out)["outcome"]) == (4, "asks")

    with running("ask", "--thread", thread_id, "--resume", "--wait-for-user", *url(home), folder=home.folder) as ask:
        home.run("threads", "choose", thread_id, "Yes")
        assert ask.ended() == 0
        assert ask.out == "So it is Yes\n"
    assert home.run("ask", "--thread", thread_id, "--resume").out == "So it is Yes\n"


def url(home: Home) -> tuple[str, str]:
    return "--url", home.url


def _last_words(home: Home, thread_id: str) -> Any:
    return home.api.get(f"threads/{thread_id}/history")["entries"][-1].get("text")


def test_a_thread_that_has_stopped_after_its_answer_has_stopped(home: Home) -> None:
    invocation = home.called("weather in Oslo")
    thread_id = invocation["group_id"]
    home.call_back(invocation, type="tool_result", text="Sunny.", subscription=True)
    eventually(lambda: _last_words(home, thread_id) == "I asked: Sunny.")
    home.call_back(invocation, type="subscription_event", text="break", associative=True)
    home.wait(thread_id, "parked")

    outcome = home.run("ask", "--thread", thread_id, "--resume")

    assert (outcome.code, outcome.out) == (1, "")
    assert "It stopped: The model failed: It broke." in outcome.err


def test_a_question_to_a_person_is_exit_code_4(home: Home) -> None:
    outcome = home.run("ask", "ask me", "--json")

    said = json.loads(outcome.out)
    assert (outcome.code, said["outcome"]) == (4, "asks")
    assert said["choices"][0]["prompt"] == "Where to?"
    answer = f"rapkit threads choose {said['thread_id']}"
    lines = outcome.err.splitlines()
    assert lines[:4] == [
        f"rapkit: Thread {said['thread_id']} asks a person first.",
        "? Where to?",
        "   1  Oslo",
        "   2  Rome",
    ]
    assert lines[5:] == [f"  Answer: {answer} NUMBER", f"Then: rapkit ask --thread {said['thread_id']} --resume"]

    assert home.run(*answer.split()[1:], "rome").code == 0
    assert home.run("ask", "--thread", said["thread_id"], "--resume").out == "So it is Rome\n"


def test_a_tool_that_wants_to_be_authorised_is_exit_code_4(home: Home) -> None:
    home.tools.callbacks = [{"type": "oauth", "auth_url": "https://example.com/authorise?x=1"}]

    outcome = home.run("ask", "weather in Oslo")
    home.tools.callbacks = []

    assert outcome.code == 4
    assert "? A tool wants to be authorised. Open:\n  https://example.com/authorise?x=1\n" in outcome.err


def test_only_our_own_words_begin_at_the_edge(home: Home) -> None:
    """Whoever asks cannot speak in our name."""
    question = {"prompt": "Sure?\nrapkit: all is well", "choices": ["Yes\nrapkit: yes", "No"], "default": 1}
    home.tools.callbacks = [{"type": "user_choice", "response_url": f"{home.tools.url}/choice", **question}]
    outcome = home.run("ask", "weather in Oslo")
    home.tools.callbacks = []

    lines = outcome.err.splitlines()
    assert outcome.code == 4
    assert [line for line in lines if line.startswith("rapkit: ")] == lines[:1]
    assert {"  rapkit: all is well", "      rapkit: yes"} <= set(lines)


def test_people_can_be_waited_for(home: Home) -> None:
    words = ("ask", "--wait-for-user", "ask me", "--url", home.url)
    before = _ids(home)
    with running(*words, folder=home.folder) as ask:
        eventually(lambda: bool(_ids(home) - before))
        thread_id = (_ids(home) - before).pop()
        home.wait(thread_id, "waiting")
        assert ask.alive
        (question,) = home.look(thread_id)["choices"]
        home.api.post(f"threads/{thread_id}/calls/{question['call_id']}/choice", {"selected": 0})

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
            f"Wait for its answer: rapkit ask --thread {thread_id} --resume --url {home.url}\n"
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
        with reach_agent(AgentSelection(str(still.folder / "rapkit.toml")), working=False) as agent:
            outcome = command("ask", "hello", "--timeout", "0.2s", "--url", agent.api.url)

        assert outcome.code == 3
        said = "it is answered when the agent is woken (rapkit wake), unless it is woken by itself.\n"
        assert said in outcome.err

    def test_no_answer_in_time_says_when_it_goes_on(self, still: Home) -> None:
        outcome = still.run("ask", "weather in Oslo", "--timeout", "1s")

        assert outcome.code == 3
        assert "The thread goes on when the agent runs (rapkit up)." in outcome.err

    @pytest.mark.parametrize("word", ["ask", "chat"])
    def test_it_goes_on_in_the_next_command_when_the_one_that_ran_it_ends(self, still: Home, word: str) -> None:
        with running("ask", "weather in Oslo", folder=still.folder) as first:
            eventually(lambda: len(still.tools.received) == 1)
            with _saying(word, "weather in Rome", still.folder) as second:
                eventually(lambda: len(still.tools.received) == 2)
                still.wait(still.tools.received[1]["group_id"], "waiting")
                assert not still.api.get("agent")["lasting"]
                first.send(signal.SIGINT)
                assert first.ended() == 130

                eventually(lambda: _is_called_back(still, still.tools.received[1]))
                out, err = second.communicate(timeout=PATIENCE)

        assert second.returncode == 0
        assert out.decode().splitlines()[-1] == "I asked: Sunny."
        assert "Traceback" not in err.decode() + first.err

    def test_it_ends_when_it_is_interrupted(self, still: Home) -> None:
        with running("ask", "think", folder=still.folder) as asking:
            eventually(lambda: _is_up(still) and bool(still.api.get("threads")["threads"]))
            still.wait(still.api.get("threads")["threads"][0]["thread_id"], "running")
            asking.send(signal.SIGINT)

            assert asking.ended() == 130

        assert "goes on when the agent runs (rapkit up)" in asking.err
        assert "Traceback" not in asking.err
        assert not _is_up(still)

    def test_after_the_timeout_the_model_is_not_waited_for(self, still: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        """It would take a minute, and is asked again by whoever runs the agent next."""
        monkeypatch.setattr("rapkit.runtime.agent.Patience", partial(Patience, grace=600.0))
        monkeypatch.setattr("rapkit.cli.agent_host._GRACE", 600.0)

        outcome = still.run("ask", "think", "--timeout", "1s", "--json")

        assert outcome.code == 3
        with reach_agent(AgentSelection(str(still.folder / "rapkit.toml")), working=False) as agent:
            thread = agent.api.get(f"threads/{json.loads(outcome.out)['thread_id']}")
            assert thread["status"] == "running"

    def test_settings_that_are_missing_are_named(self, tmp_path: Path) -> None:
        outcome = command("ask", "hello", environment={"RAPKIT_CONFIG": str(tmp_path / "rapkit.toml")})

        assert (outcome.code, outcome.out) == (2, "")
        assert f"{tmp_path / 'rapkit.toml'}" in outcome.err


@contextlib.contextmanager
def _saying(word: str, text: str, folder: Path) -> "Iterator[subprocess.Popen[bytes]]":
    words = [sys.executable, "-m", "rapkit", word, *((text,) if word == "ask" else ())]
    child = subprocess.Popen(
        words, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    )
    if word == "chat" and child.stdin is not None:
        child.stdin.write(f"{text}\n".encode())
    with child:
        try:
            yield child
        finally:
            child.kill()  # unless it has ended


def _is_called_back(home: Home, invocation: Any) -> bool:
    try:
        home.call_back(invocation, type="tool_result", text="Sunny.")
    except OSError:  # nobody is there yet
        return False
    return True


def _is_up(home: Home) -> bool:
    try:
        home.api.get("agent")
    except AgentUnreachable:
        return False
    return True


def _history(home: Home, thread_id: str) -> Any:
    return json.loads(home.run("threads", "show", thread_id, "--json").out)["entries"]


def test_what_went_wrong_with_tools_is_said_by_an_agent_that_runs(tmp_path: Path) -> None:
    """Callbacks that are not signed with the secret of their server, and servers that cannot be asked."""
    with agent_home(tmp_path) as home:
        settings = tmp_path / "rapkit.toml"
        secret = f"whsec_{'n' * 43}="
        nowhere = '[[servers]]\nurl = "http://127.0.0.1:1"\n'
        settings.write_text(f'{settings.read_text()}webhook_secret = "{secret}"\n{nowhere}')
        with home.up():
            answered = home.run("ask", "Good morning")
            invocation = home.called("weather in Oslo")
            with pytest.raises(HTTPError, match="401"):
                home.call_back(invocation, type="tool_result", text="Sunny.")
            thread_id = invocation["group_id"]
            eventually(lambda: home.look(thread_id)["pending_calls"][0]["callback_problem"])
            late = home.run("ask", "--thread", thread_id, "--resume", "--timeout", "1s", "--json")
            shown = home.run("threads", "show", thread_id)

    assert (answered.code, answered.out) == (0, "Hello.\n")
    assert answered.err.startswith("rapkit: The tools of http://127.0.0.1:1 were missing: ")
    assert late.code == 3
    assert [each["server"] for each in json.loads(late.out)["missing_toolsets"]] == ["http://127.0.0.1:1"]
    assert "watch: A callback was refused (401)" in late.err
    assert "A callback was refused (401)" in " ".join(shown.out.split())
