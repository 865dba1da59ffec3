"""Real HTTP clients, and both endpoints: whatever is sent, however it is sent, its sender gets an answer that it can read."""

from tests.hardening.clients.table import Cell, Table, every_cell


@every_cell
def test_the_client_reads_the_answer(cell: Cell, direct: Table) -> None:
    cell.client.require()

    assert direct.problems(cell) == []
