"""`rapkit outbox`, beside a server that runs."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import TOOLS, Outcome, Running, eventually, rapkit, running
from tests.cli.foreign_server import ForeignServer

STORE = "sqlite:///.rapkit/weather.db"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a server was started that nobody else has left anything with."""
    return tmp_path_factory.mktemp("outbox")


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Running]:
    with running("serve", str(TOOLS), "--port", "0", folder=folder) as server:
        assert server.url
        yield server


def refused_result(served: Running, stranger: ForeignServer, folder: Path, city: str) -> str:
    """Have a result refused by whom it is for; the id of the message."""
    stranger.status = 400
    seen = len(stranger.received)
    words = ("forecast", f"city={city}", "--callback-url", f"{stranger.url}/secret-path")
    assert rapkit("call", served.url, *words, folder=folder).code == 0
    eventually(lambda: len(stranger.received) > seen)
    eventually(lambda: stranger.url in rapkit("outbox", "list", folder=folder).out)
    line = rapkit("outbox", "list", folder=folder).out.splitlines()[-1]
    return line.split()[0]


def test_what_was_given_up_is_listed_and_sent_again(served: Running, folder: Path, stranger: ForeignServer) -> None:
    listed_before = rapkit("outbox", "list", "--store", STORE, folder=folder)
    assert listed_before.out.startswith("Nothing was given up.")
    assert rapkit("outbox", "resend", "--all", folder=folder) == Outcome(0, "Nothing was given up.\n", "")

    message = refused_result(served, stranger, folder, "Oslo")
    listed = rapkit("outbox", "list", folder=folder, environment={"COLUMNS": "40"}).out
    assert re.fullmatch(rf"message +to +kind +attempts +given up +problem\n{message}.* answered 400\n", listed)
    assert "secret-path" not in listed
    assert "Oslo" not in listed

    stranger.status = 200
    outcome = rapkit("outbox", "resend", message, "msg_storm", folder=folder)
    assert outcome.out == "1 message will be sent again.\n"
    assert outcome.err == "1 of those named is not among those given up.\n"
    eventually(lambda: len(stranger.received) == 2)
    assert stranger.received[1] == stranger.received[0]
    assert rapkit("outbox", "list", folder=folder).out.startswith("Nothing was given up.")

    refused_result(served, stranger, folder, "Rome")
    stranger.status = 200
    assert rapkit("outbox", "resend", "--all", folder=folder).out == "1 message will be sent again.\n"
    eventually(lambda: len(stranger.received) == 4)
    assert stranger.received[3]["text"].startswith("Sunny in Rome")


def test_what_waits_is_listed(served: Running, folder: Path) -> None:
    words = ("forecast", "city=Oslo", "--callback-url", "http://127.0.0.1:9/")
    assert rapkit("call", served.url, *words, folder=folder).code == 0

    def shown() -> bool:
        out = rapkit("outbox", "list", "--waiting", folder=folder).out
        return re.search(r"http://127.0.0.1:9 +callback +\d+ +(in \d+ s|now) +Connection refused", out) is not None

    eventually(shown)
    given_up = rapkit("outbox", "list", folder=folder).out
    assert re.fullmatch(
        r"Nothing was given up\. \d+ waits? for another attempt: rapkit outbox list --waiting\n", given_up
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("list",), "There is no store in .rapkit here. Name the one the server uses with --store."),
        (("list", "--store", "sqlite:///storm.db"), "There is no store at storm.db. Name the one the server uses"),
        (("list", "--store", "storm.db"), "'storm.db' is no store. Use sqlite:///file.db"),
        (("list", "--store", "sqlite:///"), "'sqlite:///' is no store."),
        (("list", "--store", "sqlite:///:memory:"), "A store in memory is its server's alone"),
        (("list", "--store", "sqlite:///text.db"), "text.db is not a SQLite file, or is damaged."),
        (("list", "--limit", "0"), "0 is not in the range x>=1. See: rapkit outbox list --help"),
        (("resend",), "Name the messages to send again, or say --all."),
        (("resend", "--all", "msg_1"), "Name the messages to send again, or say --all."),
        (("storm",), "No such command 'storm'. See: rapkit outbox --help"),
    ],
)
def test_a_mistake_is_answered_in_a_sentence(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    (tmp_path / "text.db").write_text("This is a letter, and a long one, to somebody who expected a database here.")
    outcome = rapkit("outbox", *words, folder=tmp_path)

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("rapkit: ")
    assert said in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert not (tmp_path / "storm.db").exists()


def test_of_several_stores_one_is_to_be_named(served: Running, folder: Path, tmp_path: Path) -> None:
    assert served.alive
    (tmp_path / ".rapkit").mkdir()
    for name in ("a.db", "b.db"):
        shutil.copy(folder / ".rapkit" / "weather.db", tmp_path / ".rapkit" / name)
    outcome = rapkit("outbox", "list", folder=tmp_path)

    assert outcome.code == 2
    assert outcome.err.endswith("Name one with --store: sqlite:///.rapkit/a.db, sqlite:///.rapkit/b.db\n")


def test_a_message_that_is_not_there(served: Running, folder: Path) -> None:
    assert served.alive
    outcome = rapkit("outbox", "resend", "msg_storm", folder=folder)

    assert outcome == Outcome(2, "", "rapkit: There is no such message among those given up. See: rapkit outbox list\n")
