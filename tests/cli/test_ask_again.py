"""`rapkit ask` when something is in its way: an agent that hangs, settings that are not in a file, a server that is gone."""

import json
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.agent_home import Home, agent_home, command
from tests.cli.command import Outcome, eventually, running

TOKEN = "abcdefghijklmnopqrst"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with agent_home(tmp_path) as home:
        yield home


# An agent that hangs


def test_the_time_counts_for_an_agent_that_hangs(home: Home) -> None:
    with home.up() as up:
        up.send(signal.SIGSTOP)
        try:
            found = home.run("ask", "Good morning", "--timeout", "3s")
            named = home.run("ask", "Good morning", "--timeout", "3", "--url", home.url, "--json")
        finally:
            up.send(signal.SIGCONT)

    perhaps = "rapkit: The agent did not answer within 3 s. Perhaps it was asked all the same: see rapkit threads list"
    assert found == Outcome(3, "", f"{perhaps}\n")
    assert (named.code, named.err) == (3, f"{perhaps} --url {home.url}\n")
    assert (json.loads(named.out)["outcome"], json.loads(named.out)["thread_id"]) == ("late", None)


# What is to be typed next


class TestWithoutSettings:
    """Then every command has to be told what the agent is."""

    @pytest.fixture
    def said(self, home: Home) -> tuple[str, ...]:
        port = home.url.rpartition(":")[2]
        (home.folder / "my port.toml").write_text(f"[agent]\nport = {port}\n")
        plan, store = home.folder / "plan.yaml", f"sqlite:///{home.folder}/agent.db"
        settings = ("--config", str(home.folder / "my port.toml"), "--store", store)
        return *settings, "--model", f"scripted:{plan}", "--server", home.tools.url

    def test_what_is_said_to_be_next_works(self, said: tuple[str, ...]) -> None:
        asked = command("ask", "ask me", *said)
        answer, then = (line.partition(": rapkit ")[2] for line in asked.err.splitlines()[-2:])

        assert asked.code == 4
        assert command(*shlex.split(answer.replace("NUMBER", "2"))).code == 0
        assert command(*shlex.split(then)) == Outcome(0, "So it is Rome\n", "")

    def test_so_does_what_is_to_be_looked_at(self, said: tuple[str, ...]) -> None:
        stopped = command("ask", "break", *said)
        see = stopped.err.rpartition("See: rapkit ")[2]
        shown = command(*shlex.split(see))

        assert (stopped.code, shown.code) == (1, 0)
        assert "It broke." in shown.out
        again = shown.out.rpartition("rapkit ask ")[2]
        assert shlex.split(again)[2:] == ["…", *said[:4]]

    def test_and_how_it_goes_on(self, said: tuple[str, ...]) -> None:
        late = command("ask", "weather in Oslo", "--timeout", "1s", *said)

        up = shlex.join(["rapkit", "up", *said])
        assert f"goes on when the agent runs ({up}). Wait for its answer: rapkit ask " in late.err


@pytest.mark.parametrize(
    ("token", "shown"), [("env:KEY", "env:KEY"), (TOKEN, "…")], ids=["a reference", "a token itself"]
)
def test_a_token_is_never_repeated(home: Home, token: str, shown: str) -> None:
    with home.up():
        words = ("ask", "ask me", "--url", home.url, "--token", token)
        outcome = command(*words, environment={"KEY": TOKEN})

    assert outcome.code == 4
    assert outcome.err.endswith(f" --resume --url {home.url} --token {shown}\n")
    assert TOKEN not in outcome.err


def test_what_the_environment_says_need_not_be_said_again(home: Home) -> None:
    with home.up():
        outcome = command("ask", "ask me", environment={"RAPKIT_URL": home.url})

    assert outcome.err.endswith(" --resume\n")


# A server that is gone


def test_a_choice_for_a_server_that_is_gone_is_no_secret(home: Home) -> None:
    choice = {"prompt": "Sure?", "choices": ["Yes", "No"], "default": 1, "response_url": f"{home.tools.url}/choice"}
    with home.up():
        invocation = home.called("weather in Oslo")
        thread_id = invocation["group_id"]
        home.call_back(invocation, type="user_choice", **choice)
        eventually(lambda: bool(home.look(thread_id)["choices"]))
    assert home.run("threads", "choose", thread_id, "Yes").code == 0
    settings = home.folder / "rapkit.toml"
    settings.write_text(settings.read_text().partition("[[servers]]")[0])

    cure = "Name that server again, with --server or in rapkit.toml. Then send it again: rapkit outbox resend ID --store sqlite:///"
    problem = f"{home.tools.url} is not configured any more. The call waits for it. {cure}"
    with running("ask", "--thread", thread_id, "--resume", folder=home.folder) as ask:
        eventually(lambda: cure in ask.err or not ask.alive)
        ask.send(signal.SIGINT)
        assert ask.ended() == 130

    assert ask.err.count(problem) == 1
    assert cure in " ".join(home.run("threads", "show", thread_id, columns=200).out.split())
