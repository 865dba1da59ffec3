"""`rapkit wake`, and the agent it is for: `rapkit up --no-worker`. Real processes, and between two messages none that works."""

import json
import re
import signal
import sqlite3
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.cli.command import Running, eventually, rapkit, running
from tests.cli.foreign_server import ForeignServer
from tests.crash.processes import free_port

PLAN = """
- user: {regex: "weather in (?P<city>.+)"}
  calls: [forecast: {city: "{match[city]}"}]
- user: watch
  calls: [watch]
- answer: forecast
  say: "I asked: {answer}"
- say: Hello.
"""
SLOW = """
- delay: 600
  say: Never.
"""
PATIENT = """
import asyncio
from pathlib import Path
from rapkit import Toolset

tools = Toolset("weather")

@tools.tool
async def forecast(city: str) -> str:
    while not Path("sunny").exists():
        await asyncio.sleep(0.05)
    return f"Sunny in {city}."
"""
"""A forecast that is made once there is a file `sunny`."""

AT = re.compile(r"^agent at (http://[^ ,]+),? ", re.MULTILINE)
NOTHING = "nothing was due; nothing is due later\n"


class Home:
    """Where an agent is at home: its settings, its plan, its store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.threads = f"http://127.0.0.1:{self.port}/v1/threads"
        self.plan(PLAN)
        self.configure()

    def plan(self, text: str) -> None:
        (self.folder / "plan.yaml").write_text(text)

    def configure(self, *urls: str, agent: str = "") -> None:
        servers = "".join(f'\n[[servers]]\nurl = "{url}"\n' for url in urls)
        (self.folder / "rapkit.toml").write_text(
            f'[agent]\nmodel = "scripted:plan.yaml"\nport = {self.port}\n{agent}\n{servers}'
        )

    def wake(self, *words: str) -> str:
        """What is said by one that did what was due."""
        outcome = rapkit("wake", *words, "--log-level", "warning", folder=self.folder)
        assert (outcome.code, outcome.err) == (0, ""), outcome
        return outcome.out

    def say(self, text: str) -> str:
        """Begin a thread."""
        thread_id: str = self._api("POST", self.threads, {"text": text})["thread_id"]
        return thread_id

    def history(self, thread_id: str) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self._api("GET", f"{self.threads}/{thread_id}/history")["entries"]
        return entries

    def kinds(self, thread_id: str) -> list[str]:
        return [entry["kind"] for entry in self.history(thread_id)]

    def said(self, thread_id: str) -> str:
        """What the agent said last."""
        return next((each["text"] for each in reversed(self.history(thread_id)) if each["kind"] == "assistant"), "")

    def _api(self, method: str, url: str, message: dict[str, Any] | None = None) -> Any:
        body = None if message is None else json.dumps(message).encode()
        with urlopen(Request(url, body, {"Content-Type": "application/json"}, method=method)) as answer:
            return json.load(answer)

    def count(self, table: str) -> int:
        """How many rows there are in the store: of `mail`, which nobody has read; of `workers`, which are at work."""
        store = sqlite3.connect(f"file:{self.folder}/.rapkit/agent.db?mode=ro", uri=True)
        try:
            (number,) = store.execute(f"SELECT count(*) FROM {table}").fetchone()
        finally:
            store.close()
        return int(number)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def receiver(home: Home) -> Iterator[Running]:
    """The agent, of whom nothing is there but an ear."""
    with running("up", "--no-worker", folder=home.folder) as up:
        eventually(lambda: "Nobody works on threads here" in up.err or not up.alive)
        yield up
        assert up.alive, up.err
        assert "Traceback" not in up.err


def test_between_messages_nobody_works_and_every_wake_does_what_is_due(home: Home) -> None:
    """RUN-8, CB-10: a real tool server answers while no worker exists; its answer is kept, and heard at the next wake."""
    (home.folder / "weather.py").write_text(PATIENT)
    with (
        running("serve", "weather.py", "--port", "0", folder=home.folder) as served,
        running("up", "--no-worker", folder=home.folder) as up,
    ):
        home.configure(served.url)
        eventually(lambda: "kept until somebody runs `rapkit wake`" in up.err or not up.alive)
        thread = home.say("weather in Oslo")
        assert (home.kinds(thread), home.count("mail"), home.count("workers")) == ([], 1, 0)

        assert home.wake() == "1 thread ran, 1 POST sent; nothing is due later\n"
        assert (home.count("mail"), home.count("workers")) == (0, 0)
        (home.folder / "sunny").touch()
        eventually(lambda: home.count("mail") == 1)  # the answer of the tool
        assert home.kinds(thread) == ["user", "assistant"]

        assert home.wake() == "1 thread ran, no POSTs sent; nothing is due later\n"
        assert home.said(thread) == "I asked: Sunny in Oslo."
        assert (home.count("mail"), home.count("workers")) == (0, 0)
        assert home.wake() == NOTHING
        up.send(signal.SIGTERM)
        assert up.ended() == 0


def test_one_that_is_killed_in_the_middle_costs_a_lease_and_nothing_else(home: Home, receiver: Running) -> None:
    """RUN-3, RUN-4: `kill -9`, and the next one goes on; before that it says when it is time to."""
    home.plan(SLOW)
    thread = home.say("hello")
    with running("wake", folder=home.folder) as killed:
        eventually(lambda: home.kinds(thread) == ["user"] or not killed.alive)  # the model is being asked
        killed.send(signal.SIGKILL)
        assert killed.ended() == -signal.SIGKILL
    home.plan(PLAN)
    assert home.count("workers") == 1

    told = [""]
    while not told[-1].startswith("1 thread ran"):
        told.append(home.wake())

    for early in told[1:-1]:
        assert re.fullmatch(r"nothing was due; (next at .+ UTC \(in [0-6] s\)|there is more to do now)\n", early)
    assert told[-1] == "1 thread ran, no POSTs sent; nothing is due later\n"
    assert home.said(thread) == "Hello."
    assert home.kinds(thread) == ["user", "assistant"]


def test_two_at_once_do_everything_once(home: Home, receiver: Running) -> None:
    threads = [home.say(f"hello {number}") for number in range(12)]

    with ThreadPoolExecutor() as pool:
        told = list(pool.map(lambda _: json.loads(home.wake("--log-format", "json")), range(2)))

    assert sum(each["threads"] for each in told) == 12
    assert all(home.kinds(thread) == ["user", "assistant"] for thread in threads)
    assert home.wake() == NOTHING


def test_told_to_stop_it_gives_back_what_it_has(home: Home, receiver: Running) -> None:
    home.plan(SLOW)
    thread = home.say("hello")
    with running("wake", folder=home.folder) as stopped:
        eventually(lambda: home.kinds(thread) == ["user"] or not stopped.alive)
        stopped.send(signal.SIGTERM)
        eventually(lambda: "stopping: threads that run get 10 s to end" in stopped.err or not stopped.alive)
        stopped.send(signal.SIGINT)  # and does not wait for the model
        assert stopped.ended() == 130
        assert "Traceback" not in stopped.err
    home.plan(PLAN)

    assert home.wake() == "1 thread ran, no POSTs sent; nothing is due later\n"
    assert home.said(thread) == "Hello."


def test_what_is_due_later_is_told(home: Home, stranger: ForeignServer) -> None:
    """The next attempt at a POST, with a tool server in trouble."""
    stranger.offer()
    stranger.status = 503
    home.configure(stranger.url)
    with running("up", "--no-worker", folder=home.folder) as up:
        eventually(lambda: "Nobody works on threads here" in up.err or not up.alive)
        home.say("watch")
        told = json.loads(home.wake("--log-format", "json"))
        assert (told["threads"], told["posts"]) == (1, 0)
        assert datetime.fromisoformat(told["next"]).tzinfo == UTC
        stranger.status = 200
        eventually(lambda: json.loads(home.wake("--log-format", "json"))["posts"] == 1)


def test_with_a_command_to_run_it_is_a_whole_agent(home: Home, served: Running) -> None:
    """The bell brings the worker; on whichever port it is, and whichever store was named."""
    home.configure(served.url)
    command = f"{sys.executable} -m rapkit wake"
    words = ("--no-worker", "--on-accept", command, "--port", "0", "--store", "sqlite:///other.db")
    with running("up", *words, folder=home.folder) as up:
        eventually(lambda: "and the command of --on-accept is run" in up.err or not up.alive)
        (url,) = AT.findall(up.err)
        home.threads = f"{url}/v1/threads"
        thread = home.say("weather in Oslo")

        eventually(lambda: home.said(thread) == "I asked: Sunny in Oslo for 3 days, in °C.")
        eventually(lambda: "rapkit.on_accept: 1 thread ran" in up.err)
        up.send(signal.SIGTERM)
        assert up.ended() == 0
        assert "Traceback" not in up.err


def test_the_command_finds_the_settings_that_the_agent_was_started_with(home: Home) -> None:
    """Wherever they are; `rapkit.toml`, which is another agent's, is not read."""
    there = home.folder / "elsewhere"
    there.mkdir()
    (home.folder / "rapkit.toml").rename(there / "prod.toml")
    (home.folder / "plan.yaml").rename(there / "plan.yaml")
    (home.folder / "rapkit.toml").write_text("[agent]\nthis is no TOML")
    command = f"{sys.executable} -m rapkit wake"
    words = ("-c", "elsewhere/prod.toml", "--no-worker", "--on-accept", command)
    with running("up", *words, folder=home.folder) as up:
        eventually(lambda: "Nobody works on threads here" in up.err or not up.alive)
        thread = home.say("hello")

        eventually(lambda: home.said(thread) == "Hello." or "ended with exit code" in up.err)
        assert home.said(thread) == "Hello.", up.err


