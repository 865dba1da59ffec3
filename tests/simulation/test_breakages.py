"""The gate behind the gate: break the server, and the simulation must notice."""

import pytest

from tests.simulation.breakages import AT_ONCE, SOONER_OR_LATER, Breakage
from tests.simulation.run import run


@pytest.mark.parametrize("breakage", AT_ONCE, ids=lambda breakage: breakage.what)
def test_the_simulation_notices_at_once(breakage: Breakage) -> None:
    notices(breakage, runs=6)


@pytest.mark.soak
@pytest.mark.parametrize("breakage", SOONER_OR_LATER, ids=lambda breakage: breakage.what)
def test_the_simulation_notices_sooner_or_later(breakage: Breakage) -> None:
    notices(breakage, runs=60)


def notices(breakage: Breakage, runs: int) -> None:
    said: list[str] = []
    for number in range(runs):
        with breakage.broken():
            said += run(f"broken {number}", threads=100).breaches
        if any(breakage.says in one for one in said):
            return
    raise AssertionError(f"nobody noticed in {runs} runs; all that was said: {said}")
