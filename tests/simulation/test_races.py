"""Events, final events, cancellations, closed threads and lost servers in thousands of orders, on a clock that costs nothing.

Every thread is one interleaving. A run of a hundred is determined by its seed, which is told when something fails:
`RAPKIT_SIMULATION=<seed> scripts/test tests/simulation` repeats that run alone.
"""

import os
import random
from collections.abc import Iterable

import pytest

from tests.simulation.races import RACES
from tests.simulation.run import Report, run

THREADS = 100
AGAIN = os.environ.get("RAPKIT_SIMULATION")


def runs(seeds: Iterable[str]) -> Report:
    report = Report()
    for seed in seeds:
        report.add(run(seed, THREADS))
        if report.breaches:
            told = "\n\n".join(report.breaches[:3])
            raise AssertionError(f"{len(report.breaches)} promises were broken.\n{told}")
    print(report)
    return report


def test_no_order_of_things_breaks_a_promise() -> None:
    seeds = [AGAIN] if AGAIN else [str(number) for number in range(10)]

    report = runs(seeds)

    assert AGAIN or not [race for race in RACES if not report.races[race]], "these have not happened"
    assert len(report.signatures) > 0.9 * report.threads


@pytest.mark.soak
def test_no_order_of_things_breaks_a_promise_in_ten_thousand() -> None:
    seed = random.SystemRandom().randrange(10**6)

    report = runs(f"{seed}-{number}" for number in range(100))

    assert not [race for race in RACES if report.races[race] < 10], "these have hardly happened"


def test_the_same_seed_gives_the_same_stories() -> None:
    assert run("same", 30).signatures == run("same", 30).signatures
