"""The gate behind the gate: break the server, and the simulation must notice."""

import pytest

from tests.simulation.breakages import BREAKAGES, Breakage
from tests.simulation.run import run

QUICK = [breakage for breakage in BREAKAGES if breakage.runs == 1]
SLOW = [breakage for breakage in BREAKAGES if breakage.runs > 1]


@pytest.mark.parametrize(
    "breakage",
    [*QUICK, *(pytest.param(each, marks=pytest.mark.soak) for each in SLOW)],
    ids=lambda breakage: breakage.what,
)
def test_the_simulation_notices(breakage: Breakage) -> None:
    said: list[str] = []
    for number in range(breakage.runs):
        with breakage.broken():
            said += run(f"broken {number}", threads=100).breaches
        if any(breakage.says in one for one in said):
            return
    raise AssertionError(f"nobody noticed; all that was said: {said}")
