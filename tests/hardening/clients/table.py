"""The table itself: every client runs all its cases at once, beside the others, and each cell is looked at by a test of its own."""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import pytest

from tests.hardening.clients.cases import CASES, Case, Origin
from tests.hardening.clients.clients import CLIENTS, Client, Driver
from tests.hardening.clients.endpoints import Callbacks, Endpoint, Invocations


class Cell(NamedTuple):
    """Which client sends what to which endpoint."""

    client: Client
    endpoint: str
    case: Case

    def __str__(self) -> str:
        """Its place in the table."""
        return f"{self.client.name}-{self.endpoint}-{self.case.name}".replace(" ", "_")


CELLS = [
    Cell(client, endpoint, case)
    for client in CLIENTS
    for case in CASES
    for endpoint in (Invocations.name, Callbacks.name)
    if not client.lacks & case.needs and case.endpoint in (None, endpoint)
]

every_cell = pytest.mark.parametrize("cell", CELLS, ids=str)


class Table:
    """What came of the cells that are asked for."""

    def __init__(
        self,
        drivers: Mapping[str, "Future[Driver]"],
        endpoints: Iterable[Endpoint],
        cells: Iterable[Cell],
        origin: Origin = str,
    ) -> None:
        self._endpoints = {endpoint.name: endpoint for endpoint in endpoints}
        self._origin = origin
        by_client: dict[str, list[Cell]] = {}
        for cell in cells:
            by_client.setdefault(cell.client.name, []).append(cell)
        with ThreadPoolExecutor(len(CLIENTS)) as pool:
            parts = [pool.submit(self._run, drivers[name], cells) for name, cells in by_client.items()]
        self._seen: dict[Cell, list[str]] = {}
        for part in parts:
            self._seen |= part.result()

    def problems(self, cell: Cell) -> list[str]:
        """What went wrong in a cell."""
        return self._seen[cell]

    def _run(self, driver: "Future[Driver]", cells: Iterable[Cell]) -> dict[Cell, list[str]]:
        return {cell: self._try(driver, cell) for cell in cells}

    def _try(self, driver: "Future[Driver]", cell: Cell) -> list[str]:
        try:
            return cell.case.run(driver.result(), self._endpoints[cell.endpoint], self._origin)
        except Exception as error:  # noqa: BLE001 - it is the cell's, and its test tells it
            return [f"{type(error).__name__}: {error}"]
