from collections.abc import Iterator

import pytest

from tests.cli.agent_home import Home, agent_home


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """One agent for all tests that only want to talk to one; each makes threads of its own."""
    with agent_home(tmp_path_factory.mktemp("agent")) as home, home.up():
        yield home
