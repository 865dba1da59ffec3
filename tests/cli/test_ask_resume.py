"""`rapkit ask` when something is in its way: an agent that hangs, settings that are not in a file, a server that is gone."""

import json
import shlex
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rapkit.cli.agent_api import AgentApi
from rapkit.cli.ask import answer_wait
from rapkit.cli.ask.answer_wait import AnswerWait
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


@pytest.mark.parametrize("words", [(), ("--json",)], ids=["for people", "as JSON"])
class TestAQuestionAtTheLastMoment:
    """That a person is asked is known then, and stays so."""

    def test_what_is_asked_may_be_seen_when_the_time_is_over(
        self, home: Home, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
    ) -> None:
        def be_over(api: AgentApi) -> None:
            assert api.ends_at is not None
            api.ends_at = time.monotonic()

        when_waited(monkeypatch, be_over)
        with home.up():
            outcome = home.run("ask", "ask me", "--timeout", "1h", *words)

        assert outcome.code == 4
        assert "asks a person first.\n? Where to?\n" in outcome.err
        assert not words or json.loads(outcome.out)["outcome"] == "asks"

    def test_an_agent_that_is_gone_does_not_say_what(
        self, home: Home, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
    ) -> None:
        with home.up() as up:

            def be_gone(_: AgentApi) -> None:
                up.send(signal.SIGKILL)
                up.ended()

            when_waited(monkeypatch, be_gone)
            outcome = home.run("ask", "ask me", *words)

        asks, see, then = outcome.err.splitlines()
        assert outcome.code == 4
        assert asks.endswith(" asks a person first.")
        assert see.startswith("The agent does not say what just now. See: rapkit threads show ")
        assert then.startswith("Then: rapkit ask --thread ")
        assert not words or json.loads(outcome.out)["outcome"] == "asks"


def when_waited(monkeypatch: pytest.MonkeyPatch, then: Callable[[AgentApi], None]) -> None:
    """Let something happen just when the waiting is over."""

    class Interrupted(AnswerWait):
        def wait(self) -> answer_wait.AnswerOutcome:
            outcome = super().wait()
            then(self._api)
            return outcome

    monkeypatch.setattr("rapkit.cli.ask.AnswerWait", Interrupted)


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
