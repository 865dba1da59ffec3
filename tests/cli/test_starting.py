"""What commands load and read that only talk to an agent which runs: not what it takes to run one, which takes longer than they do."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from rapkit.cli.threads.timeline import HEARD
from rapkit.kernel.entries import SHOWN
from tests.cli.agent_home import Home, agent_home
from tests.cli.command import PATIENCE

RUNS_AN_AGENT = {"apsw", "asyncio", "cryptography", "pydantic", "pydantic_ai", "pyreqwest", "starlette", "uvicorn"}
WRONG_ELSEWHERE = '\n[[schedule]]\ncron = "every day"\nmessage = "Look."\n'


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with agent_home(tmp_path_factory.mktemp("agent")) as home, home.up():
        home.ask("Good morning")
        yield home


@pytest.mark.parametrize(
    "words",
    [("threads", "list"), ("threads", "show", "latest"), ("threads", "list", "--help"), ("ask", "Good morning")],
    ids=" ".join,
)
def test_nothing_is_loaded_that_it_takes_to_run_an_agent(home: Home, words: tuple[str, ...]) -> None:
    told = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "rapkit", *words],
        cwd=home.folder,
        capture_output=True,
        check=True,
        text=True,
        timeout=PATIENCE,
    )
    loaded = {line.rpartition("|")[2].strip() for line in told.stderr.splitlines()}

    assert "rapkit.cli.agent_selection" in loaded
    assert loaded.isdisjoint(RUNS_AN_AGENT)
    assert not {name for name in loaded if name.startswith(("rapkit.kernel", "rapkit.protocol", "rapkit.runtime"))}


def test_what_is_wrong_with_the_settings_elsewhere_is_no_concern_of_who_talks_to_an_agent_that_runs(home: Home) -> None:
    file = home.folder / "wrong.toml"
    file.write_text((home.folder / "rapkit.toml").read_text() + WRONG_ELSEWHERE)

    assert home.run("threads", "list", "-c", str(file)).code == 0
    assert home.run("ask", "Good morning", "-c", str(file)).out == "Hello.\n"


def test_if_the_agent_cannot_be_found_all_that_is_wrong_is_said(home: Home) -> None:
    file = home.folder / "all_wrong.toml"
    file.write_text('[agent]\nmodel = "scripted:plan.yaml"\nport = "near"\n' + WRONG_ELSEWHERE)

    outcome = home.run("threads", "list", "-c", str(file))

    assert outcome.code == 2
    assert '"port"' in outcome.err
    assert "[[schedule]]" in outcome.err


# What is said twice, so that it need not be loaded


def test_what_a_model_hears_of_is_the_same_to_people_and_to_the_kernel() -> None:
    assert HEARD == SHOWN
