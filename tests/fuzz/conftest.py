import asyncio
from collections.abc import Iterator

import pytest

from rapkit.cli.listener import Listener
from tests.fuzz.target import Target, fuzzed_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    process = fuzzed_server(tmp_path_factory.mktemp("fuzzed"))
    process.start()
    try:
        asyncio.run(process.ready())
        with Listener() as listener:
            yield Target(process, listener)
        asyncio.run(process.stop())
    finally:
        process.clean_up()


@pytest.fixture
def target(server: Target) -> Iterator[Target]:
    """The server; whatever a test does to it, it must be well afterwards."""
    yield server
    server.check()
