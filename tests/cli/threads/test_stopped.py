"""`rapkit threads` on an agent that does not run: what there is can be seen, and what is said is done when it runs."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.call_ids import plain
from tests.cli.agent_home import Home, agent_home
from tests.cli.command import eventually

LATER = "Nobody works on threads now: it is done when the agent runs (rapkit up)."


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """An agent that ran, and does not any more."""
    with agent_home(tmp_path_factory.mktemp("still")) as home:
        with home.up():
            home.ask("Good morning")
            home.ask("ask me", until="waiting")
            home.called("weather in Oslo")
        yield home


def threads(home: Home) -> list[str]:
    """The latest first."""
    said = json.loads(home.run("threads", "list", "--json").out)
    return [each["thread_id"] for each in said["threads"]]


def test_it_can_be_looked_at(still: Home) -> None:
    waits, asks, idle = threads(still)

    assert still.run("threads", "list").code == 0
    assert "Hello." in still.run("threads", "show", idle).out
    goes_on = "Nobody works on threads now. It goes on when the agent runs (rapkit up)."
    assert goes_on in still.run("threads", "show", waits).out
    assert still.run("threads", "export", asks).code == 0


def test_what_is_said_is_done_when_it_runs(still: Home) -> None:
    waits, asks, idle = threads(still)

    assert still.run("threads", "choose", asks, "Rome").out == f"Chose 'Rome' for 'Where to?'. {LATER}\n"
    assert plain(still.run("threads", "cancel", waits).out) == f"Watch Oslo (c1) will be cancelled. {LATER}\n"
    assert still.run("threads", "close", idle).out == f"{idle} will be closed. {LATER}\n"
    with still.up():
        still.wait(idle, "closed")
        still.wait(waits, "idle")
        eventually(lambda: "So it is Rome" in still.run("threads", "show", asks).out)


def test_where_there_is_no_agent_none_is_made(tmp_path: Path) -> None:
    with agent_home(tmp_path) as home:
        for words in (("list",), ("show", "latest"), ("close", "latest"), ("export", "latest")):
            outcome = home.run("threads", *words)
            assert (outcome.code, outcome.out) == (2, "")
            assert outcome.err.startswith("rapkit: There is no agent here: none listens on 127.0.0.1 port ")
    with contextlib.suppress(FileNotFoundError):
        assert not list((tmp_path / ".rapkit").iterdir())
