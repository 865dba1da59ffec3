"""The same table behind the reverse proxies of the deploy guide, with the configurations that it shows."""

import pytest

from tests.hardening.clients.table import Cell, Table, every_cell

pytestmark = pytest.mark.soak


@every_cell
def test_the_client_reads_the_answer_behind_nginx(cell: Cell, behind_nginx: Table) -> None:
    cell.client.require()

    assert behind_nginx.problems(cell) == []


@every_cell
def test_the_client_reads_the_answer_behind_caddy(cell: Cell, behind_caddy: Table) -> None:
    cell.client.require()

    assert behind_caddy.problems(cell) == []
