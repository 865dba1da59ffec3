from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.hardening.clients.clients import CLIENTS, Driver, find, require
from tests.hardening.clients.endpoints import Callbacks, Endpoint, Invocations
from tests.hardening.clients.fronts import Caddy, Front, Nginx
from tests.hardening.clients.table import Cell, Table

Drivers = dict[str, "Future[Driver]"]


@pytest.fixture(scope="session")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    """The driver of each client that is installed; those that have to be built are built beside everything else."""
    folder = tmp_path_factory.mktemp("drivers")
    with ThreadPoolExecutor(len(CLIENTS)) as pool:
        started = {
            client.name: pool.submit(Driver, client, folder / client.name)
            for client in CLIENTS
            if all(find(program) for program in client.programs)
        }
        yield started
    for driver in started.values():
        if driver.exception() is None:
            driver.result().end()


@pytest.fixture(scope="session")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Endpoint, ...]]:
    """A `rapkit serve` and a `rapkit up`, for all cells."""
    folder = tmp_path_factory.mktemp("endpoints")
    server = Invocations(folder / "server")
    try:
        runtime = Callbacks(folder / "runtime")
        try:
            yield server, runtime
        finally:
            runtime.end()
    finally:
        server.end()


@pytest.fixture(scope="module")
def direct(request: pytest.FixtureRequest, drivers: Drivers, endpoints: tuple[Endpoint, ...]) -> Table:
    """The table, with nothing between the clients and the endpoints."""
    return Table(drivers, endpoints, _cells(request, drivers))


@pytest.fixture(scope="module")
def behind_nginx(
    request: pytest.FixtureRequest,
    drivers: Drivers,
    endpoints: tuple[Endpoint, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Table]:
    """The table behind nginx."""
    require("nginx")
    yield from _behind(Nginx(endpoints, tmp_path_factory.mktemp("front") / "nginx"), request, drivers, endpoints)


@pytest.fixture(scope="module")
def behind_caddy(
    request: pytest.FixtureRequest,
    drivers: Drivers,
    endpoints: tuple[Endpoint, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Table]:
    """The table behind Caddy."""
    require("caddy")
    yield from _behind(Caddy(endpoints, tmp_path_factory.mktemp("front") / "caddy"), request, drivers, endpoints)


def _behind(
    front: Front, request: pytest.FixtureRequest, drivers: Drivers, endpoints: tuple[Endpoint, ...]
) -> Iterator[Table]:
    try:
        yield Table(drivers, endpoints, _cells(request, drivers), front.origin)
    finally:
        front.end()


def _cells(request: pytest.FixtureRequest, drivers: Drivers) -> list[Cell]:
    """The cells that tests which were selected look at, of clients that are there."""
    wanted: list[Any] = [
        item.callspec.params["cell"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and request.fixturename in item.fixturenames
    ]
    return [cell for cell in wanted if cell.client.name in drivers]
