import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.cli.chat.staged_agent import StagedAgent, staged_agent
from tests.cli.command import Running, eventually, running
from tests.cli.terminal import Terminal, in_terminal

HERE = Path(__file__).parent
_AT = re.compile(r"^agent at (http://\S+?),? ", re.MULTILINE)

Chats = Callable[..., AbstractContextManager[Terminal]]


def url_of(up: Running) -> str:
    """Where an agent is, once it works."""
    eventually(lambda: bool(_AT.search(up.err)) or not up.alive)
    found = _AT.search(up.err)
    assert found is not None, up.err
    return found[1]


@pytest.fixture(scope="package")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server with the tools."""
    with running("serve", str(HERE / "desk.py"), "--port", "0", folder=tmp_path_factory.mktemp("desk")) as served:
        yield served.url


@pytest.fixture(scope="package")
def configured(desk: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Makes a folder with the settings of an agent."""

    def configure() -> Path:
        folder = tmp_path_factory.mktemp("agent")
        shutil.copy(HERE / "plan.yaml", folder)
        (folder / "rapkit.toml").write_text(
            f'[agent]\nmodel = "scripted:plan.yaml"\nport = 0\n\n[[servers]]\nurl = "{desk}"\n'
        )
        return folder

    return configure


@pytest.fixture(scope="package")
def agent(configured: Callable[[], Path]) -> Iterator[str]:
    """The URL of a real agent."""
    with running("up", folder=configured()) as up:
        yield url_of(up)


@pytest.fixture
def staged() -> Iterator[StagedAgent]:
    """An agent that a test can hold at any moment."""
    with staged_agent() as agent:
        yield agent


@pytest.fixture
def chat(agent: str, tmp_path: Path) -> Chats:
    """Chats in a terminal: with the agent, with the one at a --url, or with one of the settings in a folder."""

    def start(
        *words: str,
        folder: Path | None = None,
        rows: int = 30,
        columns: int = 80,
        environment: Mapping[str, str] | None = None,
    ) -> Iterator[Terminal]:
        more = {"XDG_STATE_HOME": str(tmp_path / "state"), **(environment or {})}
        given = words if folder or "--url" in words else ("--url", agent, *words)
        size = {"rows": rows, "columns": columns}
        with in_terminal("chat", *given, folder=folder or tmp_path, environment=more, **size) as terminal:
            if more.get("TERM") != "dumb":
                # An Enter that is pressed before the chat has the terminal is a new line.
                terminal.until(lambda text: bool(re.search(r"^ (…\w{6}(-\d+)?|new thread) · ", text, re.MULTILINE)))
            yield terminal

    return contextmanager(start)
