from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import TOOLS, Running, running
from tests.cli.fake_agent import FakeAgent, posing
from tests.cli.foreign_server import ForeignServer, listening


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the shared server was started."""
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="session")
def served(folder: Path) -> Iterator[Running]:
    """One server for all tests that only want to talk to one. It logs all it ever would."""
    logging = ("--log-format", "json", "--log-level", "debug")
    with running("serve", str(TOOLS), "--port", "0", *logging, folder=folder) as server:
        assert server.url
        yield server


@pytest.fixture
def stranger() -> Iterator[ForeignServer]:
    with listening() as stranger:
        yield stranger


@pytest.fixture
def impostor() -> Iterator[FakeAgent]:
    """Something that answers where an agent is expected, as a test tells it to."""
    with posing() as impostor:
        yield impostor