def test_the_environment_names_the_settings_unless_the_command_line_does(home: Home) -> None:
    named = {"RAPKIT_CONFIG": str(home.folder / "prod.toml")}
    (home.folder / "prod.toml").write_text((home.folder / "rapkit.toml").read_text())
    (home.folder / "rapkit.toml").write_text("[agent]\nthis is no TOML")

    assert rapkit("wake", folder=home.folder, environment=named).code == 0
    assert rapkit("wake", folder=home.folder).code != 0
    assert rapkit("wake", "-c", "rapkit.toml", folder=home.folder, environment=named).code != 0


def test_a_command_that_fails_is_told_and_loses_nothing(home: Home) -> None:
    command = f"{sys.executable} -c 'raise SystemExit(3)'"
    with running("up", "--no-worker", "--on-accept", command, folder=home.folder) as up:
        eventually(lambda: "Nobody works on threads here" in up.err or not up.alive)
        thread = home.say("hello")
        eventually(lambda: f"{sys.executable} ended with exit code 3" in up.err)
        assert home.kinds(thread) == []

        assert home.wake() == "1 thread ran, no POSTs sent; nothing is due later\n"
        assert home.said(thread) == "Hello."


def test_an_agent_nobody_talked_to_has_nothing_to_do(home: Home) -> None:
    assert home.wake() == home.wake("--at-most", "45") == NOTHING
    assert json.loads(home.wake("--log-format", "json")) == {"threads": 0, "posts": 0, "next": None}


