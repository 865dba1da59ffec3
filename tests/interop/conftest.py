from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.http_peer import HttpPeer
from tests.interop.processes import OurRuntime, OurServer, Process

Serve = Callable[..., OurServer]
Up = Callable[..., OurRuntime]
Join = Callable[[Any], Any]


@pytest.fixture
def join() -> Iterator[Join]:
    """Start a foreign peer for the length of the test: `runtime = join(ForeignRuntime(server.url))`."""
    peers: list[HttpPeer] = []

    def start(peer: Any) -> Any:
        peers.append(peer)
        return peer.__enter__()

    yield start
    for peer in peers:
        peer.__exit__()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Run `rapkit serve` with the toolset of a source text: `serve(source, options, environment)`."""
    yield from _started(tmp_path, OurServer)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """Run `rapkit up` with a scripted model: `up(plan, servers, settings, environment)`."""
    yield from _started(tmp_path, OurRuntime)


def _started(folder: Path, kind: type[Process]) -> Iterator[Callable[..., Any]]:
    processes: list[Process] = []

    def start(*words: Any, **more: Any) -> Any:
        own = folder / f"{kind.__name__}-{len(processes)}"
        own.mkdir()
        process = kind(own, *words, **more)
        processes.append(process)
        process.start()
        return process

    yield start
    for process in processes:
        process.kill()
