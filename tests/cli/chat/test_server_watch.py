"""What a chat says of the tool servers of an agent that it runs itself."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path

import pytest

from rapkit.cli.chat.server_watch import Look, ServerWatch
from tests.cli.chat.conftest import Chats

DOWN = "http://127.0.0.1:9 cannot be reached. Is the server running there?"
SLOW = "http://127.0.0.1:7 did not answer within 5 s."
REFUSED = "http://127.0.0.1:9: Connection refused"


def looks(*found: Mapping[str, str]) -> Look:
    """What is found when the servers are looked at again and again; in the end nobody can be asked any more."""
    left: Iterator[Mapping[str, str]] = iter(found)

    def look() -> "Future[dict[str, str]] | None":
        problems = next(left, None)
        if problems is None:
            return None
        asked: Future[dict[str, str]] = Future()
        asked.set_result(dict(problems))
        return asked

    return look


async def test_what_is_wrong_is_said_once_and_also_that_it_no_longer_is() -> None:
    said: list[str] = []
    look = looks({"a": DOWN, "b": SLOW}, {"a": DOWN, "b": SLOW}, {"b": SLOW}, {}, {"a": DOWN})

    await ServerWatch(look, said.append, [0.0]).run()

    assert said == [DOWN, SLOW, "a answers now.", "b answers now."]


async def test_without_anybody_to_ask_nothing_is_said() -> None:
    said: list[str] = []

    await ServerWatch(looks({"a": DOWN}), said.append, [0.0]).run()
    await ServerWatch(lambda: None, said.append).run()

    assert said == [DOWN]


async def test_the_agents_own_warning_does_not_repeat_it() -> None:
    said: list[str] = []
    servers = ServerWatch(looks({"a": DOWN}), said.append, [0.0])
    await servers.run()

    servers.warn(f"a offers nothing: {DOWN}")
    servers.warn("a tool is withheld: two have that name.")

    assert said == [DOWN, "a tool is withheld: two have that name."]


async def test_nor_is_that_warning_repeated_if_it_comes_first() -> None:
    said: list[str] = []
    servers = ServerWatch(looks({"a": DOWN}), said.append, [0.0])

    servers.warn(f"a offers nothing: {DOWN}")
    await servers.run()

    assert said == [f"a offers nothing: {DOWN}"]


@pytest.fixture
def forsaken(configured: Callable[[], Path]) -> Path:
    """A folder with the settings of an agent whose server is down."""
    folder = configured()
    (folder / "rapkit.toml").write_text(
        '[agent]\nmodel = "scripted:plan.yaml"\nport = 0\n\n[[servers]]\nurl = "http://127.0.0.1:9"\n'
    )
    return folder


def test_a_server_that_is_down_is_said_to_be_before_the_first_message(chat: Chats, forsaken: Path) -> None:
    with chat(folder=forsaken, columns=200) as terminal:
        terminal.until(REFUSED)
        terminal.send("Hello\r")
        text = terminal.until("I heard: Hello")
        assert text.count(REFUSED) == 1


def test_so_it_is_on_a_terminal_that_cannot_be_painted_on(chat: Chats, forsaken: Path) -> None:
    with chat(folder=forsaken, columns=200, environment={"TERM": "dumb"}) as terminal:
        terminal.until(REFUSED)
