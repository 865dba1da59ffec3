import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from rapkit.cli.call.callback_listener import CallbackListener
from tests.crash.processes import Process
from tests.fuzz.target import Target, fuzzed_server, signed_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with _running(fuzzed_server(tmp_path_factory.mktemp("fuzzed"))) as target:
        yield target


@pytest.fixture(scope="session")
def choosy_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with _running(signed_server(tmp_path_factory.mktemp("signed"))) as target:
        target.signs = True
        yield target


@contextlib.contextmanager
def _running(process: Process) -> Iterator[Target]:
    process.start()
    try:
        asyncio.run(process.ready())
        with CallbackListener() as listener:
            yield Target(process, listener)
        assert asyncio.run(process.stop()) == 0
    finally:
        process.clean_up()


@pytest.fixture
def target(server: Target) -> Iterator[Target]:
    """The server; whatever a test does to it, it must be well afterwards."""
    yield server
    server.check()


@pytest.fixture
def choosy(choosy_server: Target) -> Iterator[Target]:
    """The server that serves only callers who sign, and few strangers; it must be well afterwards, too."""
    yield choosy_server
    choosy_server.check()