def test_who_may_use_the_client_api_is_not_asked(home: Home) -> None:
    """The tokens of clients need not be where threads are worked on."""
    home.configure(agent='public_url = "https://agent.example.com"\n[agent.tokens]\nme = "env:NOT_THERE"')

    assert home.wake() == NOTHING


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--at-most", "0"), "--at-most 0 is not a time."),
        (("--at-most", "soon"), "--at-most soon is not a time. Write it like 45s, 5m or 1h."),
        (("--store", "sqlite:///:memory:"), "A store in memory is one process's alone"),
        (("-c", "storm.toml"), "There is no file storm.toml."),
        (("--model", "gpt"), "'gpt' is no model."),
        (("--public-url", "example.com"), "'example.com' is not a public URL."),
        (("--no-worker",), " See: rapkit wake --help"),
    ],
)
def test_what_cannot_be(home: Home, words: tuple[str, ...], said: str) -> None:
    outcome = rapkit("wake", *words, folder=home.folder)

    assert (outcome.code, outcome.out) == (2, ""), outcome
    assert said in outcome.err
    assert "Traceback" not in outcome.err


def test_a_port_that_is_any_port_is_no_address(home: Home) -> None:
    home.port = 0
    home.configure()

    outcome = rapkit("wake", folder=home.folder)

    assert outcome.code == 2
    assert "nobody knows where tools reach it. Give it a port, or a --public-url." in outcome.err
